"""The grid of the keyed engines: filters with areas, and filters added later, in a hash table that changes in place.

The trie of `index.layout` is fast because it is packed, so it cannot change, and it does not index areas.  Filters that have
an area, or were added to a live engine, are here instead, each under its **bucket key**: its rarest feature, or a group of
three of its names if fewer events have all of them (or none, for a filter without constraints).  The plane is cut into
square cells, with a *level* for every power of two.  A circle belongs to the level whose cells are just wider than it, so it
touches at most four of them (nine in the worst case of rounding):

    level: cells 4 wide                    keys of a filter      each of its cells, with its bucket key
    ┌───┬───┬───┐                          keys of an event      for every level in use: the one cell that contains it, with
    │   │ .-│-. │    circle of radius 1.5                        each of its features and name groups, and with none
    ├───┼(──┼──)┤    touches four cells
    │   │ '-│-' │
    └───┴───┴───┘    a filter without an area is EVERYWHERE: a level of one cell that contains every event

A key is hashed to a *block*, a cache line of eight words:

    probe length | entry | entry | ... seven of them     probe length: the distance, in blocks, from this home block to the
                                                         last entry of a key with this home

    entry    slot + 1 (32 bits) | names (8) | r (8) | y (8) | x (8)      0: free

An entry whose home is full is stored in the next block that is not (linear probing).  A lookup nearly always reads one
block.  Inserting writes one word and removing clears one, both in place: a move costs a few cache lines, any number of moves
can be made concurrently (by compare-and-swap), and after a million of them no array has grown or been rebuilt.  A key that
many filters share is divided into 2^k *sub-buckets*, and a lookup reads them all, so no probe sequence is long.

x, y and r are the circle in 128ths of a cell, rounded so that it can only become larger.  `names` is a Bloom filter of the
names that the filter asks for, as in CLCB (Cugola & Margara, Middleware 2012).  An event outside the circle, or without one
of the names, is rejected without reading the filter.  Other filters are verified in full:

    slots    x, y, r (f64; r = -1: no area) | place (u32; 0: the filter is removed) | filter id (u32)    32 bytes
    words    at `place`: interface and checks, as in `postings`, all of them

Three names belong to one of 4,096 *name groups*, by their hash.  An event of four names, of eight that filters ask for, has
a given name with probability one half and three given ones with probability one in fourteen.  So filters without an equality
are stored under name groups and are tested a seventh as often.

Correctness requires only that every filter is in the blocks of its keys: an entry found under a wrong key costs one
verification.  A filter's slot stays the same during its lifetime.

`geometry` defines the quantisation of coordinates.
"""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Array, Int, with_room
from mpi_match.compute.compile_cache import jit, nested
from mpi_match.engines.keyed.grid.geometry import IN_BITMAP, LOW, entry_of, hash_of_cell, home_of, span_of

KEEP = np.uint64(1 << 32)
"""Flag of a step whose slot keeps its key, place and filter, because the filter only moves."""
BLOCK_WORDS = 8
BLOCKS_A_FILTER = 4 * 2.5 / (BLOCK_WORDS - 1)
"""Least number of blocks per filter: room for two and a half times its entries if it touches four cells."""
LEAST_BLOCKS_LOG = 4
SLOT_WORDS = 4
STEP_WORDS = 6
SLOT_PLACE, SLOT_FILTER = 6, 7
"""Words of a slot as u32."""
MAX_SUB_BUCKETS = 12
"""Base-2 logarithm of the largest number of sub-buckets of a key."""


class Grid:
    """The hash table in CPU memory, for `n_slots` filters; `blocks` is the least number of blocks.

    blocks       u64[8 B]  B a power of two
    slots        u64[4 S]  see the module
    keys         u64[S]    bucket key of each slot: a feature (as in `FilterRows`, P of them), P for none, from P + 1 on a
                           name group; names << 32
    sub_buckets  u8[P + 1], or u8[P + 1 + N_GROUPS] if bucket keys may be name groups: 1 + the logarithm of the number of
                 sub-buckets of each bucket key, 0 if no filter has it
    """

    def __init__(self, n_slots: int, sub_buckets: Array, blocks: int = 0) -> None:
        self.blocks = np.zeros(BLOCK_WORDS * max(n_blocks(n_slots), blocks), np.uint64)
        self.slots, self.keys, self.sub_buckets = np.zeros(0, np.uint64), np.zeros(0, np.uint64), sub_buckets
        self.hold(n_slots)

    @property
    def n_blocks(self) -> int:
        """The number of blocks, B."""
        return len(self.blocks) // BLOCK_WORDS

    @property
    def room(self) -> int:
        """Filters that fit without long probe sequences; more can be entered, with longer ones."""
        return int(self.n_blocks / BLOCKS_A_FILTER)

    @property
    def nbytes(self) -> int:
        """Bytes in use of all arrays."""
        return self.blocks.nbytes + 8 * (SLOT_WORDS + 1) * self.n_slots + self.sub_buckets.nbytes

    def hold(self, n_slots: int) -> None:
        """Make room for `n_slots` slots."""
        if n_slots > len(self.keys):
            self.slots, self.keys = with_room(self.slots, SLOT_WORDS * n_slots), with_room(self.keys, n_slots)
        self.n_slots = n_slots

    def apply(self, steps: Array) -> None:
        """Change slots, one after another, by `steps` u64[n, 6], see `steps_of`."""
        apply(steps, self.blocks, self.slots, self.keys, self.sub_buckets)


def n_blocks(n_slots: int) -> int:
    """Number of blocks for `n_slots` filters, which fill a fifth to two fifths of them: full blocks cost time, which matters
    more than memory."""
    return 1 << max(LEAST_BLOCKS_LOG, int(n_slots * BLOCKS_A_FILTER).bit_length())


