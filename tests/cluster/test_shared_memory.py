"""Memory that ranks of a host share."""

from __future__ import annotations

import faulthandler
import mmap
import os
import resource
import signal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mpi_match.cluster.distribution.shared_memory import HostMemory, protect
from mpi_match.cluster.options import ClusterError
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


def test_a_limit_of_file_sizes_is_told_from_a_lack_of_memory() -> None:
    topology: Any = SimpleNamespace(leads_node=True)
    memory, (soft, hard) = HostMemory(topology, "the table", "ask for more"), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, hard))
    try:
        memory.reserve(2**16)
        with pytest.raises(ClusterError, match=r"the table: 131,072 bytes: File too large; raise .* \(ulimit -f\)"):
            memory.reserve(2**17)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        os.close(memory._descriptor)
