"""The filters of the keyed engines while their table changes: those in the grid, and the effects of changes on all filters.

The filters of the table without an area are in the trie; all others have a *slot* of the grid.  This module keeps the slot
tables on the host, for the grid of the CPU and that of a GPU alike; `apply_changes` applies changes to them:

    change              in the slot tables                              remaining work: `Effects`
    MOVE                                                                a step: the slot's new circle
    ADD                 takes a slot, and words for the checks          a step: circle, bucket key and place
    REMOVE, of a slot   frees slot and words                            a step: place 0
    REMOVE, of a trie   finds the filter's entries in the lists         marks: word 2 of each of them becomes 1
    REMOVE, of a        finds its position                              marks: the words of all lists and the position
      bitmap
    REMOVE_INTERFACE    finds the filters of the interface              as REMOVE

Freed slots and words are reused: all slots are alike, and words are allocated in powers of two.  So endless changes need no
more memory than the largest number of filters at one time.  An added filter always goes to the grid, under one bucket key or
one for each code of an operand list, whereas the trie would index it by several features: a table whose filters were
replaced over time is matched somewhat more slowly than a newly compiled one.

The bucket keys of added filters are chosen like those of the table (`bucket_keys`).  Name groups are used only if filters of
the table use them; otherwise no event looks them up.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, with_room
from mpi_match.arrays.linked_lists import LinkedLists
from mpi_match.changes.changes import Changes
from mpi_match.compute.compile_cache import jit
from mpi_match.compute.parallel import find_bounds, in_stretches
from mpi_match.engines.keyed.bitmap.bins import Bins
from mpi_match.engines.keyed.bitmap.live_bitmap import LEAST_FILTERS, bucket_keys
from mpi_match.engines.keyed.bitmap.rows import Bitmap
from mpi_match.engines.keyed.grid.apply_changes import (
    CANNOT_MOVE,
    DONE,
    MOST_CHECK_WORDS,
    N_COUNTERS,
    N_SLOTS_GIVEN,
    N_WORDS_GIVEN,
    WRONG,
    Filters,
    Origin,
    Slots,
    SlotTables,
    enter_changes,
    enter_moves,
    nothing_entered,
    room_for,
)
from mpi_match.engines.keyed.grid.bucket_keys import BucketKeys
from mpi_match.engines.keyed.grid.geometry import LOW, N_LEVELS, level_of
from mpi_match.engines.keyed.grid.hash_grid import KEEP, STEP_WORDS, steps_of
from mpi_match.engines.keyed.grid.predicates import Added, checks_of, lengths
from mpi_match.engines.keyed.index.build import without_area
from mpi_match.engines.keyed.index.filter_rows import FilterRows
from mpi_match.engines.keyed.index.layout import KeyedIndex
from mpi_match.errors import EngineError
from mpi_match.model import Change
from mpi_match.table.table import Table

LEAST_ROOM = 1024
"""Least room of a live engine, in filters, and in words of their checks."""
_NONE = np.zeros(0, np.int64)


class Bits(NamedTuple):
    """The table's bitmap, or None, and the bins of filters added later, or None if they go into the grid."""

    bitmap: Bitmap | None
    bins: Bins | None


class Effects(NamedTuple):
    """The work that remains after changes are applied to the slot tables.

    steps        u64[n, 6] of the grid, see `hash_grid.steps_of`; a slot that only moves KEEPs its key
    marks        i64  words of the trie's lists that become 1
    words        i64  words of the checks that were written
    bucket_keys  i64  bucket keys that are new
    """

    steps: Array
    marks: Array = _NONE
    words: Array = _NONE
    bucket_keys: Array = _NONE


def _entered(columns: tuple[Array, ...], added: Added, tables: SlotTables) -> Effects:
    """Apply changes, given by columns as in `enter_changes`; if some add filters of several slots, those come last.

    Raises EngineError for one that cannot be applied.
    """
    kind, target, _, row, _ = columns
    entered = nothing_entered(room_for(kind, target, row, added, tables))
    outcome, n = enter_changes(columns, added, tables, entered)
    if outcome != DONE:
        raise EngineError(f"filter {target[n]} {WRONG[outcome]}")
    return Effects(*(some[:k] for some, k in zip(entered, entered.counts.tolist(), strict=False)))


