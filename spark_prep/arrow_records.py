"""The columns of `Subscriptions` as Arrow batches, and back: the form in which filters pass through Spark.

A record is one filter.  They sort as in the table by plain columns: the label, compared by bytes, and the content key as two
signed integers that sort like the two unsigned ones they encode (the top bit is flipped).

    interface     label; null when the record is no filter
    key_hi/lo     content key
    id, area      null where there is none; area is [x, y, r]
    size          number of constraints, so that counting them does not read them
    constraints   name, kind (`type << 4 | op`), and the operands: `numbers` (booleans too), or `strings`; `residues` of the
                  numbers (`model.split`), null if all are 0

A bad row is its reason, file, block and position (see `sources`), and the row as text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from mpi_match.arrays.csr import Array, offsets_of, sums
from mpi_match.arrays.exact import RESIDUE, exact, nearest_doubles, residues
from mpi_match.arrays.strings import Strings, sort_distinct
from mpi_match.model import Type
from mpi_match.table.kinds import TYPE_OF_KIND
from mpi_match.table.subscriptions import Subscriptions

_CONSTRAINT_SCHEMA = "name: binary, kind: tinyint, numbers: array<double>, strings: array<binary>, residues: array<smallint>"
REJECT_SCHEMA = "reason string, file string, block bigint, position bigint, row string"
_KEYED = "interface binary, key_hi bigint, key_lo bigint, id binary, area array<double>, size int"
FILTER_SCHEMA = f"{_KEYED}, constraints array<struct<{_CONSTRAINT_SCHEMA}>>"

CONSTRAINT = pa.struct(
    [
        *(("name", pa.binary()), ("kind", pa.int8()), ("numbers", pa.list_(pa.float64()))),
        *(("strings", pa.list_(pa.binary())), ("residues", pa.list_(pa.int16()))),
    ]
)
FILTER = pa.schema(
    [
        ("interface", pa.binary()),
        ("key_hi", pa.int64()),
        ("key_lo", pa.int64()),
        ("id", pa.binary()),
        ("area", pa.list_(pa.float64())),
        ("size", pa.int32()),
        ("constraints", pa.list_(CONSTRAINT)),
    ]
)
REJECT_ARROW = pa.schema(
    [("reason", pa.string()), ("file", pa.string()), ("block", pa.int64()), ("position", pa.int64()), ("row", pa.string())]
)
_RESIDUES = CONSTRAINT.field("residues").type
_TOP_BIT = np.uint64(1 << 63)


class BadRow(NamedTuple):
    """A bad row that was set aside; its line number is not known yet."""

    reason: str
    file: str
    block: int
    position: int
    row: str


def filter_records(subscriptions: Subscriptions) -> pa.RecordBatch:
    """One record for each filter."""
    keys = (subscriptions.content_keys ^ _TOP_BIT).view(np.int64)
    columns = [
        _texts(subscriptions.labels, subscriptions.interface),
        pa.array(np.ascontiguousarray(keys[:, 0])),
        pa.array(np.ascontiguousarray(keys[:, 1])),
        _texts(subscriptions.ids, subscriptions.id),
        _areas(subscriptions.area),
        pa.array(np.diff(subscriptions.constraint_offsets).astype(np.int32)),
        _lists(subscriptions.constraint_offsets, _constraints(subscriptions)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=FILTER)


def _texts(pool: Strings, index: Array) -> pa.Array:
    """The strings at `index` i64[n], null where it is negative."""
    buffers = (None, pa.py_buffer(pool.offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(pool.data)))
    return pa.Array.from_buffers(pa.binary(), len(pool), buffers).take(pa.array(index, mask=index < 0))


def ids_of(column: pa.Array) -> tuple[Array, Strings]:
    """i64[m], ascending: the rows of a column of ids that have one, and their ids."""
    there = column.drop_null()
    _, offsets, data = there.buffers()
    bounds = np.frombuffer(offsets or bytes(4), np.int32)[there.offset : there.offset + len(there) + 1].astype(np.int64)
    found = Strings(np.frombuffer(data or b"", np.uint8), bounds)
    return np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)), found.between(0, len(there))


def _areas(area: Array) -> pa.Array:
    absent = np.isnan(area[:, 2])
    return _lists(offsets_of(np.where(absent, 0, 3)), pa.array(area[~absent].reshape(-1)), pa.array(absent))


def areas_of(lists: pa.Array) -> Array:
    """f64[n, 3] from a column of areas; NaN for a filter without one."""
    area = np.full((len(lists), 3), np.nan)
    area[lists.is_valid().to_numpy(zero_copy_only=False)] = lists.flatten().to_numpy(zero_copy_only=False).reshape(-1, 3)
    return area


def _constraints(subscriptions: Subscriptions) -> pa.Array:
    textual = TYPE_OF_KIND[subscriptions.kind] == Type.STRING
    n_operands = np.diff(subscriptions.operand_offsets)
    is_text = np.repeat(textual, n_operands)
    number = nearest_doubles(subscriptions.number[~is_text])
    numbers = _lists(offsets_of(np.where(textual, 0, n_operands)), pa.array(number))
    texts = _texts(subscriptions.strings, subscriptions.string[is_text])
    strings = _lists(offsets_of(np.where(textual, n_operands, 0)), texts)
    names = _texts(subscriptions.names, subscriptions.name)
    return pa.StructArray.from_arrays(
        [names, pa.array(subscriptions.kind.view(np.int8)), numbers, strings, _residues(subscriptions)],
        fields=list(CONSTRAINT),
    )


def _residues(subscriptions: Subscriptions) -> pa.Array:
    """The residues of each constraint's operands; null if all are 0."""
    if subscriptions.number.dtype != np.complex128:
        return pa.nulls(subscriptions.n_constraints, _RESIDUES)
    residue, offsets = residues(subscriptions.number), subscriptions.operand_offsets
    has_some = sums((residue != 0).astype(np.int64), offsets) > 0
    lengths = np.diff(offsets)
    return _lists(
        offsets_of(np.where(has_some, lengths, 0)), pa.array(residue[np.repeat(has_some, lengths)]), pa.array(~has_some)
    )


