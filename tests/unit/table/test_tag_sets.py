"""Tables of tag sets from arrays are those of the same subscriptions."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from tag_tables import tag_filter

from mpi_match.arrays.strings import Strings
from mpi_match.engines import open_engine
from mpi_match.lab.workloads.scenarios import SCENARIOS, TagScenario
from mpi_match.table.name_lookup import NameLookup
from mpi_match.table.table import Table
from mpi_match.table.tag_sets import first_sets, tags_of_filters


@pytest.mark.untraced
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
    assert list(Strings.numbered(b"x", 20_001)) == [b"x%05d" % i for i in range(20_001)]
    assert Strings.numbered(b"x", 20_001).is_sorted()


@pytest.mark.parametrize(
    "items", [[b"a\0", b"a\1"], [b"\x7f", b"\x80", b"\xff"], [b"ba", b"ab"], [b"a\0", b"a\0"], [b"", b""]]
)
def test_strings_of_one_length_compare_by_bytes(items: list[bytes]) -> None:
    assert Strings.of(items).is_below_next().tolist() == [a < b for a, b in pairwise(items)]


@pytest.mark.parametrize("n", [1, 7, 300])
def test_the_first_sets_are_those_that_are_taken(n: int) -> None:
    table = SCENARIOS["tagmatch"].scaled(300).drawn_table(2)()
    assert first_sets(table, n) == table.take(np.arange(n))


def test_tags_of_filters_are_distinct_and_ascend() -> None:
    rows = [["c", "a", "a"], [], ["b"], ["c", "b", "a"]]
    table = Table.from_filters(tag_filter(f"i{k}", names) for k, names in enumerate(rows))
    offsets, tags, sizes = tags_of_filters(table, np.array([2, 0, 1]))  # c, a, b
    assert offsets[-1] == 7
    found = [tags[first : first + n].tolist() for first, n in zip(offsets[:-1], sizes, strict=True)]
    assert found == [[0, 1], [], [2], [0, 1, 2]]


def test_rows_of_tag_sets_are_counted_by_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpi_match.table.validate.MANY_ROWS", 1)
    monkeypatch.setattr("mpi_match.compute.parallel.LEAST_ROWS", 1)
    table = SCENARIOS["tagmatch"].scaled(3000).drawn_table(3)()
    assert not list(table.faults())
    table.filters.size[7] += 1
    table.filters.size[8] -= 1
    assert "constraints do not add up to filters/size" in list(table.faults())


@pytest.mark.untraced
def test_tag_sets_are_counted_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = replace(SCENARIOS["tagmatch"].scaled(300), n_names=20)
    table = scenario.drawn_table(1)()
    batch = scenario.events(40, 1).encode(table.vocabulary)
    expected = open_engine("reference", table).match(batch, filters=True)
    assert expected.n_matches > 100
    for block in (1, 7, 2**20):
        monkeypatch.setattr("mpi_match.engines.counting.COUNTED_FILTERS", block)
        assert open_engine("counting", table).match(batch, filters=True) == expected


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
