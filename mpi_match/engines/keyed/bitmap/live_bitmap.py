"""The bitmap of filters that were added to a live engine: a filter's position is its slot of the grid.

Such a filter has the bucket key IN_BITMAP and no entry in the grid; otherwise (its slot, its checks, their allocation) it is
like the filters of the grid (`live_filters`).  Adding a filter writes the bits of its slot, and removing it clears its
bits in one column.  Slots are in the order of time, so lines are excluded less often than in a table's bitmap.

It takes filters that ask for no value, if many events have their three rarest names and their ranges are narrow enough that
most events do not match.
"""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import jit
from mpi_match.engines.keyed.bitmap.bins import Bins
from mpi_match.engines.keyed.bitmap.rows import BLOCK_FILTERS, BitRows, chances, enter_bits, remove_bits
from mpi_match.engines.keyed.grid.bucket_keys import SlotKeys
from mpi_match.engines.keyed.grid.geometry import IN_BITMAP, LOW
from mpi_match.engines.keyed.grid.hash_grid import STEP_WORDS
from mpi_match.engines.keyed.grid.predicates import Added
from mpi_match.engines.keyed.index.filter_rows import (
    ABSENT,
    ATOMIC,
    EQUAL,
    IN_LIST,
    ROW_KIND,
    ROW_NAME,
    CodedFilters,
    FilterRows,
)
from mpi_match.table.kinds import OP_MASK

LATER_ROW_COST = 0.001
"""Cost of a bit in one row, in failed verifications: higher than in the bitmap of a table, whose filters are sorted."""
LEAST_FILTERS = 64
"""Filters of the smallest table from which the frequency of names is estimated; with fewer, events are expected to have all
names."""
_ASKS_FOR_A_VALUE = 1 << EQUAL | 1 << IN_LIST | ATOMIC


class LiveBitmap:
    """Bits for the slots of the grid, in as many blocks of 32,768 as the largest slot with a bit needs.

    places, filters, interfaces   u32, by slot: see `Bitmap`
    """

    def __init__(self, bins: Bins) -> None:
        self.bins, self.rows = bins, BitRows.empty(0, bins.n_rows)
        self.places = self.filters = self.interfaces = np.zeros(0, np.uint32)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in (*self.rows, self.places, self.filters, self.interfaces))

    def apply(self, steps: Array, words: Array, shift: int) -> None:
        """Apply the changes to slots with the key IN_BITMAP (`hash_grid.steps_of`, none with KEEP); their checks are in
        `words`."""
        slots = steps[(steps[:, 5] & LOW) == IN_BITMAP, 0] & LOW
        if not len(slots):
            return
        self._hold(int(slots.max()) + 1)
        enter_steps(steps, words, shift, self.bins, self.rows, (self.places, self.filters, self.interfaces))

    def ready(self, words: Array, shift: int) -> None:
        """Compile the code of `apply`, so that no change waits for it."""
        arrays = self.places, self.filters, self.interfaces
        enter_steps(np.zeros((0, STEP_WORDS), np.uint64), words, shift, self.bins, self.rows, arrays)

    def _hold(self, n_slots: int) -> None:
        """Make room for `n_slots` slots."""
        before, n_blocks = len(self.rows.summary), -(-n_slots // BLOCK_FILTERS)
        if n_blocks > before:
            rows = BitRows.empty(n_blocks * BLOCK_FILTERS, self.bins.n_rows)
            rows.bits[: len(self.rows.bits)], rows.summary[:before] = self.rows.bits, self.rows.summary
            more = np.zeros((n_blocks - before) * BLOCK_FILTERS, np.uint32)
            self.rows, self.places = rows, np.append(self.places, more)
            self.filters, self.interfaces = np.append(self.filters, more), np.append(self.interfaces, more)


def bucket_keys(added: Added, rows: FilterRows, bins: Bins, weight: Array, width: float, shift: int) -> SlotKeys:
    """The keys of added filters, with IN_BITMAP as the bucket key of those that go into the bitmap.

    `weight` is that of features, and `width` the expected number of attributes of an event, 0 if unknown.
    """
    chance, keys = np.empty(len(added.places), np.float32), added.keys._replace(key=added.keys.key.copy())
    chances(0, 1, added.places, added.words, shift, bins, chance)
    _choose(rows.coded, weight, width, LATER_ROW_COST * len(bins.n_bins), (chance, added.areas), keys)
    return keys


@jit
def _choose(
    coded: CodedFilters, weight: Array, width: float, least: float, known: tuple[Array, Array], keys: SlotKeys
) -> None:
    """Set the one key of each filter that goes into the bitmap."""
    (offsets, records, _), (chance, areas) = coded, known
    for f in range(len(chance)):
        has_value, often = not np.isnan(areas[f, 0]), np.ones(3)
        last = np.int64(-1)
        for row in range(offsets[f], offsets[f + 1]):
            form, name = records[row, ROW_KIND] & OP_MASK, np.int64(records[row, ROW_NAME])
            has_value = has_value or _ASKS_FOR_A_VALUE >> form & 1 != 0
            if form != ABSENT and name != last:
                each = min(weight[name] * width, 1.0) if width else 1.0
                at = np.argmax(often)
                often[at] = min(often[at], each)
                last = name
        if not has_value and chance[f] <= 0.5 and often[0] * often[1] * often[2] > least:
            first = keys.offsets[f]
            keys.key[first] = keys.key[first] >> np.uint64(32) << np.uint64(32) | IN_BITMAP


@jit
def enter_steps(
    steps: Array, words: Array, shift: int, bins: Bins, rows: BitRows, of_slots: tuple[Array, Array, Array]
) -> None:
    """Add and remove filters, in the order of the steps."""
    places, filters, interfaces = of_slots
    run, places_of_run, gone = np.empty(64, np.int64), np.empty(64, np.int64), np.empty(1, np.int64)
    n = 0  # filters of the run, which share a word of each row and are written together
    for i in range(len(steps)):
        if steps[i, 5] & LOW != IN_BITMAP:
            continue
        slot, place = np.int64(steps[i, 0] & LOW), np.int64(steps[i, 4] & LOW)
        if n and (n == len(run) or not place or slot // 64 != run[0] // 64):
            enter_bits(run[:n], places_of_run[:n], words, shift, bins, rows)
            n = 0
        if place:
            run[n], places_of_run[n] = slot, place
            n += 1
            places[slot], filters[slot] = place, steps[i, 4] >> np.uint64(32)
            interfaces[slot] = words[place]
        else:
            gone[0] = slot
            remove_bits(gone, rows, bins)
    if n:
        enter_bits(run[:n], places_of_run[:n], words, shift, bins, rows)
