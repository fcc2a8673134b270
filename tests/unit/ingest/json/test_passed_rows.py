"""Rows, text and files that a program passes: the events, and the reasons, are those of `rows.judge`, row by row."""

from __future__ import annotations

import gzip
import io
import math
import types
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_match import api, make_event
from mpi_match.events.batch import EventBatch
from mpi_match.events.events import Events
from mpi_match.ingest.json import passed_rows
from mpi_match.ingest.json.event_scanner import EventScanner
from mpi_match.ingest.json.passed_rows import blocks_of_rows
from mpi_match.ingest.rows.flatten import Names
from mpi_match.ingest.rows.judge import MAX_LINE_BYTES, EventForm, Reject, event_of_passed, names_of, row_text
from mpi_match.live import LiveMatcher
from mpi_match.model import Event, ModelError

NAMES = ["a", "s", "p.x", "p.q.s", "l", "é"]
NUMERIC: list[list[Any]] = [["=", 0], ["<", 3.5], [">=", 2**53], ["=", True]]
ASKED = [["=", "Rome"], ["contains", "o"], ["exists"], ["has", "},{"], *NUMERIC]
TABLE = api.make_table(
    {"interface": i, "constraints": [[name, *constraint]]} for name in NAMES for i, constraint in enumerate(ASKED)
)
FORM = EventForm(("a", "p.x"), "id")
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["Rome", "},{", "{", "a\nb", '"', "\\", "\ud800", "", "é", "\x00", "\u2028", "{}"])
)
ODD = st.sampled_from(
    [
        np.int64(3),
        np.float32(0.1),
        np.bool_(True),
        np.array([1, 2]),
        np.array(["a", "Rome"]),
        np.array([[1]]),
        np.array(["2026-01-01"], "M8[ns]"),
        np.longdouble(1) / 3,
        Decimal("0.1"),
        Decimal("NaN"),
        Decimal("1E+999"),
        b"bytes",
        1j,
        2**60,
        math.inf,
        (1, "a"),
        {1, 2},
        [[1]],
        [None],
        [{}],
        [{"x": 1}],
        make_event({"a": 1}),
        types.MappingProxyType({"x": 1}),
        np.ma.masked,
    ]
)
KEYS: st.SearchStrategy[Any] = st.sampled_from([*NAMES, "p", "q", "x", "id", "other"]) | st.sampled_from(
    [1, None, True, 0.5, (1,), b"a", "\ud800"]
)
VALUES = st.recursive(
    SCALARS | ODD,
    lambda inner: st.lists(SCALARS, max_size=3) | st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=2),
    max_leaves=4,
)
OBJECTS: st.SearchStrategy[Any] = st.dictionaries(
    st.sampled_from([*NAMES, "p", "id"]), SCALARS, max_size=3
) | st.dictionaries(KEYS, VALUES, max_size=3)
LINES = st.sampled_from(
    [
        b"",
        b" ",
        b"\n",
        b"{}",
        b'{"a": 1}',
        b' {"a": "Rome"}\r',
        b'{"a": 1}\n{"a": 2}',
        b"[1]",
        b"?",
        b"\x0c",
        b"\xff",
        b"\xef\xbb\xbf{}",
    ]
)
ROWS: st.SearchStrategy[Any] = (
    OBJECTS
    | OBJECTS.map(OrderedDict)
    | OBJECTS.map(types.MappingProxyType)
    | LINES
    | LINES.map(lambda line: line.decode(errors="surrogateescape"))
    | st.sampled_from([make_event({"a": 5}), make_event({"s": "Rome"}, [0, 1], "e"), None, 5, [], [1], ({},)])
)


def judged(rows: Iterable[Any], form: EventForm, names: Names | None) -> tuple[list[Event | None], list[Reject]]:
    events: list[Event | None] = []
    rejects: list[Reject] = []
    for i, row in enumerate(rows):
        try:
            events.append(event_of_passed(row, form, names))
        except ModelError as error:
            rejects.append(Reject(str(error), "", i, row_text(row)))
            events.append(None)
    return events, rejects


def assert_same(found: EventBatch, events: list[Event | None]) -> None:
    expected = Events.of(events).encode(TABLE.vocabulary)
    for mine, its in zip(found.columns, expected.columns, strict=True):
        assert np.array_equal(mine, its, equal_nan=mine.dtype.kind == "f")
    marks = [[] if batch.rejected is None else batch.rejected.tolist() for batch in (found, expected)]
    assert marks[0] == marks[1]


