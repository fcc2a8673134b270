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
from mpi_match.ingest.rows.judge import PLAIN, EventForm, parse_json, record_set_aside
from mpi_match.model import ModelError, Type

CELLS = st.text(st.sampled_from('",\n\ra é\\10.-e+\t'), max_size=5) | st.sampled_from(["true", "false", "007", "-0.5e7"])


def lines_of(
    content: bytes, types: dict[str, Type] | None = None, name: str = "events.csv", form: EventForm = PLAIN
) -> list[bytes]:
    handle = cast(io.BufferedReader, io.BufferedReader(io.BytesIO(content)))
    with CsvLines(handle, Path(name), form._replace(types=tuple((types or {}).items()))) as lines:
        return lines.readall().split(b"\n")[:-1]


def rows_of(
    content: bytes, name: str = "events.csv", delimiter: str | None = None, encoding: str | None = None
) -> list[Any]:
    form = EventForm.of(None, None, None, delimiter, encoding)
    return [parse_json(line) for line in lines_of(content, None, name, form) if line]


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
        found_aside = record_set_aside(line)
        assert found_aside is not None
        assert found_aside[0].startswith(reason)
        assert found_aside[1].decode() == row
        with pytest.raises(ModelError, match="not JSON"):  # among lines of a file it has no meaning
            parse_json(line)


def test_types_override_what_cells_look_like() -> None:
    types = {"n": Type.NUMBER, "s": Type.STRING, "b": Type.BOOLEAN}
    found = lines_of(b'n,s,b\n"1.5",007,"true"\n,,\nx,1,true\n"",1,true\n1,1,1\n', types)
    assert [parse_json(line) for line in found[1:3]] == [{"n": 1.5, "s": "007", "b": True}, {}]
    for line, cell in zip(found[3:], ('"x" is not a number', '"" is not a number', '"1" is not true or false'), strict=True):
        assert (record_set_aside(line) or ("",))[0] == f"the cell {cell}, as --schema says"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a,b,a\n1,2,3\n", "events.csv, line 1: two columns have the name 'a'"),
        (b'a"b\n1\n', "events.csv, line 1: the header is not a record of CSV"),
        (b'"a\n' + b"x\n" * 10, "events.csv, line 1: .* has no closing quote"),
        (b"d\xe9bit,a\n", "events.csv, line 1: the header is not UTF-8 at byte 1; use --encoding"),
        ("a,b\n1,2\n".encode("utf-16"), "events.csv, line 1: is UTF-16; use --encoding utf-16"),
        ("a,b\n1,2\n".encode("utf-16-le"), "events.csv, line 1: the header holds NUL bytes, .* use --encoding utf-16-le"),
        (b"a;b\n1;2\n", "events.csv, line 1: the header is one column, 'a;b'; use --delimiter ';', or --delimiter ','"),
        (b"a\tb\n1\t2\n", r"the header is one column, 'a\\tb'; use --delimiter tab"),
        (b"b\n1\n", "events.csv, line 1: there is no column 'a', which --schema names; there are: 'b'"),
        (
            b'a\n1\n"' + b"x" * 2**24 + b"\n",
            "events.csv, line 3: .* has no closing quote within 1 MiB and 1,000 lines",
        ),
        (b"a,b\n1," + b"x" * (2**24 + 2**21), "events.csv, line 2: a record is longer than 16 MiB"),
        (b'a,b\n5,1\n"5,1\n' + b"5,2\n" * 200_000, "events.csv, line 3: .* has no closing quote"),
        (b'a,b\n5,1\n"5,1\n5,2\n', "events.csv, line 3: .* has no closing quote"),
    ],
)
def test_a_file_that_is_no_csv_is_one_error(content: bytes, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        [parse_json(line) for line in lines_of(content, {"a": Type.STRING}) if line]


def test_a_file_without_rows_has_none() -> None:
    assert lines_of(b"") == []
    assert lines_of(b"a,b") == []
    assert lines_of(b"a,b\n") == [b""]


def test_delimiters_and_encodings() -> None:
    expected = [{"v": 5, "é": "a,b"}, {"v": -1, "é": "x;y"}]
    text = 'v;é\n5;a,b\n-1;"x;y"\n'
    assert rows_of(text.encode(), delimiter=";") == expected
    assert rows_of(("sep=;\r\n" + text).encode()) == expected
    assert rows_of(text.replace(";", "\t").replace("x\ty", "x;y").encode(), "e.tsv") == expected
    assert rows_of(text.encode(), "e.TSV.xz", delimiter=";") == expected
    for encoding in ("utf-16", "utf-16-le", "latin-1", "cp1252", "utf-8", "utf-8-sig"):
        assert rows_of(text.encode(encoding), delimiter=";", encoding=encoding) == expected
    assert rows_of(b"a;b\n1;2\n", delimiter=",") == [{"a;b": "1;2"}]
    assert rows_of(b'"a;b"\n1\n') == [{"a;b": 1}]
    assert lines_of(b"sep=;\nv\n1\n")[:2] == [b"", b""]  # lines keep their numbers


@pytest.mark.parametrize("read", [1, 5, 2**20])
def test_bytes_of_another_encoding_are_an_error_with_their_place(read: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_files, "_READ_BYTES", read)
    with pytest.raises(ModelError, match=r"^events\.csv: is not utf-8 at byte 4; use another --encoding$"):
        rows_of("a\n1\n€".encode()[:6], encoding="utf-8")
    with pytest.raises(ModelError, match=r"^events\.csv: is not ascii at byte 4"):
        rows_of("a\n1\né\n".encode(), encoding="ascii")


@pytest.mark.parametrize(("n_lines", "n_bytes"), [(1_000, 10), (1_001, 10), (3, 2**20 - 10), (3, 2**20 + 1)])
@pytest.mark.parametrize("before", [0, 2**20 - 5_000])
def test_a_quote_is_closed_within_its_bounds_wherever_blocks_end(n_lines: int, n_bytes: int, before: int) -> None:
    cell = b"\n" * n_lines + b"x" * (n_bytes - n_lines) if n_bytes > n_lines else b"\n" * n_lines
    content = b"a\n" + b"y" * before + b'\n"' + cell + b'"\n'
    if n_lines > 1_000 or n_bytes > 2**20:
        with pytest.raises(ModelError, match=r"^events\.csv, line 3: .*no closing quote"):
            rows_of(content)
    else:
        assert rows_of(content)[-1] == {"a": cell.decode()}
