"""Who lives in the grid of `keyed`: the filters with areas; and what becomes of all filters when a table changes.

The filters of the table without an area stand in the trie; all others have a *slot* of the grid.  This module keeps the
books of both, on the host, for the CPU's grid and a GPU's alike:

    change              in the books                                    what is left to do: `Effects`
    MOVE                                                                a step: the slot's new circle
    ADD                 takes a slot, and words for the checks          a step: circle, anchor and place
    REMOVE, of a slot   gives slot and words back                       a step: place 0
    REMOVE, of a trie   finds the filter's entries in the lists         marks: word 2 of each of them becomes 1
    REMOVE_INTERFACE    finds the filters of the interface              as REMOVE

What is removed is used again: slots are alike, words are given out in powers of two.  So endless changes need no more memory
than the most filters there were at a time.  An added filter always goes to the grid, under one anchor, where the trie would
have filed it under several features: a table that has been replaced by and by is matched somewhat slower than when it is
compiled anew.

The anchors of added filters are chosen as those of the table (`keyed_anchors`): groups only where filters of the table had a
use for them, so that no event looks into groups in vain.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mpi_match.arrays import Array, places_in, take_ranges, with_room
from mpi_match.chains import Chains
from mpi_match.changes import Change, Changes, runs
from mpi_match.engines import EngineError
from mpi_match.engines.kernel_cache import jit
from mpi_match.engines.keyed_anchors import Anchors
from mpi_match.engines.keyed_assembly import without_area
from mpi_match.engines.keyed_cells import LOW, N_LEVELS, level_of
from mpi_match.engines.keyed_checks import Added, checks_of, lengths
from mpi_match.engines.keyed_grid import KEEP, STEP_WORDS, steps_of
from mpi_match.engines.keyed_index import KeyedIndex
from mpi_match.engines.keyed_order import in_stretches, stretch_of
from mpi_match.engines.keyed_rows import FilterRows
from mpi_match.table import Table

LEAST_ROOM = 1024
"""Filters, and words of their checks, that a live engine has room for at least."""


@dataclass
class Effects:
    """What changes leave to do.

    marks    i64      words of the trie's lists that become 1
    steps    u64[n, 6] of the grid, see `keyed_grid.steps_of`; a slot that only moves KEEPs its key
    words    i64      words of the grid that were written
    anchors  features that became anchors
    """

    steps: Array
    marks: list[Array] = field(default_factory=list)
    words: list[Array] = field(default_factory=list)
    anchors: list[int] = field(default_factory=list)


class Residents:
    """The books of one table, which changes if it is `live`.

    words     packed     checks of the filters in the grid, each at its place; `n_words` of them are in use
    stripes   see `keyed_grid.Grid`
    levels    bool[N]    levels that are, or once were, in use
    n_slots   slots that have been given out

    Arrays that grow have room behind what is in use (`arrays.with_room`).
    """

    def __init__(self, table: Table, rows: FilterRows, weight: Array, index: KeyedIndex, *, live: bool) -> None:
        filters, area = np.flatnonzero(~without_area(table)), table.filters.area
        self.n_slots, self._n_filters = len(filters), table.n_filters
        self._anchors = Anchors(weight[: rows.n_features], float(np.mean(table.filters.size)) if table.n_filters else 0.0)
        self._place, self.words = checks_of(table, rows, filters)
        self.n_words = len(self.words)
        self._key = self._anchors.keys_of(filters, rows, groups=True)
        self._has_groups = self._anchors.are_groups(self._key)
        self._filter = filters.astype(np.uint32)
        self.levels = np.zeros(N_LEVELS, bool)
        _note_levels(area, self.levels)
        self.stripes = self._anchors.stripes_of(self._key, area, groups=self._has_groups)
        self._slot_after = np.zeros(table.n_filters, np.uint32)  # 1 + the slot of each filter; 0: it has none
        self._slot_after[filters] = 1 + np.arange(self.n_slots)
        if live:
            self._open(table, index)

    def first_steps(self, area: Array) -> Array:
        """The steps that enter the table's filters, whose areas are `area` f64[n, 3]."""
        n = len(area)
        return steps_of(np.arange(n), self._key[:n], area, self._place[:n], self._filter[:n])

    @property
    def is_empty(self) -> bool:
        """Is there nobody in the grid, and never was?"""
        return self.n_slots == 0

    @property
    def nbytes(self) -> int:
        """Bytes of the books that are in use."""
        of_slots = sum(array.itemsize for array in (self._place, self._key, self._filter)) * self.n_slots
        of_filters = self._slot_after.itemsize * self._n_filters
        return self.words.itemsize * self.n_words + self.stripes.nbytes + self.levels.nbytes + of_slots + of_filters

    # Changes

    def _open(self, table: Table, index: KeyedIndex) -> None:
        """Be ready for changes."""
        self._entries = index.entries(table.n_filters)
        self._of_interface = table.filters.interface  # ascending: the filters of an interface in the table are a range
        self._interface, self._there = table.filters.interface, np.ones(table.n_filters, bool)
        self._added = Chains(table.n_interfaces, table.n_filters)  # interface -> filters that came later
        self._free_slots: list[int] = []
        self._free_words: dict[int, list[int]] = {}
        self.n_words = max(len(self.words), 1)  # place 0 is nowhere
        self._size = np.zeros(self.n_slots, np.uint8)
        self._size[:] = np.floor(np.log2(lengths(self._place, self.words))) if self.n_slots else 0
        self._have_filters(max(table.n_filters, LEAST_ROOM))
        self._have_slots(max(self.n_slots, LEAST_ROOM))
        self._have_words(max(self.n_words, LEAST_ROOM))

    def update(self, changes: Changes) -> Effects:
        """Enter changes into the books.  Raises EngineError for one of a filter or interface that is not there."""
        self._n_filters = max(changes.n_filters, self._n_filters)
        if self._n_filters > len(self._there):
            self._have_filters(self._n_filters)
        if not np.count_nonzero(changes.kind):  # all are moves; `any` takes four times as long for one
            return Effects(self._moves(changes.target, changes.area))
        self._added.have(changes.n_interfaces, self._n_filters)
        only_moves = self._only_move(changes)
        effects = Effects(self._moves(changes.target[only_moves], changes.area[only_moves]))
        added = None if changes.added is None else self._added_by(changes.added)
        steps = [effects.steps]
        others = np.flatnonzero(~only_moves)
        for kind, run in runs(changes.kind[others]):
            at = others[run]
            target = changes.target[at]
            if kind == Change.MOVE:
                steps.append(self._spelled_out(self._moves(target, changes.area[at])))
            elif kind == Change.REMOVE:
                steps.append(self._remove(target.tolist(), effects))
            elif kind == Change.REMOVE_INTERFACE:
                steps += [self._remove(self._filters_of(interface), effects) for interface in target.tolist()]
            elif added is None:
                raise EngineError(f"filter {target[0]} is added, but the changes hold no filters")
            else:
                steps.append(self._add(target, changes.row[at], changes.interface[at], added, effects))
        effects.steps = np.concatenate(steps)
        return effects

    def _only_move(self, changes: Changes) -> Array:
        """bool[n]: which are moves of filters that do nothing else here; their order among the others does not matter."""
        moves = changes.kind == Change.MOVE
        interfaces = changes.target[changes.kind == Change.REMOVE_INTERFACE]
        come_or_go = changes.target[~moves & (changes.kind != Change.REMOVE_INTERFACE)]
        only = moves & ~np.isin(changes.target, come_or_go)
        if len(interfaces):
            only &= ~np.isin(self._interface[np.where(moves, changes.target, 0)], interfaces)
        return only

    def _added_by(self, table: Table) -> Added:
        """The filters of a table that changes bring."""
        rows = FilterRows.of(table)
        return Added.of(table, rows, self._anchors.keys_of(np.arange(table.n_filters), rows, groups=self._has_groups))

    def _moves(self, target: Array, area: Array) -> Array:
        """Steps that move filters, whose slots KEEP all else."""
        steps = np.empty((len(target), STEP_WORDS), np.uint64)
        if any(in_stretches(len(target), _fill_moves, target, area, self._slot_after, self.levels, steps)):
            without = [i for i in target.tolist() if i >= len(self._slot_after) or not self._slot_after[i]]
            raise EngineError(f"filter {without[0]} cannot move: it is not there, or has no area")
        return steps

    def _spelled_out(self, steps: Array) -> Array:
        """Steps that say what their slots' anchors, places and filters are, instead of to KEEP them."""
        slots = (steps[:, 0] & LOW).astype(np.int64)
        steps[:, 0] = slots
        steps[:, 4] = self._place[slots] | self._filter[slots].astype(np.uint64) << np.uint64(32)
        steps[:, 5] = self._key[slots]
        return steps

    def joined(self, waiting: list[Effects]) -> Effects:
        """The last changes that the books know, as one, so that the last step of a slot alone says what becomes of it."""
        if len(waiting) == 1:
            return waiting[0]
        steps = np.concatenate([effects.steps for effects in waiting])
        moves = (steps[:, 0] & KEEP) != 0
        if not moves.all():
            steps[moves] = self._spelled_out(steps[moves])
        return Effects(
            steps,
            [words for effects in waiting for words in effects.marks],
            [words for effects in waiting for words in effects.words],
            [anchor for effects in waiting for anchor in effects.anchors],
        )

    def _add(self, target: Array, row: Array, interface: Array, added: Added, effects: Effects) -> Array:
        """Enter the filters of some rows of `added`; the steps."""
        for filter_id, its_interface in zip(target.tolist(), interface.tolist(), strict=True):
            if self._there[filter_id]:
                raise EngineError(f"filter {filter_id} is added, but is there already")
            self._there[filter_id] = True
            self._added.add(its_interface, filter_id)
        n_words = added.lengths[row]
        sizes = np.ceil(np.log2(n_words)).astype(np.int64)
        slots = np.array([self._take_slot() for _ in range(len(row))])
        places = np.array([self._take_words(size) for size in sizes.tolist()])
        added.enter(row, interface, places, self.words)
        effects.words.append(take_ranges(places, n_words))
        keys, areas = added.keys[row], added.areas[row]
        anchors = (keys & LOW).astype(np.int64)
        new = np.unique(anchors[self.stripes[anchors] == 0])
        self.stripes[new] = 1
        effects.anchors += new.tolist()
        _note_levels(areas, self.levels)
        self._place[slots], self._key[slots], self._filter[slots], self._size[slots] = places, keys, target, sizes
        self._slot_after[target], self._interface[target] = slots + 1, interface
        return steps_of(slots, keys, areas, places, target)

    def _remove(self, filters: list[int], effects: Effects) -> Array:
        slots = [slot for slot in (self._leave(filter_id, effects) for filter_id in filters) if slot >= 0]
        at = np.array(slots, np.int64)
        return steps_of(at, self._key[at], np.full((len(at), 3), np.nan), self._place[at], self._filter[at])

    def _leave(self, filter_id: int, effects: Effects) -> int:
        """Note that a filter is gone; the slot that it had, or -1."""
        if filter_id >= len(self._there) or not self._there[filter_id]:
            raise EngineError(f"filter {filter_id} is removed, but is not there")
        self._there[filter_id] = False
        if filter_id in self._added:
            self._added.remove(int(self._interface[filter_id]), filter_id)
        slot = int(self._slot_after[filter_id]) - 1
        if slot < 0:
            offsets, words = self._entries
            effects.marks.append(words[offsets[filter_id] : offsets[filter_id + 1]] + 2)
            return slot
        self._slot_after[filter_id] = 0
        self._free_slots.append(slot)
        self._free_words.setdefault(int(self._size[slot]), []).append(int(self._place[slot]))
        self._place[slot] = 0
        return slot

    def _filters_of(self, interface: int) -> list[int]:
        """The filters of an interface that are there."""
        first, end = places_in(self._of_interface, (interface, interface + 1)).tolist()
        there = self._there[first:end] & (self._interface[first:end] == interface)
        return sorted({*(np.flatnonzero(there) + first).tolist(), *self._added.of(interface)})

    def _take_slot(self) -> int:
        if self._free_slots:
            return self._free_slots.pop()
        self.n_slots += 1
        if self.n_slots > len(self._place):
            self._have_slots(self.n_slots)
        return self.n_slots - 1

    def _take_words(self, size: int) -> int:
        """2^size words."""
        if self._free_words.get(size):
            return self._free_words[size].pop()
        place, end = self.n_words, self.n_words + (1 << size)
        if end >= 2**31:
            raise EngineError("the filters in the grid have 2^31 words of checks or more; compile the table again")
        if end > len(self.words):
            self._have_words(end)
        self.n_words = end
        return place

    def _have_filters(self, n: int) -> None:
        """Have room for so many filters; likewise below."""
        self._slot_after, self._interface = with_room(self._slot_after, n), with_room(self._interface, n)
        self._there = with_room(self._there, n)

    def _have_slots(self, n: int) -> None:
        self._place, self._key = with_room(self._place, n), with_room(self._key, n)
        self._filter, self._size = with_room(self._filter, n), with_room(self._size, n)

    def _have_words(self, n: int) -> None:
        self.words = with_room(self.words, n)


@jit
def _note_levels(area: Array, levels: Array) -> None:
    """Set the flags of the levels of some areas f64[n, 3]."""
    for x, y, r in area:
        levels[level_of(x, y, -1.0 if np.isnan(r) else r)] = True


@jit
def _fill_moves(
    stretch: int,
    n_stretches: int,
    target: Array,
    area: Array,
    slot_after: Array,
    levels: Array,
    steps: Array,
) -> bool:
    """Steps of moves, which KEEP keys.  Returns whether a filter has no slot."""
    floats, wrong = steps.view(np.float64), False
    for i in stretch_of(len(target), stretch, n_stretches):
        slot = np.int64(slot_after[target[i]]) - 1 if target[i] < len(slot_after) else -1
        if slot < 0:
            wrong = True
        else:
            x, y, r = area[i, 0], area[i, 1], area[i, 2]
            steps[i, 0] = np.uint64(slot) | KEEP
            floats[i, 1], floats[i, 2], floats[i, 3] = x, y, r
            levels[level_of(x, y, r)] = True
    return wrong
