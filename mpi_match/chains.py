"""Who came to whom: chains of numbers, one for each owner, in flat arrays.

    first   owner  -> 7            7 came last, before it 3, before that 5
    before  number -> 7: 3   3: 5
    behind  number -> 3: 7   5: 3

Millions of sets would do as well, but Python's garbage collector looks at each of them again and again, and everything
stands still meanwhile; it does not look into arrays.  Numbers are kept one higher, so that 0 is nobody.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mpi_match.arrays import with_room


class Chains:
    """A number is in the chain of one owner at most."""

    def __init__(self, n_owners: int, n_numbers: int) -> None:
        # as views, whose items Python has in half the time of an array's
        self._first, self._before, self._behind = (np.zeros(0, np.uint32).data for _ in range(3))
        self._is_in = np.zeros(0, np.uint8).data
        self.have(n_owners, n_numbers)

    def have(self, n_owners: int, n_numbers: int) -> None:
        """Be ready for owners and numbers below these."""
        if n_owners > len(self._first):
            self._first = _longer(self._first, n_owners)
        if n_numbers > len(self._is_in):
            self._before, self._behind = _longer(self._before, n_numbers), _longer(self._behind, n_numbers)
            self._is_in = _longer(self._is_in, n_numbers)

    def __contains__(self, number: int) -> bool:
        """Is a number in any chain?"""
        return bool(self._is_in[number])

    def of(self, owner: int) -> Iterator[int]:
        """The numbers of an owner, the last that came first."""
        number = self._first[owner]
        while number:
            yield number - 1
            number = self._before[number - 1]

    def add(self, owner: int, number: int) -> None:
        """Let a number that is in no chain come to an owner."""
        last = self._first[owner]
        self._before[number], self._behind[number], self._is_in[number] = last, 0, 1
        if last:
            self._behind[last - 1] = number + 1
        self._first[owner] = number + 1

    def remove(self, owner: int, number: int) -> None:
        """Let a number go that is in the chain of an owner."""
        before, behind = self._before[number], self._behind[number]
        self._is_in[number] = 0
        if before:
            self._behind[before - 1] = behind
        if behind:
            self._before[behind - 1] = before
        else:
            self._first[owner] = before


def _longer(view: memoryview, n: int) -> memoryview:
    return with_room(np.asarray(view), n).data
