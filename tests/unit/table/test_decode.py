"""The filters of a table as subscriptions: the table that is made of them is the same one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cases import CASES, filters_of
from hypothesis import given
from hypothesis import strategies as st
from random_tables import SHAPES, random_subscriptions
from strategies import subscriptions
from table_cases import example_filters, filters_of_integers

from mpi_match.model import Filter, make_filter
from mpi_match.table.decode import subscriptions_of
from mpi_match.table.table import Table

MORE = [
    make_filter("all", [["s", "prefix", ""], ["s", "prefix", "a"], ["t", "null"], ["t", "any prefix", ""]]),
    make_filter("all", [["s", "not in", ["b", "", "a"]], ["n", "in", [3, 1, 2]], ["b", "!=", False], ["s", "suffix", ""]]),
]


def again(table: Table) -> Table:
    return Table.from_subscriptions(subscriptions_of(table, np.arange(table.n_filters)))


@pytest.mark.parametrize("filters", [example_filters(), filters_of_integers(), MORE, []], ids=str)
def test_a_table_of_its_filters_is_the_same(filters: list[Filter]) -> None:
    table = Table.from_filters(filters)
    assert again(table) == table


@pytest.mark.untraced
def test_tables_of_all_cases() -> None:
    for case in CASES:
        table = Table.from_filters(filters_of(case))
        assert again(table) == table, case["name"]


@pytest.mark.parametrize("shape", ["every type", "areas"])
def test_large_tables(shape: str) -> None:
    table = Table.from_filters(random_subscriptions(1, replace(SHAPES[shape], n_filters=500))[0])
    assert again(table) == table


@given(found=subscriptions(max_filters=6, max_constraints=3), data=st.data())
def test_some_filters_bring_nothing_of_the_others(found: list[Filter], data: st.DataObject) -> None:
    table = Table.from_filters(found)
    kept = sorted(data.draw(st.sets(st.integers(0, max(table.n_filters - 1, 0)))) if table.n_filters else ())
    expected = Table.from_filters([table.conjunction(i) for i in kept])
    assert Table.from_subscriptions(subscriptions_of(table, np.array(kept, np.int64))) == expected
