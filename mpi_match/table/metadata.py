"""Metadata of subscriptions: columns that no filter uses, such as an owner or a severity; answers by filter show them.

    table = make_table(rows, metadata={"r1": {"owner": "ops", "severity": 3}, "r2": {"owner": "web"}})
    table.metadata.columns(["r2", "r1", None])      a table of Arrow: owner, severity

They belong to the id of a subscription, which all its filters have.  Each id has one JSON object, whose members are columns;
a column has one type: strings, booleans, integers of 64 bits, doubles, or lists of one of these.  Null is left out; integers
among doubles are doubles.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from mpi_match.arrays.csr import Array, ArraySource
from mpi_match.arrays.strings import Strings
from mpi_match.model import ModelError, describe

if TYPE_CHECKING:
    import pyarrow as pa

OF_DOUBLES, OF_STRINGS, OF_BOOLEANS, OF_INTEGERS = 1, 2, 3, 4
OF_LISTS = 16
"""Added to the type of the elements."""
METADATA_TYPES = frozenset(of + each for of in (0, OF_LISTS) for each in (OF_DOUBLES, OF_STRINGS, OF_BOOLEANS, OF_INTEGERS))
"""The types of columns, as in files."""
RESERVED_COLUMNS = frozenset(
    (
        *("area", "constraints", "filters", "id", "interface", "predicate", "tags", "where"),
        *("event", "filter", "filter_id", "interfaces", "reason", "row", "_reject", "_table_version"),
    )
)
"""Names that no column has, since subscriptions or answers have them."""
_NAME, _TYPE, _ID, _ROW = "metadata/name", "metadata/type", "metadata/id", "metadata/row"
METADATA_DATASETS = (*(f"{each}_{of}" for each in (_NAME, _ID, _ROW) for of in ("data", "offsets")), _TYPE)
"""The datasets of a table, all of them or none."""


@dataclass(frozen=True, eq=False)
class Metadata:
    """The metadata of n subscriptions in k columns.

    names   k, distinct
    type    u8[k]: one of `METADATA_TYPES`
    ids     n, sorted by their bytes and distinct
    rows    n: the JSON object of each
    """

    names: Strings
    type: Array
    ids: Strings
    rows: Strings

    @classmethod
    def of(cls, rows: Mapping[str, Mapping[str, object]]) -> Metadata | None:
        """The metadata of ids, with the types of their values; None for none.

        Raises ModelError for a value that is not a text, truth value, number or list of them, and for a column of several
        types.
        """
        if not isinstance(rows, Mapping) or not all(isinstance(row, Mapping) for row in rows.values()):
            raise ModelError(f"metadata has a dict for each id: {{'r1': {{'owner': 'ops'}}}}, found {describe(rows)}")
        types: dict[str, int | None] = {}
        for id_, row in rows.items():
            for name, value in row.items():
                check_name(name)
                try:
                    types[name] = _joined(types.get(name), _type_of(value))
                except ModelError as error:
                    raise ModelError(f"metadata {name!r} of {id_!r}: {error}") from None
        if not types:
            return None
        known = [{None: OF_STRINGS, OF_LISTS: OF_LISTS + OF_STRINGS}.get(type_, type_) for type_ in types.values()]
        codes = np.array(known, np.uint8)
        texts = {id_.encode(): row_text(row) for id_, row in rows.items()}
        ids = sorted(texts)
        return cls(_strings(types), codes, Strings.of(ids), Strings.of(texts[id_] for id_ in ids))

    @classmethod
    def of_rows(cls, types: Mapping[str, int], rows: Iterable[tuple[bytes, bytes]]) -> Metadata:
        """The metadata of ids and their texts (`row_text`), in any order; an id may stand several times with one text.

        Raises ModelError for an id with two texts.
        """
        found: dict[bytes, bytes] = {}
        for id_, text in rows:
            if found.setdefault(id_, text) != text:
                raise ModelError(
                    f"the id {id_.decode()!r} has two subscriptions with other metadata, {found[id_].decode()} and "
                    f"{text.decode()}; give them ids of their own"
                )
        ids = sorted(found)
        codes = np.array(list(types.values()), np.uint8)
        return cls(_strings(types), codes, Strings.of(ids), Strings.of(found[id_] for id_ in ids))

    @classmethod
    def read(cls, source: ArraySource) -> Metadata | None:
        """Read the metadata among the arrays of a table; returns None if it has none."""
        if f"{_ROW}_data" not in source:
            return None
        names, ids, rows = (_read(source, each) for each in (_NAME, _ID, _ROW))
        return cls(names, source.array(_TYPE), ids, rows)

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """The arrays and the names of their datasets."""
        yield from column_arrays(self.types)
        yield from self.row_arrays()

    def row_arrays(self) -> Iterator[tuple[str, Array]]:
        """Yields only the arrays of ids and rows, which a range of ids has too."""
        yield from ((f"{_ID}_data", self.ids.data), (f"{_ID}_offsets", self.ids.offsets))
        yield from ((f"{_ROW}_data", self.rows.data), (f"{_ROW}_offsets", self.rows.offsets))

    @cached_property
    def types(self) -> dict[str, int]:
        """The type of each column."""
        return dict(zip((name.decode() for name in self.names), self.type.tolist(), strict=True))

    def pairs(self) -> Iterator[tuple[bytes, bytes]]:
        """Each id and its text."""
        return zip(self.ids, self.rows, strict=True)

    def of_ids(self, ids: Iterable[str | None]) -> Metadata | None:
        """Return the metadata of some ids; None if there are none."""
        wanted = {id_.encode() for id_ in ids if id_ is not None}
        kept = np.array([i for i, id_ in enumerate(self.ids) if id_ in wanted], np.int64)
        if not len(kept):
            return None
        return Metadata(self.names, self.type, self.ids.take(kept), self.rows.take(kept))

    def columns(self, ids: Sequence[str | None]) -> pa.Table:
        """The columns for some ids, null for one that has no metadata.  Raises ModelError for damaged ones."""
        import pyarrow as pa
        import pyarrow.json

        schema = pa.schema([pa.field(name, arrow_type(type_)) for name, type_ in self.types.items()])
        place = np.array([-1 if id_ is None else self._place.get(id_.encode(), -1) for id_ in ids], np.int64)
        used, index = np.unique(place[place >= 0], return_inverse=True)
        if not len(used):
            return pa.table([pa.nulls(len(ids), field.type) for field in schema], schema)
        data = b"\n".join(self.rows.take(used))
        read, parse = pa.json.ReadOptions(False, len(data) + 1), pa.json.ParseOptions(schema, False, "error")
        try:
            found = pa.json.read_json(pa.BufferReader(data), read, parse)
        except pa.ArrowInvalid as error:
            raise ModelError(f"metadata of the table are not JSON objects of its columns: {error}") from None
        if len(found) != len(used):
            raise ModelError("metadata of the table are not one JSON object for each id")
        of_id = np.zeros(len(ids), np.int64)
        of_id[place >= 0] = index
        return found.combine_chunks().take(pa.array(of_id, mask=place < 0))

    @cached_property
    def _place(self) -> dict[bytes, int]:
        return {id_: i for i, id_ in enumerate(self.ids)}


def column_arrays(types: Mapping[str, int]) -> Iterator[tuple[str, Array]]:
    """The arrays of the columns, which are in one part of a table."""
    names = _strings(types)
    yield from ((f"{_NAME}_data", names.data), (f"{_NAME}_offsets", names.offsets))
    yield _TYPE, np.array(list(types.values()), np.uint8)


def read_types(source: ArraySource) -> dict[str, int]:
    """The type of each column of a table's metadata, without the rest."""
    if f"{_NAME}_data" not in source:
        return {}
    return dict(zip((name.decode() for name in _read(source, _NAME)), source.array(_TYPE).tolist(), strict=True))


