"""Changes that arrive while a run follows its input.

A file of changes makes a *version* of the table; versions are numbered.

    arrivals   ChangeReader     applies the rows of a file to a registry: those that can be done are the next version
    master     VersionsOfTable  sends the versions that a worker lacks with a batch, up to the version of the batch
    worker     ChangingEngine   applies them to a table of its own and to its engine

Operands are not known beforehand, so rows travel, and each worker has its own `LiveTable`.  Ids follow from the rows alone,
and are the same on all workers.  If answers have the ids of filters, ids ascend and none is given twice; else free ones are
given again, so that endless changes need no more memory than the filters that are there, and an earlier run's changes are
kept as what they amount to (`kept_changes`).

When a worker is lost, a batch of an earlier version may go to a worker that has a later one.  That worker goes back.  So it
keeps what undoes a version until the answers of all batches before the version are written.
"""

from __future__ import annotations

import gc
import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.changes.changes import Changes
from mpi_match.changes.live_table import LiveTable, Refusal, added_filters
from mpi_match.changes.registry import Registry, Step
from mpi_match.cluster.follow.kept_changes import NO_CHANGES, KeptChanges, ToKeep
from mpi_match.cluster.options import ClusterError
from mpi_match.engines.base import Engine
from mpi_match.exit_codes import ExitCode
from mpi_match.ingest.rows.judge import ChangeRow, Reject, change_of_row, parse_json, read_lines, row_text
from mpi_match.model import Change, ModelError
from mpi_match.table.table import Table
from mpi_match.table.vocabulary import Vocabulary

MOST_IDS = 2**32 - 1
"""Answers of a table that changes travel with this number of ids: their types stay the same."""
LAGGING_BYTES = 2**20
"""Bytes of rows that the master keeps for workers that get no batches.  Beyond, these get rows alone."""


SURPLUS_BYTES = 2**20
"""Bytes of changes that are kept beyond twice those that they amount to."""


class Version(NamedTuple):
    """A version of the table.

    number    from 1
    rows      JSON lines of the changes that lead to it
    labels    of the interfaces whose labels are others than in the version before, with their ids
    rejects   rows of its file that are bad or cannot be done
    kept      what it adds to the changes that are kept for later runs
    """

    number: int
    rows: bytes
    labels: Mapping[int, str]
    rejects: Sequence[Reject] = ()
    kept: ToKeep = NO_CHANGES


class ChangeReader:
    """Reads files of changes of a table; `earlier` are the rows that earlier runs have applied.

    `reuse_ids`: those that became free are given again, see the module.

    version   the number of the last version
    """

    def __init__(self, table: Table, earlier: bytes, *, reuse_ids: bool = True) -> None:
        self._registry = Registry(table, reuse=reuse_ids)
        self._labels = list(self._registry.labels)  # of the last version
        self._kept = KeptChanges() if reuse_ids else None
        self._n_kept_bytes = len(earlier)
        self.first: Version | None = None
        self.version = 0
        if earlier:
            steps = list[Step]()
            for line in earlier.splitlines():
                steps += self._apply(line, _row(line))
            self.version = 1
            self.first = Version(1, earlier, self._other_labels(steps))

    def _apply(self, line: bytes, row: ChangeRow) -> list[Step]:
        steps = self._registry.apply(row)
        if self._kept is not None:
            self._kept.add(line, row, steps)
        return steps

    def _other_labels(self, steps: Iterable[Step]) -> dict[int, str]:
        """The labels that these steps have given to interfaces."""
        found, told = self._registry.labels, self._labels
        told += [""] * (len(found) - len(told))
        ids = {step.interface for step in steps if step.kind is Change.ADD}
        others = {i: found[i] for i in sorted(ids) if i >= len(told) or told[i] != found[i]}
        for i, label in others.items():
            told[i] = label
        return others

    def read(self, path: Path) -> Version:
        """The version after the changes of a file.  Raises ModelError for a packed file that is damaged, OSError."""
        kept, steps, rejects = list[bytes](), list[Step](), list[Reject]()
        for file, number, line in read_lines([path]):
            try:
                row = change_of_row(parse_json(line), stamped=False)
                added_filters([Step(row.kind, 0, filter=item) for item in row.filters])  # else a worker would find out
                steps += self._apply(line, row)
                kept.append(line)
            except ModelError as error:
                rejects.append(Reject(str(error), file, number, row_text(line)))
        self.version += 1
        rows = b"".join(line + b"\n" for line in kept)
        return Version(self.version, rows, self._other_labels(steps), rejects, self._to_keep(rows))

    def _to_keep(self, rows: bytes) -> ToKeep:
        """The rows of a version, or those that all changes amount to, if they are far fewer than the kept ones."""
        self._n_kept_bytes += len(rows)
        if self._kept is None or self._n_kept_bytes <= 2 * self._kept.n_bytes + SURPLUS_BYTES:
            return ToKeep(rows)
        lines = self._kept.lines()
        self._n_kept_bytes = len(lines)
        return ToKeep(lines, anew=True)


def _row(line: bytes) -> ChangeRow:
    return change_of_row(parse_json(line), stamped=False)


