"""Converts CSV to JSON lines, in compiled code, so that the scanner, `rows` and a run read CSV as they read lines.

    temp,city,note                       (blank: the header is no row)
    21.5,Milan,hi                        {"temp":21.5,"city":"Milan","note":"hi"}
    30,,"two                             {"temp":30,"note":"two lines"}      with a line feed, escaped
    lines"                               (blank: it belongs to the row before)
    "21.5",true,Rome                     {"temp":"21.5","city":true,"note":"Rome"}

The first record is the header.  A cell without quotes that is a number or boolean of JSON is one, and an empty one is
absent; any other is text, and so is a cell in quotes, also an empty one.  `types` overrides that for columns by name.
Cells are divided by the delimiter of the form, else by what a first line `sep=;` says, else by tabs in `.tsv` and by commas;
records end with a line feed, or carriage return and line feed, outside quotes (RFC 4180).

Every line of the file becomes one line, so numbers of lines stay those of the file.  A bad record becomes a line that holds
the reason and is refused with it (`judge.set_aside`).  A quote that is not closed within MAX_QUOTED_BYTES and
MAX_QUOTED_LINES is an error, because the text after it is not cells.
"""

from __future__ import annotations

import csv
import io
import json
import re
from codecs import getincrementaldecoder
from pathlib import Path
from typing import Any, cast

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.arrays.strings import Strings
from mpi_match.compute.compile_cache import compile_once, jit, nested
from mpi_match.ingest.rows.judge import MAX_LINE_BYTES, PLAIN, EventForm, set_aside
from mpi_match.ingest.rows.packed_files import unpacked_name
from mpi_match.ingest.rows.row_files import UTF_16_STARTS
from mpi_match.model import ModelError, Type
from mpi_match.texts.characters import (
    BACKSLASH,
    BLANK,
    CLOSE_BRACE,
    COMMA,
    LINE_FEED,
    LOWER_A,
    LOWER_CASE,
    LOWER_E,
    LOWER_F,
    LOWER_L,
    LOWER_R,
    LOWER_S,
    LOWER_T,
    LOWER_U,
    MINUS,
    NINE,
    OPEN_BRACE,
    PLUS,
    POINT,
    QUOTE,
    RETURN,
    ZERO,
)

_READ_BYTES = 2**20
_MOST_EXPANSION = 7
"""Most bytes that a byte of a cell becomes: a line feed is six in JSON, and a line feed behind the line."""
MAX_QUOTED_BYTES, MAX_QUOTED_LINES = 2**20, 1_000
"""Most bytes and lines of a cell in quotes."""
_OPEN, _FULL, _CELLS, _QUOTE, _NO_NUMBER, _NO_BOOLEAN, _ENDLESS = range(7)
"""Reasons for which the transcoder stops: no whole record is left; the output is too small; a record is bad; a quote is not
closed."""
_TEXT, _LITERAL, _NUMBER = range(3)
"""The kinds of a cell without quotes."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SEPARATOR = re.compile(rb'"?sep=([ -~\t])"?\r?\n', re.IGNORECASE)
"""The beginning of Excel's line that names the delimiter; that line is neither header nor row."""


