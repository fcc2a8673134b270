"""Versions of a table: files `*.h5` of one directory.

The newest is the last by name, where numbers in names are compared as numbers: `table.h5`, `table-2.h5`, `table-10.h5`.
A version appears whole, under a new name, and is never changed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from mpi_match.storage import StorageError, reported, temporary_of
from mpi_match.table.table import Table

_DIGITS = re.compile(r"([0-9]+)")


def newest_version(directory: Path) -> Path:
    """The newest version of a table in a directory.  Raises StorageError for a directory without one."""
    found = _versions(directory)
    if not found:
        raise StorageError(f"{directory}: holds no version of a table (*.h5)")
    return found[-1]


def next_version(path: Path, directory: Path) -> Path:
    """The path of the version after `path`, in a directory: its last number plus one, or 2 if its name does not end in one.

    Raises StorageError if that would not be the newest of the directory.
    """
    parts = _DIGITS.split(path.stem)
    if len(parts) > 1 and not parts[-1]:
        number = parts[-2]
        name = "".join(parts[:-2]) + f"{int(number) + 1:0{len(number)}}"
    else:
        name = f"{path.stem}-2"
    found = directory / f"{name}.h5"
    check_newest(found)
    return found


def check_newest(path: Path) -> None:
    """Raise StorageError unless `path` is free, and would be the newest version of its directory."""
    if path.exists() or path.is_symlink():
        raise StorageError(f"{path}: exists already; versions are not changed: update it, or give the next one a new name")
    for other in _versions(path.parent)[-1:]:
        if _order(other) > _order(path):
            raise StorageError(f"{path}: would not be the newest version, which is {other.name}; give it a later name")


def save_version(table: Table, path: Path) -> None:
    """Write a table under a name that no file has.  Raises StorageError, also when another process was first."""
    temporary = temporary_of(path)
    try:
        table.save(temporary)
        with reported(path):
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _versions(directory: Path) -> list[Path]:
    return sorted((each for each in directory.glob("*.h5") if not each.name.startswith(".")), key=_order)


def _order(path: Path) -> tuple[list[str | int], str]:
    """The sort key of a name: texts and numbers alternate, so that texts are compared with texts and numbers with
    numbers."""
    parts = _DIGITS.split(path.stem)
    return [int(part) if i % 2 else part for i, part in enumerate(parts)], path.name
