"""Parts of a table, written by executors.

There are two kinds.  A *constraint part* is a range of names: the vocabulary of those names and all constraints on them,
encoded (`constraints.encode` treats names independently).  A *filter part* is a range of filters with the labels of the
interfaces that begin in it.  The index lists the constraint parts in the order of the names, then the filter parts in the
order of the filters; reading joins each array over the parts that have it, so the result is, byte for byte, the table that
is built in memory.

One task holds its own range in memory: `FILTERS_PER_PART` filters, or about `CONSTRAINTS_PER_PART` constraints (some hundred
bytes each while they are sorted), and not more than about `BYTES_PER_PART` of parcels.  Only a single name with more
constraints than that cannot be divided.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from mpi_match.arrays.strings import Strings
from mpi_match.operators import PATTERN_OPS
from mpi_match.table.constraints import FILTER_ID, encode
from mpi_match.table.filters import FilterColumns
from mpi_match.table.schema import constraint_arrays, filter_arrays, label_arrays, vocabulary_arrays
from mpi_match.table.table import Table
from mpi_match.table.virtual_names import forms_of
from mpi_match.table.vocabulary import Vocabulary
from spark_prep import SparkPrepError
from spark_prep.arrow_records import ConstraintColumns, areas_of, ids_of
from spark_prep.parcels import CONSTRAINT_COLUMNS, FILTER_COLUMNS, FilterRange, opened
from spark_prep.part_files import PartFiles, WrittenPart, partition_id, write_parts

FILTERS_PER_PART = 500_000
CONSTRAINTS_PER_PART = 2_000_000
BYTES_PER_PART = 2**28
SMALL_TABLE_FILTERS = 20_000
"""Fewer rows than this go into one part; starting more tasks would cost more than they save."""


def partitions_for(n_rows: int, rows_per_part: int, n_bytes: int, parallelism: int) -> int:
    """Number of parts for rows in so many bytes of parcels: one for few rows, else a multiple of the cores that keeps parts
    below `rows_per_part` and `BYTES_PER_PART`."""
    if n_rows <= SMALL_TABLE_FILTERS:
        return 1
    least = max(parallelism, -(-n_rows // rows_per_part), -(-n_bytes // BYTES_PER_PART))
    return -(-least // parallelism) * parallelism


def write_filters(sorted_: DataFrame, ranges: dict[int, FilterRange], files: PartFiles) -> list[WrittenPart]:
    """Filter parts of the filters in `parcels.in_ranges`."""

    def write(batches: Iterator[pa.RecordBatch], files: PartFiles) -> Iterator[WrittenPart]:
        if held := [opened(each.as_buffer(), FILTER_COLUMNS) for batch in batches for each in batch.column(0)]:
            yield _write_filters(pa.Table.from_batches(held), ranges[partition_id()], files)

    return write_parts(sorted_.where("parcel is not null and names is null").select("parcel"), write, files)


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
    sorted_: DataFrame, ranges: dict[int, FilterRange], partitions: int, files: PartFiles, *, presence: bool, residues: bool
) -> list[WrittenPart]:
    """Constraint parts of the constraints in `parcels.in_ranges`, in `partitions` ranges of names.

    `presence`: some of them only ask for presence, and all parts have the arrays of such rows, which are joined;
    `residues`: likewise, some operands are integers that no double equals.
    """

    def write(batches: Iterator[pa.RecordBatch], files: PartFiles) -> Iterator[WrittenPart]:
        if held := [each for batch in batches for each in _constraints_of(batch, ranges)]:
            vocabulary, rows = encode(*ConstraintColumns.of(held))
            arrays = (*vocabulary_arrays(vocabulary, with_residues=residues), *constraint_arrays(rows, presence=presence))
            written = files.write("constraints", len(rows), vocabulary.n_names, arrays)
            yield written._replace(slow_patterns=_n_slow_patterns(vocabulary))

    rows = sorted_.where("names is not null").repartitionById(partitions, "names").select("range", "parcel")
    return write_parts(rows, write, files)


def _n_slow_patterns(vocabulary: Vocabulary) -> int:
    """The number of patterns without literals.  A task without patterns loads no Numba to count them."""
    if PATTERN_OPS.isdisjoint(vocabulary.atom_op.tolist()) and PATTERN_OPS.isdisjoint(
        name.op for name, _, _ in forms_of(vocabulary.names)
    ):
        return 0
    from mpi_match.ingest.codes.patterns import n_slow_patterns

    return n_slow_patterns(vocabulary)


def doubts_of(constrained: list[WrittenPart]) -> tuple[str, ...]:
    """The warning of constraint parts that have many patterns without literals together."""
    if not (n := sum(each.slow_patterns for each in constrained)):
        return ()
    from mpi_match.ingest.codes.patterns import slow_patterns  # loads Numba

    return slow_patterns(n)


def _constraints_of(batch: pa.RecordBatch, ranges: dict[int, FilterRange]) -> Iterator[pa.RecordBatch]:
    """The constraints of a batch of parcels, with the numbers of their filters."""
    for range_, parcel in zip(*batch.columns, strict=True):
        rows = opened(parcel.as_buffer(), CONSTRAINT_COLUMNS)
        yield rows.set_column(0, "filter", pc.add(rows.column(0), ranges[range_.as_py()].first_filter))


def write_empty(files: PartFiles) -> WrittenPart:
    """A part without rows that has every array: all of an empty table, the vocabulary of one without constraints."""
    return files.write("empty", 0, 0, Table.from_filters(()).arrays())


def check_size(n_filters: int) -> None:
    """Refuse more filters than filter ids.  Raises SparkPrepError."""
    limit = int(np.iinfo(FILTER_ID).max)
    if n_filters > limit:
        raise SparkPrepError(f"{n_filters:,} filters are more than a table can number ({limit:,}); compile several tables")
