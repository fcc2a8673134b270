"""The end of a process that ran MPI.

MPI_Finalize waits for all ranks.  When one of them has died it may wait for ever, with fault tolerance (ULFM) as without:
14 of 110 runs with a killed worker hung there.  A launcher, on the other hand, treats a rank that exits without MPI_Finalize
as crashed and ends the job, unless fault tolerance is enabled.  So

    no rank was lost       MPI is finalised when the process ends, with a time limit
    one was, or might be   MPI is not finalised, and the process ends at once (`os._exit`)

where "might be" means every run under ULFM: a worker can die after the master has ended the run successfully.

MPI_Abort ends a job whose ranks wait for a message that never arrives.  Under ULFM it ends the calling rank alone, without
notice to the others, which go on waiting.  They also go on waiting when a process exits with a code other than 0 (Open MPI
5.0).  An exit with 0 or by a signal is reported to all ranks, so a rank that others wait for ends by a signal.

mpi4py finalises at exit unless `mpi4py.rc` says otherwise before it is loaded; `before_mpi` sets that.  A program that has
loaded mpi4py earlier keeps its own setting.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import traceback
from contextlib import suppress

from mpi_match.cluster.transport.launcher import survives_deaths

FINALIZE_S = 30
"""Time limit of MPI_Finalize.  It holds Python's lock, so only a signal can end it."""

_was_lost = False


def before_mpi() -> None:
    """Called before MPI is loaded: leaves MPI_Finalize to this module."""
    if "mpi4py.MPI" not in sys.modules:
        import mpi4py

        mpi4py.rc.finalize = False
        atexit.register(finalize)


def rank_was_lost() -> None:
    """From now on MPI must not be finalised."""
    global _was_lost
    _was_lost = True


def finalize() -> None:
    """Finalise MPI if it runs and that is safe."""
    if not _ends_at_once() and "mpi4py.MPI" in sys.modules:
        from mpi4py import MPI

        if not MPI.Is_finalized():
            signal.alarm(FINALIZE_S)
            MPI.Finalize()
            signal.alarm(0)


def abort(code: int, *, awaited: bool = True) -> None:
    """End the job at once.  Under fault tolerance end this rank, and if others wait for it (`awaited`), by a signal."""
    if not survives_deaths(os.environ):
        from mpi4py import MPI

        MPI.COMM_WORLD.Abort(code)
    elif awaited:
        _flush()
        os.kill(os.getpid(), signal.SIGKILL)
    end_process(code)


def leave(code: int, mistake: BaseException | None = None) -> None:
    """End the process with an exit code at once, if MPI must not be finalised; else do nothing.

    The traceback of a `mistake` is printed first, as the interpreter would do.
    """
    if _ends_at_once():
        if mistake is not None:
            traceback.print_exception(mistake)
        end_process(code)


def _ends_at_once() -> bool:
    return _was_lost or survives_deaths(os.environ)


def end_process(code: int) -> None:
    """End this process at once, without MPI_Finalize."""
    _flush()
    os._exit(code)


def _flush() -> None:
    """Write what is buffered, as far as anybody reads it: the launcher may have died."""
    for flush in (logging.shutdown, sys.stdout.flush, sys.stderr.flush):
        with suppress(OSError, ValueError):  # a pipe without a reader, a closed file
            flush()
