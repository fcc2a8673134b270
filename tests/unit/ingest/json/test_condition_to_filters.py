"""Conditions that compiled code reads against `table.conditions.decompose`: the same filters and parts, and the rest is
flagged."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from mpi_match.ingest.json.condition_to_filters import MOST_LEAVES, MOST_NESTING
from mpi_match.ingest.json.subscription_scanner import SubscriptionScanner
from mpi_match.ingest.rows.judge import parse_json, subscription_filters
from mpi_match.model import Filter, ModelError
from mpi_match.table.subscriptions import Subscriptions
from mpi_match.table.table import Table

A, B, C, D, E = (["a", "=", 1], ["b", "!=", "x"], ["c", "exists"], ["d", "absent"], ["e", "any =", "é"])


def judged(line: bytes) -> list[Filter] | None:
    try:
        return subscription_filters(parse_json(line))
    except ModelError:
        return None


def assert_as_judged(lines: list[bytes]) -> set[int]:
    """The lines that are flagged; the others have the table that `rows` and `decompose` make."""
    scanner = SubscriptionScanner()
    flagged = {line.line for line in scanner.scan(np.frombuffer(b"".join(line + b"\n" for line in lines), np.uint8))}
    found, rows = scanner.take()
    expected = {at: judged(line) for at, line in enumerate(lines) if at not in flagged}
    assert None not in expected.values(), "a bad row was not flagged"
    per_row = {at: Subscriptions.of(filters or ()).n_filters for at, filters in expected.items()}
    assert {at: rows.tolist().count(at) for at in per_row} == per_row
    filters = [item for each in expected.values() for item in each or ()]
    one, other = Table.from_subscriptions(found), Table.from_filters(filters)
    assert one == other
    assert one.digest == other.digest
    return flagged


def row(where: object, **members: object) -> bytes:
    return json.dumps({"interface": "i", "where": where} | members, ensure_ascii=False).encode()


READ: list[Any] = [
    A,
    {"and": [A]},
    {"not": A},
    {"not": C},
    {"not": D},
    {"not": E},
    {"or": [A, B]},
    {"or": [A, A]},
    {"or": [{"not": A}, {"not": B}, C, D]},
    {"and": [A, {"or": [B, C]}, {"not": D}, {"not": {"and": [A, E]}}]},
    {"not": {"not": {"and": [A, {"and": [B, {"and": [C, {"or": [D, A, A]}]}]}]}}},
    {"and": [{"not": {"or": [A, B]}}, {"not": {"or": [A, B]}}, {"or": [A, B]}]},
    {"or": [{"and": [A, B]}, {"and": [B, A]}, {"and": [{"or": [A, B]}, {"or": [B, A, B]}]}]},
    {"or": [{"and": [A, {"or": [B, {"and": [C, {"or": [D, E]}]}]}]}, {"not": {"or": [A, {"and": [B, C]}]}}]},
    {"or": [["x", "in", [3, 1, 2, 1]], ["x", "in", [1, 2, 3]], ["s", "prefix", "ab"], ["s", "prefix", ""], ["s", "<", "é"]]},
    {"or": [["x", "between", [-0.0, 9007199254740993]], ["x", "=", 9007199254740993], ["x", "=", -0.0], ["x", "=", True]]},
    {"or": [["t", "any in", ["b", "", "a"]], ["t", "any <", 3], ["t", "any !=", True], ["t", "has", 7], ["", "null"]]},
    ["a", "contains", ["x", "y"]],
    ["a", "suffix i", [".EXE", ".dll", ".DLL"]],
    {"not": ["a", "prefix", ["x"]]},
    {
        "and": [
            ["a", "contains i", ["X", "y"]],
            {"not": ["a", "any suffix", ["x", "y", "x"]]},
            {"not": ["b", "= i", "É"[:0]]},
        ]
    },
    {"and": [["a", "=", i] for i in range(MOST_LEAVES)]},
    {"or": [["a", "=", i % 97] for i in range(MOST_LEAVES)]},
    {"or": [{"not": ["a" * i, "=", i]} for i in range(60)]},
    {"and": [["a", "wildcard", "a*b"], {"not": ["a", "wildcard", "a*c"]}]},
]
FLAGGED: list[Any] = [
    {"and": []},
    {"or": [{"and": []}, A]},
    {"and": [["a", "=", i] for i in range(MOST_LEAVES + 1)]},
    {"or": [["a" * 10_000, "=", i] for i in range(20)]},
    ["a", "contains", ["x", "x"]],
    {"not": ["a", "= i", "é"]},
    {"and": [["a", "regexp", "a.*b"]]},
]
BAD: list[Any] = [
    None,
    {},
    [],
    1,
    "a",
    {"or": []},
    {"xor": [A]},
    {"and": A},
    {"not": [A]},
    {"not": None},
    {"and": [A], "or": [B]},
    {"and": [None]},
    {"and": [A, [B]]},
    {"and": [A, {"or": [["a", "above", 1]]}]},
    {"and": [A, {"interface": "a"}]},
    {"where": A},
]


def nested(n: int) -> Any:
    found: Any = A
    for i in range(n):
        found = {("or", "and")[i % 2]: [found, ["a", "=", i]]}
    return found


def test_what_is_read() -> None:
    lines = [row(each) for each in [*READ, nested(MOST_NESTING)]]
    lines += [row(each, area=[1, 2, 3], id="é\n", constraints=[A, D, A]) for each in READ]
    lines += [row(None, constraints=[each, A, C, {"not": D}, each]) for each in READ[:-4]]
    lines += [json.dumps({"id": 7, "where": each, "interface": 1, "tags": ["x"]}).encode() for each in READ]
    of_filters = [{"where": READ[6], "id": "f"}, {"constraints": [A]}, {"where": READ[9], "area": [1, 2, 3]}]
    lines.append(json.dumps({"filters": of_filters, "interface": "x" * 90}).encode())
    lines.append(row({"or": [A, B, C, D, ["b", "=", 1], ["c", "=", 1]]}, id="x" * 2000))
    assert assert_as_judged(lines) == set()


def test_what_is_flagged() -> None:
    lines = [row(each) for each in [*FLAGGED, nested(MOST_NESTING + 1)]]
    assert all(map(judged, lines))
    bad = [row(each) for each in BAD] + [b'{"interface": "i", "where": {"and": [["a", "=", 1],]}}']
    bad += [b'{"interface": "i", "where": {"and": [["a", "=", 1]]', b'{"interface": "i", "where": {"not" ["a", "=", 1]}}']
    bad += [row('{"or": [["a", "=", 1]]}'), row('["a", "=", 1]')]
    bad += [row({"or": [A, B]}, predicate="a = 1"), b'{"where": {"or": [["a", "=", 1], ["b", "=", 1]]}}']
    assert not any(map(judged, bad))
    assert assert_as_judged(lines + bad) == set(range(len(lines + bad)))


def test_a_bad_row_leaves_no_part() -> None:
    """The labels of its parts would be interfaces of the table."""
    of_filters = [{"where": {"or": [A, B]}}, {"where": {"or": []}}]
    assert assert_as_judged([row(A), json.dumps({"interface": "j", "filters": of_filters}).encode()]) == {1}


@pytest.mark.untraced
def test_pools_that_grow_amid_the_parts_of_a_row() -> None:
    lines = [
        row({"or": [{"and": [["a", "=", f"{i}"], ["b", "=", k]]} for k in range(i, i + 30)] + [{"not": ["c", "=", i]}]})
        for i in range(500)
    ]
    assert assert_as_judged(lines) == set()


names = st.sampled_from(["a", "b", "c", "x.y", "é", ""])
numbers = st.sampled_from([0, 1, -0.0, 0.1, 2**53 + 1, 2**64 - 1, -(2**63) + 1])
texts = st.sampled_from(["", "a", "ab", "é", "\n", "🦀"])
leaves = st.one_of(
    st.tuples(names, st.sampled_from(["=", "!=", "<", ">=", "any =", "any >", "has"]), numbers | texts),
    st.tuples(names, st.sampled_from(["= i", "!= i", "contains i", "any suffix i"]), texts),
    st.tuples(names, st.sampled_from(["prefix", "suffix i", "any contains"]), st.lists(texts, min_size=1)),
    st.tuples(names, st.sampled_from(["exists", "absent", "null"])),
    st.tuples(names, st.sampled_from(["prefix", "suffix", "contains", "any prefix", "any contains"]), texts),
    st.tuples(
        names, st.sampled_from(["in", "not in", "any in"]), st.lists(numbers, min_size=1) | st.lists(texts, min_size=1)
    ),
)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.fixed_dictionaries({"not": inner})
        | st.fixed_dictionaries({"and": st.lists(inner, max_size=4)})
        | st.fixed_dictionaries({"or": st.lists(inner, min_size=1, max_size=4)})
    ),
    max_leaves=20,
)
filters = st.fixed_dictionaries(
    {"where": trees},
    optional={"constraints": st.lists(trees, max_size=3), "id": st.text(max_size=3), "area": st.just([1, 2, 3])},
)


@pytest.mark.untraced
@settings(max_examples=examples(300))
@given(rows=st.lists(filters | st.fixed_dictionaries({"filters": st.lists(filters, min_size=1, max_size=3)}), max_size=5))
def test_any_trees(rows: list[dict[str, object]]) -> None:
    lines = [json.dumps({"interface": f"i{at}"} | each).encode() for at, each in enumerate(rows)]
    flagged = assert_as_judged(lines)
    assert all(re.search(rb'"and": \[\]| i", |(prefix|contains)", \[', lines[at]) for at in flagged)
