"""The record of an input format, the records of all formats, and the format of a file.

There are two kinds: a format of *lines* becomes JSON lines, which compiled code scans; a format of *columns* becomes Arrow
tables.  Every reader of rows asks the records, so an entry in `INPUT_FORMATS` adds a format to all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, BinaryIO

from mpi_match.ingest.rows.judge import EventForm
from mpi_match.ingest.rows.packed_files import PACKED_ENDINGS

if TYPE_CHECKING:
    from typing import Protocol

    import pyarrow as pa

    class Pieces(Protocol):
        """The content of a file of columns, in pieces that are read one at a time; errors are those of pyarrow."""

        schema: pa.Schema
        n_pieces: int

        def select(self, columns: Sequence[str]) -> None:
            """From now on, read these top columns only."""
            ...

        def n_rows(self, piece: int) -> int:
            """Number of rows of a piece."""
            ...

        def read(self, piece: int) -> pa.Table:
            """The selected columns of a piece."""
            ...


@dataclass(frozen=True)
class InputFormat:
    """A format of files of rows.

    name            its name in messages and help, such as "JSON lines"
    endings         of the names of its files, in lower case
    lines           `module:name` of what makes JSON lines of the bytes of a file: `(file, path, EventForm) -> RawIOBase`,
                    imported lazily; empty for JSON lines
    columns         `module:name` of what reads a file of columns: `(file) -> Pieces`, imported lazily; empty for lines
    starts          first bytes of a file, which tell the format whatever the name; only of columns
    prepare         `module:name` of a function that compiles what `lines` needs
    subscriptions   files of a directory are subscriptions too, not only events
    has_options     the types, the delimiter and the encoding of an `EventForm` are for it
    by_spark        the Spark job reads it too
    """

    name: str
    endings: tuple[str, ...]
    lines: str = ""
    columns: str = ""
    starts: tuple[bytes, ...] = ()
    prepare: str = ""
    subscriptions: bool = False
    has_options: bool = False
    by_spark: bool = False

    @property
    def is_columnar(self) -> bool:
        """True for columns."""
        return bool(self.columns)

    @property
    def is_plain(self) -> bool:
        """Tells whether the file itself consists of the lines, so that any part of it can be read."""
        return not self.lines and not self.columns

    @property
    def names(self) -> tuple[str, ...]:
        """The endings, including those of packed files: any lines may be packed."""
        packed = ("",) if self.is_columnar else ("", *PACKED_ENDINGS)
        return tuple(ending + more for ending in self.endings for more in packed)

    def json_lines(self, file: BinaryIO, path: Path, form: EventForm) -> RawIOBase:
        """The JSON lines of an opened file, which is closed with them."""
        found: Callable[[BinaryIO, Path, EventForm], RawIOBase] = resolve_name(self.lines)
        return found(file, path, form)

    def pieces(self, file: BinaryIO) -> Pieces:
        """The columns of an opened file."""
        found: Callable[[BinaryIO], Pieces] = resolve_name(self.columns)
        return found(file)

    def compile(self) -> None:
        """Compile the functions that read the format."""
        if self.prepare:
            resolve_name(self.prepare)()


ARROW_STREAM_START = b"\xff\xff\xff\xff"
"""First bytes of Arrow's streams, which are refused: an index at the end of a file tells where its batches are."""
JSON_LINES = InputFormat("JSON lines", (".jsonl", ".json", ".ndjson"), subscriptions=True, by_spark=True)
INPUT_FORMATS = {
    "json": JSON_LINES,
    "csv": InputFormat(
        "CSV",
        (".csv", ".tsv"),
        lines="mpi_match.ingest.files.csv:CsvLines",
        prepare="mpi_match.ingest.files.csv:compile_csv",
        has_options=True,
    ),
    "parquet": InputFormat(
        "Parquet",
        (".parquet",),
        columns="mpi_match.ingest.columns.file:ParquetPieces",
        starts=(b"PAR1",),
        by_spark=True,
    ),
    "arrow": InputFormat(
        "Arrow",
        (".arrow", ".feather", ".ipc"),
        columns="mpi_match.ingest.columns.file:ArrowPieces",
        starts=(b"ARROW1", b"FEA1", ARROW_STREAM_START),
    ),
}
"""All formats, in the order of messages and help."""
START_BYTES = 8
"""Most first bytes of a file that tell its format, for `InputFormat.starts`."""


def lines_format(path: Path) -> InputFormat:
    """The format of a file of lines, by its name; other names than those of formats stand for JSON lines."""
    name = path.name.lower()
    return next((each for each in INPUT_FORMATS.values() if each.lines and name.endswith(each.names)), JSON_LINES)


def columns_format(start: bytes, name: str) -> InputFormat | None:
    """The format of a file of columns that begins with `start`, by that or else by its name; None for a file of lines."""
    columnar = [each for each in INPUT_FORMATS.values() if each.is_columnar]
    by_start = (each for each in columnar if start.startswith(each.starts))
    by_name = (each for each in columnar if name.lower().endswith(each.names))
    return next(by_start, None) or next(by_name, None)


def format_names(wanted: Callable[[InputFormat], bool] = lambda _: True, last: str = "or") -> str:
    """The names of formats in one phrase: "JSON lines, CSV, Parquet or Arrow"."""
    *names, end = [each.name for each in INPUT_FORMATS.values() if wanted(each)]
    return f"{', '.join(names)} {last} {end}" if names else end


def format_list() -> str:
    """The names and the endings of all formats, for help."""
    endings = ", ".join(ending for each in INPUT_FORMATS.values() for ending in each.endings)
    return f"{format_names()} ({endings}; lines packed too, {', '.join(PACKED_ENDINGS)})"


def endings_of(wanted: Callable[[InputFormat], bool] = lambda _: True) -> tuple[str, ...]:
    """The endings of the names of files of formats, including those of packed files."""
    return tuple(name for each in INPUT_FORMATS.values() if wanted(each) for name in each.names)
