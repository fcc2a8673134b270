"""MPI_Init with a time limit.

MPI_Init waits for all ranks of the job.  A rank that dies or stalls before or in it blocks the others for ever, unless the
launcher ends them.  mpi4py calls MPI_Init when it is loaded and holds Python's lock meanwhile, so no thread could enforce a
limit.  Here MPI_Init is called before that, without the lock and with a limit; mpi4py then finds MPI initialised.
"""

from __future__ import annotations

import ctypes
import logging
import os
import socket
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from mpi_match.cluster.options import ClusterError
from mpi_match.cluster.transport.finalize import before_mpi, end_process
from mpi_match.cluster.transport.launcher import LaunchedBy, Library, mismatch
from mpi_match.cluster.transport.time_limit import time_limited
from mpi_match.exit_codes import ExitCode

log = logging.getLogger(__name__)

STAGGER_S, MOST_STAGGERS = 2.0, 5
"""Rank r gives up `STAGGER_S * min(r, MOST_STAGGERS)` after the limit: the first rank to give up reports why, and the
launcher ends the others."""
_LIBRARY_VERSION_BYTES = 2**14
"""Bytes of the buffer for the version of the library; no MPI's MPI_MAX_LIBRARY_VERSION_STRING is larger."""
_THREAD_MULTIPLE = 3
"""MPI_THREAD_MULTIPLE, in Open MPI, MPICH and Intel MPI."""


def initialize(launch: LaunchedBy, limit_s: float) -> None:
    """Start MPI in a process of this launch, unless it runs already.

    If MPI is still not running after `limit_s` seconds, the process ends with exit code 1 and a line that says why; when it
    is interrupted meanwhile, with 130.  Raises ClusterError when MPI cannot be loaded, or is not the launcher's.
    """
    if "mpi4py.MPI" in sys.modules:
        return
    before_mpi()

    def give_up(asked: bool) -> None:
        if asked:
            end_process(ExitCode.INTERRUPTED)
        this = "a rank" if launch.size is None else f"rank {launch.rank} of {launch.size}"
        log.error(
            "MPI did not start within %g s: %s on %s waited in MPI_Init for another rank, which has died or stalled; "
            "see to the hosts and start the run again, or raise --setup-limit",
            *(limit_s, this, socket.gethostname()),
        )
        end_process(ExitCode.FAILURE)

    try:
        extension = ctypes.CDLL(_extension())
        mpi_init, get_version = extension.MPI_Init_thread, extension.MPI_Get_library_version
    except (ImportError, RuntimeError, OSError, AttributeError) as error:
        why = f"{launch.by} started several ranks, but MPI cannot be loaded: {error}"
        raise ClusterError(why, ExitCode.ENVIRONMENT, quiet=launch.rank not in (0, None)) from error
    wrong = mismatch(launch, _library(get_version), os.environ)
    if wrong is not None:
        raise ClusterError(wrong, ExitCode.ENVIRONMENT, quiet=launch.rank not in (0, None))
    with time_limited(limit_s + STAGGER_S * min(launch.rank or 0, MOST_STAGGERS), give_up, leave_s=0):
        code = mpi_init(None, None, _THREAD_MULTIPLE, ctypes.byref(ctypes.c_int()))
    if code:
        raise ClusterError(f"{launch.by} started several ranks, but MPI_Init failed with code {code}", ExitCode.ENVIRONMENT)


def loaded_library() -> Library:
    """The MPI library of this process, once MPI is loaded."""
    return _library(ctypes.CDLL(_extension()).MPI_Get_library_version)


def _library(get_version: Callable[..., int]) -> Library:
    text = ctypes.create_string_buffer(_LIBRARY_VERSION_BYTES)
    get_version(text, ctypes.byref(ctypes.c_int()))
    try:
        loaded = Path("/proc/self/maps").read_text(errors="replace")
    except OSError:
        loaded = ""
    return Library(text.value.decode(errors="replace"), has_pmix="libpmix" in loaded)


def _extension() -> str:
    """The file of mpi4py's extension, by which the dynamic linker finds the MPI library that it is linked with."""
    found = find_spec("mpi4py.MPI")
    if found is None or found.origin is None:
        raise ImportError("mpi4py has no extension module")
    return found.origin
