"""Linked lists hold what sets would."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mpi_match.arrays.linked_lists import LinkedLists


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9))))
def test_lists_are_sets_of_owners(steps: list[tuple[int, int]]) -> None:
    """Numbers are added and removed, with owners and numbers beyond the previous ones now and then."""
    lists, sets, owner_of = LinkedLists(0, 0), dict[int, set[int]](), dict[int, int]()
    for owner, number in steps:
        lists.have(max(owner, *sets, 0) + 1, max(number, *owner_of, 0) + 1)
        if number in owner_of:
            assert number in lists
            before = owner_of.pop(number)
            lists.remove(before, number)
            sets[before].remove(number)
        else:
            assert number not in lists
            lists.add(owner, number)
            owner_of[number] = owner
            sets.setdefault(owner, set()).add(number)
        for each, expected in sets.items():
            found = list(lists.of(each))
            assert len(found) == len(set(found))
            assert set(found) == expected