def steps_of(slot: Array, key: Array, area: Array, place: Array, filter_id: Array) -> Array:
    """u64[n, 6]: slot | KEEP, x, y, r (f64; r = -1: no area), place | filter << 32, key; place 0 removes the filter."""
    steps = np.empty((len(slot), STEP_WORDS), np.uint64)
    steps[:, 0] = slot
    steps[:, 1:4] = np.where(np.isnan(area), -1.0, area).view(np.uint64)
    steps[:, 4] = np.asarray(place, np.uint64) | np.asarray(filter_id, np.uint64) << np.uint64(32)
    steps[:, 5] = key
    return steps


@nested
def enter(blocks: Array, home: Int, mask: np.uint64, entry: np.uint64) -> None:
    """Write an entry to the first free word at or after its home.  A kernel does it by another function
    (`kernels.grid`)."""
    block, probe_length = home, np.uint64(0)
    while True:
        for word in range(1, BLOCK_WORDS):
            if blocks[BLOCK_WORDS * block + word] == 0:
                blocks[BLOCK_WORDS * block + word] = entry
                blocks[BLOCK_WORDS * home] = max(blocks[BLOCK_WORDS * home], probe_length)
                return
        block = np.int64(np.uint64(block + 1) & mask)
        probe_length += np.uint64(1)


@nested
def leave(blocks: Array, home: Int, mask: np.uint64, entry: np.uint64) -> None:
    """Clear the word of an entry."""
    for probed in range(np.int64(blocks[BLOCK_WORDS * home]) + 1):
        first = BLOCK_WORDS * np.int64(np.uint64(home + probed) & mask)
        for word in range(first + 1, first + BLOCK_WORDS):
            if blocks[word] == entry:
                blocks[word] = 0
                return


@nested
def change(slot: Int, entering: bool, grid: tuple) -> None:
    """Enter a slot's filter into the blocks of its keys, or remove it from them.

    grid   blocks, its slots as u32 and as f64, keys, sub_buckets
    """
    blocks, records, circles, keys, sub_buckets = grid
    if records[2 * SLOT_WORDS * slot + SLOT_PLACE] == 0 or keys[slot] & LOW == IN_BITMAP:
        return
    x, y, r = circles[SLOT_WORDS * slot], circles[SLOT_WORDS * slot + 1], circles[SLOT_WORDS * slot + 2]
    level, scale, column, row, columns, rows = span_of(x, y, r)
    key, names = np.int64(keys[slot] & LOW), keys[slot] >> np.uint64(32)
    sub_bucket = slot & ((np.int64(1) << (np.int64(sub_buckets[key]) - 1)) - 1)
    mask = np.uint64(blocks.size // BLOCK_WORDS - 1)
    for i in range(columns):
        for j in range(rows):
            entry = entry_of(slot, names, x, y, r, scale, column + i, row + j)
            home = home_of(hash_of_cell(level, column + i, row + j), key, sub_bucket, mask)
            if entering:
                enter(blocks, home, mask, entry)
            else:
                leave(blocks, home, mask, entry)


@jit
def apply(steps: Array, blocks: Array, slots: Array, keys: Array, sub_buckets: Array) -> None:
    """Change slots (`Grid.apply`)."""
    grid = (blocks, slots.view(np.uint32), slots.view(np.float64), keys, sub_buckets)
    for i in range(len(steps)):
        slot, keeps = np.int64(steps[i, 0] & LOW), (steps[i, 0] & KEEP) != 0
        change(slot, False, grid)
        for word in range(1, 4 if keeps else 5):
            slots[SLOT_WORDS * slot + word - 1] = steps[i, word]
        if not keeps:
            keys[slot] = steps[i, 5]
        change(slot, True, grid)


@jit
def enter_all(blocks: Array, slots: Array, keys: Array, sub_buckets: Array) -> None:
    """Enter every slot's filter."""
    grid = (blocks, slots.view(np.uint32), slots.view(np.float64), keys, sub_buckets)
    for slot in range(len(keys)):
        change(slot, True, grid)


def occupancy(area: Array, bucket_keys: Array, n_bucket_keys: int) -> tuple[Array, Array]:
    """Measure how filters (area f64[n, 3], bucket_keys u32[n]) share their keys.

    Returns for each bucket key the number of its entries, and the sum over its entries of the number of entries with the
    same key.  A large table is sampled: one key in 16.
    """
    sample = 15 if len(area) > 2**16 else 0
    counts = np.zeros(1 << max(8, (8 * len(area) // (sample + 1)).bit_length()), np.uint32)
    entries, sharing = np.zeros(n_bucket_keys, np.int64), np.zeros(n_bucket_keys, np.int64)
    _count_sharing(area, bucket_keys, np.uint64(sample), counts, entries, sharing)
    return entries, sharing


@jit
def _count_sharing(area: Array, bucket_keys: Array, sample: int, counts: Array, entries: Array, sharing: Array) -> None:
    """Count the entries of each key, by its hash; then fill `entries` and `sharing`."""
    mask = np.uint64(len(counts) - 1)
    for summing in range(2):
        for f in range(len(area)):
            level, _, column, row, columns, rows = span_of(area[f, 0], area[f, 1], area[f, 2])
            for i in range(columns):
                for j in range(rows):
                    key = np.uint64(
                        home_of(hash_of_cell(level, column + i, row + j), bucket_keys[f], 0, np.uint64(0xFFFFFFFFFFFF))
                    )
                    if key & sample:
                        continue
                    place = key >> np.uint64(4) & mask
                    if summing:
                        entries[bucket_keys[f]] += 1
                        sharing[bucket_keys[f]] += counts[place]
                    else:
                        counts[place] += np.uint32(1)
