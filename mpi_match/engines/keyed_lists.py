"""The lists of the keyed index: filed filters with what is left to verify, end to end.

A list is one run of words (of the packed type, see `vocabulary`).  Word 0 is its number of words; then for each filed filter

    word 0       interface
    word 1       n_positive | n_negative << 10 | n_sets << 20
    word 2       0; 1 when the filter has been removed (`keyed_live`)
    word 3       words from here to the next interface's first filter in this list: where to go on after a match
    then pairs   positive: the event has an attribute in [lo, hi]      = < <= > >= between prefix exists suffix contains
                 negative: it has none there                           absent, and != after a positive check of its type
                 sets:     (packed name, place << 1 | negate): the attribute's code is (not) in the operand list there

The operand lists of `in` and `not in` stand before all of these, each its length and then its codes in order.

Positive checks stand from the narrowest interval to the widest: the first to fail ends the candidate.  What the key of the
list already says (an equality, an `exists`, an atom, the `in` it was spread over) is left out.
"""

from __future__ import annotations

import numba
import numpy as np

from mpi_match.arrays import Array, offsets_of, take_ranges
from mpi_match.engines import EngineError
from mpi_match.engines.keyed_filing import NONE
from mpi_match.engines.keyed_rows import (
    ABSENT,
    CONTAINS,
    EQ,
    EXISTS,
    FEATURE,
    FIRST,
    HI,
    IN,
    LAST,
    LO,
    NAME,
    NE,
    NOT_IN,
    OP,
    SET,
    SUFFIX,
    FilterRows,
    jit,
    parallel_jit,
)
from mpi_match.table import Table

HEADER = 4
COUNT_BITS = 10
MAX_CHECKS = 2**COUNT_BITS - 1
NO_LIST = np.uint64(0xFFFFFFFFFFFFFFFF)


def fill_lists(
    table: Table, rows: FilterRows, filter_id: Array, filed_set: Array, keys: Array, feature_rank: Array, node_entries: Array
) -> tuple[Array, Array]:
    """First word of every node's list (u64[N], NO_LIST for none), and the words.

    `filter_id`, `filed_set`, `keys` are of the filed filters in the order of their lists; node n has filed filters
    node_entries[n] to node_entries[n + 1].  Raises EngineError for a filter with more checks than the header can count.
    """
    shift = table.vocabulary.shift
    set_places = offsets_of(rows.set_size + 1)
    n_set_words = int(set_places[-1])
    if n_set_words >= 2**31:
        raise EngineError("the table's operand lists have 2^31 values or more; engine 'counting' can serve it")
    filed = (rows.offsets, rows.records, feature_rank, filter_id, filed_set, keys)
    n_entries = np.diff(node_entries)
    sizes = np.zeros(len(filter_id) + 1, np.int64)
    _entry_sizes(*filed, sizes)
    most = (int(sizes.max()) - HEADER) // 2
    if most > MAX_CHECKS:
        raise EngineError(
            f"a filter needs {most} checks, `keyed` has room for {MAX_CHECKS}; engine 'counting' can serve this table"
        )
    has_list = n_entries > 0
    sizes[node_entries[:-1][has_list]] += 1  # the list's own first word
    ends = np.cumsum(sizes[:-1])
    total = n_set_words + (int(ends[-1]) if len(ends) else 0)
    entry_words = np.append(ends - sizes[:-1] + n_set_words, total)
    entry_words[node_entries[:-1][has_list]] += 1
    words = np.empty(total, table.vocabulary.packed_dtype)
    words[set_places[:-1]] = rows.set_size
    words[take_ranges(set_places[:-1] + 1, rows.set_size)] = rows.set_codes
    n_codes = np.diff(rows.code_offsets)
    _fill(*filed, entry_words, table.filters.interface, set_places, n_codes, shift, words)
    lists = np.full(len(n_entries), NO_LIST, np.uint64)
    lists[has_list] = entry_words[node_entries[:-1][has_list]] - 1
    _link_interfaces(node_entries, entry_words, words)
    return lists, words


