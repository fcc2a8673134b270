"""Bitmap blocks: a bit for each filter and bin, which excludes 512 filters at a time where keys exclude none.

If every constraint is a range, a key excludes next to nothing.  Instead of list entries, such filters have a **position** in
a bitmap.  The bitmap has a row of bits for each bin of each name with bins, and one for the absence of the name (`bins`).  A
bit is set if the filter's mask has that bin:

                         position  0 1 2 3 4 5 6 7 ...
     temp    bin 0                  1 1 0 0 0 1 1 0          an event with temp in bin 1, no city and wind in bin 7 takes
             bin 1                  1 1 1 0 0 0 1 0   ◄──    one row of each column; filters with a bit in all of them
             absent                 0 0 0 0 0 1 1 0          (here 1 and 6) are verified
     city    bin 0                  0 1 1 1 1 1 1 0
             ...
             absent                 0 1 0 1 1 0 1 0   ◄──
     wind    bin 7                  1 1 0 1 0 1 1 1   ◄──

A **line** is 512 positions, one cache line of each row; a **block** is 64 lines.  A block's *summary* has a word for each
row, with a bit for each line in which the row has any bit.  So one `and` for each column finds the lines that an event must
read.  In those lines, the rows are intersected, beginning with the column that excludes most, until a line is empty.
Positions are ordered by the filters' narrowest masks, so that entire lines are excluded.

Each row takes one bit of each filter: at most `bins.MOST_ROWS` bits, 200 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of
from mpi_match.compute.bits import popcount
from mpi_match.compute.compile_cache import inlined, jit, nested
from mpi_match.compute.lines import LINE_WORDS
from mpi_match.compute.parallel import in_stretches, stable_order, stretch_of
from mpi_match.engines.keyed.bitmap.bins import Bins, enter_masks
from mpi_match.engines.keyed.index.layout import KeyedIndex

LINE_FILTERS = 64 * LINE_WORDS
BLOCK_LINES = 64
BLOCK_FILTERS = BLOCK_LINES * LINE_FILTERS
NEARLY = 1.25
"""Masks are considered equally narrow if one has at most this many times the bins of the other; then the column that
excludes more decides."""
_ONE = np.uint64(1)


class BitRows(NamedTuple):
    """The bits of L lines in R rows.  Block b begins at word b * R * 512 of `bits`.  Its rows follow one another; each has
    as many lines as the block (64, or fewer in the last one).

    bits     u64[8 R L]
    summary  u64[blocks, R]
    """

    bits: Array
    summary: Array

    @classmethod
    def empty(cls, n_filters: int, n_rows: int) -> BitRows:
        """Zero bits for `n_filters` filters; the array takes no memory before it is written."""
        lines = -(-n_filters // LINE_FILTERS)
        return cls(np.zeros(LINE_WORDS * n_rows * lines, np.uint64), np.zeros((-(-lines // BLOCK_LINES), n_rows), np.uint64))


@dataclass(frozen=True, eq=False)
class Bitmap:
    """The n filters of a table that are in a bitmap.

    bins
    rows
    places      u32[n]  place in `words` of the checks of the filter at each position
    filters     u32[n]  ... its id
    interfaces  u32[n]  ... its interface
    words       packed  the checks, none left out (`grid.predicates`)
    """

    bins: Bins
    rows: BitRows
    places: Array
    filters: Array
    interfaces: Array
    words: Array

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return self.bins.nbytes + sum(
            each.nbytes for each in (*self.rows, self.places, self.filters, self.interfaces, self.words)
        )

    @classmethod
    def none(cls, index: KeyedIndex, bins: Bins | None) -> Bitmap:
        """An empty bitmap."""
        bins = bins or Bins(
            np.full(index.n_virtual, -1, np.int32),
            np.zeros(0, np.int64),
            np.zeros(0, np.int64),
            np.zeros(1, np.int64),
        )
        nothing = np.zeros(0, np.uint32)
        return cls(bins, BitRows.empty(0, bins.n_rows), nothing, nothing, nothing, np.zeros(0, index.words.dtype))

    @classmethod
    def of(cls, bins: Bins, filters: Array, places: Array, words: Array, shift: int) -> Bitmap:
        """Build the bitmap of some filters from the places of their checks."""
        keys = np.empty(len(filters), np.uint64)
        in_stretches(len(filters), _sort_keys, places, words, shift, bins, keys)
        order = stable_order(keys, int(keys.max(initial=0)))
        places, filters = places[order], filters[order].astype(np.uint32)
        rows = BitRows.empty(len(filters), bins.n_rows)
        in_stretches(len(filters), _fill_rows, places, words, shift, bins, rows.bits)
        in_stretches(rows.summary.size * LINE_FILTERS, _fill_summary, rows)
        interfaces = words[places].astype(np.uint32)
        return cls(bins, rows, places, filters, interfaces, words)

    def remove(self, positions: Array) -> None:
        """Remove the filters at these positions."""
        remove_bits(positions, self.rows, self.bins)

    def among(self, offsets: Array, entries: Array, first: int) -> tuple[Array, Array]:
        """Entries of filters (`KeyedIndex.entries`) with the bitmap's filters added: position p is the entry `first` + p."""
        counts = np.diff(offsets)
        counts[self.filters] += 1
        joined = offsets_of(counts)
        both = np.empty(len(entries) + len(self.filters), np.int64)
        is_here = np.zeros(len(both), bool)
        is_here[joined[self.filters]] = True  # a filter is either in lists or here
        both[is_here] = first + np.argsort(self.filters)
        both[~is_here] = entries
        return joined, both


