"""Containers of millions of strings in chunks, so that growth never copies all of them at once.

A Python dictionary is copied into a larger one after many insertions and deletions.  With 2.5 million keys the copy takes
0.2 s, during which nothing else runs, and twice the memory.  Copying one chunk takes a tenth of a millisecond, and chunks
fill up at different times, because the number of keys in each is random.  A list is copied each time it has grown by an
eighth, which takes ten milliseconds; a list of chunks only gets another chunk.  Its chunks are NumPy arrays, which Python's
garbage collector does not scan.

Numbers are kept in arrays with spare room instead (`csr.with_room`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Generic, TypeVar

import numpy as np

from mpi_match.arrays.csr import Array

N_CHUNKS = 1021
"""Number of dictionaries; a prime, so that keys of one chunk still differ in the bits that its dictionary uses to
distinguish them."""
CHUNK_BITS = 12

Item = TypeVar("Item")


class ChunkedDict(Generic[Item]):
    """A dictionary in chunks; `of(key)` is the chunk that holds a key, or would hold it."""

    def __init__(self) -> None:
        self._chunks: list[dict[str, Item]] = [{} for _ in range(N_CHUNKS)]

    def of(self, key: str) -> dict[str, Item]:
        return self._chunks[hash(key) % N_CHUNKS]

    def __getstate__(self) -> dict[str, Item]:
        """Return all entries, for `pickle` and `copy`, since another process hashes strings differently."""
        return {key: item for chunk in self._chunks for key, item in chunk.items()}

    def __setstate__(self, state: dict[str, Item]) -> None:
        self._chunks = [{} for _ in range(N_CHUNKS)]
        for key, item in state.items():
            self.of(key)[key] = item


class ChunkedList(Generic[Item]):
    """A list of items, each initially None; `have` extends it."""

    def __init__(self, n: int) -> None:
        self._chunks: list[Array] = []
        self._n = 0
        self.have(n)

    def have(self, n: int) -> None:
        """Grow to at least `n` items."""
        while len(self._chunks) << CHUNK_BITS < n:
            self._chunks.append(np.empty(1 << CHUNK_BITS, np.object_))  # filled with None
        self._n = max(n, self._n)

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, i: int) -> Item | None:
        found: Item | None = self._chunks[i >> CHUNK_BITS][i & ((1 << CHUNK_BITS) - 1)]
        return found

    def __setitem__(self, i: int, item: Item | None) -> None:
        self._chunks[i >> CHUNK_BITS][i & ((1 << CHUNK_BITS) - 1)] = item

    def __iter__(self) -> Iterator[Item | None]:
        return islice(chain.from_iterable(self._chunks), self._n)
