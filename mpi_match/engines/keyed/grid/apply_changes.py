"""Applies changes to the slot tables of the keyed engines' grid, one after another and regardless of their kinds, in
compiled code.

A change may depend on the state that the previous one left: a filter that was just added moves, its interface is removed,
its slot is given to another filter.

    change                filter 7    filter 12   interface 5    slot 3         words at 96    step
                          slot 3                                 filter 7       filter 7
    MOVE 7                                                                                     3: the new circle
    REMOVE 7              removed                                free           free           3: place 0
    ADD 12 to 5                       slot 3      has 12         filter 12      filter 12      3: circle, place 96, filter 12
    REMOVE_INTERFACE 5                removed     has no filter  free           free           3: place 0

Applying changes one at a time avoids tracking dependencies between them, and each takes the time of a few memory reads.
Runs of one kind, a dozen NumPy calls each, were slower: 250 changes formed some twenty runs.

Free slots form an intrusive free list: a free slot's `filter` is 1 + the next free slot, or 0.  Free places of 2^k words
form such a list for each k: the first word of a free place is the next place.

A filter has several slots if its keys are the codes of an operand list: they share its words, and form a list from the one
that `slot_after` gives.  What happens to a filter happens to all of them.

The caller makes enough room in advance (`live_filters`), so no array grows here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpi_match.arrays import linked_lists
from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import inlined, jit
from mpi_match.compute.parallel import stretch_of
from mpi_match.engines.keyed.grid.geometry import IN_BITMAP, LOW, level_of
from mpi_match.engines.keyed.grid.hash_grid import KEEP, STEP_WORDS
from mpi_match.engines.keyed.grid.predicates import Added, enter_checks
from mpi_match.model import Change

MOST_CHECK_WORDS = 2**31
"""Upper bound, exclusive, of the words of checks: a step has 32 bits for a place, and a reference to an operand list has one
bit less."""
N_SLOTS_GIVEN, N_WORDS_GIVEN, FREE_SLOT, FREE_PLACES = range(4)
"""Indices of the counters: slots and words allocated so far; heads of the free lists: 1 + a slot (0: none is free), and for
each k a place of 2^k words (0: none is free)."""
N_COUNTERS = FREE_PLACES + 32

N_STEPS, N_MARKS, N_WRITTEN, N_BUCKET_KEYS = range(4)
"""Indices of `Entered.counts`."""

DONE, CANNOT_MOVE, NOT_GIVEN, IS_THERE, IS_NOT_THERE, NO_ROOM = range(6)
WRONG = {
    CANNOT_MOVE: "cannot move: it does not exist, or has no area",
    NOT_GIVEN: "is added, but its id or that of its interface is out of range",
    IS_THERE: "is added, but already exists",
    IS_NOT_THERE: "is removed, but does not exist",
    NO_ROOM: "does not fit: the filters in the grid have 2^31 words of checks or more; compile the table again",
}
"""Outcomes of a change, with the messages of those that are errors."""

_NOWHERE = np.full(3, np.nan)
_MOVE, _ADD, _REMOVE = int(Change.MOVE), int(Change.ADD), int(Change.REMOVE)
_REMOVE_INTERFACE = int(Change.REMOVE_INTERFACE)
_push_front, _unlink = inlined(linked_lists.push_front), inlined(linked_lists.unlink)


class Filters(NamedTuple):
    """By filter id: 1 + its first slot, or 0 (u32); its interface (u32); True if the filter exists (bool)."""

    slot_after: Array
    interface: Array
    there: Array


class Slots(NamedTuple):
    """By slot: place of its words, or 0 (u32); key (u64, see `bucket_keys`); filter (u32); k of its 2^k words (u8); 1 + the
    next slot of its filter, or 0 (u32)."""

    place: Array
    key: Array
    filter: Array
    size: Array
    next: Array


class Origin(NamedTuple):
    """The table before any change, i64: the first filter of each interface, then the number of filters;
    `KeyedIndex.entries`."""

    bounds: Array
    offsets: Array
    entries: Array


class SlotTables(NamedTuple):
    """The arrays to which changes are applied.

    came         interface -> filters added later
    words        packed  the checks, see `grid.predicates`
    sub_buckets  u8      see `hash_grid.Grid`
    levels       bool    levels that are, or were, in use
    counters     i64     see above
    """

    filters: Filters
    slots: Slots
    came: linked_lists.Links
    origin: Origin
    words: Array
    sub_buckets: Array
    levels: Array
    counters: Array


class Entered(NamedTuple):
    """The effects of changes that remain to be applied, see `live_filters.Effects`.

    `counts` i64 holds the number of each; `floats` is `steps` as f64, because words 1 to 3 of a step are a circle.
    """

    steps: Array
    marks: Array
    words: Array
    bucket_keys: Array
    counts: Array
    floats: Array


@jit
def room_for(kind: Array, target: Array, row: Array, added: Added, tables: SlotTables) -> tuple[int, int, int, int]:
    """Upper bounds of the steps, marks, words and bucket keys that changes can leave.

    A filter is removed at most once for each time that it was added; a filter of the trie is removed at most once.  Changes
    of filters that these changes add with several slots are not counted in full.
    """
    origin, n_there, offsets = tables.origin, len(tables.filters.there), added.keys.offsets
    n_words, n_added, n_leaving, n_marks, n_steps, n_slots_leaving = 0, 0, 0, 0, 0, 0
    for i in range(len(kind)):
        number = np.int64(target[i])
        if kind[i] == _ADD:
            n_words += added.lengths[row[i]]
            n_added += offsets[row[i] + 1] - offsets[row[i]]
        elif kind[i] != _REMOVE_INTERFACE:
            n_steps += max(_n_slots(number, tables), 1)
        if kind[i] == _ADD:
            continue
        if kind[i] == _REMOVE and number + 1 < len(origin.offsets):
            n_marks += origin.offsets[number + 1] - origin.offsets[number]
        elif kind[i] == _REMOVE_INTERFACE:
            first, end = _range_of(number, origin)
            n_marks += origin.offsets[end] - origin.offsets[first]
            n_leaving += end - first
            for filter_id in range(first, end):
                n_slots_leaving += _n_slots(filter_id, tables)
            later = _last_of(number, tables)
            while later > 0 and n_leaving < n_there:
                n_leaving += 1
                n_slots_leaving += _n_slots(later - 1, tables)
                later = np.int64(tables.came.before[later - 1])
    n_steps += 2 * n_added + min(n_slots_leaving, tables.counters[N_SLOTS_GIVEN])
    return n_steps, min(n_marks, len(origin.entries)), n_words, n_added


@inlined
def _n_slots(filter_id: int, tables: SlotTables) -> int:
    """The number of slots of a filter."""
    n, slot = 0, _first_slot(filter_id, tables)
    while slot >= 0:
        n += 1
        slot = np.int64(tables.slots.next[slot]) - 1
    return n


@inlined
def _first_slot(filter_id: int, tables: SlotTables) -> np.int64:
    """The first slot of a filter, or -1."""
    slot_after = tables.filters.slot_after
    return np.int64(slot_after[filter_id]) - 1 if 0 <= filter_id < len(slot_after) else np.int64(-1)


def nothing_entered(room: tuple[int, int, int, int]) -> Entered:
    """Allocate arrays with room for the effects of changes.

    They are allocated here because Numba creates arrays that compiled code returns through Python code, and crashes if that
    is interrupted.
    """
    n_steps, n_marks, n_words, n_keys = room
    steps, counts = np.empty((n_steps, STEP_WORDS), np.uint64), np.zeros(N_BUCKET_KEYS + 1, np.int64)
    marks, words, bucket_keys = (np.empty(n, np.int64) for n in (n_marks, n_words, n_keys))
    return Entered(steps, marks, words, bucket_keys, counts, steps.view(np.float64))


@jit
def enter_changes(
    columns: tuple[Array, Array, Array, Array, Array], added: Added, tables: SlotTables, entered: Entered
) -> tuple[int, int]:
    """Apply changes (`columns`: kind, target, area, row and interface of `Changes`; ADDs refer to rows of `added`).

    Returns the outcome (DONE, or the error of the first change that cannot be applied), and the number of changes applied.
    """
    kind, target, area, row, interface = columns
    for i in range(len(kind)):
        filter_id, outcome = np.int64(target[i]), DONE
        if kind[i] == _MOVE:
            outcome = _move(filter_id, area[i], tables, entered)
        elif kind[i] == _ADD:
            outcome = _add(filter_id, row[i], interface[i], added, tables, entered)
        elif kind[i] == _REMOVE:
            outcome = _remove(filter_id, tables, entered)
        elif kind[i] == _REMOVE_INTERFACE:
            _remove_interface(filter_id, tables, entered)
        if outcome != DONE:
            return outcome, i
    return DONE, len(kind)


@inlined
def _range_of(interface: int, origin: Origin) -> tuple:
    """The table's filters of an interface, as the first and the end."""
    if interface + 1 < len(origin.bounds):
        return origin.bounds[interface], origin.bounds[interface + 1]
    return 0, 0


