"""How a process that ran MPI ends.

MPI_Finalize waits for all ranks.  When one of them has died it may wait for ever, with fault tolerance (ULFM) as without:
of 110 runs with a killed worker 14 hung there.  A launcher, on the other hand, takes a rank that ends without it for one
that has crashed, and ends the job, unless it was told to let jobs survive their ranks.  So

    no rank was lost       MPI is finalised, when the process ends, with a limit
    one was, or might be   MPI is left as it is, and the process ends at once (`os._exit`)

where "might be" are all runs under ULFM: a worker can die after the master has said that all is well.

MPI_Abort ends a job in which somebody waits for what never comes.  Under ULFM it ends the caller alone, and nobody is told:
the others go on waiting.  So they do for a process that ends with another exit code than 0 (Open MPI 5.0).  One that ends
with 0, or by a signal, is noticed by all: so who leaves others waiting there ends by a signal.

mpi4py finalises by itself unless it is told otherwise before it is loaded; `before_mpi` does.  A program that has loaded it
earlier finalises in its own way.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import traceback

from mpi_match.cluster.transport.launcher import survives_deaths

FINALIZE_S = 30
"""What MPI_Finalize may take.  It holds Python's lock, so that it takes a signal to end it."""

_was_lost = False


def before_mpi() -> None:
    """To be called before MPI is loaded: from now on this module sees to the end."""
    if "mpi4py.MPI" not in sys.modules:
        import mpi4py

        mpi4py.rc.finalize = False
        atexit.register(finalize)


def rank_was_lost() -> None:
    """MPI must not be finalised any more."""
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
    """End the job, now; or, where a job survives that, this rank, and if it is `awaited`, so that all others know."""
    if not survives_deaths(os.environ):
        from mpi4py import MPI

        MPI.COMM_WORLD.Abort(code)
    elif awaited:
        _flush()
        os.kill(os.getpid(), signal.SIGKILL)
    end_process(code)


def leave(code: int, mistake: BaseException | None = None) -> None:
    """End the process with an exit code, now, if it cannot end in the ordinary way; else do nothing.

    A mistake's traceback is printed first, as the interpreter would do.
    """
    if _ends_at_once():
        if mistake is not None:
            traceback.print_exception(mistake)
        end_process(code)


def _ends_at_once() -> bool:
    return _was_lost or survives_deaths(os.environ)


def end_process(code: int) -> None:
    """End this process, now, and leave MPI as it is."""
    _flush()
    os._exit(code)


def _flush() -> None:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
