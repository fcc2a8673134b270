"""The files that hold rows: which are meant by a path, in which form, and what they are not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mpi_match.ingest.rows.judge import ROW_ENDINGS, EventForm
from mpi_match.ingest.rows.packed_files import PACKED_ENDINGS, is_packed
from mpi_match.model import ModelError

STDIN = Path("/dev/stdin")
"""Rows from standard input."""
TCP, UNIX = "tcp://", "unix://"
"""Beginnings of the addresses of sockets that rows come from."""
CSV_ENDINGS = tuple(".csv" + packed for packed in ("", *PACKED_ENDINGS))
COLUMNAR_ENDINGS = (".parquet", ".arrow", ".feather", ".ipc")
EVENT_ENDINGS = (*ROW_ENDINGS, *CSV_ENDINGS, *COLUMNAR_ENDINGS)
"""Extensions of files of events."""
_HDF5 = b"\x89HDF\r\n\x1a\n"
_HDF5_ENDINGS = (".h5", ".hdf5")
PARQUET_START, ARROW_START, FEATHER_1_START = b"PAR1", b"ARROW1", b"FEA1"
"""How files of columns begin."""


def is_compiled(path: Path) -> bool:
    """Is it an HDF5 file, by its beginning or, where that is damaged, by its name?  Raises OSError."""
    return path.is_file() and (_start_of(path) == _HDF5 or path.name.lower().endswith(_HDF5_ENDINGS))


def is_csv(path: Path) -> bool:
    """Is it CSV, by its name?"""
    return path.name.lower().endswith(CSV_ENDINGS)


def is_columnar(path: Path) -> bool:
    """Is it a Parquet or Arrow file, by its beginning or, where that is damaged, by its name?  Raises OSError."""
    if not path.is_file():
        return False
    starts = (PARQUET_START, ARROW_START, FEATHER_1_START)
    return _start_of(path).startswith(starts) or path.name.lower().endswith(COLUMNAR_ENDINGS)


def is_plain(path: Path) -> bool:
    """Can any part of a file of lines be read, any number of times, as it is?"""
    return path != STDIN and not is_packed(path) and not is_csv(path) and path.is_file()


def row_files(path: Path) -> list[Path]:
    """The JSON lines files that a path names: itself, or those of a directory.

    Raises ModelError when there are none, or when the file is compiled or Parquet, of which every line would be a bad row.
    """
    return _files(path, ROW_ENDINGS, "JSON lines")


def event_files(path: Path, form: EventForm) -> list[Path]:
    """The files of events that a path names: of JSON lines and CSV, or all of them Parquet and Arrow (`are_columnar`).

    Raises ModelError as `row_files` does, when a directory has both, and for types of columns where no file is CSV.
    """
    found = [path] if is_columnar(path) else _files(path, EVENT_ENDINGS, "JSON lines, CSV, Parquet or Arrow")
    columnar = [each for each in found if is_columnar(each)]
    if columnar and len(columnar) < len(found):
        other = next(each for each in found if each not in columnar)
        raise ModelError(
            f"{path}: holds {columnar[0].name}, of columns, and {other.name}, of lines; put them into two directories"
        )
    if form.types and not any(map(is_csv, found)):
        raise ModelError(f"{path}: is no CSV; leave out --schema")
    return found


def are_columnar(files: Sequence[Path]) -> bool:
    """Are these `event_files` Parquet and Arrow?"""
    return is_columnar(files[0])


def _files(path: Path, endings: tuple[str, ...], what: str) -> list[Path]:
    if not path.exists():
        raise ModelError(f"{path}: no such file")
    if path.is_file():
        _check_lines(path)
    if not path.is_dir():
        return [path]
    found = sorted(item for item in path.iterdir() if item.name.lower().endswith(endings) and item.is_file())
    if not found:
        raise ModelError(f"{path}: no {what} in this directory (files named {', '.join('*' + e for e in endings)})")
    return found


def _check_lines(path: Path) -> None:
    start = _start_of(path)
    if start == _HDF5:
        raise ModelError(f"{path}: is an HDF5 file, not JSON lines; `mpi-match run` matches what is compiled")
    if start.startswith(PARQUET_START):
        raise ModelError(f"{path}: is a Parquet file, not JSON lines; `mpi-match compile` reads it, for `mpi-match run`")


def _start_of(path: Path) -> bytes:
    with path.open("rb") as handle:
        return handle.read(len(_HDF5))
