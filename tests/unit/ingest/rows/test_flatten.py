"""Attributes of rows: names that go through objects and lists, and that nothing else makes a row bad."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_match import LiveMatcher, make_batch, make_events, make_table, match
from mpi_match.ingest.rows.flatten import Names
from mpi_match.ingest.rows.judge import PLAIN, EventForm, Reject, event_judge, event_of_row, parse_json
from mpi_match.model import Event, ModelError, make_filter, match_naive


@pytest.mark.parametrize(
    ("line", "attributes"),
    [
        ('{"r": [{"arn": "a"}, {"arn": "b"}]}', {"r": (), "r.arn": ("a", "b")}),
        ('{"r": [{"t": [["x"], [null, "y"]]}, 1, [2, {"t": "z"}]]}', {"r": (1.0, 2.0), "r.t": ("x", "y", "z")}),
        ('{"r": [1, null, [[2], []]], "s": [null], "t": []}', {"r": (1.0, 2.0), "s": (), "t": ()}),
        ('{"r": [{"a": {"b": 1}}, {"a": {"b": 2, "c": [3]}}]}', {"r": (), "r.a.b": (1.0, 2.0), "r.a.c": (3.0,)}),
        ('{"r": [{"a": null}, {}], "o": {}, "n": null}', {"r": (), "n": None}),
        ('{"a": {"b": 1}, "a": {"c": 2}, "d": 3}', {"a.b": 1.0, "a.c": 2.0, "d": 3.0}),
        ('{"": {"": [true]}}', {".": (True,)}),
    ],
)
def test_names_go_through_objects_and_lists(line: str, attributes: dict[str, Any]) -> None:
    assert event_of_row(parse_json(line))._replace(places=None) == Event(attributes)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ('{"a": 1, "a": 1}', "a"),
        ('{"a": null, "a": 1}', "a"),
        ('{"a.b": 1, "a": {"b": 1}}', "a.b"),
        ('{"a": [{"b": 1, "b": 2}]}', "a.b"),
        ('{"a": [{"b.c": 1, "b": {"c": 2}}]}', "a.b.c"),
        ('{"a": [{"b": 1}], "a.b": 2}', "a.b"),
        ('{"a.b": 2, "a": [{"b": 1}]}', "a.b"),
        ('{"a": {"b": [1]}, "a": {"b": [2]}}', "a.b"),
        ('{"a": [{"b": 1}], "a": [{"b": 2}]}', "a.b"),
    ],
)
def test_a_name_that_stands_twice_is_bad_only_where_it_counts(line: str, name: str) -> None:
    row = parse_json(line)
    with pytest.raises(ModelError, match=f"^the name {name!r} occurs twice$"):
        event_of_row(row, PLAIN, Names([name]))
    assert event_of_row(row, PLAIN, Names(["other"])) == Event({})
    everything = event_of_row(row)
    assert name not in everything.attributes
    assert name in (everything.left_out or {})


UNREAD = {
    "beyond": "1" * 25,
    "thousands of digits": "-" + "9" * 5000,
    "infinite": "1e400",
    "nearly nothing": "1e-400",
    "surrogate": r'"\ud800"',
    "in a list": "[1, [1e400]]",
}


@pytest.mark.parametrize("text", UNREAD.values(), ids=UNREAD)
def test_what_cannot_be_read_is_bad_only_where_it_counts(text: str, tmp_path: Path) -> None:
    line = f'{{"n": 7, "x": {text}, "o": [{{"x": {text}}}]}}'
    assert event_of_row(parse_json(line), PLAIN, Names(["n"])) == Event({"n": 7.0})
    for name in ("x", "o.x"):
        with pytest.raises(ModelError, match=f"^attribute {name!r}: "):
            event_of_row(parse_json(line), PLAIN, Names(["n", name]))
        with pytest.raises(ModelError, match=f"^attribute {name!r}: "):
            event_judge(PLAIN, ["n", name])(parse_json(line))
    with pytest.raises(ModelError):
        event_of_row(parse_json(line), EventForm(("x", "n")))
    event = event_of_row(parse_json(line))
    assert sorted(event.left_out or ()) == ["o.x", "x"]
    unnamed, named = make_filter("a", [["n", "=", 7], ["y", "absent"]]), make_filter("a", [["x", "absent"]])
    assert match_naive([unnamed], event) == ["a"]
    assert match_naive([unnamed, named], event) == []
    (tmp_path / "events.jsonl").write_text(f'{{"n": 7}}\n{line}\n')
    assert LiveMatcher([unnamed]).match(tmp_path / "events.jsonl") == [["a"], ["a"]]
    events, rejects = make_events(tmp_path / "events.jsonl"), list[Reject]()
    assert events.left_out == {"x": 1, "o.x": 1}
    table = make_table([unnamed, named])
    with pytest.raises(ModelError, match="the attribute 'x', which filters name, cannot be read in 1 event"):
        match(table, events)
    assert match(table, make_batch(table, tmp_path / "events.jsonl", rejects=rejects)).labels(table.labels) == [["a"], []]
    assert [(each.line, each.reason.startswith("attribute 'x': ")) for each in rejects] == [(2, True)]


def test_depth_has_no_bound() -> None:
    depth = 20_000
    for unnamed in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth, '[{"a":' * depth + "1" + "}]" * depth):
        row = parse_json(f'{{"n": 7, "x": {unnamed}}}')
        assert event_of_row(row, PLAIN, Names(["n"])) == Event({"n": 7.0})
        assert event_of_row(row).attributes["n"] == 7.0
    assert event_of_row(parse_json(f'{{"x": {"[" * depth}5{"]" * depth}}}')) == Event({"x": (5.0,)})
    name = ".".join("a" * 3000)
    named = '{"a":' * 3000 + "1" + "}" * 3000
    assert event_of_row(parse_json(named), PLAIN, Names([name])) == Event({name: 1.0})
    everything = event_of_row(parse_json(named))
    assert everything.attributes == {}
    assert match_naive([make_filter("i")], everything) == ["i"]
    assert match_naive([make_filter("i", [[name, "absent"]])], everything) == []


def test_rows_that_contain_themselves_are_bad() -> None:
    endless_list: list[Any] = [1]
    endless_list.append([endless_list])
    endless: dict[str, Any] = {"a": {}}
    endless["a"]["a"] = endless
    through: dict[str, Any] = {"a": 1}
    through["b"] = [[through]]
    for row in ({"x": endless_list}, endless, through):
        with pytest.raises(ModelError, match="contains itself"):
            event_of_row(row)
    shared = {"b": 1}
    assert event_of_row({"x": [shared, shared], "y": shared}).attributes == {"x": (), "x.b": (1.0, 1.0), "y.b": 1.0}


scalars = st.integers(-3, 3) | st.sampled_from(["", "a", "é"]) | st.booleans() | st.none()
names = st.sampled_from(["a", "b", "a.b", ""])
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4))


@given(st.dictionaries(names, values, max_size=5))
def test_the_names_that_count_are_read_as_all_are(row: dict[str, Any]) -> None:
    everything = event_of_row(parse_json(json.dumps(row)))
    every = [*everything.attributes, *(everything.left_out or ())]
    for name in [*every, "z", "a.a"]:
        if reason := (everything.left_out or {}).get(name):
            with pytest.raises(ModelError, match=f"^{re.escape(reason)}$"):
                event_of_row(row, PLAIN, Names([name]))
        else:
            kept = {key: value for key, value in everything.attributes.items() if key == name}
            assert event_of_row(row, PLAIN, Names([name]))._replace(places=None) == Event(kept)  # lists have other numbers