@jit
def _known(record: Array, feature_rank: Array, filed_set: int, key: Array) -> bool:
    """Does the key of a filed filter already imply this constraint?"""
    op = record[OP]
    if op == IN:
        return record[SET] == filed_set
    if op in (EQ, EXISTS, SUFFIX, CONTAINS):
        for f in key:
            if f != NONE and f == feature_rank[record[FEATURE]]:
                return True
    return False


@parallel_jit
def _entry_sizes(
    offsets: Array, records: Array, feature_rank: Array, filter_id: Array, filed_set: Array, keys: Array, sizes: Array
) -> None:
    """Words of every entry."""
    for e in numba.prange(len(filter_id)):
        f = filter_id[e]
        n = 0
        for row in range(offsets[f], offsets[f + 1]):
            if not _known(records[row], feature_rank, filed_set[e], keys[e]):
                n += 2 if records[row, OP] == NE or records[row, OP] == NOT_IN else 1
        sizes[e] = HEADER + 2 * n


@parallel_jit
def _fill(
    offsets: Array,
    records: Array,
    feature_rank: Array,
    filter_id: Array,
    filed_set: Array,
    keys: Array,
    entry_words: Array,
    interface: Array,
    set_places: Array,
    n_codes: Array,
    shift: int,
    words: Array,
) -> None:
    """Write header and checks of every entry; positive checks from the narrowest interval to the widest."""
    bits = np.uint64(shift)
    for e in numba.prange(len(filter_id)):
        f, at = filter_id[e], entry_words[e]
        n_positive = n_negative = n_sets = 0
        for row in range(offsets[f], offsets[f + 1]):
            op, name = records[row, OP], np.int64(records[row, NAME])
            if op == IN or _known(records[row], feature_rank, filed_set[e], keys[e]):
                continue
            if op == ABSENT:
                n_negative += 1
                continue
            base = np.uint64(name) << bits
            typed = op in (NE, NOT_IN)
            low = np.uint64(records[row, FIRST] if typed else records[row, LO])
            high = np.uint64(records[row, LAST] if typed else records[row, HI])
            place = at + HEADER + 2 * n_positive
            span = (high - low + np.uint64(1)) / n_codes[name]
            while place > at + HEADER:
                x, y = np.uint64(words[place - 2]), np.uint64(words[place - 1])
                if (y - x + np.uint64(1)) / n_codes[np.int64(x >> bits)] <= span:
                    break
                words[place], words[place + 1] = words[place - 2], words[place - 1]
                place -= 2
            words[place], words[place + 1] = base | low, base | high
            n_positive += 1
            n_negative += op == NE
        place = at + HEADER + 2 * n_positive
        for row in range(offsets[f], offsets[f + 1]):
            op = records[row, OP]
            if op in (ABSENT, NE):
                base = np.uint64(records[row, NAME]) << bits
                words[place], words[place + 1] = base | np.uint64(records[row, LO]), base | np.uint64(records[row, HI])
                place += 2
        for row in range(offsets[f], offsets[f + 1]):
            op = records[row, OP]
            if op == NOT_IN or (op == IN and records[row, SET] != filed_set[e]):
                words[place] = np.uint64(records[row, NAME]) << bits
                words[place + 1] = set_places[records[row, SET]] << 1 | (op == NOT_IN)
                place += 2
                n_sets += 1
        words[at] = interface[f]
        words[at + 1] = n_positive | n_negative << COUNT_BITS | n_sets << 2 * COUNT_BITS
        words[at + 2] = 0


@jit
def _link_interfaces(node_entries: Array, entry_words: Array, words: Array) -> None:
    """The first word of every list, and word 3 of every entry."""
    n_words = len(words)
    for node in range(len(node_entries) - 1):
        first, last = node_entries[node], node_entries[node + 1]
        if first == last:
            continue
        end = n_words if last == node_entries[-1] else entry_words[last] - 1
        words[entry_words[first] - 1] = end - entry_words[first] + 1
        target, later = end, end
        for e in range(last - 1, first - 1, -1):
            at = entry_words[e]
            if later < end and words[later] != words[at]:
                target = later
            words[at + 3] = target - at
            later = at
