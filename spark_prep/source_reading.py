"""Tables, event tables and answers as rows, in partitions that Python workers read; see `data_source`.

    table      interface, constraints and where (JSON), area, id, and the columns of metadata: a row for each filter, from
               which a table is made again
    events     a column for each attribute, and those that options name for the location, the id and the event's number
    answers    event, id if the file has ids, and interface, or for answers by filter: filter, and with the option `table`
               interface, filter_id and the columns of its metadata: a row for each pair

The attributes of events have no types of their own.  A column is of the one type that all its values have: booleans,
strings, whole numbers of 64 bits, else doubles; or lists of one of these.  Without such a type it holds texts of JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSourceReader, InputPartition

from mpi_match.api import form_of
from mpi_match.arrays.csr import Array, offsets_of, owners, take_ranges
from mpi_match.arrays.exact import nearest_doubles, residues, values_of
from mpi_match.arrays.strings import Strings
from mpi_match.events.event_table import EventTable
from mpi_match.events.events import Events
from mpi_match.events.lists import exact_numbers
from mpi_match.frames import pair_columns
from mpi_match.ingest.rows.to_json import subscription_rows
from mpi_match.matches.arrow import batch_bounds
from mpi_match.matches.file import MatchesFile
from mpi_match.matches.schema import MATCHES
from mpi_match.model import Type
from mpi_match.storage import Reader
from mpi_match.table.decode import subscriptions_of
from mpi_match.table.filters import FilterColumns
from mpi_match.table.metadata import Metadata, read_types
from mpi_match.table.range_reader import RangeReader
from mpi_match.table.schema import TABLE
from mpi_match.table.table import Table
from mpi_match.table.virtual_names import VIEW_MARK
from spark_prep import SparkPrepError
from spark_prep.event_columns import arrow_schema
from spark_prep.metadata import fields_of
from spark_prep.sources import absolute_path
from spark_prep.tasks import freeze_modules

READ_FILTERS = 2**18
"""Filters of a partition."""
READ_ROWS = 2**14
"""Rows of a batch."""
_SUBSCRIPTION = T.StructType(
    [
        T.StructField("interface", T.StringType()),
        T.StructField("constraints", T.StringType()),
        T.StructField("where", T.StringType()),
        T.StructField("area", T.ArrayType(T.DoubleType())),
        T.StructField("id", T.StringType()),
    ]
)


def schema_of(kind: str, path: Path, options: Mapping[str, str]) -> T.StructType:
    """The columns of a file.  Raises SparkPrepError, ModelError, StorageError."""
    if kind == "table":
        return T.StructType([*_SUBSCRIPTION, *_metadata_fields(path)])
    return _event_schema(path, options) if kind == "events" else _answer_schema(path, options)


def reader_of(
    kind: str, path: Path, options: Mapping[str, str], there: T.StructType, asked: T.StructType
) -> DataSourceReader:
    """Reads the columns `asked` among those `there`."""
    readers = {"table": _TableReader, "events": _EventReader, "matches": _AnswerReader}
    return readers[kind](path, options, there, asked)


class _FileReader(DataSourceReader):
    """Reads the partitions of a file; subclasses know its kind."""

    def __init__(self, path: Path, options: Mapping[str, str], there: T.StructType, asked: T.StructType) -> None:
        self._path, self._options = path, dict(options)
        self._there, self._asked = there, asked

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        freeze_modules()
        schema = arrow_schema(self._asked)
        for found in self._read(partition.value):
            columns = [found.column(name) for name in schema.names]
            yield from pa.table(columns, schema.names).cast(schema).combine_chunks().to_batches(READ_ROWS)

    def _read(self, piece: Any) -> Iterator[pa.Table]:
        """All columns of a piece of the file."""
        raise NotImplementedError


# Tables


class _TableReader(_FileReader):
    def partitions(self) -> list[InputPartition]:
        with RangeReader(self._path) as table:
            n = table.n_filters - table.n_of_parts
        return [InputPartition((at, min(at + READ_FILTERS, n))) for at in range(0, n, READ_FILTERS)] or [
            InputPartition((0, 0))
        ]

    def _read(self, piece: tuple[int, int]) -> Iterator[pa.Table]:
        start, stop = piece
        with RangeReader(self._path) as reader:
            table = reader.part(start, stop, reader.n_of_parts)
        table = replace(table, filters=_with_ids(table.filters, self._path, start, stop))
        with Reader(self._path, TABLE) as file:
            metadata = Metadata.read(file)
        n_visible = stop - start
        for at in range(0, n_visible, READ_ROWS):
            visible = np.arange(at, min(at + READ_ROWS, n_visible))
            chosen = np.concatenate([visible, np.arange(n_visible, table.n_filters)])
            rows = [_subscription(row) for row in subscription_rows(subscriptions_of(table, chosen))]
            found = pa.Table.from_pylist(rows, schema=arrow_schema(_SUBSCRIPTION))
            if metadata is not None:
                of_rows = metadata.columns(found.column("id").to_pylist())
                for name in of_rows.column_names:
                    found = found.append_column(name, of_rows.column(name))
            yield found


def _with_ids(filters: FilterColumns, path: Path, start: int, stop: int) -> FilterColumns:
    """Filters of a range with the subscribers' ids, which ranges do not have."""
    with Reader(path, TABLE) as reader:
        owner, ids = (
            reader.array("filters/id_filter"),
            Strings(*map(reader.array, ("filters/id_data", "filters/id_offsets"))),
        )
    first, last = np.searchsorted(owner, (start, stop))
    return replace(filters, id_filter=owner[first:last] - owner.dtype.type(start), ids=ids.between(int(first), int(last)))


