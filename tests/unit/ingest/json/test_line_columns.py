"""Events as published, from lines: scanned, joined and encoded in compiled code as `rows` and `Events` have them."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from event_lines import (
    BAD,
    BLANK,
    FORM,
    FORMS,
    GOOD,
    JUDGED_GOOD,
    NAMED_LATER,
    PLAINLY_GOOD,
    SCRIPTS,
    VOCABULARY,
    mutated_lines,
)
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import events, json_lines

from mpi_match.compute import parallel
from mpi_match.events.event_table import save_events
from mpi_match.events.events import Events
from mpi_match.ingest.files import blocks
from mpi_match.ingest.files.blocks import read_blocks
from mpi_match.ingest.json.encode_events import EventsEncoder
from mpi_match.ingest.json.join_events import JoinedEvents
from mpi_match.ingest.json.line_columns import LineColumns
from mpi_match.ingest.rows.judge import PLAIN, EventForm, Reject, event_of_row, read_rows
from mpi_match.model import Event, make_filter
from mpi_match.table.table import Table
from mpi_match.table.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def encoder() -> EventsEncoder:
    return EventsEncoder(VOCABULARY)


def assert_same(found: Events, expected: Events) -> None:
    arrays, wanted = dict(found.arrays()), dict(expected.arrays())
    assert list(arrays) == list(wanted)
    for name, array in wanted.items():
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape), name
        assert arrays[name].tobytes() == array.tobytes(), name


def assert_encoded(encoder: EventsEncoder, found: Events, vocabulary: Vocabulary = VOCABULARY) -> None:
    batch, expected = encoder.encode(found), found.encode(vocabulary)
    for column in ("offsets", "attributes", "location", "rejected"):
        one, other = getattr(batch, column), getattr(expected, column)
        assert (one is None) == (other is None), column
        assert one is None or (one.dtype == other.dtype and one.tobytes() == other.tobytes()), column
    assert batch.fingerprint == expected.fingerprint


def assert_as_judged(path: Path, form: EventForm, encoder: EventsEncoder) -> int:
    """The number of flagged rows."""
    rejects: list[Reject] = []
    expected_rejects: list[Reject] = []
    expected = Events.of(list(read_rows([path], lambda row: event_of_row(row, form), expected_rejects)))
    scanner, joined = LineColumns(form), JoinedEvents()
    for block in read_blocks([path]):
        scanner.scan(block, rejects, joined)
    assert len(joined) == len(expected)
    found = joined.take()
    assert rejects == expected_rejects
    assert_same(found, expected)
    assert found.left_out == expected.left_out
    assert_encoded(encoder, replace(found, left_out={}))
    return scanner.n_flagged


def lines_file(tmp_path: Path, lines: list[bytes]) -> Path:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"\n".join(lines))
    return path


@pytest.mark.parametrize("form", FORMS)
def test_every_kind_of_line(form: EventForm, encoder: EventsEncoder, tmp_path: Path) -> None:
    content = [line for kind in (GOOD, BLANK, BAD, BLANK, JUDGED_GOOD, GOOD) for line in kind]
    assert_as_judged(lines_file(tmp_path, content), form, encoder)


def test_only_doubtful_lines_are_flagged(encoder: EventsEncoder, tmp_path: Path) -> None:
    generator = random.Random(7)
    made = [
        {"city": generator.choice(SCRIPTS), generator.choice(SCRIPTS): generator.random(), "x": generator.gauss(0, 1e-9)}
        | {"y": generator.uniform(-90, 90), "id": i, "nested": {"on": [generator.choice(SCRIPTS), i % 2 == 0]}}
        for i in range(3000)
    ]
    lines = [json.dumps(row, ensure_ascii=i % 2 == 0).encode() for i, row in enumerate(made)]
    assert assert_as_judged(lines_file(tmp_path, [*PLAINLY_GOOD, *lines]), FORM, encoder) <= 1
    assert assert_as_judged(lines_file(tmp_path, GOOD), FORM, encoder) < len(GOOD) - len(PLAINLY_GOOD)
    doubtful = [b'{"a": NaN}', b'{"a.b": 1, "a": {"b": 2}}']
    assert assert_as_judged(lines_file(tmp_path, [*doubtful, b"", b'{"a": 1}']), FORM, encoder) == len(doubtful)


def test_nulls_and_lists_in_lists_are_not_flagged(encoder: EventsEncoder, tmp_path: Path) -> None:
    good = [
        b'{"a": null, "temp": null, "x": null, "y": null}',
        b'{"tags": [null, ["Milan", [1]], [], [[]], [[[2]], true, [null]]], "city": [ [ ] , [ "a" , [ null ] ] ]}',
        b'{"c": [[-122.5, 37.5], [-122.25, 37.25]], "name": {"first": [[1], [2]]}, "id": null}',
    ]
    bad = [b'{"a": [1,]}', b'{"a": [[1, 2]}', b'{"a": [[1], 2]]}', b'{"a": [[1] 2]}', b'{"a": [[,]]}', b'{"a": [[1],]}']
    assert assert_as_judged(lines_file(tmp_path, good), FORM, encoder) == 0
    assert assert_as_judged(lines_file(tmp_path, [*bad, *good]), FORM, encoder) == len(bad)


@pytest.mark.untraced
def test_lists_of_objects_are_not_flagged(encoder: EventsEncoder, tmp_path: Path) -> None:
    """Every line with an object in a list went to Python."""
    good = [
        b'{"r": [{"arn": "a"}, {"arn": "b", "tags": [["x"], [null, "y"]]}], "city": "Milan"}',
        b'{"r": [{"a": null, "b": 1}, {"a": 2, "c": []}, 3, {}, [{"b": [4, {"d": {"e": 5}}]}], {"b": {"f": null}}]}',
        b'{"a": {"r": [{"a\\u0062": 1, "x": {"y": 2}}, {"x": {"y": [3]}, "ab": [[4]]}]}, "temp": [[[{"n": 1}]]], "id": 7}',
        b'{"r":[{"a":[{"b":1},{"b":2}]},{"a":[{"b":3}]}],"s":[{"a":true}],"tags":[' + b"1," * 2000 + b'{"a":1}]}',
        json.dumps({"r": [{f"n{i % 30}": i, "in": {"k": [str(i), {"z": i}]}} for i in range(2000)]}).encode(),
    ]
    flagged = [
        b'{"r": [{"a": 1, "a": 2}]}',
        b'{"r": [{"a": 1}], "r.a": 2}',
        b'{"a.b": [1], "a": [{"b": 2}]}',
        b'{"r": [{"a": 1, "b": {"c": 1}, "b.c": 2}]}',
        *(
            b'{"r": [%b]}' % bad
            for bad in (b'{"a":1,}', b'{"a" 1}', b'{"a":1} {}', b"{a:1}", b'{"a":1]', b'{"a":[1}', b"{,}")
        ),
        b'{"r": ' + b"[" * 70 + b'{"a": 1}' + b"]" * 70 + b"}",
    ]
    assert assert_as_judged(lines_file(tmp_path, good), FORM, encoder) == 0
    assert assert_as_judged(lines_file(tmp_path, [*flagged, *good]), FORM, encoder) == len(flagged)
    generator = random.Random(3)

    def value(depth: int) -> object:
        kind = generator.randrange(8 if depth < 5 else 4)
        if kind < 4:
            return (None, generator.choice(SCRIPTS), generator.randrange(99), 0.5)[kind]
        if kind < 6:
            return [value(depth + 1) for _ in range(generator.randrange(4))]
        return {generator.choice("abc"): value(depth + 1) for _ in range(generator.randrange(4))}

    rows = [{name: value(0) for name in generator.sample(["temp", "tags", "city", "name", "r"], 3)} for _ in range(2000)]
    lines = [json.dumps(row, ensure_ascii=i % 2 == 0).encode() for i, row in enumerate(rows)]
    assert assert_as_judged(lines_file(tmp_path, lines), FORM, encoder) == 0


@pytest.mark.parametrize(("form", "n"), [(PLAIN, 6000), (FORM, 12_000), (NAMED_LATER, 6000)])
@pytest.mark.untraced
def test_mutated_lines(
    form: EventForm, n: int, encoder: EventsEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In many small blocks, each divided among the threads."""
    monkeypatch.setattr(blocks, "READ_BYTES", 100_000)
    monkeypatch.setattr(parallel, "LEAST_ROWS", 1)
    assert assert_as_judged(lines_file(tmp_path, mutated_lines(n, seed=n + 1)), form, encoder) < n


