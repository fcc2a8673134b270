"""Who came to whom: chains of numbers, one for each owner, in flat arrays.

    first   owner  -> 7            7 came last, before it 3, before that 5
    before  number -> 7: 3   3: 5
    behind  number -> 3: 7   5: 3

Millions of sets would do as well, but Python's garbage collector looks at each of them again and again, and everything
stands still meanwhile; it does not look into arrays.  Numbers are kept one higher, so that 0 is nobody.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator


class Chains:
    """A number is in the chain of one owner at most."""

    def __init__(self, n_owners: int, n_numbers: int) -> None:
        self._first, self._before, self._behind, self._is_in = array("I"), array("I"), array("I"), bytearray()
        self.have(n_owners, n_numbers)

    def have(self, n_owners: int, n_numbers: int) -> None:
        """Be ready for owners and numbers below these."""
        for chain, n in ((self._first, n_owners), (self._before, n_numbers), (self._behind, n_numbers)):
            chain.frombytes(bytes(max(n - len(chain), 0) * chain.itemsize))
        self._is_in += bytes(max(n_numbers - len(self._is_in), 0))

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
