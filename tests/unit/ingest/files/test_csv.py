"""CSV as JSON lines: Python's reader of CSV is the judge of cells, Python's JSON that of numbers."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_match.ingest.files import csv as csv_files
from mpi_match.ingest.files.csv import CsvLines
from mpi_match.ingest.rows.judge import parse_json, row_text
from mpi_match.model import ModelError, Type

CELLS = st.text(st.sampled_from('",\n\ra é\\10.-e+\t'), max_size=5) | st.sampled_from(["true", "false", "007", "-0.5e7"])


def lines_of(content: bytes, types: dict[str, Type] | None = None) -> list[bytes]:
    handle = cast(io.BufferedReader, io.BufferedReader(io.BytesIO(content)))
    with CsvLines(handle, Path("events.csv"), types or {}) as lines:
        return lines.readall().split(b"\n")[:-1]


def value_of(cell: str, quoted: bool) -> Any:
    """What a cell means."""
    if quoted or not cell:
        return cell if quoted else None
    try:
        found = json.loads(cell)
    except ValueError:
        return cell
    return found if type(found) in (int, float, bool) and cell == cell.strip() else cell


@given(st.data(), st.integers(1, 4), st.sampled_from(["\n", "\r\n"]), st.sampled_from([1, 2, 3, 7, 50, 2**20]))
def test_cells_are_what_they_look_like(data: st.DataObject, n: int, end: str, read: int) -> None:
    names = [f"n{i}" for i in range(n)]
    text = ",".join(names) + end
    expected: list[dict[str, Any]] = []
    written = []
    for _ in range(data.draw(st.integers(0, 5))):
        cells = [data.draw(CELLS) for _ in names]
        quoted = [data.draw(st.booleans()) or any(c in cell for c in '",\n\r') for cell in cells]
        record = ",".join('"' + c.replace('"', '""') + '"' if q else c for c, q in zip(cells, quoted, strict=True))
        text += record + end
        if record:
            written.append(cells)
            values = zip(names, map(value_of, cells, quoted), strict=True)
            expected.append({name: value for name, value in values if value is not None})
    assert [row for row in csv.reader(io.StringIO(text, newline="")) if row][1:] == written
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_files, "_READ_BYTES", read)
        is_cut = len(expected) > 0 and data.draw(st.booleans())
        lines = lines_of((text.removesuffix(end) if is_cut else text).encode())
    assert repr([parse_json(line) for line in lines if line]) == repr(expected)


def test_lines_keep_their_numbers_and_bad_records_their_reasons() -> None:
    content = b'\xef\xbb\xbfa,"b\nc"\n\n1,"two\nlines"\n1,2,3\n"x"y,1\n7,"open'
    found = lines_of(content)
    assert [len(line) > 0 for line in found] == [False, False, False, True, False, True, True, True]
    assert parse_json(found[3]) == {"a": 1, "b\nc": "two\nlines"}
    for line, reason, row in (
        (found[5], "the row has 3 cells, the header has 2", "1,2,3"),
        (found[6], "a quote stands within a cell", '"x"y,1'),
        (found[7], "a quoted cell has no closing quote", '7,"open'),
    ):
        with pytest.raises(ModelError, match=reason):
            parse_json(line)
        assert row_text(line) == row


def test_types_override_what_cells_look_like() -> None:
    types = {"n": Type.NUMBER, "s": Type.STRING, "b": Type.BOOLEAN}
    found = lines_of(b'n,s,b\n"1.5",007,"true"\n,,\nx,1,true\n"",1,true\n1,1,1\n', types)
    assert [parse_json(line) for line in found[1:3]] == [{"n": 1.5, "s": "007", "b": True}, {}]
    for line, cell in zip(found[3:], ('"x" is not a number', '"" is not a number', '"1" is not true or false'), strict=True):
        with pytest.raises(ModelError, match=f"the cell {cell}, as --schema says"):
            parse_json(line)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a,b,a\n1,2,3\n", "events.csv, line 1: two columns have the name 'a'"),
        (b'a"b\n1\n', "events.csv, line 1: the header is no record of CSV"),
        (b'"a\n' + b"x\n" * 10, "no closing quote"),
        (b"b\n1\n", "events.csv, line 1: there is no column 'a', which --schema names; there are: 'b'"),
        (
            b'a\n1\n"' + b"x" * 2**24 + b"\n",
            "line 3: a record is longer than 16 MiB: is a closing quote missing",
        ),
    ],
)
def test_a_file_that_is_no_csv_is_one_error(content: bytes, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        [parse_json(line) for line in lines_of(content, {"a": Type.STRING}) if line]


def test_a_file_without_rows_has_none() -> None:
    assert lines_of(b"") == []
    assert lines_of(b"a,b") == []
    assert lines_of(b"a,b\n") == [b""]