class CsvLines(io.RawIOBase):
    """The JSON lines of a CSV file of some form that `handle` reads and that is closed with this.

    Reading raises ModelError for a header that is not UTF-8, has one name twice, lacks a name of `form.types`, or seems to
    have another delimiter; for a quote that is not closed; and for a record that is longer than a line may be.
    """

    def __init__(self, handle: io.BufferedReader, path: Path, form: EventForm) -> None:
        self._closed_with, self._path, self._form, self._types = handle, path, form, dict(form.types)
        self._handle = handle if form.encoding is None else io.BufferedReader(_Recoded(handle, path, form.encoding))
        self._delimiter = form.delimiter or ("\t" if unpacked_name(path).endswith(".tsv") else ",")
        self._left = self._made = b""
        self._line, self._at_end = 1, False
        self._columns: tuple[Array, Array, Array] | None = None

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._closed_with.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        while not self._made and not self._at_end:
            more = self._handle.read(_READ_BYTES)
            self._at_end = len(more) < _READ_BYTES
            pieces: list[bytes] = []
            self._take(self._left + more, pieces)
            self._made = b"".join(pieces)
        taken = self._made[: len(buffer)]
        buffer[: len(taken)] = taken
        self._made = self._made[len(taken) :]
        return len(taken)

    def _take(self, data: bytes, pieces: list[bytes]) -> None:
        """Make lines of all whole records, and keep the rest."""
        source = np.frombuffer(bytearray(data), np.uint8)
        at = self._header(data, source, pieces) if self._columns is None else 0
        if self._columns is not None:
            at = self._records(data, source, at, self._columns, pieces)
        if len(data) - at > MAX_LINE_BYTES:
            raise self._error(f"a record is longer than {MAX_LINE_BYTES // 2**20} MiB")
        if self._at_end and at < len(data):
            if b"\n" in data[at:].rstrip():  # lines that may have been rows
                raise self._error(_ENDLESS_QUOTE)
            pieces.append(self._set_aside("a quoted cell has no closing quote", data[at:]))
        self._left = data[at:]

    def _error(self, text: str) -> ModelError:
        return ModelError(f"{self._path}, line {self._line}: {text}")

    def _header(self, data: bytes, source: Array, pieces: list[bytes]) -> int:
        """Take the first record, if it is whole.  Returns where it ends."""
        if data.startswith(UTF_16_STARTS):
            raise self._error("is UTF-16; use --encoding utf-16")
        start = len(_BYTE_ORDER_MARK) if data.startswith(_BYTE_ORDER_MARK) else 0
        if b"\n" not in data and not self._at_end:
            return 0
        says = _SEPARATOR.match(data, start)
        if says is not None:
            start = says.end()
            self._delimiter = self._form.delimiter or says[1].decode()
        end, is_good = map(int, _record_end(source, start, self._at_end, ord(self._delimiter)))
        if end == _NOT_CLOSED:
            raise self._error(_ENDLESS_QUOTE)
        if end < 0 or not data:
            return 0
        if not is_good:
            raise self._error(f"the header is not a record of CSV: {_QUOTES}")
        names = self._names(data[start:end], says is not None)
        keys = Strings.of(json.dumps(name, ensure_ascii=False).encode() + b":" for name in names)
        types = np.array([self._types.get(name, Type.ANY) for name in names], np.int64)
        self._columns = np.array(keys.data), keys.offsets, types
        pieces.append(b"\n" * data.count(b"\n", 0, end))
        self._line += len(pieces[-1])
        return end

    def _names(self, header: bytes, is_said: bool) -> list[str]:
        """The names of the columns; `is_said`: the file itself names the delimiter."""
        try:
            header.decode()
        except UnicodeDecodeError as error:
            raise self._error(
                f"the header is not UTF-8 at byte {error.start}; use --encoding, such as cp1252 or latin-1"
            ) from None
        if b"\0" in header:
            raise self._error("the header holds NUL bytes, as UTF-16 does; use --encoding utf-16-le or utf-16-be")
        names = _cells(header, self._delimiter)
        other = next((each for each in ";\t|," if names and each in names[0]), None)
        if len(names) == 1 and other and not (self._form.delimiter or is_said or header.startswith(b'"')):
            shown = "tab" if other == "\t" else f"'{other}'"
            here = "tab" if self._delimiter == "\t" else f"'{self._delimiter}'"
            raise self._error(
                f"the header is one column, {names[0]!r}; use --delimiter {shown}, or --delimiter {here} if it is one"
            )
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise self._error(f"two columns have the name {twice!r}")
        for name in self._types:
            if name not in names:
                has = ", ".join(map(repr, names))
                raise self._error(f"there is no column {name!r}, which --schema names; there are: {has}")
        return names

    def _records(self, data: bytes, source: Array, at: int, columns: tuple[Array, Array, Array], pieces: list[bytes]) -> int:
        """Make lines of all whole records from `at` on.  Returns where they end."""
        out = np.empty(2 * len(data) + len(columns[0]) + _ROOM, np.uint8)
        while True:
            why, at, end, filled, cells = _transcode(source, at, self._at_end, ord(self._delimiter), columns, out)
            pieces.append(out[:filled].tobytes())
            self._line += pieces[-1].count(b"\n")
            if why == _OPEN:
                return int(at)
            if why == _ENDLESS:
                raise self._error(_ENDLESS_QUOTE)
            if why == _FULL:
                out = np.empty(max(2 * len(out), _MOST_EXPANSION * (end - at) + len(columns[0]) + _ROOM), np.uint8)
            else:
                pieces.append(self._set_aside(self._reason(why, data[at:end], cells), data[at:end]))
                at = end

    def _reason(self, why: int, record: bytes, cells: int) -> str:
        assert self._columns is not None
        if why == _CELLS:
            return f"the row has {cells} cell{'s' * (cells != 1)}, the header has {len(self._columns[2])}"
        if why == _QUOTE:
            return _QUOTES
        wanted = "a number" if why == _NO_NUMBER else "true or false"
        cell = _cells(record, self._delimiter)[cells][:40]
        return f"the cell {json.dumps(cell, ensure_ascii=False)} is not {wanted}, as --schema says"

    def _set_aside(self, reason: str, record: bytes) -> bytes:
        """The line of a bad record, and blank ones for the others that it has."""
        n_lines = record.count(b"\n")
        self._line += n_lines
        return set_aside(reason, record.rstrip(b"\r\n").replace(b"\n", b" ")) + b"\n" * max(n_lines, 1)