def _lists(offsets: Array, values: pa.Array, absent: pa.Array | None = None) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values, mask=absent)


class ConstraintColumns(NamedTuple):
    """The arguments of `constraints.encode`, from the records of a range of names."""

    names: Strings
    name: Array
    kind: Array
    operand_offsets: Array
    number: Array
    string: Array
    strings: Strings
    filter_id: Array

    @classmethod
    def of(cls, batches: Iterable[pa.RecordBatch]) -> ConstraintColumns:
        """The arguments of `constraints.encode`, from rows of filter, name, kind, numbers, strings and residues in any
        order."""
        names, strings = _Pool(), _Pool()
        columns = [_columns(batch, names, strings) for batch in batches]
        name, kind, n_operands, number, string, filter_id = (np.concatenate(column) for column in zip(*columns, strict=True))
        ordered, rank = sort_distinct(Strings.of(names.place))
        return cls(
            names=ordered,
            name=rank[name],
            kind=kind,
            operand_offsets=offsets_of(n_operands),
            number=number,
            string=string,
            strings=Strings.of(strings.place),
            filter_id=filter_id,
        )


class _Pool:
    """The distinct byte strings of many batches; Arrow deduplicates each batch, so Python handles few strings."""

    def __init__(self) -> None:
        self.place: dict[bytes, int] = {}

    def add(self, column: pa.Array) -> Array:
        """i64: the index of each string of a column."""
        encoded = column.dictionary_encode()
        place = [self.place.setdefault(item, len(self.place)) for item in encoded.dictionary.to_pylist()]
        return np.asarray(np.array(place, np.int64)[encoded.indices.to_numpy()])


def _columns(batch: pa.RecordBatch, names: _Pool, strings: _Pool) -> tuple[Array, ...]:
    """Name, kind, number of operands, operands as number and as string, and filter of each constraint of a batch."""
    n_numbers, n_strings = (np.diff(batch[field].offsets.to_numpy()).astype(np.int64) for field in ("numbers", "strings"))
    is_text = np.repeat(n_strings > 0, n_numbers + n_strings)
    number, string = np.zeros(len(is_text)), np.full(len(is_text), -1, np.int64)
    number[~is_text] = batch["numbers"].flatten().to_numpy(zero_copy_only=False)
    string[is_text] = strings.add(batch["strings"].flatten())
    if batch["residues"].null_count < len(batch):
        residue = np.zeros(len(is_text), RESIDUE)
        there = np.repeat(batch["residues"].is_valid().to_numpy(zero_copy_only=False), n_numbers + n_strings)
        residue[~is_text & there] = batch["residues"].flatten().to_numpy(zero_copy_only=False)
        number = exact(number, residue)
    kind = batch["kind"].to_numpy().astype(np.uint8)
    return names.add(batch["name"]), kind, n_numbers + n_strings, number, string, batch["filter"].to_numpy()