class DueVersions(NamedTuple):
    """An order to a worker: go back to the version `back`, unless it is None; apply `rows`, by version; keep all up to the
    version `keep`, to which it will not have to go back."""

    back: int | None
    keep: int
    rows: Sequence[tuple[int, bytes]]

    def to_wire(self) -> Array:
        """The wire form, u8; its length is a multiple of eight."""
        text = json.dumps([self.back, self.keep, [(number, rows.decode()) for number, rows in self.rows]]).encode()
        return np.frombuffer(bytearray(text.ljust(-(-len(text) // 8) * 8)), np.uint8)

    @classmethod
    def from_wire(cls, wire: Array) -> DueVersions:
        """The order in a wire form."""
        back, keep, rows = json.loads(wire.tobytes())
        return cls(back, keep, [(number, text.encode()) for number, text in rows])


class VersionedBatches(Protocol):
    """The batches of a run.

    written_version   of the table, for the last batch that was written
    """

    written_version: int

    def version(self, batch: int) -> int:
        """The version of the table for a batch."""
        ...


class VersionsOfTable:
    """The versions of a run on the master, as `batches.BatchedChanges` has the changes of other runs.

    `first` is the version that earlier runs have reached.
    """

    def __init__(self, ranges: VersionedBatches, workers: Iterable[int], first: Version | None) -> None:
        self._ranges = ranges
        self._known = dict.fromkeys(workers, 0)
        self._rows: dict[int, bytes] = {}
        self._n_bytes = 0
        if first is not None:
            self.add([first])

    def add(self, versions: Iterable[Version]) -> None:
        """These versions have arrived."""
        for each in versions:
            self._rows[each.number] = each.rows
            self._n_bytes += len(each.rows)

    def due_with(self, worker: int, batch: int) -> tuple[bool, DueVersions | None]:
        """The versions to send to a worker with a batch; None: there are none.  The first value says whether the worker's
        engine will be opened anew, since it has to go back."""
        return self._due(worker, self._ranges.version(batch))

    def overdue(self) -> list[tuple[int, DueVersions]]:
        """The versions to send to workers without a batch, when too many are kept for them."""
        if self._n_bytes > LAGGING_BYTES:
            self._forget_old()
        if self._n_bytes <= LAGGING_BYTES:
            return []
        late = [worker for worker, known in self._known.items() if known < self._ranges.written_version]
        found = [(worker, self._due(worker, self._ranges.written_version)[1]) for worker in late]
        self._forget_old()
        return [(worker, due) for worker, due in found if due is not None]

    def _due(self, worker: int, version: int) -> tuple[bool, DueVersions | None]:
        known, keep = self._known.get(worker, 0), self._ranges.written_version
        if known == version:
            return False, None
        self._known[worker] = version
        if known > version:
            return True, DueVersions(version, keep, ())
        return False, DueVersions(None, keep, [(each, self._rows[each]) for each in range(known + 1, version + 1)])

    def _forget_old(self) -> None:
        oldest = min([*self._known.values(), self._ranges.written_version])
        for number in [each for each in self._rows if each <= oldest]:
            self._n_bytes -= len(self._rows.pop(number))

    def lost(self, worker: int) -> None:
        """A worker is lost: nothing is kept for it."""
        self._known.pop(worker, None)

    def forget(self, worker: int) -> None:
        """Never called: each worker has the whole table."""
        raise AssertionError


class ChangingEngine:
    """A worker's table, and an engine for its present version.

    `open_table` opens an engine that takes changes.  When events need another vocabulary from then on, `renew` is called
    before.  `reuse_ids` is that of the `ChangeReader`.
    """

    def __init__(
        self,
        table: Table,
        open_table: Callable[[Table], Engine],
        renew: Callable[[Vocabulary], None],
        *,
        reuse_ids: bool = True,
    ) -> None:
        self._live = LiveTable(table, reuse_ids=reuse_ids)
        self._open_table, self._renew = open_table, renew
        self.version = 0
        self._kept = 0  # the version that it can go back to, and the levels of those after it
        self._levels: deque[tuple[int, int]] = deque()
        self._vocabulary, self._opened_again = table.vocabulary, False
        self.engine = open_table(self._live.table)

    def obey(self, due: DueVersions) -> None:
        """Go to the version of an order.  After an exception the engine is of no use."""
        is_old = due.back is not None and due.back < self.version
        if due.back is not None:
            self._go_back(due.back)
        changes = []
        for number, lines in due.rows:
            changes.append(self._apply(number, lines))
        if is_old or any(each is None for each in changes):
            self._open_again()
        else:
            for each in changes:
                if each is not None and len(each):
                    self.engine.update(each)
        self._keep(due.keep)

    def _apply(self, number: int, lines: bytes) -> Changes | None:
        if number != self.version + 1:
            raise ClusterError(f"version {number} of the table came after version {self.version}", ExitCode.FAILURE)
        refused: list[Refusal] = []
        changes = self._live.apply_on_top(map(_row, lines.splitlines()), refused)
        if refused:
            raise ClusterError(f"a change that the master has applied is refused here: {refused[0].reason}")
        self.version = number
        self._levels.append((number, self._live.level))
        return changes

    def _go_back(self, version: int) -> None:
        if version < self._kept:
            raise ClusterError(f"version {version} of the table was kept: it cannot be gone back to")
        while self._levels and self._levels[-1][0] > version:
            self._levels.pop()
        self._live.go_back(self._levels[-1][1] if self._levels else 0)
        self.version = version

    def _keep(self, version: int) -> None:
        level = 0
        while self._levels and self._levels[0][0] <= version:
            self._kept, level = self._levels.popleft()
        if level:
            self._live.keep_to(level)
            self._levels = deque((number, each - level) for number, each in self._levels)

    def _open_again(self) -> None:
        vars(self).pop("engine", None)  # its memory is free before the new one needs as much
        if not self._opened_again:  # a worker freezes what is there at its start
            self._opened_again = True
            gc.unfreeze()
            gc.collect()
        if self._live.vocabulary is not self._vocabulary:
            self._vocabulary = self._live.vocabulary
            self._renew(self._vocabulary)
        engine = self._open_table(self._live.table)
        since = self._live.since()
        if len(since):
            engine.update(since)
        self.engine = engine