def _metadata_fields(path: Path) -> list[T.StructField]:
    with Reader(path, TABLE) as reader:
        return fields_of(read_types(reader))


def _subscription(row: Any) -> dict[str, Any]:
    """A row of JSON as columns, conditions as text."""
    texts = {name: json.dumps(row[name], ensure_ascii=False) for name in ("constraints", "where") if name in row}
    area = {"area": list(map(float, row["area"]))} if "area" in row else {}
    return {"interface": row["interface"], "id": row.get("id"), **texts, **area}


# Event tables


class _Kinds(NamedTuple):
    """The kinds of values of an attribute: those of scalars, and those of the elements of lists, None without lists.

    b boolean, s string, w whole number of 64 bits that is a double, r one that is not a double, d another double, R another
    integer.
    """

    values: frozenset[str]
    elements: frozenset[str] | None

    def __or__(self, other: object) -> _Kinds:
        assert isinstance(other, _Kinds), "kinds are joined with kinds"
        lists = [each.elements for each in (self, other) if each.elements is not None]
        return _Kinds(self.values | other.values, frozenset().union(*lists) if lists else None)

    @property
    def type(self) -> T.DataType | None:
        """The type that holds all these values; None if only texts of JSON can."""
        if self.elements is None:
            return _type_of(self.values)
        of = _type_of(self.elements)
        return T.ArrayType(of) if of is not None and not self.values else None


def _type_of(kinds: frozenset[str]) -> T.DataType | None:
    for within, found in (("s", T.StringType()), ("b", T.BooleanType()), ("wr", T.LongType()), ("wd", T.DoubleType())):
        if kinds <= set(within):  # of no values, as of nulls alone, strings
            return found
    return None


class _Values(NamedTuple):
    """Values as in `Events`, whose numbers are an exact array; `texts` are all strings."""

    type: Array
    numbers: Array
    string: Array
    texts: pa.Array

    def at(self, rows: Array | slice) -> _Values:
        """Some of the values."""
        return _Values(self.type[rows], self.numbers[rows], self.string[rows], self.texts)

    def kinds(self) -> frozenset[str]:
        """The kinds of these values (`_Kinds`)."""
        found = {letter for letter, kind in (("b", Type.BOOLEAN), ("s", Type.STRING)) if (self.type == kind).any()}
        numbers = self.numbers[self.type == Type.NUMBER]
        nearest, residue = nearest_doubles(numbers), residues(numbers)
        is_long = (nearest >= -(2.0**63)) & ((nearest < 2.0**63) | ((nearest == 2.0**63) & (residue < 0)))
        is_long &= np.floor(nearest) == nearest
        for letter, some in (
            ("w", is_long & (residue == 0)),
            ("d", ~is_long & (residue == 0)),
            ("r", is_long & (residue != 0)),
            ("R", ~is_long & (residue != 0)),
        ):
            if some.any():
                found.add(letter)
        return frozenset(found)

    def array(self, type_: T.DataType) -> pa.Array:
        """The values, all of one type."""
        if isinstance(type_, T.StringType):
            return self.texts.take(pa.array(self.string))
        if isinstance(type_, T.BooleanType):
            return pa.array(nearest_doubles(self.numbers) != 0)
        if isinstance(type_, T.DoubleType) or self.numbers.dtype != np.complex128:
            found = pa.array(nearest_doubles(self.numbers))
            return found.cast(pa.int64()) if isinstance(type_, T.LongType) else found
        return pa.array(list(map(int, values_of(self.numbers))), pa.int64())

    def plain(self) -> list[object]:
        """The values as texts of JSON."""
        numbers = values_of(self.numbers)
        found: list[Any] = []
        for type_, number, string in zip(self.type.tolist(), numbers, self.string.tolist(), strict=True):
            if type_ == Type.STRING:
                found.append(self.texts[string].as_py())
            elif type_ == Type.BOOLEAN:
                found.append(bool(number))
            else:
                found.append(int(number) if abs(number) < 2.0**53 and number == int(number) else number)
        return found