def shown(events: Events) -> list[str]:
    """Events by their text: NaN is not equal to itself."""
    return [
        str(
            None if (event := events.event(i)) is None else event._replace(attributes=dict(sorted(event.attributes.items())))
        )
        for i in range(len(events))
    ]


@pytest.mark.parametrize("form", [EventForm(), FORM], ids=["plain", "located"])
@given(rows=st.lists(ROWS, max_size=12))
def test_rows_are_the_events_that_are_judged(form: EventForm, rows: list[Any]) -> None:
    events, expected = judged(rows, form, names_of(TABLE.vocabulary, form))
    everything, unusable = judged(rows, form, None)
    rejects: list[list[Reject]] = [[], []]
    with (
        patch.object(api, "_FEW_ROWS", 0),
        patch.object(passed_rows, "_ROWS_AT_ONCE", 5),
        patch.object(passed_rows, "_MOST_ROWS", 7),
    ):
        batch = api.make_batch(TABLE, iter(rows), location=form.location, id=form.id, rejects=rejects[0])
        made = api.make_events(rows, location=form.location, id=form.id, rejects=rejects[1])
    assert_same(batch, events)
    assert shown(made) == shown(Events.of(everything))
    assert made.left_out == Events.of(everything).left_out
    assert rejects == [expected, unusable]


@given(rows=st.lists(OBJECTS, min_size=1, max_size=5))
def test_the_first_bad_row_is_named(rows: list[Any]) -> None:
    _, bad = judged(rows, EventForm(), names_of(TABLE.vocabulary, EventForm()))
    _, unusable = judged(rows, EventForm(), None)
    for few in (0, 64):
        with patch.object(api, "_FEW_ROWS", few):
            for make, expected in ((lambda: api.make_batch(TABLE, rows), bad), (lambda: api.make_events(rows), unusable)):
                if not expected:
                    make()
                    continue
                with pytest.raises(ModelError) as error:
                    make()
                assert str(error.value) == str(ModelError(f"event {expected[0].line}: {expected[0].reason}"))


def test_plain_rows_are_scanned_and_not_judged() -> None:
    rows = [{"a": 1.5, "s": "R{me},{", "p": {"x": -(2**53), "q": {"s": "é"}}, "l": ["a", 1, True], "n": None}] * 3000
    scanner = EventScanner(TABLE.vocabulary, EventForm())
    assert sum(scanner.scan(block, []).n_flagged for block in blocks_of_rows(rows)) == 0
    odd = [{"a": np.int64(1), "s": np.str_("x"), "l": np.array([1.5]), "d": Decimal(5)}] * 3000
    assert sum(scanner.scan(block, []).n_flagged for block in blocks_of_rows(odd)) == 0


def test_what_json_cannot_say_is_judged() -> None:
    deep: dict[str, Any] = {"a": 1}
    deep["p"] = deep
    rows = [{"a": 1}, deep, {"a": 2}, {"a": 10**5000}]
    rejects: list[Reject] = []
    with patch.object(api, "_FEW_ROWS", 0):
        batch = api.make_batch(TABLE, rows, rejects=rejects)
    assert batch.rejected is not None
    assert batch.rejected.tolist() == [1, 3]
    assert "the integer of 16,610 bits is not between" in rejects[1].reason
    assert rejects[0].reason == "the object 'p' contains itself"


def test_names_at_any_depth_that_are_no_strings_are_judged() -> None:
    bad = [{1: 2}, {"p": {"q": {1: 2}}}, {"p": [{"a": 1}, [{"q": {None: 2}}]]}, {"p": ({"a": 1}, {True: 1})}]
    good = [{"p": [{"a": 1}, {"a": 2}]}, {"p": [[{"q": "},{"}]], "l": [{}, {}]}]
    scanner = EventScanner(TABLE.vocabulary, EventForm())
    for row in bad:
        (block,) = blocks_of_rows([*good, row, {"a": 1}])
        assert scanner.scan(block, []).n_flagged == 1
    (block,) = blocks_of_rows(good * 300)
    assert scanner.scan(block, []).n_flagged == 0
    assert block.data.tobytes().count(b"\n") == 600


@pytest.mark.untraced
def test_a_row_of_any_size_is_one_row() -> None:
    rows: list[dict[str, Any]] = [{"s": "x" * (MAX_LINE_BYTES + 9) + "Rome"}, {"a": 0}, {"s": "y" * 2**22}] * 2
    with patch.object(api, "_FEW_ROWS", 0):
        batch = api.make_batch(TABLE, rows)
    assert_same(batch, judged(rows, EventForm(), None)[0])


