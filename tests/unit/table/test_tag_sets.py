"""Tables of tag sets from arrays are those of the same subscriptions."""

from __future__ import annotations

import numpy as np
import pytest

from mpi_match.arrays.strings import Strings
from mpi_match.table.name_lookup import NameLookup
from mpi_match.table.table import Table
from mpi_match.workloads.scenarios import SCENARIOS, TagScenario


@pytest.mark.parametrize("n_filters", [1, 3000])
def test_the_table_of_arrays_is_that_of_subscriptions(n_filters: int) -> None:
    scenario = SCENARIOS["tagmatch"].scaled(n_filters)
    assert isinstance(scenario, TagScenario)
    table = scenario.drawn_table(3)()
    assert table == Table.from_subscriptions(scenario.subscriptions(3))
    assert not list(table.faults())


def test_strings_that_end_in_numbers_sort_as_these() -> None:
    assert list(Strings.numbered(b"tag-", 11)) == [b"tag-%02d" % i for i in range(11)]
    assert list(Strings.numbered(b"", 1)) == [b"0"]
    assert Strings.numbered(b"x", 1000).is_sorted()


def test_names_are_found_without_a_dict() -> None:
    rng = np.random.default_rng(5)
    pool = sorted({rng.bytes(int(n)) for n in rng.integers(0, 6, 3000)} | {b"", b"a" * 300})
    others = [rng.bytes(int(n)) for n in rng.integers(0, 6, 3000)]
    lookup = NameLookup(Strings.of(pool))
    wanted = [*pool[::-1], *others]
    place = {name: i for i, name in enumerate(pool)}
    assert lookup.find(Strings.of(wanted)).tolist() == [place.get(name, -1) for name in wanted]
    assert lookup.find(Strings.of([])).tolist() == []
    assert NameLookup(Strings.of([])).find(Strings.of([b"a"])).tolist() == [-1]


def test_names_with_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpi_match.table.name_lookup._hashes", lambda strings: np.zeros(len(strings), np.uint64))
    assert NameLookup(Strings.of([b"a", b"b", b"c"])).find(Strings.of([b"c", b"x", b"a"])).tolist() == [2, -1, 0]
