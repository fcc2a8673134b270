"""Steps that succeed on all ranks or fail on all.

A rank that meets an error and leaves would let the others wait for it for ever; a rank that meets one and aborts
buries the reason under the launcher's lines.  So during set-up every rank tries its part of a step, then all compare
notes; when one failed, all leave, and rank 0 alone has the words.  Whoever waits calls the roll (`liveness`), so that a rank
that stands still is missed.
"""

from __future__ import annotations

import logging
import pickle
import socket
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from mpi4py import MPI

from mpi_match.arrays.csr import Array
from mpi_match.cluster.options import ClusterError
from mpi_match.cluster.transport.channel import pieces
from mpi_match.cluster.transport.liveness import StartupBarrier
from mpi_match.errors import EngineError
from mpi_match.exit_codes import ExitCode
from mpi_match.model import ModelError
from mpi_match.storage import FileChanged, StorageError

log = logging.getLogger(__name__)

T = TypeVar("T")


class Ended(Exception):
    """The run is over and every rank knows it; `error` is what this rank raises to the outside."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class RankFailure(NamedTuple):
    """What went wrong on a rank, fit for travelling: one line, and for an unexpected error where it came from.

    `of_input`: no other rank would do better, for the input is to blame.
    """

    rank: int
    host: str
    exit_code: int
    text: str
    traceback: str
    of_input: bool

    @classmethod
    def of(cls, error: Exception, rank: int) -> RankFailure:
        """What there is to say about an error."""
        expected = isinstance(error, ClusterError | StorageError | ModelError | EngineError)
        text = str(error) if expected else f"{type(error).__name__}: {error}"
        lines = "" if expected else "".join(traceback.format_exception(error)).rstrip()
        exit_code = exit_code_of(error)
        of_input = exit_code == ExitCode.BAD_INPUT or isinstance(error, FileChanged)
        return cls(rank, socket.gethostname(), exit_code, text, lines, of_input)

    def as_error(self, *, quiet: bool = False, what: str = "") -> ClusterError:
        """The error that names rank and host, after its traceback has been logged; `what` says what the rank was doing."""
        if self.traceback and not quiet:
            log.error("%s", self.traceback)
        return ClusterError(f"rank {self.rank} on {self.host}{what}: {self.text}", self.exit_code, quiet=quiet)


def exit_code_of(error: Exception) -> int:
    """The exit code that the command line has for an error."""
    if isinstance(error, ClusterError | FileChanged):
        return error.exit_code
    if isinstance(error, StorageError | ModelError):
        return ExitCode.BAD_INPUT
    return ExitCode.ENVIRONMENT if isinstance(error, EngineError) else ExitCode.FAILURE


class RankGroup:
    """Ranks that take steps together, and call the roll while they wait; `rank` and `size` are those of `comm`.

    All of its ranks call the same methods in the same order.  They raise what `StartupBarrier.wait` does.
    """

    def __init__(self, comm: MPI.Comm, roll: StartupBarrier) -> None:
        self.comm, self._roll = comm, roll
        self.rank, self.size = comm.rank, comm.size

    def agree(self, doing: str, step: Callable[[], T]) -> T:
        """Run `step` on this rank and return what it returned, if no rank's step raised; `doing` names it.

        Otherwise raises Ended everywhere: on rank 0 with its own error or else one that names the rank and host of the first
        failure, elsewhere with a quiet ClusterError.
        """
        self._roll.begin(doing)
        error: Exception | None = None
        result: Any = None
        try:
            result = step()
        except Exception as caught:
            error = caught
        failures = [failure for failure in self.gather(error and RankFailure.of(error, self.rank)) if failure is not None]
        if not failures:
            return result
        if self.rank == 0 and error is not None:
            raise Ended(error)
        first, others = failures[0], len(failures) - 1
        if others:
            first = first._replace(text=f"{first.text} (and {others} more ranks)")
        raise Ended(first.as_error(quiet=self.rank != 0))

    def step(self, doing: str, *, master: Callable[[], T] | None = None, worker: Callable[[], T] | None = None) -> Any:
        """A step with two sides, what the first rank does and what the others do; one that is None waits for the other.

        Returns what this rank's side has returned, None when it has none; raises as `agree` does.
        """
        mine = master if self.rank == 0 else worker
        if mine is None:
            return self._wait_for_all()
        return self.agree(doing, mine)

    def _wait_for_all(self) -> None:
        self.agree("waiting for others", lambda: None)

    def tell(self, value: Any = None) -> Any:
        """What the first rank says, on all of them; the others' `value` is not looked at."""
        said = np.frombuffer(pickle.dumps(value), np.uint8) if self.rank == 0 else np.empty(0, np.uint8)
        size = np.array([len(said)], np.int64)
        self.copy(size)
        said = said if self.rank == 0 else np.empty(size[0], np.uint8)
        self.copy(said)
        return value if self.rank == 0 else pickle.loads(said.tobytes())

    def copy(self, array: Array) -> None:
        """Fill a contiguous array with what the first rank has in its own."""
        for piece in pieces(array):
            self._roll.wait(self.comm.Ibcast([piece, MPI.BYTE]))

    def gather(self, value: Any) -> list[Any]:
        """What every rank says, by rank, on all of them."""
        said = np.frombuffer(pickle.dumps(value), np.uint8)
        sizes = np.empty(self.size, np.int32)
        self._roll.wait(self.comm.Iallgather(np.array([len(said)], np.int32), sizes))
        heard = np.empty(int(sizes.sum()), np.uint8)
        self._roll.wait(self.comm.Iallgatherv(said, [heard, sizes, MPI.BYTE]))
        return [pickle.loads(each.tobytes()) for each in np.split(heard, np.cumsum(sizes)[:-1])]

    def parted(self, color: int | None) -> RankGroup | None:
        """The circle of the ranks with the same color; None where that is None."""
        self._wait_for_all()  # so that nobody is late for what can only block
        with self._roll.limited():
            comm = self.comm.Split(MPI.UNDEFINED if color is None else color, key=self.rank)
        return None if comm == MPI.COMM_NULL else RankGroup(comm, self._roll)

    def on_host(self) -> RankGroup:
        """The circle of those ranks that share this one's host."""
        self._wait_for_all()
        with self._roll.limited():
            return RankGroup(self.comm.Split_type(MPI.COMM_TYPE_SHARED, key=self.rank), self._roll)
