"""Collective steps that succeed on all ranks or fail on all.

If a rank left after an error, the others would wait for it for ever; if it aborted, the launcher's lines would bury the
reason.  So during set-up every rank does its part of a step, then all ranks gather the outcomes; when one rank failed, all
leave, and rank 0 alone reports why.  A waiting rank takes part in the start-up barrier (`liveness`), so a stalled rank is
detected.
"""

from __future__ import annotations

import logging
import pickle
import socket
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from mpi4py import MPI

from mpi_match.arrays.csr import Array
from mpi_match.cluster.options import ClusterError
from mpi_match.cluster.transport.channel import pieces
from mpi_match.cluster.transport.liveness import StartupBarrier
from mpi_match.errors import MpiMatchError
from mpi_match.exit_codes import ExitCode
from mpi_match.storage import FileChanged

log = logging.getLogger(__name__)

T = TypeVar("T")


class Ended(Exception):
    """The run has failed and every rank has been notified; `error` is what this rank raises to its caller."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class RankFailure(NamedTuple):
    """An error of a rank in a form that can be sent: one line, and for an unexpected error its traceback.

    `of_input`: the input is the cause, so every other rank would fail as well.  `disk_full`: a full disk is the cause.
    """

    rank: int
    host: str
    exit_code: int
    text: str
    traceback: str
    of_input: bool
    disk_full: bool

    @classmethod
    def of(cls, error: Exception, rank: int) -> RankFailure:
        """Describe an error."""
        expected = isinstance(error, MpiMatchError)
        text = str(error) if expected else f"{type(error).__name__}: {error}"
        lines = "" if expected else "".join(traceback.format_exception(error)).rstrip()
        exit_code = exit_code_of(error)
        of_input = exit_code == ExitCode.BAD_INPUT or isinstance(error, FileChanged)
        disk_full = isinstance(error, MpiMatchError) and error.disk_full
        return cls(rank, socket.gethostname(), exit_code, text, lines, of_input, disk_full)

    def as_error(self, *, quiet: bool = False, what: str = "") -> ClusterError:
        """The error that names rank and host, after its traceback has been logged; `what` says what the rank was doing."""
        if self.traceback and not quiet:
            log.error("%s", self.traceback)
        error = ClusterError(f"rank {self.rank} on {self.host}{what}: {self.text}", self.exit_code, quiet=quiet)
        error.disk_full = self.disk_full
        return error


def exit_code_of(error: Exception) -> int:
    """The exit code that the command line has for an error."""
    return error.exit_code if isinstance(error, MpiMatchError) else ExitCode.FAILURE


class RankGroup:
    """Ranks that take collective steps, and answer the start-up barrier while they wait; `rank` and `size` are of `comm`.

    All ranks of the group call the same methods in the same order.  The methods raise what `StartupBarrier.wait` raises.
    """

    def __init__(self, comm: MPI.Comm, barrier: StartupBarrier) -> None:
        self.comm, self._barrier = comm, barrier
        self.rank, self.size = comm.rank, comm.size

    def agree(self, doing: str, step: Callable[[], T]) -> T:
        """Run `step` on this rank and return what it returned, if no rank's step raised; `doing` names it.

        Otherwise raises Ended on all ranks: on rank 0 with its own error, or with an error that names the rank and host of
        the first failure; elsewhere with a quiet ClusterError.
        """
        self._barrier.begin(doing)
        error: Exception | None = None
        result: T | None = None
        try:
            result = step()
        except Exception as caught:
            error = caught
        mine = None if error is None else RankFailure.of(error, self.rank)
        failures = [failure for failure in self.gather(mine) if failure is not None]
        if not failures:
            return cast(T, result)
        if self.rank == 0 and error is not None:
            raise Ended(error)
        first, others = failures[0], len(failures) - 1
        if others:
            first = first._replace(text=f"{first.text} (and {others} more ranks)")
        raise Ended(first.as_error(quiet=self.rank != 0))

    def step(self, doing: str, *, master: Callable[[], T] | None = None, worker: Callable[[], T] | None = None) -> Any:
        """A step with two sides, the first rank's and the others'; a side that is None waits for the other.

        Returns the value of this rank's side, None when it has none; raises as `agree` does.
        """
        mine = master if self.rank == 0 else worker
        if mine is None:
            return self._wait_for_all()
        return self.agree(doing, mine)

    def _wait_for_all(self) -> None:
        self.agree("waiting for others", lambda: None)

    def bcast(self, value: object = None) -> Any:
        """Broadcast the first rank's `value`; the values of the others are ignored."""
        said = np.frombuffer(pickle.dumps(value), np.uint8) if self.rank == 0 else np.empty(0, np.uint8)
        size = np.array([len(said)], np.int64)
        self.copy(size)
        said = said if self.rank == 0 else np.empty(size[0], np.uint8)
        self.copy(said)
        return value if self.rank == 0 else pickle.loads(said.tobytes())

    def copy(self, array: Array) -> None:
        """Broadcast the first rank's contiguous array into those of the others."""
        for piece in pieces(array):
            self._barrier.wait(self.comm.Ibcast([piece, MPI.BYTE]))

    def gather(self, value: T) -> list[T]:
        """Allgather: the values of all ranks, by rank."""
        said = np.frombuffer(pickle.dumps(value), np.uint8)
        sizes = np.empty(self.size, np.int32)
        self._barrier.wait(self.comm.Iallgather(np.array([len(said)], np.int32), sizes))
        heard = np.empty(int(sizes.sum()), np.uint8)
        self._barrier.wait(self.comm.Iallgatherv(said, [heard, sizes, MPI.BYTE]))
        return [pickle.loads(each.tobytes()) for each in np.split(heard, np.cumsum(sizes)[:-1])]

    def parted(self, color: int | None) -> RankGroup | None:
        """The group of the ranks with the same color; None where that is None."""
        self._wait_for_all()  # the next call can only block, so no rank may be late for it
        with self._barrier.limited():
            comm = self.comm.Split(MPI.UNDEFINED if color is None else color, key=self.rank)
        return None if comm == MPI.COMM_NULL else RankGroup(comm, self._barrier)

    def on_host(self) -> RankGroup:
        """The group of the ranks on this rank's host."""
        self._wait_for_all()
        with self._barrier.limited():
            return RankGroup(self.comm.Split_type(MPI.COMM_TYPE_SHARED, key=self.rank), self._barrier)
