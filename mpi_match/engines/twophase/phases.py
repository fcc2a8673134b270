"""The two phases of matching an event, in pieces that threads divide among themselves.

    phase 1    for each attribute, set the bits of the predicates that it satisfies (`predicates`)
    phase 2    for each satisfied access predicate, scan its clusters (`clusters`), and verify the areas of filters whose
               predicates are all satisfied

The bits of an event are words of a vector.  Threads that write the same one set and clear bits atomically.  A thread that
is alone with its vector does so without atomics, because it matches the event alone or because vectors are merged afterwards
(`merge_all`, `merge_words`).  Phase 1 gets a vector as `target`: the bits u64, and True if it is the thread's alone.

All threads must meet between the phases, because phase 2 reads the bits without synchronisation.

`bound` is i64[n, 4], the arrays from AT_FIRST to LOCAL_VECTORS as addresses (`array_pointers`).
"""

from __future__ import annotations

import operator
from typing import Any

import numba
import numpy as np

from mpi_match.arrays.csr import Array, Int
from mpi_match.compute.array_pointers import line, rows
from mpi_match.compute.circle import in_circle_of
from mpi_match.compute.compile_cache import inlined, nested
from mpi_match.compute.memory import load_i64, load_u32, store_i64
from mpi_match.compute.search import lower_bound
from mpi_match.compute.synchronization import (
    atomic_and,
    atomic_load,
    atomic_or,
    compare_exchange,
    lock,
    unlock,
)
from mpi_match.engines.twophase.clusters import CLUSTER_COLUMNS, CLUSTER_ROWS, COLUMNS_AT, FILTERS_AT
from mpi_match.model import Type
from mpi_match.operators import Form
from mpi_match.table.kinds import KIND_SHIFT, OP_MASK

(
    AT_FIRST,
    NAME_RUNS,
    RUN_KIND,
    RUN_OFFSETS,
    LOWEST,
    HIGHEST,
    SEGMENT_ENDS,
    ATOM_PREDICATE,
    LISTED_OFFSETS,
    LISTED_CODE,
    LISTED_PREDICATE,
    ACCESS,
    FIRST_OF_WORD,
    CLUSTER_OFFSETS,
    CLUSTER,
    COLUMN_PREDICATES,
    ROW_FILTERS,
    INTERFACE,
    AREA_OF,
    AREA,
    VECTORS,
    SEEN_BY_THREAD,
    LOCAL_VECTORS,
) = range(23)

_ANY, _NUMBER, _STRING, _BOOLEAN = int(Type.ANY), int(Type.NUMBER), int(Type.STRING), int(Type.BOOLEAN)
_EQUAL, _UNEQUAL, _BELOW, _ABOVE = (int(form) for form in (Form.EQUAL, Form.UNEQUAL, Form.BELOW, Form.ABOVE))
_IN_LIST, _OUT_OF_LIST, _WITHIN, _PREFIX = (int(form) for form in (Form.IN_LIST, Form.OUT_OF_LIST, Form.WITHIN, Form.PREFIX))
_EXISTS, _ABSENT = int(Form.EXISTS), int(Form.ABSENT)
NOTHING = -1
CHUNK_ROWS = 1024
"""Rows of a cluster that are scanned together."""
_ALL = np.uint64(2**64 - 1)

_in_circle = in_circle_of(numba.njit, operator.add, operator.mul)
_lower_bound: Any = nested(lower_bound)


@inlined
def begin_event(bits: Array, bound: Array) -> None:
    """Set an event's bits to their initial values."""
    at_first = line(bound, AT_FIRST, np.uint64)
    for word in range(len(at_first)):
        bits[word] = at_first[word]


@inlined
def _set_word(target: tuple, word: int, mask: int) -> None:
    """Set bits of a word."""
    words = target[0].ctypes.data
    if target[1]:
        store_i64(words, word, load_i64(words, word) | mask)
    else:
        atomic_or(words + 8 * word, mask)


@inlined
def _set(target: tuple, predicate: int) -> None:
    _set_word(target, np.int64(predicate) >> 6, np.int64(np.uint64(1) << np.uint64(predicate & 63)))


@inlined
def _clear(target: tuple, predicate: int) -> None:
    words, word = target[0].ctypes.data, np.int64(predicate) >> 6
    mask = ~np.int64(np.uint64(1) << np.uint64(predicate & 63))
    if target[1]:
        store_i64(words, word, load_i64(words, word) & mask)
    else:
        atomic_and(words + 8 * word, mask)


@inlined
def merge_words(group: int, n_members: int, words: tuple, bits: Array, bound: Array) -> None:
    """Merge words `words[0]` to `words[1]`, the latter excluded, of the vectors of a group's threads into its bits.

    `group` is the first row of its threads in LOCAL_VECTORS.  An attribute is one thread's, and a predicate one name's, so a
    bit differs from its initial value in at most one vector.
    """
    local, at_first = rows(bound, LOCAL_VECTORS, np.uint64), line(bound, AT_FIRST, np.uint64)
    for word in range(words[0], words[1]):
        changed = np.uint64(0)
        for member in range(n_members):
            changed |= local[group + member, word] ^ at_first[word]
        bits[word] = at_first[word] ^ changed