TEXTS = st.lists(st.sampled_from([b'{"a": 0}', b'{"s": "Rome"}', b"", b"  ", b"{", b'{"a": [1, [2]]}', b"\x00"]), max_size=9)


@given(lines=TEXTS, ends=st.booleans(), kind=st.sampled_from([bytes, bytearray, memoryview]))
def test_text_is_the_rows_of_a_file(
    lines: list[bytes], ends: bool, kind: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = b"\n".join(lines) + b"\n" * ends
    path = tmp_path_factory.mktemp("text") / "e.jsonl"
    path.write_bytes(text)
    rejects: list[list[Reject]] = [[], [], []]
    by_text = api.make_batch(TABLE, kind(text), rejects=rejects[0])
    by_file = api.make_batch(TABLE, path, rejects=rejects[1])
    made = api.make_events(kind(text), rejects=rejects[2])
    rows = [line for line in text.split(b"\n") if line.strip()]
    for batch in (by_text, by_file, made.encode(TABLE.vocabulary)):
        assert_same(batch, judged(rows, EventForm(), None)[0])
    assert [each._replace(file="") for each in rejects[1]] == rejects[0] == rejects[2]


def test_an_open_file_is_its_lines() -> None:
    text = b'{"a": 0}\n\n{"s": "Rome"}\n'
    rejects: list[Reject] = []
    batch = api.make_batch(TABLE, io.BytesIO(text), rejects=rejects)
    assert_same(batch, [make_event({"a": 0}), None, make_event({"s": "Rome"})])
    assert [each.line for each in rejects] == [1]


def test_a_line_that_is_too_long_is_one_bad_row() -> None:
    text = b'{"a": 0}\n{"s": "' + b"x" * (MAX_LINE_BYTES + 5) + b'"}\n{"s": "Rome"}'
    rejects: list[Reject] = []
    batch = api.make_batch(TABLE, text, rejects=rejects)
    assert (len(batch), [(each.line, each.reason) for each in rejects]) == (3, [(2, "the line is longer than 16 MiB")])


def files(directory: Path) -> Iterator[tuple[str, Path]]:
    lines = b'{"a": 0, "s": "Rome"}\n{"a": 3}\n'
    (directory / "e.jsonl").write_bytes(lines)
    (directory / "e.jsonl.gz").write_bytes(gzip.compress(lines))
    (directory / "e.csv").write_bytes(b"a,s\n0,Rome\n3,\n")
    (directory / "rows").mkdir(exist_ok=True)
    (directory / "rows/1.jsonl").write_bytes(lines[:22])
    (directory / "rows/2.ndjson").write_bytes(lines[22:])
    yield from ((name, directory / name) for name in ("e.jsonl", "e.jsonl.gz", "e.csv", "rows"))
    pa = pytest.importorskip("pyarrow")
    import pyarrow.feather
    import pyarrow.parquet

    table = pa.table({"a": [0, 3], "s": ["Rome", None]})
    pyarrow.parquet.write_table(table, directory / "e.parquet")
    pyarrow.feather.write_feather(table, directory / "e.feather")
    yield from ((name, directory / name) for name in ("e.parquet", "e.feather"))


def test_paths_are_read_as_the_command_reads_them(tmp_path: Path) -> None:
    events = [make_event({"a": 0, "s": "Rome"}), make_event({"a": 3})]
    for name, path in files(tmp_path):
        for form in (path, str(path)):
            assert_same(api.make_batch(TABLE, form), list(events))
            is_columns = name.endswith((".parquet", ".feather"))
            expected = [events[0], make_event({"a": 3, "s": None})] if is_columns else events
            assert shown(api.make_events(form)) == shown(Events.of(expected)), name
    live = LiveMatcher(TABLE, engine="reference")
    answers = live.match([{"a": 0, "s": "Rome"}, {"a": 3}])
    assert [live.match(path) for _, path in files(tmp_path / "rows" / "..") if path.is_file()] == [answers] * 5


@pytest.mark.parametrize(
    "make", [api.make_events, lambda events, **how: api.make_batch(TABLE, events, **how)], ids=["events", "batch"]
)
def test_nothing_is_read_as_no_events(make: Any, tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_bytes(b"\n")
    empty: list[Any] = [[], b"", iter(()), tmp_path / "e.jsonl"]
    for nothing in empty:
        assert len(make(nothing)) == 0
    with pytest.raises(FileNotFoundError):
        make(tmp_path / "missing.jsonl")
    with pytest.raises(
        ModelError, match="events are rows, columns, a frame, JSON lines as bytes, or the path of a file, found int 5"
    ):
        make(5)
