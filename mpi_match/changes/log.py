"""The changes of a run on disk.

A log is compiled for one table: its ids are those of the table's filters and interfaces; added ones get the ids that follow,
in order.  The added filters are a table with a vocabulary of its own, so the size of a log depends on the changes and not on
the table.  Both are joined only in a run (`ChangeLog.stream`, and from there on `changes.stream`).

    log = ChangeLog.of(table, rows, refused)      rows in any order of their stamps; those that cannot be applied are refused
    log.save(path)
    stream = ChangeLog.load(path).stream(table)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mpi_match.arrays.csr import Array, NamedArrays
from mpi_match.arrays.strings import Strings
from mpi_match.changes.changes import Changes, part_interface
from mpi_match.changes.live_table import Refusal, added_filters, columns_of
from mpi_match.changes.registry import Registry, Step
from mpi_match.changes.stream import Changeable, ChangeStream, StampedChanges, T
from mpi_match.ingest.rows.judge import ChangeRow
from mpi_match.model import Change, ModelError
from mpi_match.storage import Reader, StorageError, Writer
from mpi_match.storage.schema import (
    F8,
    I8,
    U1,
    U4,
    Content,
    Dataset,
    Fault,
    Schema,
    are_distinct,
    are_text,
    ascends,
    count,
    digest,
    is_among,
    is_at_least,
    pool,
)
from mpi_match.table.conditions import is_part
from mpi_match.table.recode import join
from mpi_match.table.schema import TABLE
from mpi_match.table.table import Table
from mpi_match.table.validate import circles_are_circles


def _fit_their_kinds(content: Content) -> Fault:
    """Each move has an area; each addition an interface and a filter, and added filters have no interface of their own; to
    consolidate has no target.
    """
    arrays = content.arrays
    if arrays["changes/target"][arrays["changes/kind"] == Change.CONSOLIDATE].any():
        return "changes/target is not 0 where changes/kind is 4"
    n_moves, n_adds = (int(np.count_nonzero(arrays["changes/kind"] == kind)) for kind in (Change.MOVE, Change.ADD))
    columns = ("changes/area", "changes/interface", "added/filters/size")
    if [n_moves, n_adds, n_adds] != [len(arrays[name]) for name in columns]:
        return "the columns of moves and of added filters do not fit changes/kind"
    if not np.array_equal(arrays["added/interfaces/offsets"], [0] * (1 + (n_adds > 0))):
        return "added/interfaces is not one empty label, or none where nothing is added"
    return None


_ADDED = "added/"
"""The place of the table of the added filters."""
CHANGES = Schema(
    "changes",
    attributes=(digest("table"), count("n_changes", "changes"), count("n_moves", "moves"), count("n_added", "added")),
    columns=(
        Dataset("changes/before_event", I8, ("changes",), (is_at_least(0), ascends)),
        Dataset("changes/kind", U1, ("changes",), (is_among(Change),)),
        Dataset("changes/target", U4, ("changes",)),
        Dataset("changes/area", F8, ("moves", 3), (circles_are_circles,)),
        Dataset("changes/interface", U4, ("added",)),
        *pool("interfaces", "interfaces", are_text, are_distinct),
    ),
    rules=(_fit_their_kinds,),
    inside={_ADDED: replace(TABLE, attributes=())},
    noun="file of changes",
    remedy="compile it again",
)


@dataclass(frozen=True, eq=False)
class ChangeLog:
    """n changes for one table, as in a file (docs/format.md).

    table_digest   `Table.digest` of the table that the ids belong to
    before_event   i64[n]     ascending
    kind, target   u8, u32 [n]
    area           f64[m, 3]  target of the k-th MOVE
    interface      u32[a]     interface of the filter that the k-th ADD adds
    added          the added filters, in order, with a vocabulary of their own
    labels         Strings    of the added interfaces; their ids follow those of the table
    """

    table_digest: str
    before_event: Array
    kind: Array
    target: Array
    area: Array
    interface: Array
    added: Table
    labels: Strings

    def __len__(self) -> int:
        return len(self.kind)

    @classmethod
    def of(cls, table: Table, rows: Iterable[ChangeRow], refused: list[Refusal]) -> ChangeLog:
        """The log of rows, in any order of their stamps; rows with equal stamps take effect in the order given.

        A row that cannot be applied then goes to `refused`, with its position among `rows`.
        """
        numbered = sorted(enumerate(rows), key=lambda item: item[1].before_event)
        if not numbered:  # the registry of a large table takes seconds
            labels = Strings.of(())
            return cls(table.digest, np.zeros(0, np.int64), *columns_of(()), Table.from_filters(()), labels)
        registry = Registry(table, reuse=False)
        steps: list[Step] = []
        stamps: list[int] = []
        for place, row in numbered:
            try:
                done = registry.apply(row)
            except ModelError as error:
                refused.append(Refusal(place, str(error)))
                continue
            steps += done
            stamps += [row.before_event] * len(done)
        added = added_filters(steps)
        return cls.of_steps(table, registry, stamps, steps, added if added is not None else Table.from_filters(()))

    @classmethod
    def of_steps(
        cls, table: Table, registry: Registry, stamps: Sequence[int], steps: Sequence[Step], added: Table
    ) -> ChangeLog:
        """The log of the steps of a table's registry; `added` are the added filters, in order."""
        kind, target, area, interface = columns_of(steps)
        labels = Strings.of(label.encode() for label in registry.labels[table.n_interfaces :])
        return cls(table.digest, np.array(stamps, np.int64), kind, target, area, interface, added, labels)

    def stream(self, table: T) -> ChangeStream[T]:
        """Table and changes in one vocabulary.  Raises StorageError when the log was compiled for another table."""
        if table.digest != self.table_digest:
            raise StorageError("the changes were compiled for another table; compile them again for this one")
        for fault in self._misfits(table):
            raise StorageError(f"the changes do not fit the table: {fault}; compile them again")
        _, recoding, own = join(table.vocabulary, self.added.vocabulary)
        added = own.table(self.added) if self.added.n_filters else None
        n_filters, n_interfaces = table.n_filters + self.added.n_filters, table.n_interfaces + len(self.labels)
        labels, recoded = Strings.concat([table.labels, self.labels]), table.recoded(recoding)
        interface = self.interface
        if len(recoded.vocabulary.parts) and len(interface):
            used, place = np.unique(interface, return_inverse=True)
            of_label = ((i, labels[i].decode()) for i in used.tolist())
            interface = np.array(
                [part_interface(label, recoded.vocabulary) if is_part(label) else i for i, label in of_label],
                interface.dtype,
            )[place]
        changes = Changes.of(self.kind, self.target, self.area, interface, added, n_filters, n_interfaces)
        return ChangeStream(recoded, StampedChanges(self.before_event, changes), labels)

    def _misfits(self, table: Changeable) -> Iterator[str]:
        """The fault in the ids, which engines do not check."""
        adds, n_filters = self.kind == Change.ADD, table.n_filters
        n_interfaces = table.n_interfaces + len(self.labels)
        if not np.array_equal(self.target[adds], n_filters + np.arange(self.added.n_filters)):
            yield "added filters do not have the ids that follow those of the table"
        for ids in (self.target[self.kind == Change.REMOVE_INTERFACE], self.interface):
            if int(ids.max(initial=0)) >= max(n_interfaces, 1):
                yield "a change names an unknown interface"
        if not set(self.labels).isdisjoint(table.labels):
            yield "an added interface has the label of one of the table"
        at = np.flatnonzero((self.kind == Change.MOVE) | (self.kind == Change.REMOVE))
        target = self.target[at].astype(np.int64)
        if np.any(target >= n_filters + np.cumsum(adds)[at]):
            yield "a filter is moved or removed before it is added"
        has_area = np.zeros(n_filters + self.added.n_filters, bool)
        has_area[table.area_filter] = True
        has_area[n_filters + self.added.filters.area_filter.astype(np.int64)] = True
        if not has_area[self.target[self.kind == Change.MOVE]].all():
            yield "a filter without an area is moved"
        if self._have_gone(at, target, table):
            yield "a filter is moved or removed after it was removed"

    def _have_gone(self, at: Array, target: Array, table: Changeable) -> bool:
        """Tells whether a filter that the changes `at` move or remove was removed before, alone or with its interface."""
        order = np.lexsort((at, target))
        again = target[order][1:] == target[order][:-1]
        if np.any(again & (self.kind[at[order]][:-1] == Change.REMOVE)):
            return True
        leaving = np.flatnonzero(self.kind == Change.REMOVE_INTERFACE)
        if not len(leaving):
            return False
        filters, place = np.unique(target, return_inverse=True)
        own = int(np.searchsorted(filters, table.n_filters))
        interface = np.append(table.interfaces(filters[:own]), self.interface[filters[own:] - table.n_filters])
        came = np.append(np.full(own, -1), np.flatnonzero(self.kind == Change.ADD)[filters[own:] - table.n_filters])
        # removals of interfaces as one ascending key, so that binary search finds the last one before a change
        n = len(self) + 1
        left = np.sort(self.target[leaving].astype(np.int64) * n + leaving)
        last = np.append(-1, left)[np.searchsorted(left, interface[place].astype(np.int64) * n + at)]
        return bool(np.any(last >= interface[place].astype(np.int64) * n + np.maximum(came[place], 0)))

    def counts(self) -> dict[str, int]:
        """The counts that every file of changes states and a reader checks."""
        return {"n_changes": len(self), "n_added": self.added.n_filters, "n_moves": len(self.area)}

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """Every array with the name of its dataset in the file."""
        yield from (("changes/before_event", self.before_event), ("changes/kind", self.kind))
        yield from (("changes/target", self.target), ("changes/area", self.area), ("changes/interface", self.interface))
        yield from self.labels.named("interfaces")
        yield from ((f"{_ADDED}{name}", array) for name, array in self.added.arrays())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the log.  Raises StorageError."""
        with Writer(path, CHANGES.kind) as writer:
            writer.attribute("table", self.table_digest)
            for name, value in self.counts().items():
                writer.attribute(name, value)
            for name, array in self.arrays():
                writer.array(name, array)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ChangeLog:
        """Read a log and check it.  Raises StorageError."""
        with Reader(path, CHANGES) as reader:
            table = (f"{_ADDED}{column.name}" for column in TABLE.columns)
            names = [name for name in (*(column.name for column in CHANGES.columns), *table) if name in reader]
            arrays = NamedArrays((name, reader.array(name)) for name in names)
            for fault in CHANGES.faults(arrays, reader.attributes):
                reader.refuse(fault)
            return cls(
                table_digest=str(reader.attribute("table")),
                before_event=arrays["changes/before_event"],
                kind=arrays["changes/kind"],
                target=arrays["changes/target"],
                area=arrays["changes/area"],
                interface=arrays["changes/interface"],
                added=Table.from_arrays(
                    NamedArrays((n.removeprefix(_ADDED), a) for n, a in arrays.items() if n.startswith(_ADDED))
                ),
                labels=Strings.read(arrays, "interfaces"),
            )
