"""One event at a time: the answers, and the reasons for refusals, of reading rows one by one."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from random_rows import random_event, random_subscription

from mpi_match import LiveMatcher, RowMatcher, make_table, open_engine
from mpi_match.ingest.json import published_scanner
from mpi_match.ingest.rows import judge
from mpi_match.ingest.rows.flatten import Names
from mpi_match.ingest.rows.judge import EventForm, event_of_row, parse_json, subscription_filters, trimmed
from mpi_match.model import Event, Filter, ModelError, match_naive

FORM = EventForm(("x", "y"), "id")
TEXTS = [
    b"",
    b"  ",
    b"[]",
    b"null",
    b'{"temp": 1}\n',
    b'{"temp":\n1}',
    b'\xef\xbb\xbf {"temp": 7, "id": 7}\r',
    b'{"temp": 1}{"temp": 2}',
    b'{"temp": 1}\n{"temp": 2}',
    b'{"temp": 1, "temp": 2}',
    b'{"temp": NaN}',
    b'{"temp": 1e400}',
    b'{"temp": 9007199254740993}',
    b'{"temp": 18446744073709551616}',
    b'{"city": "\xff"}',
    b'{"city": "\\ud800"}',
    '{"city": "Milan \U0001f980"}'.encode(),
    b'{"name": {"first": "Milan"}, "name.first": 1}',
    b'{"x": 1}',
    b'{"x": "1", "y": 2}',
    b'{"id": true}',
]
OBJECTS: list[Any] = [
    {1: 2},
    {"temp": np.float64(31)},
    {"temp": np.float32(0.1)},
    {"temp": np.int64(31), "city": np.str_("Milan")},
    {"temp": float("nan")},
    {"temp": float("inf")},
    {"temp": 2**53 + 1},
    {"temp": 2**64},
    {"temp": 10**400},
    {"temp": [1]},
    {"temp": [[1]]},
    {"temp": [1, None]},
    {"tags": ("Milan", True)},
    {"tags": [{"a": 1}]},
    {"temp": None, "city": None},
    {"city": "\ud800"},
    {"city": "a\nb\x00é"},
    {"": "m", "name": {"first": "Mi", "last": {"of": None}}},
    {"name.first": 1, "name": {"first": 2}},
    {"name": {2: 3}},
    {"on": True, "temp": -0.0},
    {"id": 7, "temp": 1},
    [],
    None,
    7,
]


def filters_of(seed: int) -> list[Filter]:
    generator = random.Random(seed)
    return [each for _ in range(80) for each in subscription_filters(random_subscription(generator))]


def judged(row: Any, names: Names) -> Event | str:
    """The event of a row, or the reason why it is none."""
    try:
        found = parse_json(trimmed(row.encode(errors="surrogatepass") if isinstance(row, str) else row))
        return event_of_row(found, FORM, names)
    except ModelError as error:
        return str(error)
    except (AttributeError, TypeError):
        pass
    try:
        return event_of_row(row, FORM, names)
    except ModelError as error:
        return str(error)


def check(matcher: RowMatcher, filters: list[Filter], row: Any) -> bool:
    """Compare the answer to a row, or its refusal, with the model's; is it an event?"""
    expected = judged(row, Names((*(c.name for f in filters for c in f.constraints), *FORM.names)))
    if isinstance(expected, Event):
        assert matcher.match(row) == match_naive(filters, expected)
        return True
    with pytest.raises(ModelError) as caught:
        matcher.match(row)
    assert str(caught.value) == expected
    return False


@pytest.mark.parametrize("engine", ["counting", "keyed"])
def test_answers_and_refusals_are_those_of_rows(engine: str) -> None:
    generator, filters = random.Random(3), filters_of(3)
    table = make_table(filters)
    matcher = RowMatcher(table, open_engine(engine, table), location="x,y", id="id")
    good: list[Mapping[str, Any]] = [random_event(generator) for _ in range(300)]
    given = [*good, *OBJECTS, *TEXTS, *(json.dumps(row) for row in good[:50]), *(json.dumps(row).encode() for row in good)]
    given += [text.decode(errors="surrogateescape") for text in TEXTS]
    generator.shuffle(given)
    assert 600 < sum(check(matcher, filters, row) for row in given) < len(given) - 20


def test_plain_rows_do_not_need_the_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it they would take ten times as long."""
    table = make_table(filters_of(4))
    matcher = RowMatcher(table, open_engine("counting", table))
    monkeypatch.setattr(published_scanner, "event_of_row", None)
    generator = random.Random(5)
    for _ in range(100):
        row = random_event(generator, lists=False)
        for nested in (row, {**row, "tags": [[None, "gpu"], [{"a": [[1], {"b": 2}]}]]}):
            assert matcher.match(nested) == matcher.match(json.dumps(nested, ensure_ascii=False).encode())


def test_rows_of_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer ones than there was room for, and too long ones."""
    filters = list(subscription_filters({"interface": "a", "constraints": [["city", "contains", "zz"]]}))
    table = make_table(filters)
    matcher = RowMatcher(table, open_engine("counting", table))
    monkeypatch.setattr(judge, "MAX_LINE_BYTES", 100_000)
    for n in (10, 4000, 4096, 4097, 50_000, 20, 99_985):
        assert matcher.match({"city": "a" * n}) == []
        assert matcher.match({"city": "a" * n + "zz"}) == ["a"]
    with pytest.raises(ModelError, match="the line is longer than"):
        matcher.match(b'{"city": "' + b"a" * 100_000 + b'"}')


def test_one_event_of_a_live_matcher_sees_changes_and_new_operands() -> None:
    matcher = LiveMatcher([{"interface": "taxi", "constraints": [["seats", ">=", 2]], "area": [0, 0, 1], "id": "t"}])
    ride = b'{"seats": 4, "x": 3, "y": 0}'
    assert matcher.match_one(ride, location="x,y") == []
    matcher.update([{"move": "t", "area": [3, 0, 1]}])
    assert matcher.match_one(ride, location=("x", "y")) == ["taxi"]
    assert matcher.match_one(ride) == []
    matcher.update([{"add": {"interface": "bus", "constraints": [["seats", ">", 3.5]]}}])
    assert matcher.match_one(ride, location="x,y") == ["bus", "taxi"]
    assert matcher.match_one(json.loads(ride), location="x,y") == matcher.match([json.loads(ride)], location="x,y")[0]
    matcher.update([{"remove_interface": "taxi"}])
    assert matcher.match_one(ride, location="x,y") == ["bus"]
    with pytest.raises(ModelError, match="must be an object"):
        matcher.match_one(b"[]")
