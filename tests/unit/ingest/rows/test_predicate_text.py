"""The text language against the model: every text is matched naively, once as filters and once by hand."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_match.ingest.rows import predicate_text
from mpi_match.ingest.rows.predicate_text import PredicateError, parse
from mpi_match.model import OPS, Condition, Constraint, Op, constraint, is_satisfied, make_event, make_filter, matches


def one(text: str) -> Constraint:
    ((found,),) = parse(text)
    assert isinstance(found, Constraint)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("temp > 30", ("temp", ">", 30)),
        ("temp>=30", ("temp", ">=", 30)),
        ("temp < -1.5e3", ("temp", "<", -1500.0)),
        ("temp <= .5", ("temp", "<=", 0.5)),
        ("temp == +7", ("temp", "=", 7)),
        ("temp <> 7", ("temp", "!=", 7)),
        ("city = 'Milan'", ("city", "=", "Milan")),
        ("city != ''", ("city", "!=", "")),
        ("city = 'it''s'", ("city", "=", "it's")),
        (r"city = 'a\'b\\c\n\té'", ("city", "=", "a'b\\c\n\té")),
        ("city PREFIX 'Mi'", ("city", "prefix", "Mi")),
        ("city suffix 'an'", ("city", "suffix", "an")),
        ("city contains 'la'", ("city", "contains", "la")),
        ("alarm = true", ("alarm", "=", True)),
        ("alarm != FALSE", ("alarm", "!=", False)),
        ("city in ('b', 'a')", ("city", "in", ["a", "b"])),
        ("temp not in (1,2)", ("temp", "not in", [1, 2])),
        ("temp between 1 and 5", ("temp", "between", [1, 5])),
        ("file wildcard '*.exe'", ("file", "wildcard", "*.exe")),
        ("line regexp i '^err'", ("line", "regexp i", "^err")),
        ("city = I 'Milan'", ("city", "= i", "Milan")),
        ("city <> i 'Milan'", ("city", "!= i", "Milan")),
        ("city not in i ('a', 'B')", ("city", "not in i", ["a", "B"])),
        ("cities any contains i 'MI'", ("cities", "any contains i", "MI")),
        ("ip in net '10.0.0.0/8'", ("ip", "in net", "10.0.0.0/8")),
        ("ips any in net '::1'", ("ips", "any in net", "::1")),
        ("t before '2026-01-01'", ("t", "before", "2026-01-01")),
        ("t between '2026-01-01' and '2026-02-01T00:00:00Z'", ("t", "between", ["2026-01-01", "2026-02-01T00:00:00Z"])),
        ("\"*\" contains 'secret'", ("*", "contains", "secret")),
        ("city prefix ('a')", ("city", "prefix", "a")),
        ("temp exists", ("temp", "exists")),
        ("temp absent", ("temp", "absent")),
        ("position.x > 1", ("position.x", ">", 1)),
        ('"wind speed" > 1', ("wind speed", ">", 1)),
        ('"and" > 1', ("and", ">", 1)),
        ('"a""b" = 1', ('a"b', "=", 1)),
        ("température > 1", ("température", ">", 1)),
        ("tags has 'gpu'", ("tags", "has", "gpu")),
        ("tags HAS true", ("tags", "any =", True)),
        ("tags any not in ('a', 'b')", ("tags", "any not in", ["a", "b"])),
        ("temps any >= 3", ("temps", "any >=", 3)),
        ("temps any between 1 and 5", ("temps", "any between", [1, 5])),
        ("any any prefix 'a'", ("any", "any prefix", "a")),
        ("has has 1", ("has", "has", 1)),
        ("not temp exists", ("temp", "absent")),
        ("not not temp > 1", ("temp", ">", 1)),
        ("not (not temp exists)", ("temp", "exists")),
    ],
)
def test_one_constraint(text: str, expected: tuple[Any, ...]) -> None:
    assert one(text) == constraint(*expected)


def test_every_operator_of_the_model_can_be_written() -> None:
    written = {
        **{op: f"a {op} 1" for op in ("=", "!=", "<", "<=", ">", ">=")},
        **{op: f"a {op} 'x'" for op in ("prefix", "suffix", "contains", "wildcard", "regexp")},
        **{op: f"a {op} (1)" for op in ("in", "not in")},
        **{"between": "a between 1 and 1", "exists": "a exists", "absent": "a absent", "null": "a null"},
    }
    assert {symbol: one(text).op for symbol, text in written.items()} == OPS


def test_and_binds_before_or() -> None:
    found = parse("area = 'area1' and temp > 30 or wind >= 20 and name prefix 'ab'")
    assert found == [
        (constraint("area", "=", "area1"), constraint("temp", ">", 30)),
        (constraint("wind", ">=", 20), constraint("name", "prefix", "ab")),
    ]


def test_parentheses_multiply_out_and_nothing_stands_twice() -> None:
    a, b, c, d = (constraint(name, "exists") for name in "abcd")
    assert parse("(a exists or b exists) and (c exists or d exists)") == [(a, c), (a, d), (b, c), (b, d)]
    assert parse("a exists and (a exists or a exists)") == [(a,)]


def test_not_is_pushed_through_and_and_or() -> None:
    a, b = constraint("a", "absent"), constraint("b", "exists")
    assert parse("not (a exists or b absent)") == [(a, b)]
    assert parse("not (a exists and b absent)") == [(a,), (b,)]


@pytest.mark.parametrize(
    ("text", "what", "column"),
    [
        ("", "expected a name, found the end", 1),
        ("temp", "expected an operator after 'temp'", 5),
        ("temp > 30 or wind >=", "expected a value, found the end", 21),
        ("temp > 30 wind > 2", "expected 'and', 'or' or the end", 11),
        ("(temp > 30", "to close the parenthesis", 11),
        ("temp > 30)", "expected 'and', 'or' or the end", 10),
        ("city = Milan", "a text goes in single quotes: 'Milan'", 8),
        ('city = "Milan"', "a text goes in single quotes: 'Milan'", 8),
        ("city = 'Milan", "quotes that begin here do not end", 8),
        (r"city = 'a\qb'", r"unknown escape \q", 10),
        ("in = 3", 'goes in double quotes: "in"', 1),
        ("temp > 30 ; drop", "cannot read ';'", 11),
        ("temp > 3x", "cannot read '3'", 8),
        ("temp > 18446744073709551616", "not between -2^63 and 2^64 - 1", 1),
        ("temp > 1e999", "beyond the range of a double", 8),
        ("temp > 1e-400", "is not 0 and too near to it for a double", 8),
        ("temp > " + "9" * 400, "the integer of 1,329 bits is not between", 1),
        ("temp > " + "9" * 5000, "an integer of thousands of digits", 8),
        ("temp > \u0663", "cannot read '\u0663'", 8),
        ("temp > 1\u0663", "cannot read '1'", 8),
        ("city = '" + r"\ude00\ud83d'", "lone surrogate", 1),
        ("city = '" + r"\U0041'", r"unknown escape \U", 9),
        ("city = '" + "''" * 200_000, "quotes that begin here do not end", 8),
        ("temp prefix 3", "not defined for a number", 1),
        ("temp between 5 and 1", "bounds reversed", 1),
        ("temp in ()", "expected a value", 10),
        ("temp in (1, 'a')", "mixes types", 1),
        ("temp not 3", "expected 'in' after 'temp not'", 10),
        ("temp not = 3", "expected 'in' after 'temp not', found =; a complement is written not temp ...", 10),
        ("temp not PREFIX 'a'", "found PREFIX; a complement is written not temp ...", 10),
        ("* contains 'a'", "cannot read '*' here; the name of all strings is \"*\", in double quotes", 1),
        ("ip in net '10.0.0.0/33'", "in net", 1),
        ("line regexp '(a'", "regexp", 1),
        ("t before 'tomorrow'", "needs a date, or a date and time with its offset", 1),
        ("(" * 300 + "a exists" + ")" * 300, "parentheses within one another", 202),
    ],
)
def test_errors_say_what_and_point_at_it(text: str, what: str, column: int) -> None:
    with pytest.raises(PredicateError) as caught:
        parse(text)
    first, shown, caret = str(caught.value).split("\n")
    assert what in first
    assert first.endswith(f"at column {column}")
    pointed = caret.index("^") - 2
    assert text[column - 1 : column] == shown[2:][pointed : pointed + 1]


def test_escaped_pairs_are_one_character_as_in_json() -> None:
    for text in (r"\ud83d\ude00", r"\uD83D\uDE00", r"a\ud83d\ude00''b\u00e9"):
        assert one(f"x = '{text}'").operand == json.loads(f'"{text}"').replace("''", "'")


@pytest.mark.untraced
def test_filters_and_operands_are_counted_before_they_are_made() -> None:
    """As many as are made, before equal ones become one; 20 million of them once were made of 373 KB."""
    a, b = (" or ".join(f"{name}{i} in (1, {i})" for i in range(2, 5)) for name in "ab")
    found = parse(f"({a}) and ({b}) and c exists")
    assert len(found) == 9
    text = "(" + " or ".join(f"a{i} exists" for i in range(1000)) + ")" + " and b in (1, 2)" * 49
    assert len(parse(text + " and c exists")) == 1000  # 1000 * (1 + 98 + 1) operands
    assert len(parse(text + " and c exists" * 2)) == 1, "a condition: they would be 101,000"
    many = "x in (" + ", ".join(map(str, range(120_000))) + ")"
    assert len(parse(many)) == 1, "what does not multiply has no bound but the length of a line"
    assert len(parse(f"{many} and (a exists or b exists)")) == 1


@pytest.mark.untraced
def test_a_predicate_that_explodes_is_a_condition() -> None:
    text = " and ".join(f"(a{i} exists or b{i} exists)" for i in range(60))
    (found,) = parse(text)
    assert len(found) == 60
    assert all(isinstance(each, Condition) for each in found)
    with pytest.raises(PredicateError, match="more than 100,000 constraints"):
        parse(" and ".join(f"(a{i} exists or b{i} exists)" for i in range(50_001)))
    assert len(parse(" and ".join(f"(a{i} exists or b{i} exists)" for i in range(9)))) == 512


names = st.sampled_from(["a", "b", "c"])
leaves = st.builds(
    lambda name, op, value: f"{name} {op} {value}", names, st.sampled_from(["=", "<", ">="]), st.integers(0, 3)
)
presence = st.builds(lambda name, op: f"{name} {op}", names, st.sampled_from(["exists", "absent"]))


def combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(lambda x, op, y: f"({x} {op} {y})", inner, st.sampled_from(["and", "or"]), inner)


positive = st.recursive(leaves | presence, combined, max_leaves=6)
negated = st.recursive(leaves | presence, lambda inner: combined(inner) | inner.map("(not {})".format), max_leaves=6)


def naive(text: str, attributes: dict[str, float]) -> bool:
    """What a text means, by Python's own reading of it: each comparison replaced by its truth."""
    words = text.replace("(", " ( ").replace(")", " ) ").split()
    found, at = [], 0
    while at < len(words):
        if words[at] not in ("a", "b", "c"):
            found.append(words[at])
            at += 1
            continue
        taken = 2 if words[at + 1] in ("exists", "absent") else 3
        wanted = constraint(*words[at : at + 2], *(int(word) for word in words[at + 2 : at + taken]))
        found.append(str(is_satisfied(wanted, attributes)))
        at += taken
    return bool(eval(" ".join(found)))


