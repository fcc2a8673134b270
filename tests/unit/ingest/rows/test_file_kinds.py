"""Files that do not hold rows as they are, and rows that are no lines, are refused with what to do."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from mpi_match.ingest.rows.judge import PLAIN, Reject, nothing_usable, parse_json, row_text
from mpi_match.ingest.rows.row_files import event_files, row_files
from mpi_match.languages.registry import rules_of
from mpi_match.model import ModelError

LINES = b'{"temp": 31}\n{"temp": 1}\n'


def _zip() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("e.jsonl", LINES)
    return file.getvalue()


def _sqlite(tmp_path: Path) -> bytes:
    path = tmp_path.parent / f"{tmp_path.name}.db"
    database = sqlite3.connect(path)
    database.execute("create table t (a)")
    database.close()
    return path.read_bytes()


def _arrow_stream() -> bytes:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"temp": [31, 1]})
    file = io.BytesIO()
    with pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    return file.getvalue()


def _zstandard() -> bytes:
    pa = pytest.importorskip("pyarrow")
    return bytes(pa.compress(LINES, codec="zstd", asbytes=True))


KINDS: dict[str, Callable[[Path], bytes]] = {
    "packed by gzip; give it a name that ends in .gz": lambda _: gzip.compress(LINES),
    "packed by bzip2; give it a name that ends in .bz2": lambda _: bz2.compress(LINES),
    "packed by xz; give it a name that ends in .xz": lambda _: lzma.compress(LINES),
    "packed by Zstandard; give it a name that ends in .zst": lambda _: _zstandard(),
    "packed by LZ4; unpack it": lambda _: b"\x04\x22\x4d\x18" + bytes(9),
    "a ZIP archive; unpack it": lambda _: _zip(),
    "an Avro file; write": lambda _: b"Obj\x01" + bytes(9),
    "an ORC file; write": lambda _: b"ORC\x0e" + bytes(9),
    "a SQLite database; write": _sqlite,
    "a log of Windows events; write": lambda _: b"ElfFile\0" + bytes(9),
}


@pytest.mark.parametrize("said", KINDS)
@pytest.mark.parametrize("name", ["e.jsonl", "e.csv", "e.log"])
def test_other_kinds_of_files_are_refused_by_their_beginning(said: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(KINDS[said](tmp_path))
    with pytest.raises(ModelError, match=f"{name}: is {said}"):
        event_files(path, PLAIN)
    with pytest.raises(ModelError, match=f"{name}: is {said}"):
        row_files(path)
    if name == "e.jsonl":  # the others are not read from a directory of subscriptions
        (tmp_path / "a.jsonl").write_bytes(LINES)
        for read in (row_files, lambda each: event_files(each, PLAIN)):
            with pytest.raises(ModelError, match=f"{name}: is {said}"):
                read(tmp_path)
        with pytest.raises(ModelError, match=f"{name}: is {said}"):
            list(rules_of("eventbridge", [path]))


def test_files_that_only_look_like_another_kind_are_read(tmp_path: Path) -> None:
    for name, content in (("a.csv", b"BZh,ORC\n1,2\n"), ("b.csv", b"ORC\n1\n"), ("c.jsonl.gz", gzip.compress(LINES))):
        (tmp_path / name).write_bytes(content)
    assert [each.name for each in event_files(tmp_path, PLAIN)] == ["a.csv", "b.csv", "c.jsonl.gz"]


@pytest.mark.parametrize("name", ["e.tar.gz", "e.tgz", "e.TAR", "e.tar.zst"])
def test_archives_are_refused_by_their_names(name: str, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / name, "w"):
        pass
    with pytest.raises(ModelError, match="is a tar archive; unpack it, and give its directory"):
        event_files(tmp_path / name, PLAIN)


@pytest.mark.parametrize("name", ["e.arrow", "e.jsonl"])
def test_a_stream_of_arrow_is_refused(name: str, tmp_path: Path) -> None:
    from mpi_match.ingest.columns.file import ColumnFile

    path = tmp_path / name
    path.write_bytes(_arrow_stream())
    assert event_files(path, PLAIN) == [path]
    with pytest.raises(ModelError, match="is a stream of Arrow; write a file"):
        ColumnFile(path.open("rb"), str(path), None, PLAIN)
    with pytest.raises(ModelError, match="is a file of Arrow, not JSON lines"):
        row_files(path)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_lines_in_utf_16_are_refused_with_a_mark_and_without(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_bytes(LINES.decode().encode(encoding))
    for path in (tmp_path, tmp_path / "e.jsonl"):
        with pytest.raises(ModelError, match="is UTF-16, and JSON lines are UTF-8: iconv"):
            event_files(path, PLAIN)


def test_a_line_of_a_packed_stream_is_refused_by_its_name() -> None:
    for content, kind in ((gzip.compress(LINES), "gzip"), (_zstandard(), "Zstandard"), (lzma.compress(LINES), "xz")):
        line = content.split(b"\n")[0]
        with pytest.raises(ModelError, match="not UTF-8 at byte") as refused:
            parse_json(line)
        reject = Reject(str(refused.value), "", 1, row_text(line))
        assert nothing_usable("-", "event", 1, reject).endswith(f"; it begins as what is packed by {kind}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (json.dumps([{"a": 1}]), "`jq -c '.[]'` makes such lines of an array"),
        (json.dumps([{"a": 1}], indent=1), "`jq -c '.[]'` makes such lines of an array"),
        (json.dumps({"a": 1}, indent=1), "`jq -c .` makes such lines of objects"),
        (json.dumps({"a": 1}) * 2, "`jq -c .` makes such lines of objects"),
        ('Nov 28 host app[3]: {"a": {"b": 1}}', "its object begins at column 21, `sed 's/^[^{]*//'` removes"),
        ('\x1e{"a": 1}', "its object begins at column 2"),
        (str({"a": 1}), "Python's `json.dumps` writes JSON"),
    ],
)
def test_rows_that_are_no_lines_are_refused_with_advice(text: str, said: str) -> None:
    line = text.split("\n")[0]
    try:
        parse_json(line)
        reason = "an event must be an object"
    except ModelError as error:
        reason = str(error)
    assert said in nothing_usable("e.json", "event", 1, Reject(reason, "e.json", 1, line))


@pytest.mark.parametrize("line", ['{"a": 1}', "<Event/>", "a,b", "host {", '{"a": nul}'])
def test_other_bad_rows_have_no_advice(line: str) -> None:
    assert nothing_usable("e.json", "event", 1, Reject("not JSON: x", "e.json", 1, line)).endswith("not JSON: x")
