"""Memory that ranks of a host share."""

from __future__ import annotations

import faulthandler
import mmap
import os
import signal

import numpy as np
import pytest

from mpi_match.cluster.distribution.shared_memory import protect
from mpi_match.events.batch import unmarked


@pytest.mark.parametrize("n_bytes", [1, 3 * mmap.PAGESIZE + 5])
def test_protected_memory_can_be_read_and_not_written(n_bytes: int) -> None:
    """NumPy's flag is no protection where it is taken off for compiled code."""
    memory = np.frombuffer(mmap.mmap(-1, n_bytes), np.uint8)
    memory[-1] = 7
    protect(memory)
    assert unmarked(memory)[-1] == 7
    if (child := os.fork()) == 0:
        faulthandler.disable()  # it would print where
        unmarked(memory)[-1] = 8  # the system ends the process here
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGSEGV
    assert memory[-1] == 7


def test_no_memory_need_not_be_protected() -> None:
    protect(np.empty(0, np.uint8))