class _Attribute(NamedTuple):
    """The values of an attribute; `rows` i64, ascending, are the events that have them.  Nulls are left out."""

    rows: Array
    values: _Values
    lists: tuple[Array, _Values] | None

    def kinds(self) -> _Kinds:
        is_list = self.values.type == Type.LIST
        if self.lists is None or not is_list.any():
            return _Kinds(self.values.kinds(), None)
        return _Kinds(self.values.at(~is_list).kinds(), self._elements()[1].kinds())

    def _elements(self) -> tuple[Array, _Values]:
        """The elements of lists with these values: the offsets of each list, and the values."""
        assert self.lists is not None, "there are lists"
        offsets, elements = self.lists
        of = self.values.string[self.values.type == Type.LIST].astype(np.int64)
        lengths = np.diff(offsets)[of]
        chosen = take_ranges(offsets[of], lengths)
        return offsets_of(lengths), elements.at(chosen)

    def column(self, type_: T.DataType | None, n_events: int) -> pa.Array:
        """The values of all events, null for those without."""
        if type_ is None:
            found = pa.array([json.dumps(each, ensure_ascii=False) for each in self._plain()], pa.string())
        elif isinstance(type_, T.ArrayType):
            offsets, elements = self._elements()
            found = pa.LargeListArray.from_arrays(pa.array(offsets), elements.array(type_.elementType))
        else:
            found = self.values.array(type_)
        place = np.full(n_events, -1)
        place[self.rows] = np.arange(len(self.rows))
        return found.take(pa.array(place, mask=place < 0))

    def _plain(self) -> Iterator[object]:
        is_list = self.values.type == Type.LIST
        scalars = iter(self.values.at(~is_list).plain())
        lists: Iterator[Any] = iter(())
        if is_list.any():
            offsets, elements = self._elements()
            plain = elements.plain()
            lists = (plain[start:stop] for start, stop in pairwise(offsets.tolist()))
        for each in is_list.tolist():
            yield next(lists if each else scalars)


def _attributes(events: Events) -> Iterator[tuple[str, _Attribute]]:
    """The attributes of events, in the order of their names in `Events`; without views, which follow from others."""
    there = np.flatnonzero(events.type != Type.NULL)
    there = there[np.argsort(events.name[there], kind="stable")]
    rows, name = owners(events.offsets)[there], events.name[there]
    texts = _texts(events.strings)
    numbers = exact_numbers(events.type, events.number, events.string)
    values = _Values(events.type[there], numbers[there], events.string[there], texts)
    lists = None
    if (of := events.lists) is not None:
        lists = of.offsets, _Values(of.type, of.numbers, of.string, texts)
    bounds = np.searchsorted(name, np.arange(len(events.names) + 1))
    for i, each in enumerate(events.names):
        if not each.startswith(VIEW_MARK):
            of_name = slice(int(bounds[i]), int(bounds[i + 1]))
            yield each.decode(), _Attribute(rows[of_name], values.at(of_name), lists)


def _texts(strings: Strings) -> pa.Array:
    data = (None, np.ascontiguousarray(strings.offsets), np.ascontiguousarray(strings.data))
    return pa.Array.from_buffers(
        pa.large_string(), len(strings), [each if each is None else pa.py_buffer(each) for each in data]
    )


def _opened(path: Path) -> EventTable:
    return EventTable(path, Table.from_filters(()).vocabulary)  # raw columns only: any vocabulary does


def _event_schema(path: Path, options: Mapping[str, str]) -> T.StructType:
    """The location, the id and the number first, then the attributes in the order of their names."""
    form = form_of(options.get("location"), options.get("id"))
    kinds: dict[str, _Kinds] = {}
    located = identified = False
    with _opened(path) as table:
        for part in range(table.n_parts):
            events = table.raw_part(part)
            located, identified = located or events.location is not None, identified or events.ids is not None
            for name, attribute in _attributes(events):
                found = attribute.kinds()
                kinds[name] = kinds[name] | found if name in kinds else found
    for has, asked, what, example in (
        (located, form.location, "location", "x,y"),
        (identified, form.id, "id", "uuid"),
    ):
        if has and asked is None:
            raise SparkPrepError(
                f"{path}: these events have a {what}; name the column for it: option({what!r}, {example!r})"
            )
    own: list[tuple[str, T.DataType]] = [(each, T.DoubleType()) for each in (form.location or ())]
    own += [(form.id, T.StringType())] if form.id is not None else []
    own += [(options["number"], T.LongType())] if "number" in options else []
    for name, _ in own:
        is_coordinate = name in (form.location or ())  # which is an attribute too
        if name in kinds and not (is_coordinate and kinds.pop(name).type in (T.LongType(), T.DoubleType())):
            raise SparkPrepError(f"{path}: the events have an attribute {name!r} too; give the column another name")
    fields = [*own, *((name, each.type or T.StringType()) for name, each in sorted(kinds.items()))]
    texts = {name for name, each in kinds.items() if each.type is None}
    return T.StructType([T.StructField(name, type_, metadata={_JSON: name in texts}) for name, type_ in fields])


