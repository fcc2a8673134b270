"""The scanner's kernels under the simulator against the scanner of the CPU, which is judged by `rows`."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np
import pytest
from deferred_lines import MORE, OF_TEXTS, UNCERTAIN, log_lines
from event_lines import BAD, BLANK, FORM, GOOD, JUDGED_GOOD, NAMED_LATER, VOCABULARY, mutated_lines
from plain_event_lines import OF_NUMBERS, integers_among_many_operands, is_row, nearly_plain_lines, plain_line

from mpi_match.gpu import line_kernels, line_scanner
from mpi_match.gpu.kernels import open_gpu
from mpi_match.gpu.line_scanner import GpuLineScanner, GpuRows
from mpi_match.ingest.files.blocks import LineBlock
from mpi_match.ingest.json.event_scanner import EventScanner
from mpi_match.ingest.json.line_judge import JudgedLines
from mpi_match.ingest.rows.judge import PLAIN, EventForm
from mpi_match.model import make_filter
from mpi_match.table.table import Table
from mpi_match.table.vocabulary import Vocabulary

NUMERIC = Table.from_filters([make_filter("i", [["temp", "<", 3], ["wind", "=", 0.1], ["nested.a.b", ">", 1]])]).vocabulary


@pytest.fixture(autouse=True)
def _little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_scanner, "ROW_BYTES", 200)
    monkeypatch.setattr(line_scanner, "ATTRIBUTE_BYTES", 100)
    monkeypatch.setattr(line_scanner, "NOT_TRIED", 0)


def scanned(
    lines: Iterable[bytes], form: EventForm, vocabulary: Vocabulary, most_flagged: float, *, defers: bool = False
) -> GpuRows:
    """The rows of lines, compared with those of the CPU; flagged lines are rows without attributes."""
    data = np.frombuffer(bytearray(b"".join(line + b"\n" for line in lines)), np.uint8)
    expected = EventScanner(vocabulary, form).scan(LineBlock(data, "", 1), [])
    scanner = GpuLineScanner(open_gpu(), vocabulary, form)
    if defers:
        assert scanner.defer_texts()
    buffers = scanner.buffers()
    scanner.scan(data[: len(data) // 2], buffers)  # what other lines leave in the buffers
    rows = scanner.scan(data, buffers)
    batch = expected.batch
    assert rows.n_rows == len(batch)
    lengths, is_flagged = np.diff(batch.offsets), np.zeros(rows.n_rows, bool)
    is_flagged[rows.flagged] = True
    assert expected.n_flagged <= len(rows.flagged) <= expected.n_flagged + most_flagged * rows.n_rows
    kept = np.repeat(~is_flagged, lengths)
    found = scanner.fetched(rows, buffers)
    assert np.array_equal(np.diff(found.offsets), np.where(is_flagged, 0, lengths))
    assert np.array_equal(found.attributes, batch.attributes[kept])
    assert (found.attributes.dtype, found.fingerprint) == (batch.attributes.dtype, batch.fingerprint)
    assert rows.widest == found.widest
    if batch.location is not None and found.location is not None:
        located = batch.location.copy()
        located[is_flagged] = np.nan
        assert found.location.tobytes() == located.tobytes()
    if expected.ids is not None:
        ids = scanner.ids(rows, data, JudgedLines.of(rows.flagged.astype(np.int64), [None] * len(rows.flagged)), buffers)
        assert list(ids) == [b"" if flagged else id_ for id_, flagged in zip(expected.ids, is_flagged, strict=True)]
        assert (rows.id_bounds is not None) == any(ids)
    for start, stop in rows.bounds.tolist():
        line = data[start:stop].tobytes().strip(b"\xef\xbb\xbf \t\r\n\x0b\x0c")
        assert b"\n" not in line
        assert data[stop] == ord("\n")
    return rows


@pytest.mark.parametrize("form", [PLAIN, FORM, NAMED_LATER])
def test_every_kind_of_line(form: EventForm) -> None:
    kinds = (BLANK, GOOD, BLANK, BAD, BLANK, [JUDGED_GOOD[0]], GOOD, BLANK)
    rows = scanned([line for kind in kinds for line in kind], form, VOCABULARY, 0)
    assert rows.n_rows == 2 * len(GOOD) + len(BAD) + 1


@pytest.mark.parametrize(("form", "vocabulary"), [(FORM, VOCABULARY), (NAMED_LATER, VOCABULARY), (PLAIN, NUMERIC)])
def test_mutated_lines(form: EventForm, vocabulary: Vocabulary) -> None:
    assert len(scanned(mutated_lines(150, seed=7), form, vocabulary, 0.02).flagged) > 30


def test_plain_lines_are_scanned_by_pairs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = random.Random(1)
    lines = [line for line in (plain_line(generator, n) for n in (1, 2, 3) * 30) if is_row(line)]
    assert len(lines) > 60
    monkeypatch.setattr(line_kernels, "scan_single_row", None)
    assert not len(scanned([*lines, *(line.replace(b": ", b":") for line in lines)], PLAIN, OF_NUMBERS, 0).flagged)


def test_codes_of_integers_among_many_operands() -> None:
    vocabulary, lines = integers_among_many_operands()
    scanned(lines, PLAIN, vocabulary, 0)


def test_lines_that_are_nearly_plain() -> None:
    lines = nearly_plain_lines()
    scanned(lines, PLAIN, OF_NUMBERS, 0)
    scanned(lines, EventForm(("n", "m"), "d"), OF_NUMBERS, 0)


def test_lines_beyond_the_stage_are_read_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    line_kernels.scan_rows_kernel.cache_clear()
    monkeypatch.setattr(line_kernels, "STAGE_WORDS", 20)
    rows = scanned(mutated_lines(60, seed=8), PLAIN, VOCABULARY, 0)
    assert rows.n_rows > 50
    line_kernels.scan_rows_kernel.cache_clear()


def test_rows_that_need_more_room_than_a_thread_has_are_flagged() -> None:
    names = line_kernels.MOST_ROW_NAMES
    lines = [b'{"tags": [' + b", ".join([b'"Milan"'] * (names + more)) + b"]}" for more in (-4, 1)] + [
        b'{"city": "' + b"\\n" * (line_kernels.ROW_SCRATCH_BYTES + more) + b'"}' for more in (-4, 0)
    ]
    assert scanned(lines, PLAIN, VOCABULARY, 1).flagged.tolist() == [1, 3]


def test_rows_of_many_atoms() -> None:
    """Each once, whatever the string; a row with more than there is room for is flagged."""
    words = sorted({f"{i:b}" for i in range(1, 90)})
    filters = [make_filter("i", [[name, op, word]]) for name in "st" for op in ("contains", "suffix") for word in words]
    vocabulary = Table.from_filters(filters).vocabulary
    texts = ["1", "10", "1011", "0", "1" * 40, "1" * 6, "110100" * 2, "10" * 30, "".join(words)]
    lines = [b'{"s": "%s", "t": "%s"}' % (a.encode(), b.encode()) for a in texts for b in texts[:4]]
    rows = scanned(lines, PLAIN, vocabulary, 1)
    assert 0 < len(rows.flagged) < rows.n_rows // 2
    assert rows.widest > 20


@pytest.mark.parametrize("form", [PLAIN, FORM])
def test_deferred_texts(form: EventForm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts that other threads read give the attributes that one thread finds; a text that is not certain flags its row."""
    lines = [*GOOD, *mutated_lines(60, seed=9), *MORE, *log_lines(20, seed=1), *UNCERTAIN]
    rows = scanned(lines, form, OF_TEXTS.vocabulary, 0.04, defers=True)
    assert rows.n_rows > 100
    monkeypatch.setattr(line_scanner, "TEXT_BYTES", 10**6)  # there is no room at first
    assert scanned(lines, form, OF_TEXTS.vocabulary, 0.04, defers=True).widest == rows.widest


