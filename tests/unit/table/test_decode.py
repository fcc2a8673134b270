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

from mpi_match.model import Filter, ModelError, holds, make_filter
from mpi_match.table.conditions import by_label, decompose, recompose
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


def test_a_condition_without_its_parts_is_refused() -> None:
    """Shown without them, it would say that nothing satisfies it, and its complement that everything does."""
    for where in ({"or": [["a", "=", 1], ["b", "=", 2]]}, {"not": ["a", "=", 1]}):
        item, *parts = decompose(make_filter("i", [], where=where))
        whole = recompose(item, by_label(parts)).where
        assert whole is not None
        assert [holds(whole, {"a": value}) for value in (1.0, 2.0)] == ["or" in where, "not" in where]
        with pytest.raises(ModelError, match="asks for a part that is not there"):
            recompose(item, {})