class _Recoded(io.RawIOBase):
    """The text that `handle` reads in some encoding, as UTF-8. Reading raises ModelError for invalid text."""

    def __init__(self, handle: io.BufferedReader, path: Path, encoding: str) -> None:
        self._handle, self._path, self._encoding = handle, path, encoding
        self._decoder = getincrementaldecoder(encoding)()
        self._n_read, self._made = 0, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        more = b"-"
        while not self._made and more:
            more = self._handle.read(_READ_BYTES)
            held = len(self._decoder.getstate()[0])
            try:
                self._made = self._decoder.decode(more, not more).encode("utf-8", "surrogatepass")
            except UnicodeError as error:
                at = self._n_read - held + getattr(error, "start", 0)
                raise ModelError(f"{self._path}: is not {self._encoding} at byte {at:,}; use another --encoding") from None
            self._n_read += len(more)
        taken = self._made[: len(buffer)]
        buffer[: len(taken)] = taken
        self._made = self._made[len(taken) :]
        return len(taken)


_QUOTES = "a quote stands within a cell, or text behind a closing quote; quotes in a quoted cell are doubled"
_ENDLESS_QUOTE = (
    f"a cell that begins with a quote in this record has no closing quote within {MAX_QUOTED_BYTES // 2**20} MiB and "
    f"{MAX_QUOTED_LINES:,} lines; close it, or double the quote if it is text"
)
_NOT_CLOSED = -2
_ROOM = 64


def compile_csv() -> None:
    """Have the functions compiled that read CSV."""
    content = cast(io.BufferedReader, io.BufferedReader(io.BytesIO(b"a\n1\n")))
    with compile_once("csv"), CsvLines(content, Path(), PLAIN) as lines:
        lines.read()


def _cells(record: bytes, delimiter: str) -> list[str]:
    return next(csv.reader(io.StringIO(record.decode(errors="replace"), newline=""), delimiter=delimiter), [])


@jit
def _record_end(data: Array, at: int, at_end: bool, delimiter: int) -> tuple[int, bool]:
    """The end of the record that begins at `at`, behind its line feed, and whether its quotes are allowed.

    -1 if it is not whole: at the end of the file a line feed may be missing, a quote not; _NOT_CLOSED for a cell in quotes
    that is too long.
    """
    n, is_quoted, at_start, is_good = len(data), False, True, True
    opened, n_lines = at, 0
    while at < n:
        byte = data[at]
        if is_quoted:
            if byte == QUOTE:
                if at + 1 == n and not at_end:
                    return -1, True
                if at + 1 < n and data[at + 1] == QUOTE:
                    at += 1
                else:
                    is_quoted = False
                    behind = data[at + 1] if at + 1 < n else LINE_FEED
                    is_line_end = behind == RETURN and (at + 2 >= n or data[at + 2] == LINE_FEED)
                    is_good &= behind == delimiter or behind == LINE_FEED or is_line_end
            elif byte == LINE_FEED:
                n_lines += 1
                if n_lines > MAX_QUOTED_LINES:
                    return _NOT_CLOSED, True
            if at - opened > MAX_QUOTED_BYTES:
                return _NOT_CLOSED, True
        elif byte == QUOTE:
            is_quoted = at_start and is_good
            is_good &= at_start
            opened, n_lines = at, 0
        elif byte == LINE_FEED:
            return at + 1, is_good
        at_start = byte == delimiter and not is_quoted
        at += 1
    return (n, is_good) if at_end and not is_quoted else (-1, True)


@nested
def _put(out: Array, filled: int, data: Array, start: int, stop: int) -> int:
    for i in range(start, stop):
        out[filled + i - start] = data[i]
    return filled + stop - start


@nested
def _put_text(out: Array, filled: int, data: Array, start: int, stop: int, is_quoted: bool) -> int:
    """Append a cell as a JSON string; two quotes within a quoted cell become one."""
    out[filled] = QUOTE
    filled += 1
    i = start
    while i < stop:
        byte = data[i]
        if byte < BLANK:
            out[filled], out[filled + 1], out[filled + 2], out[filled + 3] = 92, 117, 48, 48
            digit = byte & 15
            out[filled + 4], out[filled + 5] = 48 + (byte >> 4), digit + (48 if digit < 10 else 87)
            filled += 6
        else:
            if byte == QUOTE or byte == BACKSLASH:
                out[filled] = BACKSLASH
                filled += 1
            out[filled] = byte
            filled += 1
        i += 2 if byte == QUOTE and is_quoted else 1
    out[filled] = QUOTE
    return filled + 1


@nested
def _after_digits(data: Array, at: int, stop: int) -> int:
    while at < stop and ZERO <= data[at] <= NINE:
        at += 1
    return at


