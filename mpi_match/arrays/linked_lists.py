"""Doubly linked lists of numbers, one for each owner, threaded through flat arrays.

    first   owner  -> 7            7 was added last, before it 3, before that 5
    before  number -> 7: 3   3: 5
    behind  number -> 3: 7   5: 3

Millions of Python sets would also work, but the garbage collector scans each of them again and again, and the process stops
meanwhile; it does not scan arrays.  Links are stored one higher, so that 0 is the null link.

`push_front` and `unlink` are plain functions of the arrays: they are called directly for one change at a time, and compiled
for hundreds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, with_room
from mpi_match.arrays.undo import Undo


class Links(NamedTuple):
    """Links as arrays or memoryviews: `first` u32 for each owner; `before` and `behind` u32, and `is_in` u8, for each
    number."""

    first: Any
    before: Any
    behind: Any
    is_in: Any


class LinkedLists:
    """Linked lists in which each number belongs to at most one owner."""

    def __init__(self, n_owners: int, n_numbers: int) -> None:
        # memoryviews: Python reads their items in half the time of an array's
        self._links = Links(*(np.zeros(0, dtype).data for dtype in (np.uint32, np.uint32, np.uint32, np.uint8)))
        self.have(n_owners, n_numbers)

    def have(self, n_owners: int, n_numbers: int, undo: Undo | None = None) -> None:
        """Make room for owners below `n_owners` and numbers below `n_numbers`; `undo` keeps the present links."""
        first, *of_numbers = self._links
        if n_owners > len(first) or n_numbers > len(self._links.is_in):
            owners = _longer(first, n_owners) if n_owners > len(first) else first
            numbers = [_longer(view, n_numbers) for view in of_numbers] if n_numbers > len(of_numbers[-1]) else of_numbers
            if undo is not None:
                undo.assign(self, "_links", self._links)
            self._links = Links(owners, *numbers)

    def __getstate__(self) -> list[Array]:
        """Return the links up to the last that is set, for `pickle` and `copy`; call `have` after `__setstate__`."""
        return [np.trim_zeros(view, "b").copy() for view in self.arrays]

    def __setstate__(self, state: list[Array]) -> None:
        n_numbers = max(map(len, state[1:]))
        numbers = (with_room(view, n_numbers)[:n_numbers].data for view in state[1:])
        self._links = Links(state[0].data, *numbers)

    @property
    def arrays(self) -> Links:
        """The links as arrays; `have` may replace them."""
        return Links(*map(np.asarray, self._links))

    def __contains__(self, number: int) -> bool:
        """Tells whether a number is in any list."""
        return bool(self._links.is_in[number])

    def of(self, owner: int) -> Iterator[int]:
        """The numbers of an owner, the most recently added first."""
        number = self._links.first[owner]
        while number:
            yield number - 1
            number = self._links.before[number - 1]

    def note(self, owner: int, number: int, undo: Undo) -> None:
        """Keep the links that `add` or `remove` of this number writes, and perhaps some more."""
        first, before, behind, is_in = self._links
        for view, at in ((first, owner), (before, number), (behind, number), (is_in, number)):
            undo.note(view, at)
        for near in (first[owner], before[number], behind[number]):
            if near:
                undo.note(before, near - 1)
                undo.note(behind, near - 1)

    def add(self, owner: int, number: int) -> None:
        push_front(self._links, owner, number)

    def remove(self, owner: int, number: int) -> None:
        unlink(self._links, owner, number)


def push_front(links: Links, owner: int, number: int) -> None:
    """Insert a number that is in no list at the front of an owner's."""
    last = links.first[owner]
    links.before[number], links.behind[number], links.is_in[number] = last, 0, 1
    if last:
        links.behind[last - 1] = number + 1
    links.first[owner] = number + 1


def unlink(links: Links, owner: int, number: int) -> None:
    """Remove a number from its owner's list."""
    before, behind = links.before[number], links.behind[number]
    links.is_in[number] = 0
    if before:
        links.behind[before - 1] = behind
    if behind:
        links.before[behind - 1] = before
    else:
        links.first[owner] = before


def _longer(view: object, n: int) -> Any:
    return with_room(np.asarray(view), n).data
