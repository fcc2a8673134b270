"""The posting lists of the keyed index: entries of filters, with the checks that their keys do not imply, without gaps.

A list is contiguous words (of the packed type, see `vocabulary`).  Word 0 is its number of words; then for each entry

    word 0       interface
    word 1       n_positive | n_negative << 10 | n_sets << 20
    word 2       0; 1 if the filter has been removed (`live_filters`); place << 1 of a filter whose checks are elsewhere
    word 3       words from here to the next interface's first filter in this list: skipped after a match
    then pairs   positive: the event has an attribute in [lo, hi]      = < <= > >= between prefix exists suffix contains
                 negative: it has none there                           absent, and != after a positive check of its type
                 sets:     (packed name, place << 1 | negate): the attribute's code is (not) in the operand list there

The operand lists of `in` and `not in` come first, each its length and then its codes in order.

Word 1 has ten bits for each kind of check.  A filter with more checks than that is *long*: its entry has none, its pairs
follow the operand lists, and n_positive, n_negative and n_sets, a word each, immediately precede them.

Positive checks are ordered by the width of their intervals, narrowest first (those of a long filter by its constraints): the
first that fails rejects the candidate.  Checks that the key of the list implies (an equality, an `exists`, an atom, the `in`
that the filter was expanded by) are left out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of, take_ranges
from mpi_match.compute.compile_cache import jit, nested
from mpi_match.compute.parallel import in_stretches, running_sum, stretch_of
from mpi_match.compute.search import lower_bound
from mpi_match.engines.entries import can_serve
from mpi_match.engines.keyed.index.features import NONE
from mpi_match.engines.keyed.index.filter_rows import (
    ABSENT,
    FEATURE_ONLY,
    IN_LIST,
    OUT_OF_LIST,
    ROW_HI,
    ROW_KIND,
    ROW_LO,
    ROW_NAME,
    SET,
    UNEQUAL,
    CodedFilters,
    FilterRows,
    feature_of,
)
from mpi_match.errors import EngineError
from mpi_match.table.kinds import KIND_SHIFT, OP_MASK
from mpi_match.table.table import Table

HEADER = 4
COUNT_BITS = 10
MAX_CHECKS = 2**COUNT_BITS - 1
MOST_LISTED = MAX_CHECKS
"""Most checks of a kind in an entry; a filter with more is long."""
LONG_HEADER = 3
_TYPED = 1 << UNEQUAL | 1 << OUT_OF_LIST
_NEGATIVE = 1 << UNEQUAL | 1 << ABSENT
NO_LIST = np.uint64(0xFFFFFFFFFFFFFFFF)
_lower_bound: Any = nested(lower_bound)


def may_be_long(table: Table) -> bool:
    """Tells whether the table may have a long filter: a constraint makes at most two checks."""
    most = int(table.filters.size.max(initial=0))
    return bool(2 * most > MOST_LISTED)


def entry_words(counts):  # type: ignore[no-untyped-def]
    """Words of an entry, from its word of counts i64."""
    return HEADER + 2 * ((counts & MAX_CHECKS) + (counts >> COUNT_BITS & MAX_CHECKS) + (counts >> 2 * COUNT_BITS))


class Postings(NamedTuple):
    """The E entries of all lists, in the order of the lists.

    filter_id     u32[E]
    set_id        i[E]           operand list that the key has a value of, or -1
    key           u32[E, depth]  ranks of the features that the entry is indexed by, padded with NONE
    feature_rank  u32[P]         rank of each feature, NONE for one that no key has
    """

    filter_id: Array
    set_id: Array
    key: Array
    feature_rank: Array


class EntryPlaces(NamedTuple):
    """Places of entries: the first word of each, i64[E + 1]; the entries of long filters, ascending i64; and the first words
    of the checks of those, i64."""

    first_word: Array
    long_entry: Array
    long_place: Array


class CheckCodes(NamedTuple):
    """Data for writing checks: place of each operand list i64; `FilterRows.segments`; number of codes of each name u64[V];
    bits of a code in a packed attribute."""

    set_place: Array
    segments: Array
    n_codes: Array
    shift: int


def fill_lists(table: Table, rows: FilterRows, postings: Postings, node_entries: Array) -> tuple[Array, Array]:
    """Return the first word of every node's list (u64[N], NO_LIST for none), and the words.

    Node n has the entries node_entries[n] to node_entries[n + 1].  Raises EngineError for 2^31 words of operand lists and
    long filters.
    """
    set_places, n_entries = offsets_of(rows.set_size + 1), len(postings.filter_id)
    sizes = np.empty(n_entries, np.uint32)
    in_stretches(n_entries, _entry_sizes, rows.coded, postings, sizes)
    long_ = np.flatnonzero(sizes > HEADER + 2 * MOST_LISTED)
    long_places = int(set_places[-1]) + offsets_of(LONG_HEADER + sizes[long_].astype(np.int64) - HEADER)
    if long_places[-1] >= 2**31:
        raise EngineError(
            "the table's operand lists and filters of more than 1,023 checks have 2^31 words or more; "
            f"{can_serve('any size')}"
        )
    sizes[long_] = HEADER
    in_stretches(n_entries, _make_room, node_entries, sizes)
    entry_words = running_sum(sizes, int(long_places[-1]))
    lists = np.empty(len(node_entries) - 1, np.uint64)
    in_stretches(len(lists), _begin_lists, node_entries, entry_words, lists)
    words = np.empty(int(entry_words[-1]), table.vocabulary.packed_dtype)
    words[set_places[:-1]] = rows.set_size
    words[take_ranges(set_places[:-1] + 1, rows.set_size)] = rows.set_codes
    n_codes = np.diff(rows.code_offsets).astype(np.uint64)
    places = EntryPlaces(entry_words, long_, long_places)
    codes = CheckCodes(set_places, rows.segments, n_codes, table.vocabulary.shift)
    in_stretches(n_entries, _fill, rows.coded, postings, places, codes, table.filters.interface, words)
    in_stretches(len(lists), _link_interfaces, node_entries, entry_words, words)
    return lists, words


@jit
def _entry_sizes(stretch: int, n_stretches: int, filters: CodedFilters, postings: Postings, sizes: Array) -> None:
    """Compute the words of every entry."""
    (offsets, records, first_feature), (filter_id, set_id, keys, feature_rank) = filters, postings
    depth = keys.shape[1]
    for e in stretch_of(len(filter_id), stretch, n_stretches):
        f, set_ = filter_id[e], np.int64(set_id[e])
        n = 0
        for row in range(offsets[f], offsets[f + 1]):
            form, name, lo = (
                records[row, ROW_KIND] & OP_MASK,
                np.int64(records[row, ROW_NAME]),
                np.int64(records[row, ROW_LO]),
            )
            known = form == IN_LIST and lo == set_
            if FEATURE_ONLY >> form & 1:
                feature = feature_of(form, name, lo, first_feature[name])
                for d in range(depth):
                    known |= keys[e, d] != NONE and keys[e, d] == feature_rank[feature]
            if not known:
                n += 1 + (_TYPED >> form & 1)
        sizes[e] = HEADER + 2 * n


@jit
def _make_room(stretch: int, n_stretches: int, node_entries: Array, sizes: Array) -> None:
    """Add the list's own first word to the size of its first entry."""
    for node in stretch_of(len(node_entries) - 1, stretch, n_stretches):
        if node_entries[node] < node_entries[node + 1]:
            sizes[node_entries[node]] += 1


