"""Finds the files of rows that a path names, and their format."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from mpi_match.ingest.rows.file_kinds import KIND_BYTES, refuse_other_kinds
from mpi_match.ingest.rows.formats import START_BYTES, columns_format, endings_of, format_names, lines_format
from mpi_match.ingest.rows.judge import EventForm
from mpi_match.ingest.rows.packed_files import is_packed
from mpi_match.model import ModelError

STDIN, STDOUT = Path("/dev/stdin"), Path("/dev/stdout")
"""The names for rows from standard input, and for answers on standard output."""
TCP, UNIX = "tcp://", "unix://"
"""Beginnings of the addresses of sockets that rows come from."""
PART_NAMES = "part-*[0-9]"
"""A glob for the names without an ending that Hadoop and Spark give to files."""
TABLE_FORMATS = {"Delta": "_delta_log", "Hudi": ".hoodie", "Iceberg": "metadata/*.metadata.json"}
"""Table formats, each with a glob of files that only a directory of such a table holds."""
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""The value of a directory `name=value` that stands for null."""
_HDF5 = b"\x89HDF\r\n\x1a\n"
_HDF5_ENDINGS = (".h5", ".hdf5")


def is_compiled(path: Path) -> bool:
    """Tells whether a file is an HDF5 file, by its beginning or, if that is damaged, by its name.  Raises OSError."""
    return path.is_file() and (_start_of(path).startswith(_HDF5) or path.name.lower().endswith(_HDF5_ENDINGS))


def is_columnar(path: Path) -> bool:
    """Tells whether a file is one of columns, by its beginning or, if that is damaged, by its name.  Raises OSError."""
    return path.is_file() and columns_format(_start_of(path), path.name) is not None


def is_plain(path: Path) -> bool:
    """Tells whether a file consists of plain lines, so that any part of it can be read any number of times."""
    return path != STDIN and not is_packed(path) and lines_format(path).is_plain and path.is_file()


def row_files(path: Path) -> list[Path]:
    """The files of lines that a path names, of formats of subscriptions: itself, or those of a directory.

    Raises ModelError when there are none, or when one is compiled, of columns or of another kind (`file_kinds`): every line
    of it would be a bad row.
    """
    found = _files(path, endings_of(lambda each: each.subscriptions), format_names(lambda each: each.subscriptions))
    for file in found:
        check_lines(file)
    return found


def event_files(path: Path, form: EventForm, *, mixed: bool = False) -> list[Path]:
    """The files of events that a path names: of lines, or all of them of columns (`are_columnar`); or all together if they
    may be `mixed`.

    Raises ModelError as `row_files` does, when a directory has both, and for types of columns where no file is CSV.
    """
    if is_columnar(path):
        refuse_table_format(path)
        found = [path]
    else:
        found = _files(path, endings_of(), format_names())
    columnar = [each for each in found if is_columnar(each)]
    for file in found:
        if file not in columnar:
            check_lines(file)
    if columnar and len(columnar) < len(found) and not mixed:
        other = next(each for each in found if each not in columnar)
        raise ModelError(
            f"{path}: holds {columnar[0].relative_to(path)}, of columns, and {other.relative_to(path)}, of lines; "
            "put them into two directories"
        )
    check_form_of_files(path, found, form)
    return found


def check_form_of_files(path: Path | str, files: Sequence[Path], form: EventForm) -> None:
    """Raise ModelError for options of CSV if no file is of a format that takes them."""
    if form.csv_options and not any(lines_format(file).has_options for file in files):
        taking = format_names(lambda each: each.has_options)
        raise ModelError(f"{path}: is no {taking}; leave out {form.csv_options[0]}")


def are_columnar(files: Sequence[Path]) -> bool:
    """Tells whether these `event_files` are files of columns."""
    return is_columnar(files[0])


def _files(path: Path, endings: tuple[str, ...], what: str) -> list[Path]:
    if not path.exists():
        raise ModelError(f"{path}: no such file")
    if path.is_file():
        refuse_table_format(path)
    if not path.is_dir():
        return [path]
    found = [file for file in files_below(path) if holds_rows(file.name, endings)]
    if not found:
        raise ModelError(f"{path}: no {what} in this directory (files named {', '.join('*' + e for e in endings)})")
    return found


def holds_rows(name: str, endings: tuple[str, ...]) -> bool:
    """Tells whether a file in a directory holds rows, according to its name.  Every command leaves out files with other
    endings."""
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
    """Tells whether a file or directory is left out of directories, as Spark leaves it out."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _raise(error: OSError) -> None:
    raise error


def _is_new(directory: Path, seen: set[Path]) -> bool:
    """Tells whether an entry is a directory that no other link has led to."""
    place = directory.resolve()
    is_new = place not in seen
    seen.add(place)
    return is_new


def refuse_table_format(path: Path) -> None:
    """Raise ModelError for a path in a directory of a table format, which has a log of the files and rows that count."""
    place = path.absolute()
    for directory in (place, *place.parents):
        _refuse_if_table(directory, path)


def _refuse_if_table(directory: Path, path: Path) -> None:
    for name, mark in TABLE_FORMATS.items():
        if next(directory.glob(mark), None) is not None:
            raise ModelError(table_format_text(str(path), name, str(directory)))


def table_format_text(path: str, name: str, directory: str) -> str:
    """The advice for `path`, which is the `directory` of a table format or in it."""
    what = "is" if path == directory else f"is in {directory},"
    form = name.lower()
    return (
        f"{path}: {what} a table of {name}, whose files also hold rows that were removed; let Spark read it: "
        f"spark.read.format({form!r}).load({directory!r}), and give that DataFrame to spark_prep.job, "
        "or write it as Parquet to another directory"
    )


def partition_values(path: Path) -> dict[str, str | None]:
    """The values that the directories of a file, named `name=value` as Hive, Spark and DuckDB name them, give to all its
    rows.

    Values are strings, `%20` and the like decoded; None is null.  Raises ModelError for a name that occurs twice.
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
_UTF_16_OBJECTS = (b"{\0", b"\0{")
"""The beginnings of JSON lines in UTF-16 without such a mark."""


def check_lines(path: Path) -> None:
    """Raise ModelError for a file that does not hold lines; pipes and devices are not looked into."""
    if not path.is_file():
        return
    start = _start_of(path)
    refuse_other_kinds(path, start)
    if start.startswith((*UTF_16_STARTS, *_UTF_16_OBJECTS)) and lines_format(path).is_plain:
        raise ModelError(f"{path}: is UTF-16, and JSON lines are UTF-8: iconv -f UTF-16 -t UTF-8 {path} > NEW")
    if start.startswith(_HDF5):
        raise ModelError(f"{path}: is an HDF5 file, not JSON lines; `mpi-match run` matches what is compiled")
    if (columns := columns_format(start, "")) is not None:
        says = "; `mpi-match compile` reads it, for `mpi-match run`" if columns.by_spark else ""
        raise ModelError(f"{path}: is a file of {columns.name}, not JSON lines{says}")


def _start_of(path: Path) -> bytes:
    with path.open("rb") as handle:
        return handle.read(max(len(_HDF5), START_BYTES, KIND_BYTES))