@settings(max_examples=examples(60))
@given(lines=st.lists(json_lines | st.binary(max_size=30), max_size=12), form=st.sampled_from(FORMS))
def test_any_lines(
    lines: list[bytes], form: EventForm, encoder: EventsEncoder, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert_as_judged(lines_file(tmp_path_factory.mktemp("lines"), lines), form, encoder)


@pytest.mark.untraced
def test_pools_that_have_to_grow(encoder: EventsEncoder, tmp_path: Path) -> None:
    """In the midst of a line, in that of a list, for names and for strings, of the scanner and of the whole."""
    lines = [
        json.dumps({f"name {i}": f"text {i}", "list": [f"item {i} {k}" for k in range(i % 7)], "long": "x" * i}).encode()
        for i in range(3000)
    ]
    assert assert_as_judged(lines_file(tmp_path, lines), PLAIN, encoder) == 0


def test_a_line_that_is_too_long_is_a_rejected_row(
    encoder: EventsEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("mpi_match.ingest.rows.judge.MAX_LINE_BYTES", "mpi_match.ingest.files.blocks.MAX_LINE_BYTES"):
        monkeypatch.setattr(module, 1000)
    monkeypatch.setattr(blocks, "READ_BYTES", 500)
    lines = [b'{"temp": 1}', b'{"city": "%b"}' % (b"x" * 2000), b'{"temp": 2}']
    assert assert_as_judged(lines_file(tmp_path, lines), PLAIN, encoder) == 1


@given(st.lists(events(), max_size=8), st.integers(0, 8), st.integers(0, 8))
def test_pieces_joined_are_events_flattened_together(found: list[Event], cut: int, more: int) -> None:
    joined = JoinedEvents()
    for piece in (found[:cut], found[cut : cut + more], found[cut + more :]):
        joined.add(Events.of(piece))
    assert_same(joined.take(), Events.of(found))
    joined.add(Events.of(found[::-1]))
    assert_same(joined.take(), Events.of(found[::-1]))


def test_a_slice_is_joined_as_if_it_were_flattened_alone() -> None:
    whole = [Event({"a": "x", "b": ("y", 1.0)}), None, Event({"b": ("z",), "c": "y"}, (1.0, 2.0), "id"), Event({"a": "x"})]
    joined = JoinedEvents()
    joined.add(Events.of(whole)[1:])
    assert_same(joined.take(), Events.of(whole[1:]))


ELEMENTS = make_filter("i", [["e", "any <", 3], ["e", "any contains", "x"], ["f", "has", "x"], ["g", "suffix", "x"]])


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from("efgh"),
            st.lists(st.sampled_from(["x", "xy", "yx", 0.0, 1.0, 5.0, True, float("nan")]), max_size=3).map(tuple)
            | st.sampled_from(["x", "yx", 0.0, 2.5, False, float("nan")]),
        ),
        max_size=6,
    )
)
def test_elements_and_atoms_are_encoded_as_by_events(rows: list[dict[str, object]]) -> None:
    vocabulary = Table.from_filters([ELEMENTS]).vocabulary
    found = Events.of([*(Event(row) for row in rows), None])  # type: ignore[arg-type]
    assert_encoded(EventsEncoder(vocabulary), found, vocabulary)