class LiveFilters:
    """The slot tables of one table, which changes if it is `live`.

    words        packed   checks of the filters in the grid, each at its place; `n_words` of them are in use
    sub_buckets  see `hash_grid.Grid`
    levels       bool[N]  levels that are, or were, in use
    n_slots      slots that have been allocated

    Arrays that grow have spare room at the end (`arrays.with_room`).
    """

    def __init__(self, table: Table, rows: FilterRows, weight: Array, index: KeyedIndex, bits: Bits, *, live: bool) -> None:
        filters, area = np.flatnonzero(~without_area(table)), table.filters.area
        n = len(filters)
        self._bucket_keys = BucketKeys(
            weight[: rows.n_features], float(np.mean(table.filters.size)) if table.n_filters else 0.0
        )
        place, self.words = checks_of(table, rows, filters)
        key = self._bucket_keys.keys_of(filters, rows, np.ones(n, np.bool_), groups=True).key
        self._has_groups = self._bucket_keys.are_groups(key)
        self.levels = np.zeros(N_LEVELS, bool)
        _note_levels(area, self.levels)
        self.sub_buckets = self._bucket_keys.sub_buckets_of(key, area, groups=self._has_groups)
        slot_after = np.zeros(table.n_filters, np.uint32)
        slot_after[filters] = 1 + np.arange(n)
        self._filters = Filters(slot_after, np.zeros(0, np.uint32), np.zeros(0, np.bool_))
        self._slots = Slots(place, key, filters.astype(np.uint32), np.zeros(0, np.uint8), np.zeros(0, np.uint32))
        self._n_filters = table.n_filters
        self._is_telling = table.n_filters >= LEAST_FILTERS
        self.bins, self._shift = bits.bins, table.vocabulary.shift
        self._counters = np.zeros(N_COUNTERS, np.int64)
        self._counters[N_SLOTS_GIVEN], self._counters[N_WORDS_GIVEN] = n, len(self.words)
        if live:
            self._open(table, index, bits.bitmap)

    def first_steps(self, area: Array) -> Array:
        """The steps that enter the table's filters, with the areas `area` f64[n, 3]."""
        n, slots = len(area), self._slots
        return steps_of(np.arange(n), slots.key[:n], area, slots.place[:n], slots.filter[:n])

    @property
    def n_slots(self) -> int:
        """Slots that have been allocated."""
        return int(self._counters[N_SLOTS_GIVEN])

    @property
    def n_words(self) -> int:
        """Words of `words` that are in use."""
        return int(self._counters[N_WORDS_GIVEN])

    @property
    def is_empty(self) -> bool:
        """Tells whether the grid has never had a filter."""
        return self.n_slots == 0

    @property
    def nbytes(self) -> int:
        """Bytes in use."""
        of_slots = sum(array[: self.n_slots].nbytes for array in self._slots)
        of_filters = sum(array[: self._n_filters].nbytes for array in self._filters)
        return self.words.itemsize * self.n_words + self.sub_buckets.nbytes + self.levels.nbytes + of_slots + of_filters

    # Changes

    def _open(self, table: Table, index: KeyedIndex, bitmap: Bitmap | None) -> None:
        """Make the arrays that changes need."""
        n, filters, slots = table.n_filters, self._filters, self._slots
        bounds = np.empty(table.n_interfaces + 1, np.int64)
        find_bounds(table.filters.interface, bounds)
        entries = index.entries(n)
        self._origin = Origin(bounds, *(entries if bitmap is None else bitmap.among(*entries, len(index.words) - 2)))
        self._came = LinkedLists(table.n_interfaces, n)  # interface -> filters added later
        sizes = np.floor(np.log2(lengths(slots.place, self.words))).astype(np.uint8)
        whole = filters._replace(interface=table.filters.interface, there=np.ones(n, np.bool_))
        self._filters = Filters(*(with_room(array, max(n, LEAST_ROOM)) for array in whole))
        whole_slots = slots._replace(size=sizes, next=np.zeros(self.n_slots, np.uint32))
        self._slots = Slots(*(with_room(array, max(self.n_slots, LEAST_ROOM)) for array in whole_slots))
        self._counters[N_WORDS_GIVEN] = max(len(self.words), 1)  # place 0 means none
        self.words = with_room(self.words, max(self.n_words, LEAST_ROOM))

    def update(self, changes: Changes) -> Effects:
        """Apply changes to the slot tables.

        Raises EngineError for a filter that does not exist, or already exists; the changes before it have then been applied.
        """
        self._n_filters = max(changes.n_filters, self._n_filters)
        if not np.count_nonzero(changes.kind):  # all are moves; `any` takes four times as long for one
            return Effects(self._moves(changes.target, changes.area))
        return self._enter(changes)

    def _moves(self, target: Array, area: Array) -> Array:
        """Steps that move filters; their slots KEEP the rest."""
        slot_after, steps = self._filters.slot_after, np.empty((len(target), STEP_WORDS), np.uint64)
        if any(in_stretches(len(target), enter_moves, target, area, slot_after, self.levels, steps)):
            without = [i for i in target.tolist() if i >= len(slot_after) or not slot_after[i]]
            raise EngineError(f"filter {without[0]} {WRONG[CANNOT_MOVE]}")
        return steps

    def _enter(self, changes: Changes) -> Effects:
        """Apply changes of any kinds."""
        added = self._added_by(changes.added)
        adds = np.flatnonzero(changes.kind == Change.ADD)
        rows = changes.row[adds]
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(added.places):
            missing = changes.target[adds[(rows < 0) | (rows >= len(added.places))]]
            raise EngineError(f"filter {missing[0]} is added, but is not in the table of added filters")
        self._came.have(changes.n_interfaces, self._n_filters)
        n_words = self.n_words + 2 * int(added.lengths[rows].sum())  # each rounded up to a power of two
        n_slots = int(added.keys.n[rows].sum())
        self._have(self._n_filters, self.n_slots + n_slots, min(n_words, MOST_CHECK_WORDS))
        tables = SlotTables(
            self._filters,
            self._slots,
            self._came.arrays,
            self._origin,
            *(self.words, self.sub_buckets, self.levels, self._counters),
        )
        # copies have one type, so there is one to compile for
        kind, target, row = map(np.array, (changes.kind, changes.target, changes.row))
        columns = kind, target, np.array(changes.area), row, np.array(changes.interface)
        if n_slots == len(rows):
            return _entered(columns, added, tables)
        bounds = [0, *(1 + np.flatnonzero((kind[:-1] == Change.ADD) & (kind[1:] != Change.ADD))).tolist(), len(kind)]
        runs = (tuple(column[first:end] for column in columns) for first, end in pairwise(bounds))
        found = [_entered(run, added, tables) for run in runs]
        return Effects(*(np.concatenate(some) for some in zip(*found, strict=True)))

    def _added_by(self, table: Table | None) -> Added:
        """The filters of the table that changes add."""
        if table is None:
            return Added.none(self.words.dtype)
        rows = FilterRows.of(table)
        filters, located = np.arange(table.n_filters), ~without_area(table)
        keys = self._bucket_keys.keys_of(filters, rows, located, groups=self._has_groups)
        added = Added.of(table, rows, keys)
        if self.bins is None:
            return added
        weight, width = self._bucket_keys.weight, self._bucket_keys.width if self._is_telling else 0.0
        return added._replace(keys=bucket_keys(added, rows, self.bins, weight, width, self._shift))

    def joined(self, waiting: list[Effects]) -> Effects:
        """Combine the effects of several updates, such that the last step of a slot alone contains its final state."""
        if len(waiting) == 1:
            return waiting[0]
        steps = np.concatenate([effects.steps for effects in waiting])
        moves = (steps[:, 0] & KEEP) != 0
        if not moves.all():
            steps[moves] = self._spelled_out(steps[moves])
        _, *others = zip(*waiting, strict=True)
        return Effects(steps, *(np.concatenate([_NONE, *(some for some in each if len(some))]) for each in others))

    def _spelled_out(self, steps: Array) -> Array:
        """The same steps with the keys, places and filters of their slots instead of KEEP."""
        at, slots = (steps[:, 0] & LOW).astype(np.int64), self._slots
        return steps_of(at, slots.key[at], steps[:, 1:4].view(np.float64), slots.place[at], slots.filter[at])

    def _have(self, n_filters: int, n_slots: int, n_words: int) -> None:
        """Make room for this many filters, slots and words."""
        if n_filters > len(self._filters.there):
            self._filters = Filters(*(with_room(array, n_filters) for array in self._filters))
        if n_slots > len(self._slots.size):
            self._slots = Slots(*(with_room(array, n_slots) for array in self._slots))
        if n_words > len(self.words):
            self.words = with_room(self.words, n_words)


@jit
def _note_levels(area: Array, levels: Array) -> None:
    """Set the flags of the levels of some areas f64[n, 3]."""
    for x, y, r in area:
        levels[level_of(x, y, r)] = True
