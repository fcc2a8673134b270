"""Virtual names: nothing but what constraints make of them is one, and files with others are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from strategies import constraints

from mpi_match.arrays.strings import Strings
from mpi_match.model import Constraint, ModelError, make_filter
from mpi_match.table.table import Table
from mpi_match.table.virtual_names import of_constraint, parse, shown, to_constraint


@given(constraints(), constraints())
def test_a_constraint_is_stored_as_one_plain_constraint_and_comes_back(a: Constraint, b: Constraint) -> None:
    assert to_constraint(*of_constraint(a)) == a
    assert (of_constraint(a) == of_constraint(b)) == (a == b)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (b"\xff", "neither text nor a virtual name"),
        (b"\xfftags\xff", "neither text nor a virtual name"),
        (b"\xfftags\xff=", "neither text nor a virtual name"),
        (b"\xfftags\xff=xgpu", "neither text nor a virtual name"),
        (b"\xfftags\xff&sgpu", "neither text nor a virtual name"),
        (b"\xfftags\xff<sgpu", "neither text nor a virtual name"),
        (b"\xfftags\xff<b", "neither text nor a virtual name"),
        (b"\xfftags\xff#n" + bytes(8), "neither text nor a virtual name"),
        (b"tags\xff=sgpu", "neither text nor a virtual name"),
        (b"\xff\xc3\xff=sgpu", "a virtual name without a text"),
        (b"\xfftags\xff=s\xc3", "cannot be read"),
        (b"\xfftags\xff=n\x00", "cannot be read"),
        (b"\xfftags\xff=n" + bytes(16), "has one operand"),
        (b"\xfftags\xff=b" + bytes([0x40]) + bytes(7), "is 0 or 1"),
        (b"\xfftags\xff=n\x80" + bytes(7), "not in canonical form"),
        (b"\xfftags\xff@s", "at least one value"),
        (b"\xfftags\xff@s\x00\x00\x00\x02a", "cut off"),
        (b"\xfftags\xff@s\x00\x00\x00\x01b\x00\x00\x00\x01a", "not in canonical form"),
    ],
)
def test_other_bytes_are_no_virtual_name(name: bytes, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        parse(name).operand()
    table = Table.from_filters([make_filter("i", [["tags", "has", "gpu"]])])
    forged = replace(table, vocabulary=replace(table.vocabulary, names=Strings.of([name])))
    assert next(forged.faults()).startswith("names/offsets ")


@pytest.mark.parametrize(("symbol", "operand"), [("any <", 1), ("any >=", "a"), ("any !=", 2), ("has", "a")])
def test_a_virtual_name_has_only_its_own_constraints(symbol: str, operand: object) -> None:
    table = Table.from_filters([make_filter("i", [["x", symbol, operand]])])
    assert not list(table.faults())
    other = Table.from_filters([make_filter("i", [["x", "any between", [1, 2]]])]).vocabulary.names
    if symbol == "has":
        other = Table.from_filters([make_filter("i", [["x", "any <", "a"]])]).vocabulary.names
    forged = replace(table, vocabulary=replace(table.vocabulary, names=other))
    said = "constraints/kind holds an operator that its virtual name does not have"
    if symbol == "has":
        said = "presence/name_offsets has rows of a virtual name that is not asked for presence"
    assert said in list(forged.faults())


def test_people_see_what_a_virtual_name_stands_for() -> None:
    rows: list[list[object]] = [["x", "has", "a"], ["x", "any in", [2, 1]], ["x", "any <", 3], ["y", "=", 1]]
    names = Table.from_filters([make_filter("i", rows)]).vocabulary.names
    assert [shown(name) for name in names] == ["y", "least number of x", "x any = 'a'", "x any in (1.0, 2.0)"]


def test_operators_are_counted_as_they_were_written() -> None:
    rows: list[list[object]] = [["x", "has", "a"], ["x", "any <", 3], ["x", "any <=", 3], ["x", "<", 3]]
    counts = Table.from_filters([make_filter("i", rows), make_filter("j", [["x", "has", "b"]])]).op_counts
    found = {f"{type_.name.lower()} {symbol}": n for (type_, symbol), n in counts.items()}
    assert found == {"string any =": 2, "number any <": 1, "number any <=": 1, "number <": 1}


def test_a_tag_table_asks_for_presence_only() -> None:
    tags = [make_filter("i", [["tags", "has", "a"], ["x", "exists"]]), make_filter("j")]
    assert Table.from_filters(tags).is_tag_table
    for rows in ([["x", "absent"]], [["x", "=", 1]], [["x", "any <", 1]]):
        assert not Table.from_filters([*tags, make_filter("k", rows)]).is_tag_table
    assert not Table.from_filters([*tags, make_filter("k", [], [0, 0, 1])]).is_tag_table
