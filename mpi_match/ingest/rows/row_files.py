"""The files that hold rows: which are meant by a path, in which form, and what they are not."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from mpi_match.ingest.rows.judge import ROW_ENDINGS, EventForm
from mpi_match.ingest.rows.packed_files import PACKED_ENDINGS, is_packed
from mpi_match.model import ModelError

STDIN = Path("/dev/stdin")
"""Rows from standard input."""
TCP, UNIX = "tcp://", "unix://"
"""Beginnings of the addresses of sockets that rows come from."""
TSV_ENDINGS = tuple(".tsv" + packed for packed in ("", *PACKED_ENDINGS))
CSV_ENDINGS = (*(".csv" + packed for packed in ("", *PACKED_ENDINGS)), *TSV_ENDINGS)
COLUMNAR_ENDINGS = (".parquet", ".arrow", ".feather", ".ipc")
EVENT_ENDINGS = (*ROW_ENDINGS, *CSV_ENDINGS, *COLUMNAR_ENDINGS)
"""Extensions of files of events."""
PART_NAMES = "part-*[0-9]"
"""Names, as a glob, of files without an ending that Hadoop and Spark write."""
TABLE_FORMATS = {"Delta": "_delta_log", "Hudi": ".hoodie", "Iceberg": "metadata/*.metadata.json"}
"""Table formats, and the glob of what only a directory of such a table holds."""
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""Value of a directory `name=value` that stands for null."""
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


def event_files(path: Path, form: EventForm, *, mixed: bool = False) -> list[Path]:
    """The files of events that a path names: of JSON lines and CSV, or all of them Parquet and Arrow (`are_columnar`);
    or all together if they may be `mixed`.

    Raises ModelError as `row_files` does, when a directory has both, and for types of columns where no file is CSV.
    """
    if is_columnar(path):
        refuse_table_format(path)
        found = [path]
    else:
        found = _files(path, EVENT_ENDINGS, "JSON lines, CSV, Parquet or Arrow")
    columnar = [each for each in found if is_columnar(each)]
    if columnar and len(columnar) < len(found) and not mixed:
        other = next(each for each in found if each not in columnar)
        raise ModelError(
            f"{path}: holds {columnar[0].relative_to(path)}, of columns, and {other.relative_to(path)}, of lines; "
            "put them into two directories"
        )
    check_form_of_files(path, found, form)
    return found


def check_form_of_files(path: Path | str, files: Sequence[Path], form: EventForm) -> None:
    """Raise ModelError for options of CSV where no file is CSV."""
    if form.csv_options and not any(map(is_csv, files)):
        raise ModelError(f"{path}: is no CSV; leave out {form.csv_options[0]}")


def are_columnar(files: Sequence[Path]) -> bool:
    """Are these `event_files` Parquet and Arrow?"""
    return is_columnar(files[0])


def _files(path: Path, endings: tuple[str, ...], what: str) -> list[Path]:
    if not path.exists():
        raise ModelError(f"{path}: no such file")
    if path.is_file():
        refuse_table_format(path)
        _check_lines(path)
    if not path.is_dir():
        return [path]
    found = [file for file in files_below(path) if holds_rows(file.name, endings)]
    if not found:
        raise ModelError(f"{path}: no {what} in this directory (files named {', '.join('*' + e for e in endings)})")
    return found


def holds_rows(name: str, endings: tuple[str, ...]) -> bool:
    """Does a file in a directory hold rows, by its name?  One of another ending is left out by every command."""
    return name.lower().endswith(endings) or fnmatch.fnmatchcase(name, PART_NAMES)


def files_below(directory: Path) -> list[Path]:
    """The files of a directory at any depth, in the order of their paths, without hidden files and directories.

    This is the only listing of directories of rows, so every command gives an event the same number.  Links are followed,
    each directory once.  Raises ModelError for a directory of a table format (`refuse_table_format`), OSError.
    """
    refuse_table_format(directory)
    found: list[Path] = []
    seen = {directory.resolve()}
    for place, names, files in os.walk(directory, onerror=_raise, followlinks=True):
        below = Path(place)
        if below != directory:
            _refuse_if_table(below, below)
        names[:] = [name for name in names if not is_hidden(name) and _is_new(below / name, seen)]
        found += [below / name for name in files if not is_hidden(name) and (below / name).is_file()]
    return sorted(found)


def is_hidden(name: str) -> bool:
    """Is a file or directory left out of directories, as Spark leaves it out?"""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _raise(error: OSError) -> None:
    raise error


def _is_new(directory: Path, seen: set[Path]) -> bool:
    """Is it a directory that no other link has led to?"""
    place = directory.resolve()
    is_new = place not in seen
    seen.add(place)
    return is_new


def refuse_table_format(path: Path) -> None:
    """Raise ModelError for a path in a directory of a table format, whose log says which of its files and rows count."""
    place = path.absolute()
    for directory in (place, *place.parents):
        _refuse_if_table(directory, path)


def _refuse_if_table(directory: Path, path: Path) -> None:
    for name, mark in TABLE_FORMATS.items():
        if next(directory.glob(mark), None) is not None:
            raise ModelError(table_format_text(str(path), name, str(directory)))


def table_format_text(path: str, name: str, directory: str) -> str:
    """What to do about `path`, which is or is in the `directory` of a table format."""
    what = "is" if path == directory else f"is in {directory},"
    form = name.lower()
    return (
        f"{path}: {what} a table of {name}, whose files also hold rows that were removed; let Spark read it: "
        f"spark.read.format({form!r}).load({directory!r}), and give that DataFrame to spark_prep.job, "
        "or write it as Parquet to another directory"
    )


def partition_values(path: Path) -> dict[str, str | None]:
    """What the directories of a file that are named `name=value` say of all its rows, as Hive, Spark and DuckDB write it.

    Values are strings, `%20` and the like decoded; None is null.  Raises ModelError for a name that stands twice.
    """
    found: dict[str, str | None] = {}
    for part in path.absolute().parts[:-1]:
        name, equals, value = part.partition("=")
        if not equals or not name:
            continue
        name = unquote(name)
        if name in found:
            raise ModelError(f"{path}: two of its directories are named {name!r}=...")
        found[name] = None if value == NULL_PARTITION else unquote(value)
    return found


UTF_16_STARTS = (b"\xff\xfe", b"\xfe\xff")
"""Byte order marks of UTF-16, which PowerShell and Excel write."""


def _check_lines(path: Path) -> None:
    start = _start_of(path)
    if start.startswith(UTF_16_STARTS) and not is_csv(path):
        raise ModelError(f"{path}: is UTF-16, and JSON lines are UTF-8: iconv -f UTF-16 -t UTF-8 {path} > NEW")
    if start == _HDF5:
        raise ModelError(f"{path}: is an HDF5 file, not JSON lines; `mpi-match run` matches what is compiled")
    if start.startswith(PARQUET_START):
        raise ModelError(f"{path}: is a Parquet file, not JSON lines; `mpi-match compile` reads it, for `mpi-match run`")


def _start_of(path: Path) -> bytes:
    with path.open("rb") as handle:
        return handle.read(len(_HDF5))
