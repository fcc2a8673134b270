"""The shards that an event can match, and its way there.

    codes     have the shards with a filter whose access constraint they satisfy (`access`)
    cells     have the shards with an area that touches them, and those with a filter without an area

An event goes to the shards that one of its attributes *and* its cell have.  No match is lost: an event that matches a filter
satisfies the filter's access constraint and lies in its area.  A filter without an access constraint brings its shard every
event that its area allows.  Other events may come too: those that satisfy the access constraint and no more, or that have a
code or a place near by.

A worker gets the events of its shard with a bit for each event of the batch, and answers for all of them, so answers are
merged as those of a broadcast.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of
from mpi_match.cluster.distribution.access import ROUTED_CELLS, Accesses, PlaneCells, cell_of, cells_of
from mpi_match.compute.compile_cache import jit
from mpi_match.compute.vectors import lowest_bit
from mpi_match.events.batch import EventBatch, some_bytes, some_to_wire, unmarked
from mpi_match.table.vocabulary import Vocabulary

MOST_SHARDS = 64
"""The shards of an event are bits of a word."""
_MOST_BUCKETS, _MOST_WORDS = 2**12, 2**21
"""Most words of one name, which stand for neighbouring codes if there are more codes, and of all names."""


class Routes(NamedTuple):
    """The shards of codes and cells, as bits.

    shift           bits of the code in a packed attribute
    first, coarse   i64[n_keys + 1], i64[n_keys]: code c of key k has `words[first[k] + (c >> coarse[k])]`
    words           u64
    always, all     shards with a filter without an access constraint; the shards
    cells           see `PlaneCells`
    of_cells        u64[ROUTED_CELLS * ROUTED_CELLS]
    elsewhere       shards with a filter without an area
    """

    shift: int
    first: Array
    coarse: Array
    words: Array
    always: np.uint64
    all: np.uint64
    cells: PlaneCells
    of_cells: Array
    elsewhere: np.uint64


def routes_of(vocabulary: Vocabulary, shards: list[Array], accesses: Accesses, areas: tuple[Array, Array]) -> Routes:
    """The routes to `shards`, the ids of each shard's filters.  `areas` are those of all filters (`RangeReader.areas`)."""
    has_area, circles = areas
    circle_of = np.cumsum(has_area) - 1
    cells = cells_of(circles)
    n_codes = np.append(vocabulary.n_codes, np.ones(vocabulary.n_atoms, np.int64))
    coarse = _coarseness(n_codes, accesses)
    first = offsets_of((n_codes - 1 >> coarse) + 1)
    words, of_cells = np.zeros(first[-1], np.uint64), np.zeros(ROUTED_CELLS * ROUTED_CELLS, np.uint64)
    always = elsewhere = np.uint64(0)
    steps, corners = np.empty(first[-1] + 1, np.int32), np.empty((ROUTED_CELLS + 1, ROUTED_CELLS + 1), np.int32)
    for shard, filters in enumerate(shards):
        bit = np.uint64(1 << shard)
        steps[:], corners[:] = 0, 0
        if _mark_codes(first, coarse, accesses, filters, steps):
            always |= bit
        words[np.cumsum(steps[:-1]) > 0] |= bit
        mine = filters[has_area[filters]]
        if len(mine) < len(filters):
            elsewhere |= bit
        _mark_cells(cells, circles[circle_of[mine]], corners)
        of_cells[corners.cumsum(axis=0).cumsum(axis=1)[:ROUTED_CELLS, :ROUTED_CELLS].reshape(-1) > 0] |= bit
    return Routes(
        shift=vocabulary.shift,
        first=first,
        coarse=coarse,
        words=words,
        always=always,
        all=np.uint64((1 << len(shards)) - 1),
        cells=cells,
        of_cells=of_cells | elsewhere,
        elsewhere=elsewhere,
    )


def _coarseness(n_codes: Array, accesses: Accesses) -> Array:
    """i64[n_keys]: the bits by which the codes of each key are shifted to the number of their word."""
    has = accesses.key >= 0
    key = accesses.key[has]
    is_whole = (accesses.lo[has] == 0) & (accesses.hi[has] == n_codes[key] - 1)
    found, bits = np.full(len(n_codes), 63), np.ceil(np.log2(n_codes)).astype(np.int64)
    apart = np.unique(key[~is_whole])  # other keys need no more than one word
    most = _MOST_BUCKETS
    while most > 1 and int(np.minimum(n_codes[apart], most).sum()) > _MOST_WORDS:
        most //= 2
    found[apart] = np.maximum(bits[apart] - (most.bit_length() - 1), 0)
    return found


