"""Parts of a table, written by executors.

There are two kinds.  A *constraint part* is a range of names: the vocabulary of those names and all constraints on them,
encoded (`constraints.encode` treats names independently).  A *filter part* is a range of filters with the labels of the
interfaces that begin in it.  The index lists the constraint parts in the order of the names, then the filter parts in the
order of the filters; reading joins each array over the parts that have it, so the result is, byte for byte, the table that
is built in memory.

One task holds its own range in memory: `FILTERS_PER_PART` filters or about `CONSTRAINTS_PER_PART` constraints (some hundred
bytes each while they are sorted).  Only a single name with more constraints than that cannot be divided.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from mpi_match.arrays.strings import Strings
from mpi_match.table.constraints import FILTER_ID, encode
from mpi_match.table.filters import FilterColumns
from mpi_match.table.schema import constraint_arrays, filter_arrays, label_arrays, vocabulary_arrays
from mpi_match.table.table import Table
from spark_prep import SparkPrepError
from spark_prep.arrow_records import ConstraintColumns, areas_of, ids_of
from spark_prep.part_files import PartFiles, WrittenPart, partition_id, write_parts
from spark_prep.subscriptions import FilterRange

FILTERS_PER_PART = 500_000
CONSTRAINTS_PER_PART = 2_000_000
SMALL_TABLE_FILTERS = 20_000
"""Fewer rows than this go into one part; starting more tasks would cost more than they save."""


def partitions_for(n_rows: int, rows_per_part: int, parallelism: int) -> int:
    """Number of parts: one for few rows, else a multiple of the cores that keeps parts below `rows_per_part`."""
    if n_rows <= SMALL_TABLE_FILTERS:
        return 1
    return -(-max(parallelism, -(-n_rows // rows_per_part)) // parallelism) * parallelism


def write_filters(numbered: DataFrame, ranges: dict[int, FilterRange], files: PartFiles) -> list[WrittenPart]:
    """Filter parts of numbered filters (`subscriptions.numbered`); the partitions must be those of `ranges`."""

    def write(batches: Iterator[pa.RecordBatch], files: PartFiles) -> Iterator[WrittenPart]:
        if held := list(batches):
            yield _write_filters(pa.Table.from_batches(held), ranges[partition_id()], files)

    columns = numbered.select("interface", "id", "area", "size")
    return write_parts(columns, write, files)


def _write_filters(table: pa.Table, range_: FilterRange, files: PartFiles) -> WrittenPart:
    encoded = table["interface"].combine_chunks().dictionary_encode()
    labels = encoded.dictionary.to_pylist()  # sorted, as the rows are
    has_id, ids = ids_of(table["id"].combine_chunks())
    columns = FilterColumns.of(
        size=table["size"].to_numpy(),
        interface=encoded.indices.to_numpy().astype(np.int64) + range_.first_interface,
        area=areas_of(table["area"].combine_chunks()),
        has_id=has_id,
        ids=ids,
        first=range_.first_filter,
    )
    own = labels[range_.continues :]
    arrays = (*filter_arrays(columns), *label_arrays(Strings.of(own)))
    return files.write("filters", len(table), len(own), arrays)


def write_constraints(
    constraints: DataFrame, partitions: int, files: PartFiles, *, presence: bool, with_residues: bool
) -> list[WrittenPart]:
    """Constraint parts of rows as of `subscriptions.constraints`.

    `presence`: some of them only ask for presence, and all parts have the arrays of such rows, which are joined;
    `with_residues`: likewise, some operands are integers that no double equals.
    """

    def write(batches: Iterator[pa.RecordBatch], files: PartFiles) -> Iterator[WrittenPart]:
        if held := list(batches):
            yield _write_constraints(held, files, presence, with_residues)

    return write_parts(constraints.repartitionByRange(partitions, "name"), write, files)


def _write_constraints(batches: list[pa.RecordBatch], files: PartFiles, presence: bool, with_residues: bool) -> WrittenPart:
    vocabulary, rows = encode(*ConstraintColumns.of(batches))
    arrays = (*vocabulary_arrays(vocabulary, with_residues=with_residues), *constraint_arrays(rows, presence=presence))
    return files.write("constraints", len(rows), vocabulary.n_names, arrays)


def write_empty(files: PartFiles) -> WrittenPart:
    """A part without rows that has every array: all of an empty table, the vocabulary of one without constraints."""
    return files.write("empty", 0, 0, Table.from_filters(()).arrays())


def check_size(n_filters: int) -> None:
    """Refuse more filters than filter ids.  Raises SparkPrepError."""
    limit = int(np.iinfo(FILTER_ID).max)
    if n_filters > limit:
        raise SparkPrepError(f"{n_filters:,} filters are more than a table can number ({limit:,}); compile several tables")
