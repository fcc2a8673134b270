"""Millions of strings, in parts, so that nothing is ever made anew all at once.

Python's own dictionary is copied into a larger one when keys have come and gone for a while.  With 2.5 million keys that
takes 0.2 seconds, in which nothing else happens, and twice the memory.  A part takes a tenth of a millisecond, and parts
fill up at different times, because how many keys are in each is chance.  A list is copied into a longer one each time that
it has grown by an eighth, in ten milliseconds; a list of parts only gets another part.  Those are NumPy's, into which
Python's collector of garbage does not look.

Numbers are better off in arrays, which have room behind them for nothing (`arrays.with_room`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Generic, TypeVar

import numpy as np

from mpi_match.arrays.csr import Array

N_PARTS = 1021
"""A prime: keys of one part still differ in the bits by which its dictionary tells them apart."""
PART_BITS = 12

Item = TypeVar("Item")


class ChunkedDict(Generic[Item]):
    """`of(key)` is the dictionary that a key is in, if it is in any, and belongs into."""

    def __init__(self) -> None:
        self._parts: list[dict[str, Item]] = [{} for _ in range(N_PARTS)]

    def of(self, key: str) -> dict[str, Item]:
        """The part of a key."""
        return self._parts[hash(key) % N_PARTS]


class ChunkedList(Generic[Item]):
    """A list of items, each None at first; `have` makes it longer."""

    def __init__(self, n: int) -> None:
        self._parts: list[Array] = []
        self._n = 0
        self.have(n)

    def have(self, n: int) -> None:
        """Be so long at least."""
        while len(self._parts) << PART_BITS < n:
            self._parts.append(np.empty(1 << PART_BITS, np.object_))  # of None
        self._n = max(n, self._n)

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, i: int) -> Item | None:
        found: Item | None = self._parts[i >> PART_BITS][i & ((1 << PART_BITS) - 1)]
        return found

    def __setitem__(self, i: int, item: Item | None) -> None:
        self._parts[i >> PART_BITS][i & ((1 << PART_BITS) - 1)] = item

    def __iter__(self) -> Iterator[Item | None]:
        return islice(chain.from_iterable(self._parts), self._n)
