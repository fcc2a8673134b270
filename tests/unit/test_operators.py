"""The records of operators: complete, told apart, the source of what pages say, and the only way to add an operator."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpi_match.ingest.rows.to_json import subscription_rows
from mpi_match.model import OPS, ModelError, constraint, make_filter
from mpi_match.operators import OPERATORS, Form, Op, Takes, Type
from mpi_match.table.constraints import encode
from mpi_match.table.kinds import IS_KIND, N_KINDS, forms_of, kind_of, parts_of, typed_forms
from mpi_match.table.subscriptions import Subscriptions
from mpi_match.table.table import Table

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FORMAT = (ROOT / "mpi_match" / "docs" / "format.md").read_text(encoding="utf-8")
NO_KIND = [kind_of(Type.STRING, Op.BETWEEN), kind_of(Type.ANY, Op.EQ), kind_of(Type.NUMBER, Op.SUFFIX), 15, 31, 255]
"""Numbers that are not a type and operator."""


def test_every_operator_has_a_record_and_every_form_an_operator() -> None:
    assert set(OPERATORS) == set(Op)
    assert {record.form for record in OPERATORS.values()} == set(Form)


def test_no_two_operators_are_written_alike() -> None:
    written = [word for record in OPERATORS.values() for word in (record.symbol, *record.spellings)]
    elements = [record.element for record in OPERATORS.values() if record.element] + [b"<", b">", b"!"]
    assert max(Counter(written).values()) == max(Counter(elements).values()) == 1
    assert all(len(each) == 1 for each in elements)


@pytest.mark.parametrize("kind", NO_KIND)
def test_a_number_that_is_no_kind_is_refused_wherever_rows_are_read(kind: int) -> None:
    kinds = np.array([kind_of(Type.NUMBER, Op.LT), kind], np.uint8)
    for read in (forms_of, typed_forms, lambda some: parts_of(int(some[1]))):
        with pytest.raises(ModelError, match=f"kind {kind}, which is not a type and operator"):
            read(kinds)
    subscriptions = Subscriptions.of([make_filter("i", [["x", "<", 1]])])
    unknown = replace(subscriptions, kind=kinds[1:])
    operands = unknown.operand_offsets, unknown.number, unknown.string, unknown.strings
    with pytest.raises(ModelError, match=f"kind {kind}"):
        encode(unknown.names, unknown.name, unknown.kind, *operands, np.zeros(1, int))
    with pytest.raises(ModelError, match=f"kind {kind}"):
        list(subscription_rows(unknown))


def test_the_kinds_are_those_of_the_records() -> None:
    assert {kind for kind in range(N_KINDS) if IS_KIND[kind]} == {
        kind_of(type_, op) for op, record in OPERATORS.items() for type_ in record.types
    }


@pytest.mark.parametrize("engine", ["reference", "counting", "keyed", "twophase", "sff", "betree"])
def test_engines_refuse_a_table_with_an_unknown_operator(engine: str) -> None:
    """They do not answer as though the row asked for nothing, or for anything."""
    from mpi_match import make_batch, open_engine

    table = Table.from_filters([make_filter("i", [["x", "<", 1], ["y", "=", 1]])])
    batch = make_batch(table, [{"x": 5, "y": 1}])
    kind = np.where(np.arange(2) == 0, 31, table.constraints.kind).astype(np.uint8)
    wrong = Table(table.vocabulary, replace(table.constraints, kind=kind), table.filters, table.labels)
    with pytest.raises(ModelError, match="kind 31"):
        open_engine(engine, wrong).match(batch)


def test_the_error_of_an_unknown_operator_names_all_that_there_are() -> None:
    with pytest.raises(ModelError) as error:
        constraint("temp", "above", 30)
    assert f"there are: {', '.join(OPS)}, and on elements" in str(error.value)
    assert f"there are: {', '.join(OPS)}, and on elements" in README


def test_the_tables_of_the_format_page_are_those_of_the_records() -> None:
    of_types = re.search(r"^Numbers have ops (.*); no other kind exists", FORMAT, re.MULTILINE)
    assert of_types is not None
    shown = [_numbers(each) for each in re.split(r", (?:strings|booleans|\*any\*) ", of_types[1])]
    types = (Type.NUMBER, Type.STRING, Type.BOOLEAN, Type.ANY)
    assert shown == [{int(op) for op, record in OPERATORS.items() if type_ in record.types} for type_ in types]
    atoms = " or ".join(f"{op} ({op.symbol})" for op, record in OPERATORS.items() if record.form is Form.ATOM)
    assert f"| `atoms/op` | `u1` | {atoms} |" in FORMAT
    section = FORMAT[FORMAT.index("### Virtual names") :]
    rows = re.findall(
        r"^\| ((?:`[^`]+`(?:, )?)+) \|", section[: section.index("\n### ") if "\n### " in section else None], re.MULTILINE
    )
    forms = {form for row in rows for form in re.findall(r"`([^`]+)`", row)}
    assert forms >= {record.element.decode() for record in OPERATORS.values() if record.element}


def _numbers(text: str) -> set[int]:
    """The numbers of `0 to 7 and 9 to 11`."""
    found: set[int] = set()
    for part in text.replace(" and ", ", ").split(", "):
        first, _, last = part.partition(" to ")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def test_operators_that_take_bounds_exclude_equal_ones_if_they_exclude_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    between: Any = OPERATORS[Op.BETWEEN]
    assert between.takes is Takes.BOUNDS
    monkeypatch.setitem(OPERATORS, Op.BETWEEN, replace(between, excludes=(True, False)))
    with pytest.raises(ModelError, match=r"from 1\.0 to 1\.0 would never be satisfied"):
        constraint("x", "between", [1, 1])


@pytest.mark.parametrize("kind", ["interval", "atom", "judged"])
def test_operators_of_its_own_run_on_every_engine_and_reader(kind: str) -> None:
    script = ROOT / "tests" / "support" / "own_operators.py"
    ran = subprocess.run([sys.executable, script, kind], check=False, capture_output=True, text=True, timeout=900)
    assert ran.returncode == 0, ran.stderr
    assert "ran reference counting" in ran.stdout