def check_name(name: object) -> None:
    """Raises ModelError for a name that no column may have."""
    if not isinstance(name, str) or not name:
        raise ModelError(f"metadata has names that are texts, found {describe(name)}")
    if name in RESERVED_COLUMNS:
        raise ModelError(f"metadata cannot be called {name!r}, since subscriptions or answers have this name; rename it")


def row_text(row: Mapping[str, object]) -> bytes:
    """A row as JSON, without nulls.  Raises ModelError for a number or a text that JSON does not have."""
    there = {name: value for name, value in row.items() if value is not None}
    try:
        return json.dumps(there, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:  # UnicodeEncodeError too
        raise ModelError("metadata has a number that is not finite, or a text that is not Unicode; leave it out") from None


def _read(source: ArraySource, name: str) -> Strings:
    return Strings(source.array(f"{name}_data"), source.array(f"{name}_offsets"))


def _strings(names: Iterable[str]) -> Strings:
    return Strings.of(name.encode() for name in names)


def _type_of(value: object) -> int | None:
    """The type of a value; None of null, `OF_LISTS` of a list that has no elements."""
    match value:
        case None:
            return None
        case bool():
            return OF_BOOLEANS
        case str():
            return OF_STRINGS
        case int() if -(2**63) <= value < 2**63:
            return OF_INTEGERS
        case float():
            return OF_DOUBLES
        case list() | tuple():
            of: int | None = None
            for each in value:
                type_ = _type_of(each)
                if type_ is not None and type_ >= OF_LISTS:
                    raise ModelError("is a list of lists; metadata are texts, numbers, truth values, or lists of these")
                of = _joined(of, type_)
            return OF_LISTS + (of or 0)
    raise ModelError(f"is {describe(value)}; metadata are texts, numbers, truth values, or lists of these")


def _joined(one: int | None, other: int | None) -> int | None:
    """The type that values of both have.  Raises ModelError."""
    if one is None or other is None or one == other:
        return one if other is None else other
    if OF_LISTS in (one, other) and min(one, other) >= OF_LISTS:
        return max(one, other)
    if {one % OF_LISTS, other % OF_LISTS} == {OF_INTEGERS, OF_DOUBLES} and one // OF_LISTS == other // OF_LISTS:
        return max(one, other) - OF_INTEGERS + OF_DOUBLES
    raise ModelError("is of another type than others; make them one")


def arrow_type(type_: int) -> pa.DataType:
    """The type of a column in Arrow."""
    import pyarrow as pa

    types = {OF_DOUBLES: pa.float64(), OF_STRINGS: pa.string(), OF_BOOLEANS: pa.bool_(), OF_INTEGERS: pa.int64()}
    of = types[type_ % OF_LISTS]
    return pa.list_(of) if type_ >= OF_LISTS else of
