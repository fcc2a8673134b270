"""Filters on their way from rows to a table, in parcels: the columns of many filters as the bytes of one Arrow batch.

Java moves parcels from task to task and does not look into them.  Python workers parse, sort, divide and count the filters,
a column at a time.

    rows    --records_of--> parcels, each in the table's order; counts and samples; bad rows
    parcels --in_ranges--> filters, in ranges of that order; their constraints, in ranges of names

A filter's number is its position in the order (label, content key), the table's own.  So it is the sum of the counts of the
ranges before its own, plus its position there: only the counts, a few numbers for each range, go to the driver (`ranges`).
Ranges are divided by the whole key and not by the label alone, because ten interfaces with all the filters are the ordinary
case; hence a label may span ranges.  Where they begin follows from samples of the keys of filters and of the names of
constraints, which the driver gets.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from mpi_match.arrays.csr import Array
from mpi_match.table.conditions import PART_LABEL
from mpi_match.table.kinds import KIND_OF_PRESENCE
from mpi_match.table.subscriptions import Subscriptions
from mpi_match.table.virtual_names import PART_MARK, SCOPE_MARK
from spark_prep.arrow_records import CONSTRAINT, FILTER, REJECT_ARROW, REJECT_SCHEMA, BadRow, filter_records
from spark_prep.part_files import partition_id
from spark_prep.tasks import in_task

PARCEL_BYTES = 2**22
"""A task collects filters until they have so many bytes."""
SAMPLED = 128
_KEY = pa.schema([FILTER.field(name) for name in ("interface", "key_hi", "key_lo")])
_NAME = pa.schema([CONSTRAINT.field("name")])
FILTER_COLUMNS = pa.schema([FILTER.field(name) for name in ("interface", "id", "area", "size")])
"""The columns of filters of a range."""
CONSTRAINT_COLUMNS = pa.schema([pa.field("filter", pa.int64()), *CONSTRAINT])
"""The columns of constraints of a range; `filter` is a position in it."""

_COUNTS = ("rows", "bad", "filters", "constraints", "hidden", "presence", "residues", "n_bytes")
_RECORDS = pa.schema(
    [
        *((name, pa.int64()) for name in _COUNTS),
        *((name, pa.binary()) for name in ("keys", "names", "parcel", "id", "metadata")),
        *REJECT_ARROW,
    ]
)
RECORDS_SCHEMA = (
    f"{', '.join(f'{name} bigint' for name in _COUNTS)}, keys binary, names binary, "
    f"parcel binary, id binary, metadata binary, {REJECT_SCHEMA}"
)
"""A record is a parcel, a bad row, or the metadata of an id.  Counts are on the first record of a batch."""
_DEALT = pa.schema([("range", pa.int32()), ("parcel", pa.binary())])
_OF_RANGE = ("filters", "interfaces", "visible_filters", "visible_interfaces")
_SORTED = pa.schema(
    [
        *(("range", pa.int32()), ("names", pa.int32()), ("parcel", pa.binary())),
        *((name, pa.int64()) for name in _OF_RANGE),
        *(("low", pa.binary()), ("high", pa.binary())),
    ]
)
SORTED_SCHEMA = (
    f"range int, names int, parcel binary, {', '.join(f'{name} bigint' for name in _OF_RANGE)}, low binary, high binary"
)
"""The rows of `in_ranges`: the counts of a range, some of its filters, or constraints of them in a range of names."""
Key = tuple[bytes, int, int]
"""A label and a content key, as `arrow_records` has them."""


class Parsed(NamedTuple):
    """Filters of some rows; `first` is 1 for the first filter of a row, 0 for the others.

    `metadata` are the texts of first filters, None where rows have none.
    """

    subscriptions: Subscriptions
    first: Sequence[int] | Array
    metadata: Sequence[bytes | None] | None = None

    def texts_of_ids(self) -> list[tuple[bytes, bytes]]:
        """The ids of filters that have metadata, and their texts."""
        if self.metadata is None:
            return []
        found = zip(self.subscriptions.id.tolist(), self.metadata, strict=True)
        return [(self.subscriptions.ids[i], text) for i, text in found if i >= 0 and text is not None]


class RecordSummary(NamedTuple):
    """Counts and samples of records.

    rows          rows read, and the `bad` ones among them
    filters       filters, with `constraints`, in parcels of `n_bytes` bytes
    hidden        constraints that ask for parts of conditions or scopes
    presence      constraints that only ask for presence
    residues      constraints with a residue in their operands
    keys          labels and content keys of sampled filters
    names         names of sampled constraints
    """

    rows: int
    bad: int
    filters: int
    constraints: int
    hidden: int
    presence: int
    residues: int
    n_bytes: int
    keys: pa.RecordBatch
    names: pa.RecordBatch

    @classmethod
    def of(cls, records: DataFrame) -> RecordSummary:
        """The summary of the records of all tasks."""
        found = records.where("rows is not null").select(*cls._fields).collect()
        counts = {name: sum(row[name] or 0 for row in found) for name in _COUNTS}
        keys, names = (
            joined([opened(row[name], schema) for row in found if row[name] is not None], schema)
            for name, schema in (("keys", _KEY), ("names", _NAME))
        )
        return cls(keys=keys, names=names, **counts)

    def first_keys(self, n: int) -> list[Key]:
        """The first key of each of `n` ranges but the first."""
        sample = self.keys.take(pa.array(_order(self.keys)))
        return [_key(sample, i) for i in _cuts(len(sample), n)]

    def first_names(self, n: int) -> list[bytes]:
        """The first name of each of `n` ranges but the first."""
        sample = sorted(self.names.column(0).to_pylist())
        return [sample[i] for i in _cuts(len(sample), n)]


def _cuts(n_items: int, n_ranges: int) -> list[int]:
    return [i * n_items // n_ranges for i in range(1, n_ranges)] if n_items else []


class FilterRange(NamedTuple):
    """A range of the filters in the table's order.

    first_filter      number of its first filter
    first_interface   id of its first interface
    continues         whether that interface began in an earlier range, which then has its label
    """

    first_filter: int
    first_interface: int
    continues: bool


class RangeCounts(NamedTuple):
    """The numbers of filters and of interfaces, with and without the parts of conditions."""

    filters: int
    interfaces: int
    visible_filters: int
    visible_interfaces: int


def records_of(found: Iterable[Parsed | list[BadRow]]) -> Iterator[pa.RecordBatch]:
    """The records of a task.  Runs on executors."""
    held, n_rows, n_bytes = list[pa.RecordBatch](), 0, 0
    for each in found:
        if not isinstance(each, Parsed):
            bad = {field.name: pa.array([row[i] for row in each], field.type) for i, field in enumerate(REJECT_ARROW)}
            yield _rows(_RECORDS, bad, {"rows": len(each), "bad": len(each)})
            continue
        if texts := each.texts_of_ids():
            ids, metadata = (pa.array(column, pa.binary()) for column in zip(*texts, strict=True))
            yield _rows(_RECORDS, {"id": ids, "metadata": metadata})
        n_rows += int(np.sum(each.first))
        held.append(filter_records(each.subscriptions))
        n_bytes += held[-1].nbytes
        if n_bytes >= PARCEL_BYTES:
            yield _parcel(joined(held, FILTER), n_rows)
            held, n_rows, n_bytes = [], 0, 0
    if held:
        yield _parcel(joined(held, FILTER), n_rows)


def _parcel(filters: pa.RecordBatch, n_rows: int) -> pa.RecordBatch:
    """The record of some filters, which came in `n_rows` rows."""
    filters = filters.take(pa.array(_order(filters)))
    constraints = filters.column("constraints").flatten()
    name, names = _ranked(constraints.field("name"))
    hidden = np.array([each.startswith((PART_MARK, SCOPE_MARK)) for each in names], bool)
    residues = constraints.field("residues")
    data = _data(filters)
    counts = {
        "rows": n_rows,
        "filters": len(filters),
        "constraints": len(constraints),
        "hidden": int(np.count_nonzero(hidden[name])) if len(name) else 0,
        "presence": int(np.count_nonzero(constraints.field("kind").to_numpy() == KIND_OF_PRESENCE)),
        "residues": len(residues) - residues.null_count,
        "n_bytes": len(data),
    }
    sampled = pa.array(names, pa.binary()).take(pa.array(np.sort(name)).take(_sampled(len(name))))
    columns = {
        "parcel": data,
        "keys": _data(filters.select(_KEY.names).take(_sampled(len(filters)))),
        "names": _data(pa.RecordBatch.from_arrays([sampled], schema=_NAME)),
    }
    return _rows(_RECORDS, {key: pa.array([each], pa.binary()) for key, each in columns.items()}, counts)


def _sampled(n: int) -> pa.Array:
    """The positions of the samples of a parcel: one of `SAMPLED` items, but `SAMPLED` items or more if it has them."""
    return pa.array(np.arange(0, n, max(1, min(n // SAMPLED, SAMPLED))))


def in_ranges(records: DataFrame, keys: list[Key], names: list[bytes]) -> DataFrame:
    """The filters of records in ranges that begin at `keys`, a partition each, with their constraints divided at `names`.

    Persist the result before use.
    """

    def dealt(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for filters in _parcels(batches):
            n = len(filters)
            starts = [0, *(bisect_left(range(n), key, key=partial(_key, filters)) for key in keys), n]
            found = [(i, _data(filters.slice(a, b - a))) for i, (a, b) in enumerate(pairwise(starts)) if a < b]
            numbers, parcels = zip(*found, strict=True)
            yield pa.RecordBatch.from_arrays([pa.array(numbers, pa.int32()), pa.array(parcels, pa.binary())], schema=_DEALT)

    def put_in_order(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if held := list(_parcels(batches)):
            filters = joined(held, FILTER)
            held.clear()
            yield from _range(filters.take(pa.array(_order(filters))), names)

    rows = records.where("parcel is not null").select("parcel").mapInArrow(in_task(dealt), "range int, parcel binary")
    return rows.repartitionById(len(keys) + 1, "range").select("parcel").mapInArrow(in_task(put_in_order), SORTED_SCHEMA)


def _range(filters: pa.RecordBatch, names: list[bytes]) -> Iterator[pa.RecordBatch]:
    """The rows of a range of filters, in order."""
    number, n = partition_id(), len(filters)
    label, labels = _ranked(filters.column("interface"))
    visible = bisect_left(labels, PART_LABEL.encode())
    counts = {"filters": n, "interfaces": len(labels), "visible_interfaces": visible}
    counts["visible_filters"] = int(np.searchsorted(label, visible))
    ends = {"low": pa.array(labels[:1], pa.binary()), "high": pa.array(labels[-1:], pa.binary())}
    yield _rows(_SORTED, ends, {"range": number} | counts)
    at_once = max(1, n * PARCEL_BYTES // max(filters.nbytes, 1))
    for start in range(0, n, at_once):
        rows = filters.slice(start, at_once)
        yield _rows(_SORTED, {"parcel": pa.array([_data(rows.select(FILTER_COLUMNS.names))], pa.binary())})
        if found := list(_by_name(rows.column("constraints"), start, names)):
            columns = {
                "names": pa.array([i for i, _ in found], pa.int32()),
                "range": pa.array([number] * len(found), pa.int32()),
            }
            yield _rows(_SORTED, columns | {"parcel": pa.array([each for _, each in found], pa.binary())})


def _by_name(lists: pa.Array, first: int, names: list[bytes]) -> Iterator[tuple[int, bytes]]:
    """The constraints of filters, those of each range of names for itself, with its number."""
    flat = lists.flatten()
    filter_ = np.repeat(np.arange(first, first + len(lists)), np.diff(lists.offsets.to_numpy()))
    rows = pa.RecordBatch.from_arrays([pa.array(filter_), *flat.flatten()], schema=CONSTRAINT_COLUMNS)
    name = flat.field("name").dictionary_encode()
    of_names = [bisect_right(names, each) for each in name.dictionary.to_pylist()]
    of = np.array(of_names, np.min_scalar_type(len(names)))[name.indices.to_numpy()]
    order = np.argsort(of, kind="stable")
    starts = np.searchsorted(of[order], np.arange(len(names) + 2)).tolist()
    rows = rows.take(pa.array(order)) if names else rows
    for i, (a, b) in enumerate(pairwise(starts)):
        if a < b:
            yield i, _data(rows.slice(a, b - a))


def ranges(sorted_: DataFrame) -> tuple[dict[int, FilterRange], RangeCounts]:
    """The ranges of filters that are not empty, by their partitions; numbers of filters and interfaces."""
    found: dict[int, FilterRange] = {}
    n_filters, n_interfaces, visible_filters, visible_interfaces, last = 0, 0, 0, 0, None
    for row in sorted(sorted_.where("low is not null").select("range", *_OF_RANGE, "low", "high").collect()):
        continues = last is not None and row["low"] == last
        found[row["range"]] = FilterRange(n_filters, n_interfaces - continues, continues)
        n_filters += row["filters"]
        n_interfaces += row["interfaces"] - continues
        visible_filters += row["visible_filters"]
        visible_interfaces += row["visible_interfaces"] - (continues and row["visible_interfaces"] > 0)
        last = row["high"]
    return found, RangeCounts(n_filters, n_interfaces, visible_filters, visible_interfaces)


def _rows(schema: pa.Schema, columns: dict[str, pa.Array], of_first: dict[str, int] | None = None) -> pa.RecordBatch:
    """A batch with some of the columns of a schema, and some numbers in its first row; all else is null."""
    n = len(next(iter(columns.values())))
    numbers = {name: [number] + [None] * (n - 1) for name, number in (of_first or {}).items()}
    arrays = [
        columns[field.name] if field.name in columns else pa.array(numbers.get(field.name, [None] * n), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _parcels(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (opened(each.as_buffer(), FILTER) for batch in batches for each in batch.column(0))


def _data(batch: pa.RecordBatch) -> bytes:
    return bytes(batch.serialize().to_pybytes())


def opened(data: pa.Buffer | bytes, schema: pa.Schema) -> pa.RecordBatch:
    """The batch of its bytes (`_data`)."""
    return pa.ipc.read_record_batch(pa.py_buffer(data), schema)


def joined(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """All batches as one.  Raises ArrowInvalid for more than 2 GiB of texts in a column."""
    if not batches:
        return pa.RecordBatch.from_pylist([], schema)
    columns = zip(*(batch.columns for batch in batches), strict=True)
    return pa.RecordBatch.from_arrays([pa.concat_arrays(column) for column in columns], schema=schema)


def _order(rows: pa.RecordBatch) -> Array:
    """The positions of rows in the table's order."""
    label, _ = _ranked(rows.column("interface"))
    return np.lexsort((rows.column("key_lo").to_numpy(), rows.column("key_hi").to_numpy(), label))


def _key(rows: pa.RecordBatch, i: int) -> Key:
    interface, key_hi, key_lo = (rows.column(name)[i].as_py() for name in _KEY.names)
    return interface, key_hi, key_lo


def _ranked(column: pa.Array) -> tuple[Array, list[bytes]]:
    """The rank of each text among the distinct ones, and those in order."""
    encoded = column.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary)
    rank = np.empty(len(order), np.int64)
    rank[order.to_numpy()] = np.arange(len(order))
    return rank[encoded.indices.to_numpy()], encoded.dictionary.take(order).to_pylist()