@nested
def _kind_of(data: Array, start: int, stop: int) -> int:
    """The kind of JSON value in the text of a cell."""
    n = stop - start
    if (
        n == 4
        and data[start] == LOWER_T
        and data[start + 1] == LOWER_R
        and data[start + 2] == LOWER_U
        and data[start + 3] == LOWER_E
    ):
        return _LITERAL
    if (
        n == 5
        and data[start] == LOWER_F
        and data[start + 1] == LOWER_A
        and data[start + 2] == LOWER_L
        and data[start + 3] == LOWER_S
    ):
        return _LITERAL if data[start + 4] == LOWER_E else _TEXT
    at = start + 1 if n and data[start] == MINUS else start
    end = _after_digits(data, at, stop)
    if end == at or (data[at] == ZERO and end > at + 1):
        return _TEXT
    if end < stop and data[end] == POINT:
        at = end + 1
        end = _after_digits(data, at, stop)
        if end == at:
            return _TEXT
    if end < stop and data[end] | LOWER_CASE == LOWER_E:
        at = end + 2 if end + 1 < stop and (data[end + 1] == PLUS or data[end + 1] == MINUS) else end + 1
        end = _after_digits(data, at, stop)
        if end == at:
            return _TEXT
    return _NUMBER if end == stop else _TEXT


@nested
def _cell_end(data: Array, at: int, stop: int, delimiter: int) -> tuple[int, int, int]:
    """The content of the cell that begins here, and where the cell ends."""
    start = at
    if at < stop and data[at] == QUOTE:
        at += 1
        while data[at] != QUOTE or (at + 1 < stop and data[at + 1] == QUOTE):
            at += 2 if data[at] == QUOTE else 1
        return start + 1, at, at + 1
    while at < stop and data[at] != delimiter:
        at += 1
    return start, at, at


@nested
def _put_cell(out: Array, filled: int, data: Array, cell: tuple[int, int, bool], type_: int) -> tuple[int, int]:
    """Append a cell of a column of some type.  Returns where it ends, and the reason why it is bad or -1."""
    start, stop, is_quoted = cell
    kind = _TEXT if type_ == Type.STRING or (is_quoted and type_ == Type.ANY) else _kind_of(data, start, stop)
    if type_ == Type.NUMBER and kind != _NUMBER:
        return filled, _NO_NUMBER
    if type_ == Type.BOOLEAN and kind != _LITERAL:
        return filled, _NO_BOOLEAN
    if kind == _TEXT:
        return _put_text(out, filled, data, start, stop, is_quoted), -1
    return _put(out, filled, data, start, stop), -1


@jit
def _transcode(
    data: Array, at: int, at_end: bool, delimiter: int, columns: tuple[Array, Array, Array], out: Array
) -> tuple[int, int, int, int, int]:
    """Write the lines of whole records, from `at` on, to `out`.

    `columns`: the names as JSON with colons, their offsets, and the type of each.  Returns the reason for stopping, the
    record and its end, the number of bytes written, and the record's number of cells or the number of the bad cell.
    """
    keys, key_offsets, types = columns
    filled, n = 0, len(data)
    while at < n:
        end, is_good = _record_end(data, at, at_end, delimiter)
        if end == _NOT_CLOSED:
            return _ENDLESS, at, at, filled, 0
        if end < 0:
            return _OPEN, at, at, filled, 0
        if filled + _MOST_EXPANSION * (end - at) + len(keys) + _ROOM > len(out):
            return _FULL, at, end, filled, 0
        stop = end - 1 if data[end - 1] == LINE_FEED else end
        stop = stop - 1 if stop > at and data[stop - 1] == RETURN else stop
        if stop == at:
            out[filled] = LINE_FEED
            filled, at = filled + 1, end
            continue
        if not is_good:
            return _QUOTE, at, end, filled, 0
        before, cells, next_, why = filled, 0, at, -1
        out[filled] = OPEN_BRACE
        filled += 1
        while next_ <= stop and why < 0:
            is_quoted = next_ < stop and data[next_] == QUOTE
            start, last, behind = _cell_end(data, next_, stop, delimiter)
            if cells < len(types) and (is_quoted or last > start):
                if filled > before + 1:
                    out[filled] = COMMA
                    filled += 1
                filled = _put(out, filled, keys, key_offsets[cells], key_offsets[cells + 1])
                filled, why = _put_cell(out, filled, data, (start, last, is_quoted), types[cells])
            cells += why < 0
            next_ = behind + 1
        if why < 0 and cells != len(types):
            why = _CELLS
        if why >= 0:
            return why, at, end, before, cells
        out[filled], out[filled + 1] = CLOSE_BRACE, LINE_FEED
        filled += 2
        for i in range(at, end - 1):
            if data[i] == LINE_FEED:
                out[filled] = LINE_FEED
                filled += 1
        at = end
    return _OPEN, at, at, filled, 0