@inlined
def merge_all(own: Array, bits: Array, mutex: int, stop: int, bound: Array) -> None:
    """Merge a thread's vector into the bits of its group: under a mutex, or without one (0) word by word, with a
    retry after a conflict."""
    at_first, words = line(bound, AT_FIRST, np.uint64), bits.ctypes.data
    if mutex != 0:
        if lock(mutex, stop):
            for word in range(len(at_first)):
                bits[word] ^= own[word] ^ at_first[word]
            unlock(mutex)
        return
    for word in range(len(at_first)):
        changed = np.int64(own[word] ^ at_first[word])
        if changed != 0:
            before = atomic_load(words + 8 * word)
            while not compare_exchange(words + 8 * word, before, before ^ changed):
                before = atomic_load(words + 8 * word)


@nested
def _set_range(target: tuple, first: int, last: int) -> None:
    """Set the bits of the predicates `first` to `last`, the latter excluded."""
    if first >= last:
        return
    word, end = first >> 6, (last - 1) >> 6
    mask = _ALL << np.uint64(first & 63)
    while word < end:
        _set_word(target, word, np.int64(mask))
        mask = _ALL
        word += 1
    mask &= _ALL >> np.uint64(63 - ((last - 1) & 63))
    _set_word(target, word, np.int64(mask))


@inlined
def _type_of(code: int, name: int, segment_ends: Array) -> int:
    """The type of a code; `NOTHING` for NaN and a list."""
    type_ = _BOOLEAN
    if code > segment_ends[2 * name + 1] + 2:
        type_ = NOTHING
    elif code < segment_ends[2 * name]:
        type_ = _NUMBER
    elif code == segment_ends[2 * name]:
        type_ = NOTHING
    elif code <= segment_ends[2 * name + 1]:
        type_ = _STRING
    return type_


@nested
def satisfy(packed: Int, shift: int, target: tuple, bound: Array) -> None:
    """Phase 1 for one attribute: set and clear the bits of the predicates on its name."""
    name, code = packed >> shift, packed & ((np.int64(1) << shift) - 1)
    name_runs = line(bound, NAME_RUNS, np.int64)
    if name >= len(name_runs) - 1:
        predicate = line(bound, ATOM_PREDICATE, np.int64)[name - len(name_runs) + 1]
        if predicate != NOTHING:
            _set(target, predicate)
        return
    run_kind, run_offsets = line(bound, RUN_KIND, np.uint8), line(bound, RUN_OFFSETS, np.int64)
    type_ = _type_of(code, name, line(bound, SEGMENT_ENDS, np.int64))
    for run in range(name_runs[name], name_runs[name + 1]):
        kind = np.int64(run_kind[run])
        if kind >> KIND_SHIFT == type_ or kind >> KIND_SHIFT == _ANY:
            _satisfy_run(run, kind & OP_MASK, run_offsets[run], run_offsets[run + 1], code, target, bound)


@nested
def _satisfy_run(run: int, form: Any, first: int, last: int, code: Any, target: tuple, bound: Any) -> None:
    """Phase 1 for a code and the predicates of one name, type and form."""
    lo, hi = line(bound, LOWEST, np.uint32), line(bound, HIGHEST, np.uint32)
    if form in (_EQUAL, _UNEQUAL):
        at = _lower_bound(lo, first, last, code)
        is_bound = at < last and lo[at] == code
        if form == _UNEQUAL:
            _set_range(target, first, last)
            if is_bound:
                _clear(target, at)
        elif is_bound:
            _set(target, at)
    elif form == _BELOW:
        _set_range(target, _lower_bound(hi, first, last, code), last)
    elif form == _ABOVE:
        _set_range(target, first, _lower_bound(lo, first, last, code + 1))
    elif form in (_IN_LIST, _OUT_OF_LIST):
        _satisfy_lists(run, form == _IN_LIST, first, last, code, target, bound)
    elif form == _EXISTS:
        _set(target, first)
    elif form == _ABSENT:
        _clear(target, first)
    elif form in (_WITHIN, _PREFIX):
        _satisfy_intervals(first, _lower_bound(lo, first, last, code + 1), code, hi, target)


@nested
def _satisfy_intervals(first: int, last: int, code: int, hi: Array, target: tuple) -> None:
    """Set the bits of the predicates from `first` to `last`, the latter excluded, that have an upper bound of at least the
    code."""
    word, mask = first >> 6, np.int64(0)
    for predicate in range(first, last):
        if predicate >> 6 != word:
            if mask != 0:
                _set_word(target, word, mask)
            word, mask = predicate >> 6, np.int64(0)
        mask |= np.int64(hi[predicate] >= code) << (predicate & 63)
    if mask != 0:
        _set_word(target, word, mask)


