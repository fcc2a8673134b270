"""`compute/parallel.py`: work by several threads, of which the calling one is one."""

from __future__ import annotations

import os
import threading

import pytest

from mpi_match.compute.parallel import by_threads


@pytest.mark.parametrize("n", [1, 2, 3 * len(os.sched_getaffinity(0))])
def test_every_thread_works_once_and_the_first_is_the_calling_one(n: int) -> None:
    found = by_threads(n, lambda thread: (thread, threading.get_ident()))
    assert [thread for thread, _ in found] == list(range(n))
    assert found[0][1] == threading.get_ident()


def test_a_failure_of_another_thread_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        by_threads(2, lambda thread: 1 // (1 - thread))