_JSON = "mpi-match-json"
"""Key of the metadata of a column that holds texts of JSON."""


class _EventReader(_FileReader):
    def partitions(self) -> list[InputPartition]:
        with _opened(self._path) as table:
            return [InputPartition(part) for part in range(table.n_parts)]

    def _read(self, piece: int) -> Iterator[pa.Table]:
        form = form_of(self._options.get("location"), self._options.get("id"))
        with _opened(self._path) as table:
            events, first = table.raw_part(piece), sum(len(table.raw_part(part)) for part in range(piece))
        n = len(events)
        good = np.setdiff1d(np.arange(n), [] if events.rejected is None else events.rejected)
        columns: dict[str, pa.Array] = {name: attribute for name, attribute in self._attributes(events)}
        if form.location is not None:
            where = np.full((n, 2), np.nan) if events.location is None else events.location
            for i, name in enumerate(form.location):
                columns[name] = pa.array(where[:, i], mask=np.isnan(where[:, 0]))
        if form.id is not None:
            columns[form.id] = pa.nulls(n, pa.string()) if events.ids is None else _ids(events.ids)
        if "number" in self._options:
            columns[self._options["number"]] = pa.array(np.arange(first, first + n))
        for field in self._asked:
            if field.name not in columns:
                columns[field.name] = pa.nulls(n)
        yield pa.table(columns).take(pa.array(good))

    def _attributes(self, events: Events) -> Iterator[tuple[str, pa.Array]]:
        asked = set(self._asked.names) - set(form_of(self._options.get("location"), None).location or ())
        for name, attribute in _attributes(events):
            if name in asked:
                field = self._there[name]
                yield name, attribute.column(None if field.metadata.get(_JSON) else field.dataType, len(events))


def _ids(ids: Strings) -> pa.Array:
    """The ids of events, null for the empty ones."""
    found = _texts(ids)
    return pc.if_else(pa.array(np.diff(ids.offsets) > 0), found, pa.scalar(None, found.type))


# Answers


def _answer_schema(path: Path, options: Mapping[str, str]) -> T.StructType:
    with Reader(path, MATCHES) as reader:
        by_filter, with_ids = reader.attribute("unit") == "filter", "ids/data" in reader
    names: list[tuple[str, T.DataType]] = [("event", T.LongType())]
    names += [("id", T.StringType())] if with_ids else []
    names += [("filter", T.LongType())] if by_filter else [("interface", T.StringType())]
    if "table" in options:
        if not by_filter:
            raise SparkPrepError(f"{path}: these answers name interfaces already; the option 'table' is for those by filter")
        names += [("interface", T.StringType()), ("filter_id", T.StringType())]
        names += [(field.name, field.dataType) for field in _metadata_fields(absolute_path(options["table"]))]
    return T.StructType([T.StructField(name, type_) for name, type_ in names])


class _AnswerReader(_FileReader):
    """One partition: answers are checked as a whole."""

    def _read(self, piece: Any) -> Iterator[pa.Table]:
        found = MatchesFile.load(self._path)
        by_filter = found.attributes["unit"] == "filter"
        table = None
        if "table" in self._options:
            table = Table.load(absolute_path(self._options["table"]))
            if table.digest != found.attributes.get("table_digest"):
                raise SparkPrepError(f"{self._path}: these are not answers for the table {self._options['table']}")
        names = None if by_filter else _texts(found.labels)
        for start, stop in batch_bounds(found.matches):
            some = found.matches[start:stop]
            event = pa.array(some.event_of().astype(np.int64))
            columns = {"event": pa.array(event.to_numpy() + start)}
            if found.event_ids is not None:
                columns["id"] = _ids(found.event_ids.between(start, stop)).take(event)
            if by_filter:
                columns["filter"] = pa.array(some.ids.astype(np.int64))
            elif names is not None:
                columns["interface"] = names.take(pa.array(some.ids.astype(np.int64)))
            if table is not None:
                named = pair_columns(some, table, filters=True)
                columns |= {name: named.column(name).combine_chunks() for name in named.column_names if name != "filter"}
            yield pa.table(columns)
