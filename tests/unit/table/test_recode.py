"""A table in a larger vocabulary is the same table: the same filters under the same ids, the same answers."""

from __future__ import annotations

import numpy as np
import pytest
from cases import CASES, event_of, filters_of
from hypothesis import given
from hypothesis import strategies as st
from strategies import events, filters, subscriptions

from mpi_match.engines import open_engine
from mpi_match.events.events import Events
from mpi_match.model import Event, Filter, make_event, make_filter, match_naive
from mpi_match.table import recode
from mpi_match.table.recode import join
from mpi_match.table.table import Table

several_filters = st.lists(filters(), max_size=6)


def assert_same(recoded: Table, table: Table, judged: list[Event]) -> None:
    """A valid table with the content of `table`, and the answers of the model."""
    assert list(recoded.faults()) == []
    assert list(recoded.iter_filters()) == list(table.iter_filters())
    batch = Events.of(judged).encode(recoded.vocabulary)
    expected = [match_naive(list(table.iter_filters()), event) for event in judged]
    for name in ("reference", "counting"):
        assert open_engine(name, recoded).match(batch).labels(recoded.labels) == expected


@given(several_filters, several_filters, st.data())
def test_both_tables_go_on_in_the_joint_vocabulary(a: list[Filter], b: list[Filter], data: st.DataObject) -> None:
    tables = Table.from_filters(a), Table.from_filters(b)
    joint, *recodings = join(*(table.vocabulary for table in tables))
    judged = data.draw(st.lists(events(aimed_at=a + b), max_size=4))
    for recoding, table in zip(recodings, tables, strict=True):
        assert recoding.target is joint
        assert_same(recoding.table(table), table, judged)


@pytest.mark.parametrize("fewer", [0, 50])
@given(several_filters, several_filters)
def test_the_joint_vocabulary_is_that_of_all_filters(fewer: int, a: list[Filter], b: list[Filter]) -> None:
    """Strings are searched for one by one, or sorted with the others."""
    one, two, both = (Table.from_filters(found).vocabulary for found in (a, b, a + b))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recode, "FEWER", fewer)
        (joint, *places), (other, *_) = join(one, two), join(two, one)
    assert joint.digest == both.digest == other.digest
    for recoding in places:
        for old, new in enumerate(recoding.name.tolist()):
            there = recoding.string_place[recoding.source.string_offsets[old] : recoding.source.string_offsets[old + 1]]
            assert [joint.operands_of(new)[at] for at in there] == recoding.source.operands_of(old)


@given(several_filters, st.data())
def test_nothing_new_leaves_the_vocabulary_as_it_is(found: list[Filter], data: st.DataObject) -> None:
    base = Table.from_filters(found)
    some = Table.from_filters(data.draw(st.lists(st.sampled_from(found), max_size=4)) if found else [])
    joint, kept, recoding = join(base.vocabulary, some.vocabulary)
    assert joint is base.vocabulary
    assert kept.is_identity
    assert kept.table(base) is base
    assert_same(recoding.table(some), some, [])


@pytest.mark.untraced
def test_all_cases_in_one_code_space() -> None:
    """Every operator with every neighbour: each case's table in the vocabulary of all cases."""
    everything = Table.from_filters([item for case in CASES for item in filters_of(case)]).vocabulary
    for case in CASES:
        table = Table.from_filters(filters_of(case))
        joint, _, recoding = join(everything, table.vocabulary)
        assert joint is everything
        assert_same(recoding.table(table), table, [event_of(case)])


@pytest.mark.parametrize("op", ["=", "!=", "<", "<=", ">", ">="])
def test_a_bound_stays_beside_its_operand(op: str) -> None:
    table = Table.from_filters([make_filter("i", [["x", op, 20]])])
    more = Table.from_filters([make_filter("i", [["x", "in", [19, 20, 21]], ["a", "exists"]])])
    recoded = join(table.vocabulary, more.vocabulary)[1].table(table)
    assert_same(recoded, table, [make_event({"x": x}) for x in (18, 19, 19.5, 20, 20.5, 21, 22, float("nan"), "20", True)])


@given(subscriptions(max_filters=8), st.data())
def test_some_filters_are_a_table(found: list[Filter], data: st.DataObject) -> None:
    table = Table.from_filters(found)
    ids = sorted(data.draw(st.sets(st.integers(0, len(found) - 1)))) if found else []
    taken = table.take(np.array(ids, np.int64))
    assert list(taken.faults()) == []
    assert list(taken.iter_filters()) == [table.filter(i)._replace(id=None) for i in ids]


@given(several_filters, several_filters)
def test_the_digest_says_what_a_table_holds(a: list[Filter], b: list[Filter]) -> None:
    one, two = Table.from_filters(a), Table.from_filters(b)
    assert (one.digest == two.digest) == (one == two)
    assert one.digest == Table.from_filters(a[::-1]).digest