def test_no_deferred_texts_where_elements_are_compared() -> None:
    scanner = GpuLineScanner(open_gpu(), Table.from_filters([make_filter("i", [["tags", "any <", 3]])]).vocabulary, PLAIN)
    assert not scanner.defer_texts()


def test_no_lines() -> None:
    scanner = GpuLineScanner(open_gpu(), VOCABULARY, PLAIN)
    for text in (b"", b"\n", b" \n\xef\xbb\xbf\n"):
        rows = scanner.scan(np.frombuffer(bytearray(text), np.uint8), scanner.buffers())
        assert (rows.n_rows, rows.offsets.memory.tolist(), rows.attributes.size) == (0, [0], 0)


def test_ids_with_escapes_are_flagged() -> None:
    lines = [b'{"id": "a"}', b'{"id": "a\\u0062"}', '{"id": "é"}'.encode(), b'{"id": ""}', b'{"id": -0}', b'{"id": "\\n"}']
    assert scanned(lines, EventForm(None, "id"), VOCABULARY, 1).flagged.tolist() == [1, 5]


def test_views_and_patterns() -> None:
    wanted = [["a", "contains i", "STRASSE"], ["a", "any = i", "ÉTÉ"], ["a", "any in net", ["10.0.0.0/8", "2001:db8::/32"]]]
    wanted += [["a", "any before", "2020-01-01"], ["a", "wildcard i", "*T?"], ["a", "any regexp", "^[a-z]{70}q|[0-9]$"]]
    vocabulary = Table.from_filters([make_filter("i", [each]) for each in wanted]).vocabulary
    lines = [
        b'{"a": "Hauptstra\\u00dfe"}',
        '{"a": ["Été", "10.1.2.3", "2001:DB8::1", 3, "2019-05-05", "été"]}'.encode(),
        b'{"a": "%sq"}' % (b"x" * 70),
        b'{"a": ["", "at\\t", "a7", "8"]}',
        b'{"a": "10.0.0.256", "b": 1}',
    ]
    assert not len(scanned(lines, PLAIN, vocabulary, 0).flagged)