@jit
def chances(stretch: int, n_stretches: int, places: Array, words: Array, shift: int, bins: Bins, chance: Array) -> None:
    """Fill `chance` f32[n]: the fraction of the rows in which each filter has a bit, for an event that has all of its
    names."""
    masks = np.empty(len(bins.n_bins), np.uint64)
    for i in stretch_of(len(places), stretch, n_stretches):
        enter_masks(np.int64(places[i]), words, shift, bins, masks)
        product = 1.0
        for a in range(len(masks)):
            there = masks[a] & ~(_ONE << np.uint64(bins.n_bins[a]))
            product *= max(popcount(there), 1) / bins.n_bins[a]
        chance[i] = product


@jit
def _sort_keys(stretch: int, n_stretches: int, places: Array, words: Array, shift: int, bins: Bins, keys: Array) -> None:
    """Fill `keys` u64[n]: column and first bin of each filter's narrowest mask, then of its second narrowest."""
    masks, n_columns = np.empty(len(bins.n_bins), np.uint64), len(bins.n_bins)
    for i in stretch_of(len(places), stretch, n_stretches):
        enter_masks(np.int64(places[i]), words, shift, bins, masks)
        key, taken = np.uint64(0), n_columns
        for _ in range(2):
            best, narrowest = n_columns, 1.0 / NEARLY
            for a in range(n_columns):
                share = popcount(masks[a]) / (bins.n_bins[a] + 1)
                if a != taken and share * NEARLY < narrowest:
                    best, narrowest = a, share
            first = popcount((masks[best] & (~masks[best] + _ONE)) - _ONE) if best < n_columns else 0
            key = key << np.uint64(16) | np.uint64(best) << np.uint64(6) | np.uint64(first)
            taken = best
        keys[i] = key


