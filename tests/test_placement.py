"""Placements: groups of workers, a table divided by work, and answers of a group's members as one."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_match.cluster import ClusterError
from mpi_match.cluster.placement import UNEVEN, divide, fewest_parts, groups_of
from mpi_match.cluster.union import unite
from mpi_match.matches import Matches

# Groups


@pytest.mark.parametrize(
    ("n_workers", "placement", "n_groups", "groups"),
    [
        (3, "replicate", None, [[1], [2], [3]]),
        (3, "shard", None, [[1, 2, 3]]),
        (1, "shard", None, [[1]]),
        (6, "hybrid", 2, [[1, 2, 3], [4, 5, 6]]),
        (4, "hybrid", 4, [[1], [2], [3], [4]]),
        (4, "hybrid", 1, [[1, 2, 3, 4]]),
    ],
)
def test_groups(n_workers: int, placement: str, n_groups: int | None, groups: list[list[int]]) -> None:
    assert [list(group) for group in groups_of(n_workers, placement, n_groups)] == groups


@pytest.mark.parametrize(
    ("n_workers", "n_groups", "text"),
    [
        (3, 4, "3 workers cannot form 4 groups; ask for at most 3, or start more ranks"),
        (
            5,
            2,
            "5 workers cannot form 2 groups of one size; start 5 or 7 ranks, or ask for a number of groups that divides the "
            "workers",
        ),
    ],
)
def test_groups_that_cannot_be(n_workers: int, n_groups: int, text: str) -> None:
    with pytest.raises(ClusterError) as refused:
        groups_of(n_workers, "hybrid", n_groups)
    assert (str(refused.value), refused.value.exit_code) == (text, 2)


# Division

amounts = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), max_size=9)


@given(amounts=amounts, n_parts=st.integers(1, 4), most_bytes=st.integers(1, 40))
def test_no_other_division_is_better_balanced(amounts: list[tuple[int, int]], n_parts: int, most_bytes: int) -> None:
    """Every way to cut is tried: none within the limit leaves the most loaded part less."""
    work, n_bytes = (np.array([each[i] for each in amounts], np.int64) for i in (0, 1))
    n = len(amounts)
    cuts = [
        (0, *cut, n)
        for cut in product(range(n + 1), repeat=n_parts - 1)
        if all(a <= b for a, b in pairwise((0, *cut, n)))
        and all(n_bytes[a:b].sum() <= most_bytes for a, b in pairwise((0, *cut, n)))
    ]
    bounds = divide(work.astype(np.float64), n_bytes, n_parts, most_bytes)
    least = fewest_parts(n_bytes, most_bytes)
    if not cuts:
        assert bounds is None
        assert least is None or least > n_parts
        return
    assert bounds is not None
    assert least is not None
    assert least <= n_parts
    assert tuple(bounds.tolist()) in cuts
    best = min(max(work[a:b].sum() for a, b in pairwise(cut)) for cut in cuts)
    assert max(work[a:b].sum() for a, b in pairwise(bounds.tolist())) == best


def test_work_is_divided_and_not_filters() -> None:
    work, n_bytes = np.repeat([10.0, 1.0], [100, 1000]), np.full(1100, 8)
    assert divide(work, n_bytes, 2) == pytest.approx([0, 100, 1100])
    assert divide(work, n_bytes, 2, most_bytes=600 * 8) == pytest.approx([0, 500, 1100])


def test_no_part_takes_much_more_memory_than_its_share() -> None:
    """Filters that are hardly ever looked at still have to be kept."""
    work, n_bytes = np.repeat([1e6, 0.0], [4, 99_996]), np.full(100_000, 8)
    bounds = divide(work, n_bytes, 4)
    assert bounds is not None
    assert np.diff(bounds).max() == UNEVEN * 25_000


def test_fewest_parts() -> None:
    assert fewest_parts(np.array([5, 5, 5]), 10) == 2
    assert fewest_parts(np.array([5, 11, 5]), 10) is None
    assert fewest_parts(np.zeros(0, np.int64), 10) == 1


# Union


@given(
    members=st.integers(1, 4).flatmap(
        lambda n: st.lists(st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=n, max_size=n), max_size=6).map(
            lambda events: [[event[i] for event in events] for i in range(n)]
        )
    )
)
def test_united_answers_are_the_sets_of_what_any_member_found(members: list[list[list[int]]]) -> None:
    parts = [Matches.of(found, 300) for found in members]
    counts, ids = unite([(part.counts, part.ids) for part in parts])
    expected = Matches.of([[i for ids in found for i in ids] for found in zip(*members, strict=True)], 300)
    assert Matches(counts, ids, 300) == expected
    assert (counts.dtype, ids.dtype) == (expected.counts.dtype, expected.ids.dtype)


def test_members_that_answered_for_other_events_are_not_united() -> None:
    one, two = (np.ones(n, np.uint8) for n in (1, 2))
    with pytest.raises(ValueError, match="did not answer for the same events"):
        unite([(one, one), (two, two)])
    with pytest.raises(ValueError, match="did not answer for the same events"):
        unite([(one, one), (one, two)])
