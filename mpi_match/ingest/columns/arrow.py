"""Turns columns of Arrow, of files or of any library with Arrow's PyCapsule interface, into typed columns.

    int8 .. int64, uint8 .. uint64, half, float, double, decimal      numbers; a bad row if beyond all numbers
    bool                                                              booleans
    string, large_string, string_view                                 strings
    dictionary of these                                               as their entries, which are encoded once
    struct                                                            its fields, under dotted names
    null                                                              a null in every event
    timestamp, date32, date64, time32, time64                         native times, if filters ask only for their presence or
                                                                      their instant: then as texts with the same one
    list, large_list, fixed_size_list of these                        lists; of structs and of lists, see `arrow_lists`
    list_view, run-end encoded arrays, bool8, uuid, json, tensors     as what they hold (`plain_arrow`)

Only the *needed* columns are read: those that constraints name, and those of location and id.  A needed column of
another type is an error.  A decimal has the value that its digits would have in JSON. Needs pyarrow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mpi_match.arrays.csr import Array
from mpi_match.arrays.exact import of_integers, of_values
from mpi_match.arrays.strings import Strings
from mpi_match.ingest.columns.arrow_lists import Leaf, Path, is_any_list, is_variant, leaf_at, leaves
from mpi_match.ingest.columns.exact_integers import are_exact
from mpi_match.ingest.columns.plain_arrow import plain_type
from mpi_match.ingest.columns.python import NeededNames, refused_type
from mpi_match.ingest.columns.typed import ColumnChunk, ListColumn, TypedColumn, Validity
from mpi_match.ingest.rows.flatten import Names
from mpi_match.ingest.rows.judge import EventForm, event_of_row
from mpi_match.model import MAX_EXACT_INTEGER, ModelError, Type, number_of_digits, value_of


class NeededColumns(NamedTuple):
    """The needed columns of a schema: their positions, in order, by dotted name (names of a column and of the fields of
    structs).  Constraints only ask for the presence of those in `presence`; `instants` are native times, and constraints
    compare their instants.
    """

    paths: dict[str, Path]
    presence: frozenset[str] = frozenset()
    instants: frozenset[str] = frozenset()

    @classmethod
    def of(cls, schema: pa.Schema, needed: Collection[str], form: EventForm) -> NeededColumns:
        """Raises ModelError for a needed column of a type that attributes do not have, a duplicate one, and a missing column
        of the location or the id.
        """
        paths: dict[str, Path] = {}
        presence = needed.presence if isinstance(needed, NeededNames) else frozenset[str]()
        instants = needed.instants if isinstance(needed, NeededNames) else frozenset[str]()
        are_all_needed = isinstance(needed, NeededNames) and needed.every
        every, times = [], set()
        scalars = {*(form.location or ()), *((form.id,) if form.id is not None else ())}
        for path, type_ in leaves(schema):
            name = ".".join(path)
            every.append(name)
            is_needed = name in needed
            is_usable = is_scalar(type_) or (is_list(type_) and name not in scalars)
            if is_time(type_) and name in instants:
                times.add(name)
            elif not (is_usable or (is_time(type_) and name in presence)) and (
                is_needed or any(each.startswith(f"{name}.") for each in needed)  # in a map
            ):
                raise ModelError(refused_type(name, "variant" if _unread_kind(type_) == "variants" else str(type_)))
            elif are_all_needed and (kind := _unread_kind(type_)):
                raise ModelError(
                    f"filters ask for '*', all strings, and the column {name!r} holds {kind}; make them structs"
                )
            if (is_needed or are_all_needed) and name in paths:
                raise ModelError(f"two columns have the name {name!r}")
            elif is_needed or are_all_needed:
                paths[name] = path
        for name in (*(form.location or ()), *((form.id,) if form.id is not None else ())):
            if name not in paths:
                raise ModelError(f"there is no column {name!r}; there are: {', '.join(map(repr, every))}")
        return cls(paths, presence, frozenset(times))

    @classmethod
    def every(cls, schema: pa.Schema, form: EventForm) -> NeededColumns:
        """All columns of a schema, including those of types that attributes do not have.

        Raises ModelError for two with one name, and for a column of the location or the id that is missing or cannot be one.
        """
        cls.of(schema, frozenset(form.names), form)
        paths: dict[str, Path] = {}
        for path, _ in leaves(schema):
            if paths.setdefault(".".join(path), path) is not path:
                raise ModelError(f"two columns have the name {'.'.join(path)!r}")
        return cls(paths)

    @property
    def names(self) -> Names:
        """The names of the columns, for the judge of rows."""
        return Names(self.paths, self.presence, self.instants)

    @property
    def top(self) -> list[str]:
        """The top columns that are needed, or contain needed ones."""
        return list(dict.fromkeys(path[0] for path in self.paths.values()))

    def leaves(self, batch: pa.RecordBatch) -> dict[str, Leaf]:
        """The needed columns in a batch."""
        found = {}
        for name, (first, *rest) in self.paths.items():
            leaf = leaf_at(batch.column(batch.schema.get_field_index(first)), rest)
            found[name] = leaf._replace(array=_text_of_times(leaf.array)) if name in self.instants else leaf
        return found

    def arrays(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """The arrays of a batch."""
        return {name: leaf.array for name, leaf in self.leaves(batch).items()}


class ReadColumns(NamedTuple):
    """Columns of n events.

    chunk        with the doubted rows
    ids          of all events, empty for one without; None if the form names none, or they are not wanted
    identified   tells whether any event has an id
    bad          the doubted rows, with the reason why each is not an event
    """

    chunk: ColumnChunk
    ids: Strings | None
    identified: bool
    bad: list[tuple[int, str]]


def read_columns(batch: pa.RecordBatch, needed: NeededColumns, form: EventForm, *, with_ids: bool = True) -> ReadColumns:
    """The needed columns of a batch.  Raises ModelError for strings that are not UTF-8."""
    found = needed.leaves(batch)
    of_ids = None if with_ids or form.id is None else found[form.id].array
    typed = found if of_ids is None else {name: leaf for name, leaf in found.items() if name != form.id}
    chunk, ids, wrong = typed_columns(typed, batch.num_rows, form)
    identified, not_ids = (None, None) if of_ids is None else _checked_ids(of_ids, form)
    chunk, ids = with_doubted(chunk, ids, any_of([*wrong.values(), not_ids]), form)
    if identified is not None:
        has_ids = bool(np.any(identified if chunk.doubted is None else identified & ~chunk.doubted))
    else:
        has_ids = ids is not None and len(ids.data) > 0
    rows = [] if chunk.doubted is None else np.flatnonzero(chunk.doubted).tolist()
    return ReadColumns(chunk, ids, has_ids, [(row, _reason(found, row, form, needed.names)) for row in rows])


def typed_columns(
    found: Mapping[str, Leaf], n: int, form: EventForm
) -> tuple[ColumnChunk, Strings | None, dict[str, Array]]:
    """Leaves of n rows as columns, the ids, and bool[n] by name: which entries no attribute has, or no id.

    Raises ModelError for strings that are not UTF-8.
    """
    columns: dict[str, TypedColumn] = {}
    lists: dict[str, ListColumn] = {}
    ids, wrong = None, {}
    for name, (array, absent) in found.items():
        try:
            if name == form.id:
                ids, bad = _ids(array)
            elif is_list(array.type):
                lists[name], bad = _list_column(array)
                lists[name] = lists[name]._replace(nulls=_nulls(lists[name].validity, absent, n))
            elif not is_scalar(array.type):  # of native times the presence may be asked
                validity = _validity(array.indices if pa.types.is_dictionary(array.type) else array)
                nothing = TypedColumn(Type.NUMBER, np.zeros(0))
                lists[name] = ListColumn(np.zeros(n + 1, np.int64), nothing, validity, _nulls(validity, absent, n))
                bad = None if is_time(array.type) else lists[name].is_present(n) & ~_are_empty(array)
            else:
                column, bad = typed_column(array)
                columns[name] = column._replace(nulls=_nulls(column.validity, absent, n))
        except pa.ArrowInvalid as error:
            raise ModelError(f"column {name!r}: {error}") from error
        if bad is not None and bad.any():
            wrong[name] = bad
    return ColumnChunk(n, columns, None, lists), ids, wrong


def _nulls(validity: Validity | None, absent: Array | None, n: int) -> Validity | None:
    """The nulls among n entries: those that are missing and not `absent`."""
    if validity is None:
        return None
    nulls = validity.others(n)
    return nulls if absent is None else Validity.of(nulls.are_there(n) & ~absent)


def _are_empty(array: pa.Array) -> Array:
    """bool[n]: marks the rows that are maps or lists without elements other than nulls, whatever the type of elements."""
    if pa.types.is_map(array.type):
        return np.asarray((np.diff(np.asarray(array.offsets)) == 0) & np.asarray(array.is_valid()))
    if not is_any_list(array.type):
        return np.zeros(len(array), bool)
    there = pc.list_parent_indices(array).filter(pc.list_flatten(array).is_valid())
    is_empty = np.bincount(np.asarray(there), minlength=len(array)) == 0
    return np.asarray(is_empty & np.asarray(array.is_valid()))


def any_of(masks: Iterable[Array | None]) -> Array | None:
    """bool[n]: marks the rows that are in one of the masks bool[n]; None without masks."""
    found = [mask for mask in masks if mask is not None]
    return np.logical_or.reduce(found) if found else None


def with_doubted(
    chunk: ColumnChunk, ids: Strings | None, doubted: Array | None, form: EventForm
) -> tuple[ColumnChunk, Strings | None]:
    """The chunk and the ids without the doubted rows, bool[n], and without rows that have only part of a location or an
    invalid one."""
    if form.location is not None:
        x, y = (chunk.columns[name].numbers(chunk.n_events) for name in form.location)
        is_there = [chunk.columns[name].is_present(chunk.n_events) for name in form.location]
        halves, not_finite = is_there[0] != is_there[1], is_there[0] & ~(np.isfinite(x) & np.isfinite(y))
        doubted = any_of((doubted, halves, not_finite))
    if doubted is None or not doubted.any():
        return chunk, ids
    if ids is not None:
        ids = Strings.of(b"" if doubt else each for each, doubt in zip(ids, doubted.tolist(), strict=True))
    return chunk._replace(doubted=doubted), ids


def _list_column(array: pa.Array) -> tuple[ListColumn, Array]:
    """An array of lists, and bool[n], which marks the rows with lists that no attribute has."""
    if not pa.types.is_large_list(array.type):  # a cast of these to their own type loses nulls of the null type
        array = array.cast(pa.large_list(array.type.value_type))
    starts = np.frombuffer(array.buffers()[1] or bytes(8), np.int64)[array.offset : array.offset + len(array) + 1]
    elements = array.values.slice(int(starts[0]), int(starts[-1] - starts[0]))
    offsets = starts - starts[0]
    if elements.null_count:
        before = np.append(0, np.cumsum(np.asarray(elements.is_valid())))
        offsets, elements = before[offsets], elements.drop_null()
    column, wrong = typed_column(elements)
    bad = ~column.is_present(len(elements))  # nulls in a dictionary
    before = np.append(0, np.cumsum(bad if wrong is None else bad | wrong))
    found = before[offsets[1:]] > before[offsets[:-1]]
    return ListColumn(offsets, column, _validity(array)), found & np.asarray(array.is_valid())


def _reason(found: Mapping[str, Leaf], row: int, form: EventForm, names: Names) -> str:
    """The reason why a doubted row is not an event."""
    values = {name: leaf.array[row].as_py() for name, leaf in found.items()}
    try:
        event_of_row({name: json_value(value) for name, value in values.items()}, form, names)
    except ModelError as error:
        return str(error)
    raise AssertionError(f"the row {values} was doubted and is an event")


def json_value(value: object) -> object:
    """A value in the form that JSON has.  Raises ModelError for a decimal beyond the range of doubles."""
    if isinstance(value, list):
        return [json_value(each) for each in value]
    if isinstance(value, Decimal):
        return number_of_digits(value)
    return value


def is_scalar(type_: pa.DataType) -> bool:
    """Tells whether attributes have values of this type."""
    types = pa.types
    if types.is_dictionary(type_):
        return not types.is_dictionary(type_.value_type) and is_scalar(type_.value_type)
    return bool(
        types.is_integer(type_)
        or types.is_floating(type_)
        or types.is_decimal(type_)
        or types.is_boolean(type_)
        or types.is_null(type_)
        or _is_text(type_)
    )


def is_list(type_: pa.DataType) -> bool:
    """Tells whether attributes have lists of this type."""
    return is_any_list(type_) and is_scalar(plain_type(type_.value_type))


def _unread_kind(type_: pa.DataType) -> str:
    """The word for a type whose strings are not read, "maps" or "variants", also for lists of these; empty for others."""
    while is_any_list(type_):
        type_ = plain_type(type_.value_type)
    return "maps" if pa.types.is_map(type_) else "variants" if is_variant(type_) else ""


def is_time(type_: pa.DataType) -> bool:
    """Tells whether a type is one of native times."""
    types = pa.types
    if types.is_dictionary(type_):
        return is_time(type_.value_type)
    return bool(types.is_timestamp(type_) or types.is_date(type_) or types.is_time(type_))


def _text_of_times(array: pa.Array) -> pa.Array:
    """Native times as texts with the same instants, those without an offset in UTC."""
    if pa.types.is_dictionary(array.type):
        return pa.DictionaryArray.from_arrays(array.indices, _text_of_times(array.dictionary))
    if not pa.types.is_timestamp(array.type):
        return array.cast(pa.string())
    in_utc = array.cast(pa.int64()).cast(pa.timestamp(array.type.unit))
    return pc.binary_join_element_wise(in_utc.cast(pa.string()), pa.scalar("Z"), "")


def _is_text(type_: pa.DataType) -> bool:
    return type_ in (pa.string(), pa.large_string(), pa.string_view())


def typed_column(array: pa.Array) -> tuple[TypedColumn, Array | None]:
    """An array of a usable type, and bool[n] that marks the rows with invalid numbers; None if there are none.

    Raises ArrowInvalid for strings that are not UTF-8.
    """
    if not pa.types.is_dictionary(array.type):
        column, wrong = _entries(array)
        return column._replace(validity=_validity(array)), wrong
    entries, index = array.dictionary, array.indices
    if entries.null_count:  # an entry may be null, and so are those that refer to it
        index = pc.if_else(pc.take(entries.is_null(), index), pa.scalar(None, index.type), index)
    validity = _validity(index)
    place = np.asarray(index.fill_null(0).cast(pa.int32()))
    column, wrong = _entries(entries)
    column = column._replace(indices=place, validity=validity)
    if wrong is None or not wrong.any():
        return column, None
    return column, wrong[place] if validity is None else wrong[place] & column.is_present(len(array))


def _validity(array: pa.Array) -> Validity | None:
    if pa.types.is_null(array.type):
        return Validity(np.zeros(-(-len(array) // 8), np.uint8), 0)
    bits = array.buffers()[0]
    if bits is None or not array.null_count:
        return None
    return Validity(np.frombuffer(bits, np.uint8)[array.offset >> 3 :], array.offset & 7)


def _entries(array: pa.Array) -> tuple[TypedColumn, Array | None]:
    """The entries of an array without a dictionary, and a mark for those that no attribute has."""
    types, type_ = pa.types, array.type
    if types.is_null(type_):
        return TypedColumn(Type.NUMBER, np.zeros(len(array))), None
    if types.is_boolean(type_):
        return TypedColumn(Type.BOOLEAN, np.asarray(array.fill_null(False).cast(pa.uint8()))), None
    if _is_text(type_):
        return TypedColumn(Type.STRING, _text(array)), None
    if types.is_decimal(type_):
        if (short := _short_decimals(array)) is not None:
            return TypedColumn(Type.NUMBER, short), None
        values, is_wrong = zip(*map(_decimal, array.to_pylist()), strict=True) if len(array) else ((), ())
        return TypedColumn(Type.NUMBER, of_values(values)), np.array(is_wrong, bool)
    numbers = _numbers(array)
    if types.is_integer(type_) and numbers.itemsize == 8:
        return TypedColumn(Type.NUMBER, numbers.view(np.int64) if are_exact(numbers) else of_integers(numbers)), None
    return TypedColumn(Type.NUMBER, numbers.astype(np.float64, copy=False)), None


def _numbers(array: pa.Array) -> Array:
    """The values of a primitive array, with any number for a null."""
    dtype = np.dtype(array.type.to_pandas_dtype())
    return np.frombuffer(array.buffers()[1] or b"", dtype)[array.offset : array.offset + len(array)]


_MOST_SCALE = 22
"""The largest power of ten that is a double."""


def _short_decimals(array: pa.Array) -> Array | None:
    """f64[n]: decimals of at most 53 bits and a scale of 0 to 22, and 0 for nulls; None if there are others.

    The quotient of two doubles is rounded to the nearest double, as their digits are.
    """
    if not pa.types.is_decimal128(array.type) or not 0 <= array.type.scale <= _MOST_SCALE:
        return None
    words = np.frombuffer(array.buffers()[1] or b"", "<i8")[2 * array.offset : 2 * (array.offset + len(array))]
    low, high = words[::2], words[1::2]
    if array.null_count:
        there = np.asarray(array.is_valid())
        low, high = np.where(there, low, 0), np.where(there, high, 0)
    if not np.all((high == low >> 63) & (low >= -MAX_EXACT_INTEGER) & (low <= MAX_EXACT_INTEGER)):
        return None
    found: Array = low / 10.0**array.type.scale
    return found


def _decimal(value: Decimal | None) -> tuple[float, bool]:
    """A decimal as a number, and whether it is a number that no attribute has."""
    if value is None:
        return 0.0, False
    try:
        return value_of(number_of_digits(value))[1], False  # type: ignore[return-value]
    except ModelError:
        return 0.0, True


def _text(array: pa.Array) -> Strings:
    """Strings of an array, empty for a null."""
    array.validate(full=True)  # of files no reader looks whether text is UTF-8
    array = array.cast(pa.large_string())
    _, offsets, data = array.buffers()
    starts = np.frombuffer(offsets or bytes(8), np.int64)[array.offset : array.offset + len(array) + 1]
    return Strings(np.frombuffer(data or b"", np.uint8), starts)


def _checked_ids(array: pa.Array, form: EventForm) -> tuple[Array, Array | None]:
    """bool[n] twice: marks the rows with an id that is not empty, and those without an id.  Raises as `_ids` and its caller
    do."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    there: Array = np.asarray(array.is_valid())
    if not _is_text(array.type):
        return (there, None) if pa.types.is_integer(array.type) else (np.zeros(len(array), bool), there)
    try:
        return (np.diff(_text(array).offsets) > 0) & there, None
    except pa.ArrowInvalid as error:
        raise ModelError(f"column {form.id!r}: {error}") from error


def _ids(array: pa.Array) -> tuple[Strings, Array | None]:
    """The ids in a column, empty for absent ones, and bool[n], which marks the rows with other values than strings and
    integers."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_integer(array.type) or _is_text(array.type):
        found = _text(array.cast(pa.large_string()).fill_null(""))
        base = int(found.offsets[0])
        return Strings(found.data[base : found.offsets[-1]], found.offsets - base), None
    return Strings.of([b""] * len(array)), np.asarray(array.is_valid())
