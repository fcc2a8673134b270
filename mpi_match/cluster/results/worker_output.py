"""The output of a run whose workers write the answers themselves: the master's side.

    worker   answers ──► its part of the output (`part_index`), synced ──► WRITTEN, a short message to the master
    master   records which events are answered, and at the end writes the index that joins the parts

No answer passes the master, so the bandwidth is that of all workers' disks together.  The parts serve as journal: another
run goes on from the parts of an incomplete one.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from mpi_match.arrays.strings import Strings
from mpi_match.cluster.messages import Written
from mpi_match.cluster.options import ClusterError
from mpi_match.cluster.results.journal import NO_LOCK
from mpi_match.cluster.results.output import RunOutput
from mpi_match.exit_codes import ExitCode
from mpi_match.journal.manifest import remove_manifest
from mpi_match.journal.reader import EventRange, RunIdentity, is_bare, journal_of
from mpi_match.matches.part_index import PART_SUFFIX, Parts, named_by, parts_beside, remove_parts, write_index
from mpi_match.matches.schema import MATCHES
from mpi_match.storage import StorageError, check_output, parts_directory, remove_half_written, reported, sync_directory

log = logging.getLogger(__name__)


class PartPlaces(NamedTuple):
    """The place where workers write their parts: the directory, the number of the run among those with parts there, and the
    run's identity."""

    directory: Path
    run: int
    identity: RunIdentity

    def part(self, rank: int, number: int = 0) -> Path:
        """The part of a rank, or a further one."""
        further = f"-{number}" if number else ""
        return self.directory / f"{self.run}-rank-{rank}{further}{PART_SUFFIX}"


class LocalOutput(RunOutput):
    """The output of one run whose workers write the answers and report them to the master (`wrote`).

    places   where workers write
    """

    def __init__(self, path: Path, identity: RunIdentity, labels: Strings, *, resume: bool) -> None:
        super().__init__(path, identity, labels, resume=resume)
        self._sizes: dict[str, int] = {}

    def __enter__(self) -> LocalOutput:
        """Raises StorageError when the output cannot be written, is in use, or has parts of another run."""
        if journal_of(self.path).exists():
            raise StorageError(
                f"{journal_of(self.path)}: of a run with --results master that did not end; go on with that, or remove it"
            )
        check_output(self.path)
        directory = parts_directory(self.path)
        with reported(directory):
            directory.mkdir(exist_ok=True)
            self._descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._begin(directory)
        except BaseException:
            os.close(self._descriptor)
            raise
        return self

    def _begin(self, directory: Path) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(f"{directory}: another run is writing this output; wait for its end, or end it") from None
        except OSError as error:
            log.warning(NO_LOCK, directory, error.strerror)
        remove_half_written(self.path)  # of killed runs: this one has the lock
        there = parts_beside(self.path)
        self.places = PartPlaces(directory.absolute(), 1 + max(there.values(), default=0), self.identity)
        if self._is_there():
            return
        left = [directory / name for name in sorted(there.keys() - named_by(self.path).keys())]
        earlier = Parts((path for path in left if not is_bare(path, self.identity)), self.identity)
        if earlier.n_answered and not self._resume:
            raise StorageError(
                f"{directory}: holds {earlier.n_answered:,} of {self.identity.n_events:,} events of a run that did not end; "
                "go on with --resume, or remove it to begin anew"
            )
        remove_manifest(self.path)
        self.unanswered = earlier.unanswered()
        self.n_answered = self.n_resumed = earlier.n_answered
        self.n_matches = earlier.n_matches
        self._sizes = {each.part.path.name: each.part.end for each in earlier.in_order}

    def wrote(self, events: EventRange, n_ids: int, rank: int, where: Written) -> None:
        """Record that a worker has written the answers of these events, `n_ids` ids, into its part `where`."""
        name = self.places.part(rank, where.part).name
        self._sizes[name] = max(self._sizes.get(name, 0), where.end)
        self.n_answered += events.n_events
        self.n_matches += n_ids

    def discard(self) -> None:
        """Remove the parts of this run; those of earlier runs stay."""
        for path in self.places.directory.glob(f"{self.places.run}-rank-*{PART_SUFFIX}"):
            path.unlink()
        self.n_answered = self.n_resumed

    def set_aside(self, events: EventRange) -> None:
        """Record that these events have no answers."""
        self._without.append(events)

    def _put_in_place(self) -> None:
        for name, size in self._sizes.items():
            path = self.places.directory / name
            found = path.stat().st_size if path.is_file() else 0
            if found < size:
                raise ClusterError(f"{path}: has {found:,} bytes here, its worker wrote {size:,}", ExitCode.INCOMPLETE)
        try:
            self.digest = write_index(self.path, MATCHES.kind, self.identity, self._labels, self.n_matches, self._sizes)
        except StorageError as error:
            raise ClusterError(str(error), ExitCode.INCOMPLETE) from error

    def write_manifest(self, took: Mapping[str, object]) -> None:
        """Remove the parts of the index that this one has replaced, and write the manifest `complete`: the last action of a
        run.  `took` is its summary.
        """
        try:
            sync_directory(self.path.parent)
            remove_parts(self.path, but=named_by(self.path))
        except StorageError as error:
            raise ClusterError(str(error), ExitCode.INCOMPLETE) from error
        self._say_complete(took)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if not self._finished:
                self._leave_incomplete(error)
        finally:
            os.close(self._descriptor)

    def _leave_incomplete(self, error: BaseException | None) -> None:
        if self.n_answered:
            self._say_incomplete(self.places.directory.name, error or ClusterError("the run was left before its end"))
            return
        with suppress(StorageError):
            remove_parts(self.path, but=named_by(self.path))  # the parts of the present output stay
