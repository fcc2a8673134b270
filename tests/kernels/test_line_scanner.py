"""The scanner's kernels under the simulator against the scanner of the CPU, which is judged by `rows`."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np
import pytest
from event_lines import BAD, BLANK, FORM, GOOD, JUDGED_GOOD, NAMED_LATER, VOCABULARY, mutated_lines

from mpi_match.gpu import line_kernels, line_scanner
from mpi_match.gpu.kernels import open_gpu
from mpi_match.gpu.line_scanner import GpuLineScanner, GpuRows
from mpi_match.ingest.event_scanner import EventScanner
from mpi_match.ingest.line_blocks import LineBlock
from mpi_match.ingest.rows import PLAIN, EventForm, parse_json
from mpi_match.model import ModelError, make_filter
from mpi_match.table.table import Table
from mpi_match.table.vocabulary import Vocabulary

NUMERIC = Table.from_filters([make_filter("i", [["temp", "<", 3], ["wind", "=", 0.1], ["nested.a.b", ">", 1]])]).vocabulary


@pytest.fixture(autouse=True)
def _little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_scanner, "ROW_BYTES", 200)
    monkeypatch.setattr(line_scanner, "ATTRIBUTE_BYTES", 100)
    monkeypatch.setattr(line_scanner, "NOT_TRIED", 0)


def scanned(lines: Iterable[bytes], form: EventForm, vocabulary: Vocabulary, most_flagged: float) -> GpuRows:
    """The rows of lines, compared with those of the CPU; flagged lines are rows without attributes."""
    data = np.frombuffer(bytearray(b"".join(line + b"\n" for line in lines)), np.uint8)
    expected = EventScanner(vocabulary, form).scan(LineBlock(data, "", 1), [])
    scanner = GpuLineScanner(open_gpu(), vocabulary, form)
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
        ids = scanner.ids(rows, data, [None] * len(rows.flagged), buffers)
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


OPERANDS = (-7, -0.5, 0, 1, 2, 3, 4.5, 5, 1000, 1001, 123_456, 9_999_999, 1e300, 0.1)
OF_NUMBERS = Table.from_filters(
    [make_filter("i", [["n", op, operand]]) for op in ("<", "=") for operand in OPERANDS]
    + [make_filter("i", [[name, "=", 7]]) for name in ("m", "fifteen letters", "sixteen letters.", "a.b", "é", "q\\", "s")]
    + [make_filter("i", [["s", "=", "text"], ["z", ">", 5], ["d", "exists"]])]
).vocabulary
PLAIN_PAIRS = [
    b'"%s": %s' % (name, value)
    for name in (b"n", b"m", b"fifteen letters", b"a.b", b"d", b"unknown")
    for value in (b"0", b"-0", b"-7", b"3", b"4", b"999", b"1001", b"123456", b"-123457", b"9999999")
]


def plain_line(generator: random.Random, n: int) -> bytes:
    """A plain line with n names, or one of the same name twice."""
    pairs = generator.sample(PLAIN_PAIRS, n)
    return b"{" + generator.choice((b", ", b",")).join(pairs) + b"}"


def test_plain_lines_are_scanned_by_pairs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = random.Random(1)
    lines = [line for line in (plain_line(generator, n) for n in (1, 2, 3) * 30) if is_row(line)]
    assert len(lines) > 60
    monkeypatch.setattr(line_kernels, "scan_single_row", None)
    assert not len(scanned([*lines, *(line.replace(b": ", b":") for line in lines)], PLAIN, OF_NUMBERS, 0).flagged)


def test_codes_of_integers_among_many_operands() -> None:
    """Dense ones, whose codes are in a table by value, and others, which are searched; fractions, and out of range."""
    generator = random.Random(4)
    operands = {
        "dense": [*range(-9, 12), 3.5, -2.25],
        "sparse": [
            *(generator.randrange(-(10**7), 10**7) for _ in range(20)),
            10**7,
            -(10**7),
            -1e300,
            1e300,
            77.5,
            0.5,
            -0.5,
        ],
        "groups": [at + k / 4 for at in (-7_000_000, -30, 9_999_998) for k in range(9)],
        "beyond": [-1e9, 1e9],
    }
    filters = [make_filter("i", [[name, op, each]]) for name, all_ in operands.items() for each in all_ for op in ("<", "=")]
    lines = [
        b'{"%s": %d}' % (name.encode(), value)
        for name, all_ in operands.items()
        for each in all_
        for value in {max(min(int(each) + more, 9_999_999), -9_999_999) for more in (-1, 0, 1)}
    ]
    scanned(lines, PLAIN, Table.from_filters(filters).vocabulary, 0)


def is_row(line: bytes) -> bool:
    """Has it no name twice?"""
    try:
        parse_json(line)
    except ModelError:
        return False
    return True


def test_lines_that_are_nearly_plain() -> None:
    """Each byte of plain lines replaced, removed or doubled now and then; and what no writer of integers does."""
    generator = random.Random(2)
    lines = [
        *(b'{"n": %s, "m": 7}' % value for value in NEARLY_INTEGERS),
        *(b'{"%s": 7, "n":3}' % name for name in NEARLY_NAMES),
        *(b'{"n": 1, %s "m": 7}' % b" ".join(b'"x%d": 1,' % i for i in range(n)) for n in (29, 30, 31, 40)),
        *(end.join((b'{"n": 1', b"")) for end in (b"} ", b"}\r", b" }", b",}", b"}}", b"", b"]", b"\n")),
        *(
            b"{%s}" % pair
            for pair in (b"", b" ", b'  "n": 1', b'\t"n": 1', b'"n" : 1', b'"n":  1', b'"n":\t1', b'"n"', b'n": 1')
        ),
        *(plain_line(generator, n) for n in (1, 3, 5) * 10),
    ]
    for _ in range(250):
        line = bytearray(plain_line(generator, 3))
        at = generator.randrange(len(line))
        line[at : at + generator.randrange(2)] = generator.choice(
            (b"", b'"', b"\\", b",", b" ", b"0", b"9", b".", b"e", b"\x80", b"}")
        )
        lines.append(bytes(line))
    scanned(lines, PLAIN, OF_NUMBERS, 0)
    scanned(lines, EventForm(("n", "m"), "d"), OF_NUMBERS, 0)


NEARLY_INTEGERS = [
    *(
        b"00",
        b"01",
        b"-00",
        b"-",
        b"--1",
        b"+1",
        b"1.",
        b"1.5",
        b"-0.5",
        b"1e3",
        b"1E3",
        b"12345678",
        b"123456789012345678",
        b"1_",
    ),
    *(b"true", b"null", b'"text"', b"[]", b"{}", b"NaN", b"0x1", b"1 ", b"\xb2", b"9007199254740993", b"-9999999", b"0.1"),
]
NEARLY_NAMES = [
    *(b"", b"n", b"sixteen letters.", b"q\\\\", b"\\u006d", "é".encode(), b"m\x7f", b"m\x1f", b"m\xff", b"m\t", b"n\\"),
    *(b"seventeen letters", b"fifteen letters", b"fourteen bytes", b"eight by", b"nine byte", b"seven b", b"\x00", b"m\x00"),
]


def test_lines_beyond_the_stage_are_read_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    line_kernels.scan_rows_kernel.cache_clear()
    monkeypatch.setattr(line_kernels, "STAGE_WORDS", 20)
    rows = scanned(mutated_lines(60, seed=8), PLAIN, VOCABULARY, 0)
    assert rows.n_rows > 50
    line_kernels.scan_rows_kernel.cache_clear()


def test_rows_that_need_more_room_than_a_thread_has_are_flagged() -> None:
    names = line_kernels.MOST_ROW_NAMES
    lines = [b"{" + b", ".join(b'"n%d": 1' % i for i in range(names + more)) + b"}" for more in (0, 1)] + [
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


def test_no_lines() -> None:
    scanner = GpuLineScanner(open_gpu(), VOCABULARY, PLAIN)
    for text in (b"", b"\n", b" \n\xef\xbb\xbf\n"):
        rows = scanner.scan(np.frombuffer(bytearray(text), np.uint8), scanner.buffers())
        assert (rows.n_rows, rows.offsets.memory.tolist(), rows.attributes.size) == (0, [0], 0)


def test_ids_with_escapes_are_flagged() -> None:
    lines = [b'{"id": "a"}', b'{"id": "a\\u0062"}', '{"id": "é"}'.encode(), b'{"id": ""}', b'{"id": -0}', b'{"id": "\\n"}']
    assert scanned(lines, EventForm(None, "id"), VOCABULARY, 1).flagged.tolist() == [1, 5]