@nested
def _satisfy_lists(run: int, is_in: bool, first: int, last: int, code: int, target: tuple, bound: Array) -> None:
    """Phase 1 for a code and the predicates `in`, or `not in`, of one name and type."""
    listed_offsets = line(bound, LISTED_OFFSETS, np.int64)
    listed_code, listed_predicate = line(bound, LISTED_CODE, np.uint32), line(bound, LISTED_PREDICATE, np.uint32)
    if not is_in:
        _set_range(target, first, last)
    at, end = _lower_bound(listed_code, listed_offsets[run], listed_offsets[run + 1], code), listed_offsets[run + 1]
    while at < end and listed_code[at] == code:
        if is_in:
            _set(target, listed_predicate[at])
        else:
            _clear(target, listed_predicate[at])
        at += 1


@inlined
def _bit_at(words: Array, predicate: int) -> int:
    """Bit of a predicate, 0 or 1, in the words at an address."""
    return (load_i64(words, predicate >> 6) >> (predicate & 63)) & 1


@inlined
def _bit(bits: Array, predicate: int) -> np.uint64:
    return (bits[np.int64(predicate) >> 6] >> np.uint64(predicate & 63)) & np.uint64(1)


@inlined
def _scan_columns(cluster: Array, top: int, bits: Array, columns: Array, alive: Array) -> Int:
    """Find the rows of a cluster, of at most CHUNK_ROWS from `top` on, whose predicates are all satisfied.

    Writes them to `alive` and returns their number.  Works column by column and without a branch for each row: most rows
    drop out at the first column, and the loads of the others overlap.
    """
    n_rows, words, kept = cluster[CLUSTER_ROWS], bits.ctypes.data, alive.ctypes.data
    at, n_alive, end = columns.ctypes.data + 4 * cluster[COLUMNS_AT], np.int64(0), min(top + CHUNK_ROWS, n_rows)
    if cluster[CLUSTER_COLUMNS] == 0:
        for row in range(top, end):
            store_i64(kept, row - top, row)
        return end - top
    for row in range(top, end):
        store_i64(kept, n_alive, row)
        n_alive += _bit_at(words, load_u32(at, row))
    for _ in range(1, cluster[CLUSTER_COLUMNS]):
        at, n, n_alive = at + 4 * n_rows, n_alive, np.int64(0)
        for i in range(n):
            row = load_i64(kept, i)
            store_i64(kept, n_alive, row)
            n_alive += _bit_at(words, load_u32(at, row))
    return n_alive


@inlined
def _is_inside(f: int, x: float, y: float, bound: Array) -> bool:
    """Tells whether a filter has no area or the location lies in it.  No area contains NaN."""
    area_of = line(bound, AREA_OF, np.int32)
    at = np.int64(area_of[f]) if len(area_of) > 0 else np.int64(NOTHING)
    if at == NOTHING:
        return True
    area = rows(bound, AREA, np.float64)
    return _in_circle(x - area[at, 0], y - area[at, 1], area[at, 2])


@inlined
def scan_access_predicates(
    first: int, last: int, bits: Array, event: tuple, given: tuple, found: Array, n: int, bound: Array
) -> tuple:
    """Phase 2 for the access predicates number `first` to `last`, the latter excluded.

    event    x, y, its number among all events that the engine ever matched, its number in the batch times the number of ids
    given    True if answers are filters; the thread's row of SEEN_BY_THREAD; working memory for the rows of a chunk
    found    i64: answers, each the event's number in the batch times the number of ids, plus the id; the first n are valid

    Returns `found`, enlarged if necessary, and the new n.  A thread finds an interface only once per event.
    """
    x, y, stamp, key = event
    filters, seen, alive = given
    access, first_of_word = line(bound, ACCESS, np.uint32), line(bound, FIRST_OF_WORD, np.int64)
    cluster_offsets, cluster = line(bound, CLUSTER_OFFSETS, np.int64), rows(bound, CLUSTER, np.int64)
    columns, filter_of = line(bound, COLUMN_PREDICATES, np.uint32), line(bound, ROW_FILTERS, np.uint32)
    interface = line(bound, INTERFACE, np.uint32)
    a = first
    while a < last:
        predicate = np.int64(access[a])
        if bits[predicate >> 6] == 0:
            a = first_of_word[(predicate >> 6) + 1]
            continue
        if _bit(bits, predicate) == 0:
            a += 1
            continue
        for c in range(cluster_offsets[a], cluster_offsets[a + 1]):
            for top in range(0, cluster[c, CLUSTER_ROWS], CHUNK_ROWS):
                n_alive = _scan_columns(cluster[c], top, bits, columns, alive)
                for i in range(n_alive):
                    f = np.int64(filter_of[cluster[c, FILTERS_AT] + alive[i]])
                    id_ = f if filters else np.int64(interface[f])
                    if (not filters and seen[id_] == stamp) or not _is_inside(f, x, y, bound):
                        continue
                    if not filters:
                        seen[id_] = stamp
                    if n == len(found):
                        longer = np.empty(2 * n, np.int64)
                        longer[:n] = found
                        found = longer
                    found[n] = key + id_
                    n += 1
        a += 1
    return found, n