@given(positive | negated, st.dictionaries(names, st.integers(0, 3).map(float)))
def test_filters_match_what_the_text_says(text: str, attributes: dict[str, float]) -> None:
    event = make_event(attributes)
    assert any(matches(make_filter("i", found), event) for found in parse(text)) == naive(text, attributes)


@given(st.text(max_size=40))
def test_no_text_does_worse_than_an_error(text: str) -> None:
    with contextlib.suppress(PredicateError):  # every other exception fails the test
        parse(text)


@given(st.text())
def test_any_text_can_be_written_as_a_value_and_any_name_quoted(text: str) -> None:
    name, value = '"' + text.replace('"', '""') + '"', "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
    found = one(f"{name} = {value}")
    assert (found.name, found.op, found.operand) == (text, Op.EQ, text)


def test_the_page_of_the_grammar_has_every_operator_and_the_errors_are_as_it_shows() -> None:
    page = (Path(predicate_text.__file__).parent.parent.parent / "docs/predicates.md").read_text(encoding="utf-8")
    grammar, shown = (block.split("```")[0] for block in page.split("```\n")[1::2])
    for words in predicate_text._OPERATORS:
        symbol = " ".join(words)
        if words[-1] == "i":
            assert f"`{symbol}`" in page or words[0] in ("==", "<>"), symbol
        else:
            assert re.search(rf"(?<![\w<>=!]){re.escape(symbol)}(?![\w<>=!])", grammar), symbol
    (reserved,) = re.findall("only in double quotes: `(.*)`", page)
    assert set(reserved.split()) == predicate_text._RESERVED
    with pytest.raises(PredicateError) as error:
        parse("temp not > 30")
    assert str(error.value).splitlines() == shown.splitlines()
    for example in re.findall(r"""`("\*" contains[^`]*|\(a = 1[^`]*)`""", page):
        assert parse(example)
