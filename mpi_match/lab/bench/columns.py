"""Results as a table, for spreadsheets and data frames: CSV and Parquet.  Nested fields become columns with dotted names
(`parameters.names`, `match_s.median`); lists are JSON. Columns come in the order of first use; a result without the field
has a null.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mpi_match.lab.bench.report import Result
from mpi_match.storage import StorageError, atomic_write

AS_PARQUET = ".parquet"
Value = str | int | float | bool | None


def write_columns(records: Sequence[Result], path: Path) -> None:
    """Write results to `path`, as CSV or Parquet by its ending.

    Raises StorageError without results, ImportError for Parquet without pyarrow, OSError.
    """
    if not records:
        raise StorageError("no results to write")
    rows = [dict(_flat(record)) for record in records]
    names = list(dict.fromkeys(name for row in rows for name in row))
    with atomic_write(path) as temporary:
        if path.suffix == AS_PARQUET:
            _write_parquet(names, rows, temporary)
        else:
            with temporary.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, names)
                writer.writeheader()
                writer.writerows(rows)


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Value]]:
    for key, each in value.items():
        if isinstance(each, Mapping):
            yield from _flat(each, f"{prefix}{key}.")
        elif each is not None:
            yield f"{prefix}{key}", json.dumps(each, ensure_ascii=False) if isinstance(each, list) else each


def _write_parquet(names: Sequence[str], rows: Sequence[Mapping[str, Value]], path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    columns = {name: _one_type([row.get(name) for row in rows]) for name in names}
    parquet.write_table(pyarrow.table(columns), path)


def _one_type(values: Sequence[Value]) -> list[Value]:
    """Convert a column to one type: to float if any number is one, and to text if any value is."""
    kinds = {type(value) for value in values} - {type(None)}
    if len(kinds) < 2:
        return list(values)
    to = float if kinds == {int, float} else str
    return [None if value is None else to(value) for value in values]