@jit
def _fill_rows(stretch: int, n_stretches: int, places: Array, words: Array, shift: int, bins: Bins, bits: Array) -> None:
    """Write the bits of all positions: the masks of 64 filters form a square of bits, which is transposed."""
    n_columns, n_lines = len(bins.n_bins), -(-len(places) // LINE_FILTERS)
    masks, squares = np.empty(n_columns, np.uint64), np.empty((n_columns, 64), np.uint64)
    for word in stretch_of(-(-len(places) // 64), stretch, n_stretches):
        squares[:] = 0
        for i in range(64 * word, min(64 * word + 64, len(places))):
            enter_masks(np.int64(places[i]), words, shift, bins, masks)
            for a in range(n_columns):
                squares[a, i - 64 * word] = masks[a]
        at, stride = row_of(word // LINE_WORDS, n_lines, bins.first_row[n_columns])
        at += word % LINE_WORDS
        for a in range(n_columns):
            _transpose(squares[a])
            for row in range(bins.n_bins[a] + 1):
                bits[at + (bins.first_row[a] + row) * stride] = squares[a, row]


@inlined
def row_of(line: int, n_lines: int, n_rows: int) -> tuple:
    """The first word of a line in row 0, and the number of words from one row of its block to the next."""
    block = line // BLOCK_LINES
    stride = LINE_WORDS * min(n_lines - block * BLOCK_LINES, BLOCK_LINES)
    return block * n_rows * BLOCK_LINES * LINE_WORDS + line % BLOCK_LINES * LINE_WORDS, stride


@nested
def _transpose(square: Array) -> None:
    """Transpose 64 words of 64 bits, in place (Warren, Hacker's Delight, section 7-3)."""
    half, mask = 32, np.uint64(0x00000000FFFFFFFF)
    while half:
        k = 0
        while k < 64:
            differing = (square[k] >> np.uint64(half) ^ square[k + half]) & mask
            square[k] ^= differing << np.uint64(half)
            square[k + half] ^= differing
            k = (k + half + 1) & ~half
        half >>= 1
        mask ^= mask << np.uint64(half)


@jit
def _fill_summary(stretch: int, n_stretches: int, rows: BitRows) -> None:
    """Write the summaries."""
    bits, summary = rows
    n_blocks, n_rows = summary.shape
    n_lines = len(bits) // (LINE_WORDS * n_rows)
    for at in stretch_of(n_blocks * n_rows, stretch, n_stretches):
        block, row, lines = at // n_rows, at % n_rows, np.uint64(0)
        for line in range(block * BLOCK_LINES, min((block + 1) * BLOCK_LINES, n_lines)):
            first, stride = row_of(line, n_lines, n_rows)
            for word in range(first + row * stride, first + row * stride + LINE_WORDS):
                if bits[word]:
                    lines |= _ONE << np.uint64(line % BLOCK_LINES)
        summary[block, row] = lines


@jit
def enter_bits(positions: Array, places: Array, words: Array, shift: int, bins: Bins, rows: BitRows) -> None:
    """Write all bits of the filters at `positions` i64, which share a word of each row; 64 filters cost as much memory
    traffic as one.  Their checks are at `places` i64 of `words`."""
    (bits, summary), n_columns = rows, len(bins.n_bins)
    n_rows, masks, squares = summary.shape[1], np.empty(n_columns, np.uint64), np.zeros((n_columns, 64), np.uint64)
    mine = np.uint64(0)
    for i in range(len(positions)):
        enter_masks(places[i], words, shift, bins, masks)
        mine |= _ONE << np.uint64(positions[i] % 64)
        for a in range(n_columns):
            squares[a, positions[i] % 64] = masks[a]
    line = positions[0] // LINE_FILTERS
    at, stride = row_of(line, len(bits) // (LINE_WORDS * n_rows), n_rows)
    at += positions[0] % LINE_FILTERS // 64
    for a in range(n_columns):
        _transpose(squares[a])
        for nth in range(bins.n_bins[a] + 1):
            row = bins.first_row[a] + nth
            bits[at + row * stride] = bits[at + row * stride] & ~mine | squares[a, nth]
            if squares[a, nth]:
                summary[line // BLOCK_LINES, row] |= _ONE << np.uint64(line % BLOCK_LINES)


@jit
def remove_bits(positions: Array, rows: BitRows, bins: Bins) -> None:
    """Clear the bits of filters in the first column.  Every event reads one of its rows, so this hides the filters."""
    bits, summary = rows
    n_rows = summary.shape[1]
    for position in positions:
        first, stride = row_of(position // LINE_FILTERS, len(bits) // (LINE_WORDS * n_rows), n_rows)
        first += position % LINE_FILTERS // 64
        for row in range(bins.first_row[1]):
            bits[first + row * stride] &= ~(_ONE << np.uint64(position % 64))
