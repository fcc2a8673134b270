"""Steps that succeed on all ranks or fail on all.

A rank that meets an error and leaves would let the others wait for it for ever; a rank that meets one and aborts
buries the reason under the launcher's lines.  So during set-up every rank tries its part of a step, then all compare
notes; when one failed, all leave, and rank 0 alone has the words.
"""

from __future__ import annotations

import logging
import socket
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from mpi4py import MPI

from mpi_match.cluster import ClusterError
from mpi_match.cluster.patience import Backoff
from mpi_match.engines import EngineError
from mpi_match.model import ModelError
from mpi_match.storage import StorageError

log = logging.getLogger(__name__)

T = TypeVar("T")


class Ended(Exception):
    """The run is over and every rank knows it; `error` is what this rank raises to the outside."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Failure(NamedTuple):
    """What went wrong on a rank, fit for travelling: one line, and for an unexpected error where it came from."""

    rank: int
    host: str
    exit_code: int
    text: str
    traceback: str

    @classmethod
    def of(cls, error: Exception, rank: int) -> Failure:
        """What there is to say about an error."""
        expected = isinstance(error, ClusterError | StorageError | ModelError | EngineError)
        text = str(error) if expected else f"{type(error).__name__}: {error}"
        lines = "" if expected else "".join(traceback.format_exception(error)).rstrip()
        return cls(rank, socket.gethostname(), exit_code_of(error), text, lines)

    def as_error(self, *, quiet: bool = False, what: str = "") -> ClusterError:
        """The error that names rank and host, after its traceback has been logged; `what` says what the rank was doing."""
        if self.traceback and not quiet:
            log.error("%s", self.traceback)
        return ClusterError(f"rank {self.rank} on {self.host}{what}: {self.text}", self.exit_code, quiet=quiet)


def exit_code_of(error: Exception) -> int:
    """The exit code that the command line has for an error."""
    if isinstance(error, ClusterError):
        return error.exit_code
    if isinstance(error, StorageError | ModelError):
        return 3
    return 5 if isinstance(error, EngineError) else 1


def meet(comm: MPI.Comm) -> None:
    """Wait until all ranks are here, asleep rather than spinning: the one that is waited for needs the core."""
    request, backoff = comm.Ibarrier(), Backoff()
    while not request.Test():
        backoff.wait()


def agree(comm: MPI.Comm, step: Callable[[], T]) -> T:
    """Run `step` on this rank and return what it returned, if no rank's step raised.

    Otherwise raises Ended everywhere: on rank 0 with its own error or else one that names the rank and host of the first
    failure, elsewhere with a quiet ClusterError.
    """
    error: Exception | None = None
    result: Any = None
    try:
        result = step()
    except Exception as caught:
        error = caught
    meet(comm)
    failures = [f for f in comm.allgather(error and Failure.of(error, comm.rank)) if f is not None]
    if not failures:
        return result
    if comm.rank == 0 and error is not None:
        raise Ended(error)
    first, others = failures[0], len(failures) - 1
    if others:
        first = first._replace(text=f"{first.text} (and {others} more ranks)")
    raise Ended(first.as_error(quiet=comm.rank != 0))