@inlined
def _move(filter_id: int, circle: Array, tables: SlotTables, entered: Entered) -> int:
    slot = _first_slot(filter_id, tables)
    if slot < 0:
        return CANNOT_MOVE
    while slot >= 0:
        _step(slot, circle, tables, entered)
        slot = np.int64(tables.slots.next[slot]) - 1
    return DONE


@inlined
def _add(filter_id: int, row: int, interface: int, added: Added, tables: SlotTables, entered: Entered) -> int:
    filters, slots, sub_buckets = tables.filters, tables.slots, tables.sub_buckets
    if filter_id >= len(filters.there) or interface >= len(tables.came.first):
        return NOT_GIVEN
    if filters.there[filter_id]:
        return IS_THERE
    n_words, size = added.lengths[row], 0
    while 1 << size < n_words:
        size += 1
    place = _take_place(size, tables.words, tables.counters)
    if not place:
        return NO_ROOM
    enter_checks(np.int64(added.places[row]), added.words, interface, place, tables.words)
    for word in range(n_words):
        entered.words[entered.counts[N_WRITTEN] + word] = place + word
    entered.counts[N_WRITTEN] += n_words
    after = np.int64(0)
    for k in range(added.keys.offsets[row], added.keys.offsets[row + 1]):
        slot, key = _take_slot(slots, tables.counters), added.keys.key[k]
        slots.place[slot], slots.key[slot], slots.filter[slot], slots.size[slot] = place, key, filter_id, size
        slots.next[slot] = after
        after = slot + 1
        bucket_key = np.int64(key & LOW)
        if key & LOW != IN_BITMAP and not sub_buckets[bucket_key]:
            sub_buckets[bucket_key] = 1
            entered.bucket_keys[entered.counts[N_BUCKET_KEYS]] = bucket_key
            entered.counts[N_BUCKET_KEYS] += 1
        _step(slot, added.areas[row], tables, entered)
    filters.slot_after[filter_id], filters.interface[filter_id], filters.there[filter_id] = after, interface, True
    _push_front(tables.came, interface, filter_id)
    return DONE