@jit
def _mark_codes(first: Array, coarse: Array, accesses: Accesses, filters: Array, steps: Array) -> bool:
    """Add the filters' ranges to `steps`, whose running sum is the number of filters of each word.  Returns True if one of
    them has no range."""
    key, lo, hi = accesses
    without = False
    for f in filters:
        if key[f] < 0:
            without = True
            continue
        k = key[f]
        steps[first[k] + (np.int64(lo[f]) >> coarse[k])] += 1
        steps[first[k] + (np.int64(hi[f]) >> coarse[k]) + 1] -= 1
    return without


@jit
def _mark_cells(cells: PlaneCells, circles: Array, corners: Array) -> None:
    """Add the squares around circles to `corners`, whose running sum in both directions is the number of circles of each
    cell.  Squares are a little larger, because engines round too."""
    for i in range(len(circles)):
        x, y, r = circles[i]
        wide = r + 1e-12 * (r + max(abs(x), abs(y))) + 1e-150
        low, high = cell_of(cells, x - wide, y - wide), cell_of(cells, x + wide, y + wide)
        corners[low // ROUTED_CELLS, low % ROUTED_CELLS] += 1
        corners[low // ROUTED_CELLS, high % ROUTED_CELLS + 1] -= 1
        corners[high // ROUTED_CELLS + 1, low % ROUTED_CELLS] -= 1
        corners[high // ROUTED_CELLS + 1, high % ROUTED_CELLS + 1] += 1


@jit
def route(routes: Routes, offsets: Array, attributes: Array, location: Array, found: Array) -> None:
    """Fill u64[n] with the shards that each event can match, as bits.

    Parameters: the arrays of an `EventBatch`; `location` f64[0, 2] if it has none.
    """
    shift, first, coarse, words, always, every, cells, of_cells, elsewhere = routes
    mask, n_keys = (np.int64(1) << shift) - 1, len(coarse)
    at, has_location = np.int64(0), len(location) > 0
    for event in range(len(offsets) - 1):
        stop = at + np.int64(np.uint32(offsets[event + 1] - offsets[event]))
        shards = always
        for i in range(at, stop):
            packed = np.int64(attributes[i])
            key = packed >> shift
            if not 0 <= key < n_keys:  # a fault of the file, which engines report
                shards |= every
                continue
            at_word = first[key] + ((packed & mask) >> coarse[key])
            shards |= words[at_word] if at_word < first[key + 1] else every
        at = stop
        here = elsewhere
        if has_location and not np.isnan(location[event]).any():
            here = of_cells[cell_of(cells, location[event, 0], location[event, 1])]
        found[event] = shards & here


class Router:
    """Cuts batches of events, encoded with this vocabulary, into one wire form for each shard; any number of threads may.
    It is compiled when it is made."""

    def __init__(self, routes: Routes, vocabulary: Vocabulary) -> None:
        self._routes = routes
        self._n_shards = int(routes.all).bit_length()
        self._counting, self._n_events, self._n_sent = threading.Lock(), 0, 0
        self.split(EventBatch(np.zeros(1, np.uint32), np.zeros(0, vocabulary.packed_dtype), None, vocabulary.fingerprint))

    @property
    def share(self) -> float | None:
        """The share of the shards that an event so far has gone to, on average; None before the first."""
        with self._counting:
            return self._n_sent / (self._n_events * self._n_shards) if self._n_events else None

    def shards(self, batch: EventBatch) -> Array:
        """u64[n]: the shards that each event can match, as bits; none for a rejected row."""
        found = np.empty(batch.n_events, np.uint64)
        route(self._routes, *_arrays(batch), found)
        if batch.rejected is not None:
            found[batch.rejected] = 0
        return found

    def split(self, batch: EventBatch) -> list[tuple[Array, EventBatch]]:
        """For each shard: bits u8[ceil(n / 8)] that mark its events (`np.packbits`), and these events."""
        shards, arrays = self.shards(batch), _arrays(batch)
        n_events, n_attributes = (np.zeros(self._n_shards, np.int64) for _ in range(2))
        _count(shards, arrays[0], n_events, n_attributes)
        with self._counting:
            self._n_events, self._n_sent = self._n_events + batch.n_events, self._n_sent + int(n_events.sum())
        first, start = offsets_of(n_events), offsets_of(n_attributes)
        bits = np.zeros((self._n_shards, -(-batch.n_events // 8)), np.uint8)
        offsets, attributes = np.empty(first[-1], np.uint32), np.empty(start[-1], batch.attributes.dtype)
        location = np.empty((first[-1] if len(arrays[2]) else 0, 2))
        _gather(shards, arrays, bits, (first.copy(), start.copy()), (offsets, attributes, location))
        found = []
        for mine, (i, j), (k, end) in zip(bits, pairwise(first), pairwise(start), strict=True):
            there = np.append(offsets[i:j], np.uint32(end - k))
            places, signatures = None if batch.location is None else location[i:j], None
            if batch.signatures is not None:
                signatures = batch.signatures[np.unpackbits(mine, count=batch.n_events).astype(bool)]
            found.append((mine, EventBatch(there, attributes[k:end], places, batch.fingerprint, signatures=signatures)))
        return found

    def wires(self, batch: EventBatch, buffer_of: Callable[[int], Array]) -> tuple[list[Array], Array]:
        """The wire form of each shard's events (`events.batch.SomeEvents`), and the buffer u8 in which they lie, which
        `buffer_of` gives for a number of bytes."""
        parts = self.split(batch)
        ends = list(accumulate(some_bytes(batch.n_events, some) for _, some in parts))
        buffer = buffer_of(ends[-1])
        wires = [
            some_to_wire(bits, batch.n_events, some, buffer[start:end])
            for (bits, some), (start, end) in zip(parts, pairwise([0, *ends]), strict=True)
        ]
        return wires, buffer

    def wire_of(self, batch: EventBatch, shards: Iterable[int]) -> Array:
        """The wire form of the events of several shards, which one worker has."""
        held = np.bitwise_or.reduce([np.uint64(1) << np.uint64(shard) for shard in shards])
        mine = (self.shards(batch) & held) != 0
        some = batch.picked(np.flatnonzero(mine))
        buffer = np.empty(some_bytes(batch.n_events, some), np.uint8)
        return some_to_wire(np.packbits(mine), batch.n_events, some, buffer)


def _arrays(batch: EventBatch) -> tuple[Array, Array, Array]:
    """Offsets, attributes and locations of a batch, f64[0, 2] if it has none."""
    location = np.empty((0, 2)) if batch.location is None else batch.location
    return unmarked(batch.offsets), unmarked(batch.attributes), unmarked(location)


@jit
def _count(shards: Array, offsets: Array, n_events: Array, n_attributes: Array) -> None:
    """Add up the events of each shard, and their attributes."""
    for event in range(len(shards)):
        length, left = np.int64(np.uint32(offsets[event + 1] - offsets[event])), shards[event]
        while left:
            shard = lowest_bit(left)
            n_events[shard] += 1
            n_attributes[shard] += length
            left &= left - np.uint64(1)


@jit
def _gather(
    shards: Array,
    events: tuple[Array, Array, Array],
    bits: Array,
    ends: tuple[Array, Array],
    some: tuple[Array, Array, Array],
) -> None:
    """Mark the events of each shard in `bits`, and copy them behind those that it has.

    Parameters: `ends` i64[n_shards] each: the places for the next event and the next attribute of each shard in `some`,
    where an event's offset counts from its shard's first attribute.
    """
    offsets, attributes, location = events
    some_offsets, some_attributes, some_location = some
    next_event, next_attribute = ends
    first_attribute, at = next_attribute.copy(), np.int64(0)
    for event in range(len(shards)):
        stop, left = at + np.int64(np.uint32(offsets[event + 1] - offsets[event])), shards[event]
        while left:
            shard = lowest_bit(left)
            left &= left - np.uint64(1)
            n, to = next_event[shard], next_attribute[shard]
            bits[shard, event >> 3] |= 128 >> (event & 7)
            some_offsets[n] = to - first_attribute[shard]
            for i in range(at, stop):
                some_attributes[to] = attributes[i]
                to += 1
            if len(location):
                some_location[n] = location[event]
            next_event[shard], next_attribute[shard] = n + 1, to
        at = stop
