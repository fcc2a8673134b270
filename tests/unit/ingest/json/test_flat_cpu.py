"""Flat lines: what is taken, and that it is what `rows` reads."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np
import pytest
from flat_lines import taken
from plain_event_lines import OF_NUMBERS, integers_among_many_operands, is_row, nearly_plain_lines, plain_line

from mpi_match.events.batch import EventBatch
from mpi_match.events.events import Events
from mpi_match.ingest.codes.code_tables import hashed
from mpi_match.ingest.files.blocks import LineBlock
from mpi_match.ingest.json.event_scanner import EventScanner
from mpi_match.ingest.json.flat_cpu import MOST_FLAT_ATTRIBUTES, NOT_FLAT, FlatLines
from mpi_match.ingest.rows.judge import PLAIN, EventForm, event_of_row, names_of, parse_json, trimmed
from mpi_match.model import Event, ModelError, make_filter
from mpi_match.table.table import Table
from mpi_match.table.vocabulary import Vocabulary

pytestmark = pytest.mark.untraced  # of the compiler

TEXTS = Table.from_filters(
    [
        make_filter("i", [["city", op, text]])
        for op in ("=", "<", "prefix", "contains")
        for text in ("Milan", "Zürich", 'a "quote"', "")
    ]
    + [make_filter("i", [["n", "<", 3.25], ["on", "=", True], ["tags", "has", "gpu"], ["m", "exists"]])]
).vocabulary
FLAT = [
    b'{"city": "Milan", "n": 3}',
    b'{"city":"Milano","on":true}',
    b'{ "n": 2.5e-3, "m": -0.1, "city": "a \\"quote\\" more"}',
    '{"city": "Zürich, in the east", "unknown": "é\\u00e9", "n": 12345678}'.encode(),
    b'{"on": false, "m": 123456789012, "n": 0, "none": null}',
    b'{"tags": "gpu"}',
]
NOT_ONLY_FLAT = [
    b'{"n": {"a": 1}}',
    b'{"n": [1]}',
    b'{"tags": "cpu"}',
    b'{"tags": "gpu", "tags": "gpu"}',
    b'{"tags": "gpu", "tags": 1}',
    b'{"n": null}',
    b'{"n" : 1}',
    b'{"n": 1 }',
    b'{"n": 1, "n": 2}',
    b'{"a name of some length": 1}',
    '{"é": 1}'.encode(),
    b"{}",
    b'{"n": nan}',
    b'{"city": "\xff"}',
]


VIEWS = Table.from_filters(
    [
        make_filter("i", [["address", "in net", "10.0.0.0/8"]]),
        make_filter("i", [["address", "in net", "2001:db8::/32"]]),
        make_filter("i", [["address", "before", "2026-01-01"]]),
        make_filter("i", [["name", "contains i", "X"], ["name", "any prefix", "a"], ["n", "<", 3]]),
    ]
).vocabulary
FLAT_WITH_VIEWS = [
    b'{"address": "10.1.2.3", "n": 2}',
    b'{"n": 7, "address": "2001:db8::7"}',
    b'{"name": "aXe", "other": 1, "address": "2025-12-31"}',
    b'{"name": "b"}',
]
OTHERS_WITH_VIEWS = [
    b'{"address": "10.1.2.3", "address": "2025-12-31"}',
    b'{"address": "10.1.2.3", "address": "10.1.2.3"}',
    b'{"address": 5}',
    b'{"address": ["10.1.2.3"]}',
    b'{"name": null, "n": 1}',
]


def expected(lines: Iterable[bytes], form: EventForm, vocabulary: Vocabulary) -> EventBatch:
    """The batch that `rows` makes of lines; without those that it rejects."""
    events: list[Event | None] = []
    for line in lines:
        try:
            events.append(event_of_row(parse_json(trimmed(line)), form, names_of(vocabulary, form)))
        except ModelError:
            events.append(None)
    return Events.of(events).encode(vocabulary)


def assert_scanned(lines: list[bytes], form: EventForm, vocabulary: Vocabulary) -> None:
    """Lines behind flat ones, so that each is looked at as such a one."""
    rows = [each for line in lines if trimmed(line) for each in (b'{"n": 1}', line)]
    block = LineBlock(np.frombuffer(bytearray(b"\n".join([*rows, b'{"n": 1}']) + b"\n"), np.uint8), "file", 1)
    found, judged = EventScanner(vocabulary, form, 1).scan(block, []).batch, expected([*rows, b'{"n": 1}'], form, vocabulary)
    for row in range(len(judged)):
        mine, theirs = (batch[row : row + 1].attributes.tolist() for batch in (found, judged))
        assert mine == theirs, rows[row]
    assert np.array_equal(found.offsets, judged.offsets)
    rejected = [[] if batch.rejected is None else batch.rejected.tolist() for batch in (found, judged)]
    assert rejected[0] == rejected[1]


def test_flat_lines_are_taken_as_such() -> None:
    generator = random.Random(1)
    lines = [line for line in (plain_line(generator, n) for n in (1, 2, 3) * 30) if is_row(line)]
    assert len(lines) > 60
    for vocabulary, all_ in ((OF_NUMBERS, lines), (TEXTS, FLAT)):
        for line in all_:
            end, attributes = taken(line, vocabulary)
            assert end == len(line), line
            judged = expected([line], PLAIN, vocabulary).attributes.tolist()
            assert [each for each in judged if each in attributes] == attributes  # atoms come later
            assert len(attributes) >= len(judged) - vocabulary.n_atoms


def test_others_are_not() -> None:
    for line in NOT_ONLY_FLAT:
        assert taken(line, TEXTS)[0] == NOT_FLAT, line
    assert_scanned(NOT_ONLY_FLAT + FLAT, PLAIN, TEXTS)


def test_names_with_views() -> None:
    for line in FLAT_WITH_VIEWS:
        assert taken(line, VIEWS)[0] == len(line), line
    for line in OTHERS_WITH_VIEWS:
        assert taken(line, VIEWS)[0] == NOT_FLAT, line
    assert_scanned(FLAT_WITH_VIEWS + OTHERS_WITH_VIEWS, PLAIN, VIEWS)


def test_a_name_may_be_empty() -> None:
    assert_scanned(
        [b'{"": 7}', b'{"n": 2, "": 8}'], PLAIN, Table.from_filters([make_filter("i", [["", "=", 7]])]).vocabulary
    )


def test_no_line_is_taken_whose_end_is_too_near() -> None:
    line = b'{"n": 1, "m": 7}'
    assert taken(line, OF_NUMBERS)[0] == len(line)
    assert [taken(line, OF_NUMBERS, behind)[0] for behind in (0, 20)] == [NOT_FLAT, NOT_FLAT]


def test_names_that_no_constraint_uses_are_any_number_and_may_stand_twice() -> None:
    line = b"{" + b", ".join(b'"x%d": %d' % (i, i) for i in range(200)) + b', "n": 5}'
    for each in (line, b'{"x": 1, "y": 2, "x": 3}', b'{"x": 1e400, "y": 123456789012345678901234567890, "n": 3}'):
        assert taken(each, OF_NUMBERS)[0] == len(each)


def test_a_flat_line_has_few_attributes() -> None:
    most = MOST_FLAT_ATTRIBUTES
    table = Table.from_filters([make_filter("i", [[f"a{i}", "<", 4] for i in range(most + 1)])])
    lines = [
        b"{" + b", ".join(b'"a%d": %d' % (i, i) for i in range(n)) + b"}"
        for n in (MOST_FLAT_ATTRIBUTES, MOST_FLAT_ATTRIBUTES + 1)
    ]
    assert [taken(line, table.vocabulary)[0] for line in lines] == [len(lines[0]), NOT_FLAT]
    assert_scanned([*lines, *lines], PLAIN, table.vocabulary)


@pytest.mark.parametrize("form", [PLAIN, EventForm(("n", "m"), "d")], ids=["plain", "named"])
def test_lines_that_are_nearly_plain(form: EventForm) -> None:
    assert_scanned(nearly_plain_lines(), form, OF_NUMBERS)


def test_codes_of_integers_among_many_operands() -> None:
    vocabulary, lines = integers_among_many_operands()
    assert_scanned(lines, PLAIN, vocabulary)


def test_without_tables_no_line_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpi_match.ingest.json.flat_cpu.MOST_FLAT_NAMES", 1)
    assert FlatLines(hashed(OF_NUMBERS, PLAIN).arrays).tables.names == 0
    assert_scanned(nearly_plain_lines(), PLAIN, OF_NUMBERS)