def test_more_atoms_than_there_is_room_for_at_first() -> None:
    words = {"".join("ab"[(i >> k) & 1] for k in range(n)) for n in range(1, 7) for i in range(2**n)}
    vocabulary = Table.from_filters([make_filter("i", [["s", "contains", word]]) for word in sorted(words)]).vocabulary
    generator = random.Random(4)
    found = Events.of([Event({"s": "".join(generator.choices("ab", k=200))}) for _ in range(50)])
    assert found.encode(vocabulary).widest > 50
    assert_encoded(EventsEncoder(vocabulary), found, vocabulary)


def test_a_table_of_a_known_batch_has_the_same_bytes(encoder: EventsEncoder, tmp_path: Path) -> None:
    found = Events.of([Event({"temp": 1.0, "city": "Milan", "tags": ("Milan", 2.0)}, (1.0, 2.0), "a"), None])
    save_events(found, tmp_path / "a.h5", VOCABULARY)
    save_events(found, tmp_path / "b.h5", VOCABULARY, batch=encoder.encode(found))
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


def test_taken_events_are_those_events() -> None:
    found = [Event({"a": "x"}, (1.0, 2.0), "id"), None, Event({"b": ("x", 2.0)}), Event({})]
    for rows in ([], [0, 2], [1], [2, 3], [0, 1, 2, 3]):
        taken = Events.of(found).take(np.array(rows, np.int64))
        assert [taken.event(i) for i in range(len(taken))] == [found[i] for i in rows]
