"""The bins of a table: the codes of each frequently constrained name, divided into up to 63 bins of about as many operands
each.

    codes of a name     0 ........ 17 | 18 .. 20 | 21 ............ 90 | 91 ..      bounds 0, 18, 21, 91
    bins                      0            1               2             3         and one more row: the name is absent

A filter *may match* the bins of a name that its constraints on the name touch and, unless a constraint requires the name,
the absence of the name.  These bits form its **mask** of the name, one word; all bits are set for a name that the filter
does not constrain.  A mask has every bin in which the filter matches a code.  It may have others, because a bin contains
several codes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, Int
from mpi_match.compute.compile_cache import jit, nested
from mpi_match.engines.keyed.index.filter_rows import (
    ABSENT,
    ATOMIC,
    EXISTS,
    LISTED,
    ROW_HI,
    ROW_KIND,
    ROW_LO,
    ROW_NAME,
    UNEQUAL,
    CodedFilters,
    FilterRows,
)
from mpi_match.engines.keyed.index.postings import COUNT_BITS, HEADER, LONG_HEADER, MAX_CHECKS
from mpi_match.table.kinds import OP_MASK

MOST_BINS = 63
"""Most bins of a name: with its absence, they are the bits of a word."""
BOUNDS_WORDS = MOST_BINS + 1
"""Bounds of a column."""
LEAST_BINS = 7
MOST_ROWS = 1600
"""Most rows of a bitmap, which are the bits that each filter takes: 200 bytes."""
MOST_COLUMNS = MOST_ROWS // (LEAST_BINS + 1)
LEAST_SHARE = 0.01
"""Least fraction of the filters that must constrain a name for it to have bins."""
WITHOUT_CUTS = 1 << EXISTS | 1 << ABSENT | ATOMIC
"""Forms whose constraints are not intervals of some codes of their name, as a set of bits."""
_ONE, _ALL = np.uint64(1), np.uint64(0xFFFFFFFFFFFFFFFF)


class Bins(NamedTuple):
    """The A names with bins, called columns; the column that excludes most filters is first.

    column     i32[V]      column of each name, or -1
    bounds     i64[64 A]   for each column: first code of each bin, the name's number of codes, then padding above any code
    n_bins     i64[A]
    first_row  i64[A + 1]  the rows of each column: its bins, then the absence of the name
    """

    column: Array
    bounds: Array
    n_bins: Array
    first_row: Array

    @property
    def n_rows(self) -> int:
        """R: rows of all columns."""
        return int(self.first_row[-1])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self)

    @classmethod
    def of(cls, rows: FilterRows, filters: Array) -> Bins:
        """The bins for some filters of a table."""
        n_codes = np.diff(rows.code_offsets)
        count, excluded = np.zeros(rows.n_virtual, np.int64), np.zeros(rows.n_virtual)
        cuts = np.zeros(int(rows.code_offsets[-1]) + rows.n_virtual, np.int64)
        first_cut = rows.code_offsets[:-1] + np.arange(rows.n_virtual)
        lists = (rows.set_size, rows.set_offsets, rows.set_codes)
        _count_cuts(filters, rows.coded, lists, first_cut, count, cuts)
        _count_excluded(filters, rows.coded, first_cut, np.cumsum(cuts), excluded)
        frequent = np.argsort(-count, kind="stable")[:MOST_COLUMNS]
        names = frequent[count[frequent] > LEAST_SHARE * max(len(filters), 1)]
        names = names[np.argsort(-excluded[names], kind="stable")]
        return cls._of_names(names, n_codes, [cuts[first_cut[name] : first_cut[name] + n_codes[name]] for name in names])

    @classmethod
    def of_codes(cls, rows: FilterRows) -> Bins:
        """Bins for filters that are not known yet: equally many codes in each bin, for the names with most codes."""
        n_codes = np.diff(rows.code_offsets)
        names = np.argsort(-n_codes, kind="stable")[:MOST_COLUMNS]
        names = names[n_codes[names] > 1]
        return cls._of_names(names, n_codes, [np.ones(n_codes[name], np.int64) for name in names])

    @classmethod
    def _of_names(cls, names: Array, n_codes: Array, cuts: list[Array]) -> Bins:
        """Build bins from the names of the columns and, for each of their codes, the number of intervals that begin or end
        there."""
        most = min(MOST_BINS, MOST_ROWS // max(len(names), 1) - 1)
        column = np.full(len(n_codes), -1, np.int32)
        column[names] = np.arange(len(names))
        bounds = np.full((len(names), BOUNDS_WORDS), np.iinfo(np.int64).max)
        n_bins = np.ones(len(names), np.int64)
        for a, name in enumerate(names.tolist()):
            inner = _depth_equal(cuts[a], most)
            n_bins[a] = 1 + len(inner)
            bounds[a, : n_bins[a] + 1] = [0, *inner.tolist(), n_codes[name]]
        return cls(column, bounds.reshape(-1), n_bins, np.concatenate([[0], np.cumsum(n_bins + 1)]))


def _depth_equal(cuts: Array, n_bins: int) -> Array:
    """The first codes i64 of all bins except the first; `cuts` counts the intervals that begin at each code or end before
    it."""
    at = np.flatnonzero(cuts)
    at = at[at > 0]
    if len(at) < n_bins:
        return at
    depth = np.cumsum(cuts[at], dtype=np.int64)
    return np.unique(at[np.searchsorted(depth, depth[-1] * np.arange(1, n_bins) // n_bins)])


@jit
def _count_cuts(filters: Array, coded: CodedFilters, lists: tuple, first_cut: Array, count: Array, cuts: Array) -> None:
    """Count the constraints on each name and, for each code, the intervals that begin there or end right before it."""
    (offsets, records, _), (set_size, set_offsets, set_codes) = coded, lists
    for f in filters:
        for row in range(offsets[f], offsets[f + 1]):
            form, name = records[row, ROW_KIND] & OP_MASK, np.int64(records[row, ROW_NAME])
            low, high = np.int64(records[row, ROW_LO]), np.int64(records[row, ROW_HI])
            count[name] += 1
            if LISTED >> form & 1:
                for i in range(set_offsets[low], set_offsets[low] + set_size[low]):
                    cuts[first_cut[name] + np.int64(set_codes[i])] += 1
                    cuts[first_cut[name] + np.int64(set_codes[i]) + 1] += 1
            elif not WITHOUT_CUTS >> form & 1:
                cuts[first_cut[name] + low] += 1
                cuts[first_cut[name] + high + 1] += 1


@jit
def _count_excluded(filters: Array, coded: CodedFilters, first_cut: Array, depth: Array, excluded: Array) -> None:
    """Sum, for each name, the fraction of cuts that each of its constraints excludes; `depth` has the running sums of the
    cuts."""
    offsets, records, _ = coded
    for f in filters:
        for row in range(offsets[f], offsets[f + 1]):
            form, name, first = (
                records[row, ROW_KIND] & OP_MASK,
                np.int64(records[row, ROW_NAME]),
                first_cut[records[row, ROW_NAME]],
            )
            if (LISTED | WITHOUT_CUTS) >> form & 1:
                excluded[name] += 0.5
                continue
            low, high = first + np.int64(records[row, ROW_LO]), first + np.int64(records[row, ROW_HI]) + 1
            before, last = (
                depth[first - 1] if first else 0,
                len(depth) if name + 1 == len(first_cut) else first_cut[name + 1],
            )
            within, total = depth[high] - (depth[low - 1] if low else 0), depth[last - 1] - before
            share = 1.0 - within / total
            excluded[name] += 1.0 - share if form == UNEQUAL else share


@nested
def bin_of(bounds: Array, a: Int, code: Int) -> np.int64:
    """The bin of code i64 in column a: the last one that begins at or before it."""
    first, at = a * BOUNDS_WORDS, np.int64(0)
    for half in (32, 16, 8, 4, 2, 1):
        at += half if bounds[first + at + half] <= code else 0
    return at


@nested
def _span(first: Int, last: Int) -> np.uint64:
    """A word with the bits `first` to `last` set."""
    return _ALL >> np.uint64(63 - last) & _ALL << np.uint64(first)


@nested
def _within(bounds: Array, a: Int, low: Int, high: Int) -> np.uint64:
    """The bins whose codes all lie in [low, high]."""
    first, last = bin_of(bounds, a, low), bin_of(bounds, a, high)
    first += bounds[a * BOUNDS_WORDS + first] < low
    last -= bounds[a * BOUNDS_WORDS + last + 1] > high + 1
    return _span(first, last) if first <= last else np.uint64(0)


@nested
def enter_masks(at: Int, words: Array, shift: Int, bins: tuple, masks: Array) -> None:
    """Fill the masks u64[A] of the filter whose checks, all of them, are at index `at` of `words` (`postings`)."""
    column, bounds, n_bins, _ = bins
    for every in range(len(n_bins)):
        masks[every] = _span(0, n_bins[every])
    counts, place, codes = np.int64(words[at + 1]), at + HEADER, (np.int64(1) << shift) - 1
    n_positive, n_negative, n_sets = counts & MAX_CHECKS, counts >> COUNT_BITS & MAX_CHECKS, counts >> 2 * COUNT_BITS
    if words[at + 2] > 1:
        place = np.int64(words[at + 2]) >> 1
        n_positive, n_negative = np.int64(words[place - LONG_HEADER]), np.int64(words[place - LONG_HEADER + 1])
        n_sets = np.int64(words[place - 1])
    for check in range(n_positive + n_negative + n_sets):
        packed, second = np.int64(words[place + 2 * check]), np.int64(words[place + 2 * check + 1])
        a, low = np.int64(column[packed >> shift]), packed & codes
        if a < 0:
            continue
        if check < n_positive:
            masks[a] &= _span(bin_of(bounds, a, low), bin_of(bounds, a, second & codes))
        elif check < n_positive + n_negative:
            masks[a] &= ~_within(bounds, a, low, second & codes)
        else:
            listed, first = np.uint64(0), second >> 1
            for i in range(first + 1, first + 1 + np.int64(words[first])):
                code = np.int64(words[i])
                listed |= _within(bounds, a, code, code) if second & 1 else _ONE << np.uint64(bin_of(bounds, a, code))
            masks[a] &= ~listed if second & 1 else listed
