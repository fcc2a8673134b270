"""Any range of the rows of files, read by their index, has the lines that reading them line by line has."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from random_rows import random_event, random_subscription

from mpi_match.events.batch import EventBatch
from mpi_match.events.events import Events
from mpi_match.ingest.batches.line_files import LineFiles
from mpi_match.ingest.batches.row_batch import RowBatch
from mpi_match.ingest.batches.scan_lines import BatchScanner
from mpi_match.ingest.batches.scan_report import ScanReport
from mpi_match.ingest.files import line_index
from mpi_match.ingest.rows import judge
from mpi_match.ingest.rows.judge import (
    PLAIN,
    EventForm,
    Reject,
    event_of_row,
    names_of,
    read_lines,
    read_rows,
    subscription_filters,
    trimmed,
)
from mpi_match.model import ModelError
from mpi_match.storage import FileChanged
from mpi_match.table.table import Table

FORM = EventForm(("x", "y"), "id")
MARK = b"\xef\xbb\xbf"
LINES = [
    b"",
    b" ",
    b"\t\r",
    b"\x0b\x0c",
    b"\x01",
    MARK,
    MARK + b" ",
    b"\xef",
    b"\xef\xbb",
    b" " + MARK,
    b"{}",
    b' {"a": 1}\r',
]
LINES += [MARK + b"{}", b" " * 13 + b"1", b" " * 60, b"7" * 41, b"8" * 40, b"9" * 150, b" " * 40]


def small(patch: pytest.MonkeyPatch, block: int = 16) -> None:
    """Small blocks, and lines that are overlong soon."""
    patch.setattr(line_index, "BLOCK_BYTES", block)
    patch.setattr(line_index, "_BLOCKS_AT_ONCE", 2)
    patch.setattr(judge, "MAX_LINE_BYTES", 40)


def written(directory: Path, contents: list[bytes]) -> list[Path]:
    paths = [directory / f"{i}.jsonl" for i in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


def lines_of(batch: RowBatch, files: list[str]) -> Iterator[tuple[str, int, bytes]]:
    """The rows of a batch, as `read_lines` has them."""
    at = 0
    for file, line, n_lines, n_bytes, is_overlong in batch.pieces.tolist():
        data = batch.data[at : at + n_bytes].tobytes()
        at += n_bytes
        found = [data] if is_overlong else data.split(b"\n")
        if not is_overlong:
            assert found.pop() == b""
        assert len(found) == n_lines
        for number, each in enumerate(found, line + 1):
            if row := each if is_overlong else trimmed(each):
                yield files[file], number, row
    assert at == len(batch.data)


contents = st.tuples(st.lists(st.sampled_from(LINES), max_size=12), st.booleans()).map(
    lambda each: b"\n".join(each[0]) + b"\n" * each[1]
)


@settings(max_examples=examples(200))
@given(contents=st.lists(contents, min_size=1, max_size=3), block=st.sampled_from([7, 16, 39]), seed=st.integers(0, 9))
def test_ranges_have_the_rows_of_the_line_reader(
    contents: list[bytes], block: int, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        small(patch, block)
        paths = written(tmp_path_factory.mktemp("lines"), contents)
        expected = list(read_lines(paths))
        files = LineFiles.open(paths, PLAIN)
        names = [str(path) for path in paths]
        assert files.n_events == len(expected)
        generator = random.Random(seed)
        for _ in range(8):
            start, stop = sorted(generator.choices(range(len(expected) + 1), k=2))
            batch = files.batch(start, stop)
            assert list(lines_of(RowBatch.from_wire(batch.to_wire()), names)) == expected[start:stop]
        at = 0
        while at < len(expected):  # one after the other, as runs read them
            stop = min(at + generator.randint(1, 3), len(expected))
            assert list(lines_of(files.batch(at, stop), names)) == expected[at:stop]
            at = stop


def random_content(generator: random.Random, n: int) -> bytes:
    lines = [json.dumps(random_event(generator), ensure_ascii=generator.random() < 0.5).encode() for _ in range(n)]
    lines += [b"", b" \t", b"[]", b'{"temp": 1, "temp": 2}', b'{"x": 1}', MARK + b'{"temp": 7, "id": 7}', b'{"name": NaN}']
    generator.shuffle(lines)
    return b"\n".join(lines)


@pytest.mark.parametrize("size", [1, 13, 1000])
def test_batches_are_scanned_as_rows_reads_files(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = random.Random(size)
    overlong = b" " * 5000 + b"{}"
    monkeypatch.setattr(judge, "MAX_LINE_BYTES", 4000)
    monkeypatch.setattr(line_index, "BLOCK_BYTES", 512)
    paths = written(tmp_path, [random_content(generator, 60), overlong + b"\n" + random_content(generator, 3), b"", b"[]"])
    filters = [each for _ in range(40) for each in subscription_filters(random_subscription(generator))]
    vocabulary = Table.from_filters(filters).vocabulary
    bad: list[Reject] = []
    events = list(read_rows(paths, lambda row: event_of_row(row, FORM, names_of(vocabulary, FORM)), bad))
    expected = Events.of(events).encode(vocabulary)

    files = LineFiles.open(paths, FORM)
    scanner = BatchScanner(vocabulary, FORM, files.index.files)
    found = [scanner.scan(files.batch(at, min(at + size, len(events)))) for at in range(0, len(events), size)]
    reports = [ScanReport.from_wire(report.to_wire()) for _, report in found]
    batch = EventBatch.concat([each for each, _ in found])
    assert [reject for report in reports for reject in report.rejects] == bad
    assert len(bad) == sum(event is None for event in events) >= 8
    assert any(report.located for report in reports)
    assert any(report.identified for report in reports)
    assert sum(report.n_flagged for report in reports) >= len(bad)
    assert np.array_equal(batch.bounds, expected.bounds)
    assert np.array_equal(batch.attributes, expected.attributes)
    assert batch.location is not None
    assert expected.location is not None
    assert np.array_equal(batch.location, expected.location, equal_nan=True)
    assert batch.rejected is not None
    assert expected.rejected is not None
    assert np.array_equal(batch.rejected, expected.rejected)
    files.names = names_of(vocabulary, FORM)
    assert repr([files.event(i) for i in range(len(events))]) == repr(events)  # a NaN is not itself


def test_a_packed_file_is_unpacked_into_a_file_without_a_name(tmp_path: Path) -> None:
    content = random_content(random.Random(3), 20)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(content))
    (tmp_path / "a.jsonl").write_bytes(content)
    with LineFiles.open([tmp_path / "a.jsonl"], FORM) as plain:
        assert not plain.packed
        with LineFiles.open([tmp_path / "a.jsonl.gz"], FORM, tmp_path) as packed:
            assert packed.packed
            assert packed.digest == plain.digest
            assert packed.batch(3, 9).data.tobytes() == plain.batch(3, 9).data.tobytes()
            assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "a.jsonl.gz"]
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(content)[:-9])
    with pytest.raises(ModelError, match=r"a\.jsonl\.gz: is not a whole gzip file"):
        LineFiles.open([tmp_path / "a.jsonl.gz"], FORM, tmp_path)


def test_the_digest_is_of_content_and_form(tmp_path: Path) -> None:
    paths = written(tmp_path, [b"{}\n{}\n", b"{}\n{}", b"{}\n{ }\n"])
    digests = {LineFiles.open([path], form).digest for path in paths for form in (PLAIN, FORM, EventForm(None, "id"))}
    assert len(digests) == 9
    assert LineFiles.open(paths[:1], PLAIN).digest in digests


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-100]), "was truncated while it was read: it ends at byte 900"),
        (lambda path: path.write_bytes(b"{ }" + path.read_bytes()[3:]), "CRC-32 of its bytes from 0 on found"),
        (lambda path: path.unlink(), "No such file or directory"),
    ],
)
def test_what_is_not_as_it_was_indexed_is_never_returned(
    change: object, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_index, "BLOCK_BYTES", 100)
    (path,) = written(tmp_path, [b"{  }\n" * 200])
    files = LineFiles.open([path], PLAIN)
    assert files.batch(0, 10).data.tobytes() == b"{  }\n" * 10
    assert callable(change)
    change(path)
    with pytest.raises(FileChanged, match=said) as caught:
        _ = [files.batch(start, start + 40) for start in (160, 0)]
    assert str(path) in str(caught.value)


def test_what_is_appended_later_is_left_out(tmp_path: Path) -> None:
    (path,) = written(tmp_path, [b'{"a": 1}\n{"a": 2}\n'])
    files = LineFiles.open([path], PLAIN)
    with path.open("ab") as handle:
        handle.write(b'{"a": 3}\n')
    assert (files.n_events, files.batch(0, 2).data.tobytes()) == (2, b'{"a": 1}\n{"a": 2}\n')


def test_wire_forms_that_are_none_are_refused() -> None:
    batch = RowBatch(1, np.array([[0, 0, 1, 3, 0]]), np.frombuffer(b"{}\n", np.uint8))
    wire = batch.to_wire()
    assert len(wire) == batch.wire_bytes
    for damaged in (wire[:20], wire[:80], np.zeros(80, np.uint8)):
        with pytest.raises(ValueError, match="not a"):
            RowBatch.from_wire(damaged)