@inlined
def _remove(filter_id: int, tables: SlotTables, entered: Entered) -> int:
    filters, slots, origin, counters = tables.filters, tables.slots, tables.origin, tables.counters
    if filter_id >= len(filters.there) or not filters.there[filter_id]:
        return IS_NOT_THERE
    filters.there[filter_id] = False
    if tables.came.is_in[filter_id]:
        _unlink(tables.came, filters.interface[filter_id], filter_id)
    slot = _first_slot(filter_id, tables)
    if slot < 0:
        for entry in range(origin.offsets[filter_id], origin.offsets[filter_id + 1]):
            entered.marks[entered.counts[N_MARKS]] = origin.entries[entry] + 2
            entered.counts[N_MARKS] += 1
        return DONE
    filters.slot_after[filter_id] = 0
    place, free = np.int64(slots.place[slot]), FREE_PLACES + slots.size[slot]
    tables.words[place], counters[free] = counters[free], place
    while slot >= 0:
        slots.place[slot] = 0
        _step(slot, _NOWHERE, tables, entered)
        slots.filter[slot], counters[FREE_SLOT] = counters[FREE_SLOT], slot + 1
        slot = np.int64(slots.next[slot]) - 1
    return DONE


@inlined
def _remove_interface(interface: int, tables: SlotTables, entered: Entered) -> None:
    first, end = _range_of(interface, tables.origin)
    for filter_id in range(first, end):
        if tables.filters.there[filter_id] and not tables.came.is_in[filter_id]:
            _remove(filter_id, tables, entered)
    while _last_of(interface, tables) > 0:
        _remove(_last_of(interface, tables) - 1, tables, entered)


@inlined
def _last_of(interface: int, tables: SlotTables) -> np.int64:
    """1 + the filter that was added to an interface last, or 0."""
    return np.int64(tables.came.first[interface]) if interface < len(tables.came.first) else np.int64(0)


@inlined
def _take_slot(slots: Slots, counters: Array) -> int:
    slot = counters[FREE_SLOT] - 1
    if slot < 0:
        slot = counters[N_SLOTS_GIVEN]
        counters[N_SLOTS_GIVEN] += 1
    else:
        counters[FREE_SLOT] = slots.filter[slot]
    return slot


@inlined
def _take_place(size: int, words: Array, counters: Array) -> int:
    """Allocate a place of 2^size words; 0 if none is left."""
    place = counters[FREE_PLACES + size]
    if place:
        counters[FREE_PLACES + size] = words[place]
        return place
    place = counters[N_WORDS_GIVEN]
    if place + (1 << size) >= MOST_CHECK_WORDS:
        return 0
    counters[N_WORDS_GIVEN] += 1 << size
    return place


@inlined
def _step(slot: int, circle: Array, tables: SlotTables, entered: Entered) -> None:
    """Append the step that sets the entire state of a slot (`hash_grid.steps_of`)."""
    n, slots, floats = entered.counts[N_STEPS], tables.slots, entered.floats
    for axis in range(3):
        floats[n, 1 + axis] = -1.0 if np.isnan(circle[axis]) else circle[axis]
    if slots.place[slot] and slots.key[slot] & LOW != IN_BITMAP:
        tables.levels[level_of(floats[n, 1], floats[n, 2], floats[n, 3])] = True
    entered.steps[n, 0] = slot
    entered.steps[n, 4] = np.uint64(slots.place[slot]) | np.uint64(slots.filter[slot]) << np.uint64(32)
    entered.steps[n, 5] = slots.key[slot]
    entered.counts[N_STEPS] += 1


@jit
def enter_moves(
    stretch: int,
    n_stretches: int,
    target: Array,
    area: Array,
    slot_after: Array,
    levels: Array,
    steps: Array,
) -> bool:
    """Fill `steps` for changes that are all moves: slots KEEP everything except their circle.  Returns True if a filter has
    no slot."""
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