@jit
def _begin_lists(stretch: int, n_stretches: int, node_entries: Array, entry_words: Array, lists: Array) -> None:
    """Write the first word of every list, and move its first entry after it."""
    for node in stretch_of(len(lists), stretch, n_stretches):
        lists[node] = NO_LIST
        first = node_entries[node]
        if first < node_entries[node + 1]:
            lists[node] = entry_words[first]
            entry_words[first] += 1


@jit
def _fill(
    stretch: int,
    n_stretches: int,
    filters: CodedFilters,
    postings: Postings,
    places: EntryPlaces,
    codes: CheckCodes,
    interface: Array,
    words: Array,
) -> None:
    """Write header and checks of every entry; positive checks from the narrowest interval to the widest.

    Width is the fraction of the name's codes, compared without division or rounding: a/b <= c/d is ad <= cb.
    """
    (offsets, records, first_feature), (filter_id, set_id, keys, feature_rank) = filters, postings
    (entry_words, long_, long_places), (set_places, segments, n_codes, shift) = places, codes
    bits, depth = np.uint64(shift), keys.shape[1]
    for e in stretch_of(len(filter_id), stretch, n_stretches):
        f, at, set_ = filter_id[e], entry_words[e], np.int64(set_id[e])
        nth = _lower_bound(long_, 0, len(long_), e)
        is_long = nth < len(long_) and long_[nth] == e
        first = long_places[nth] + LONG_HEADER if is_long else at + HEADER
        n_positive = n_negative = n_sets = 0
        for row in range(offsets[f], offsets[f + 1]):
            form, name, lo = (
                records[row, ROW_KIND] & OP_MASK,
                np.int64(records[row, ROW_NAME]),
                np.int64(records[row, ROW_LO]),
            )
            known = form == IN_LIST
            n_sets += form == OUT_OF_LIST or (form == IN_LIST and lo != set_)
            if FEATURE_ONLY >> form & 1:
                feature = feature_of(form, name, lo, first_feature[name])
                for d in range(depth):
                    known |= keys[e, d] != NONE and keys[e, d] == feature_rank[feature]
            if known:
                continue
            if form == ABSENT:
                n_negative += 1
                continue
            base, low, high = np.uint64(name) << bits, np.uint64(lo), np.uint64(records[row, ROW_HI])
            if _TYPED >> form & 1:
                type_ = records[row, ROW_KIND] >> KIND_SHIFT
                low, high = np.uint64(segments[type_, 0, name]), np.uint64(segments[type_, 1, name])
            place = first + 2 * n_positive
            width, of = high - low + np.uint64(1), n_codes[name]
            while place > first and not is_long:
                x, y = np.uint64(words[place - 2]), np.uint64(words[place - 1])
                if (y - x + np.uint64(1)) * of <= width * n_codes[np.int64(x >> bits)]:
                    break
                words[place], words[place + 1] = words[place - 2], words[place - 1]
                place -= 2
            words[place], words[place + 1] = base | low, base | high
            n_positive += 1
            n_negative += form == UNEQUAL
        place = first + 2 * n_positive
        for row in range(offsets[f], offsets[f + 1] if n_negative else 0):
            form = records[row, ROW_KIND] & OP_MASK
            if _NEGATIVE >> form & 1:
                base = np.uint64(records[row, ROW_NAME]) << bits
                words[place], words[place + 1] = (
                    base | np.uint64(records[row, ROW_LO]),
                    base | np.uint64(records[row, ROW_HI]),
                )
                place += 2
        for row in range(offsets[f], offsets[f + 1] if n_sets else 0):
            form = records[row, ROW_KIND] & OP_MASK
            if form == OUT_OF_LIST or (form == IN_LIST and np.int64(records[row, SET]) != set_):
                words[place] = np.uint64(records[row, ROW_NAME]) << bits
                words[place + 1] = set_places[records[row, SET]] << 1 | (form == OUT_OF_LIST)
                place += 2
        words[at] = interface[f]
        if is_long:
            words[first - 3], words[first - 2], words[first - 1] = n_positive, n_negative, n_sets
            words[at + 1], words[at + 2] = 0, first << 1
        else:
            words[at + 1] = n_positive | n_negative << COUNT_BITS | n_sets << 2 * COUNT_BITS
            words[at + 2] = 0


@jit
def _link_interfaces(stretch: int, n_stretches: int, node_entries: Array, entry_words: Array, words: Array) -> None:
    """Write the first word of every list, and word 3 of every entry."""
    n_words = len(words)
    for node in stretch_of(len(node_entries) - 1, stretch, n_stretches):
        first, last = np.int64(node_entries[node]), np.int64(node_entries[node + 1])
        if first < last:
            end = n_words if last == len(entry_words) - 1 else entry_words[last] - 1
            words[entry_words[first] - 1] = end - entry_words[first] + 1
            target, later = end, end
            for e in range(last - 1, first - 1, -1):
                at = entry_words[e]
                if later < end and words[later] != words[at]:
                    target = later
                words[at + 3] = target - at
                later = at
