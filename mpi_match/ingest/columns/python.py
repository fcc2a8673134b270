"""Events from columns: one array or list for each attribute, all of the same length, as in data frames.

    {"temp": np.array([31.0, 25.5, 19.0]), "city": ["Milan", None, "Turin"]}        3 events, the second has no city

The meaning of an entry depends on the type of its column alone:

    float and integer arrays      numbers.  NaN is a number too (it satisfies only `exists`): it does *not* mean absent
    boolean arrays                booleans
    string arrays (NumPy U, T)    strings
    masked arrays                 as their data; masked entries are absent
    Arrow, polars and pandas      as their data; null is absent.  pandas' own types (`Int64`, `string`, `category`, Arrow's)
                                  have nulls, NumPy's have none
    lists and object arrays       each entry by its own type; None, pandas' NA and NaT, and NumPy's `masked` are absent;
                                  an entry that is a list or an array is a list, as in a list column of Arrow or polars

Dates and durations are refused, whatever library they come from: send strings, or numbers in some unit.

In columns of NumPy's types pandas writes NaN for missing values, also in columns of strings.  State which is meant:
`frame.convert_dtypes()` makes those absent, and so does `frame["city"].where(frame["city"].notna(), None)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of
from mpi_match.arrays.strings import Strings
from mpi_match.events.events import Events
from mpi_match.events.lists import ListsBuilder
from mpi_match.ingest.rows.judge import EventForm
from mpi_match.model import MAX_EXACT_INTEGER, ModelError, Type, attribute_of, check_name, is_null, label, value_of

_NULLS = (("is_null", "drop_null"), ("is_null", "drop_nulls"), ("isna", "dropna"))
"""Methods of Arrow, polars and pandas that tell which entries are null, and that drop those."""


@runtime_checkable
class Frame(Protocol):
    """A data frame of pandas, polars or Arrow: columns by their names."""

    @property
    def columns(self) -> Any:
        """The names of the columns; Arrow has the columns here, and their names in `column_names`."""
        ...

    def __getitem__(self, name: str, /) -> Any: ...


def columns_of_frame(frame: Frame) -> dict[str, Any]:
    """The columns of a data frame by name.  Raises ModelError for duplicate names."""
    names = list(getattr(frame, "column_names", frame.columns))
    if len(set(names)) < len(names):
        raise ModelError(f"two columns have the name {next(name for i, name in enumerate(names) if name in names[:i])!r}")
    return {name: frame[name] for name in names}


class InputColumn(NamedTuple):
    """One attribute of n events: `present` bool[n], `type` u8[n], `number` f64[n] and `string` u32[n] as in `Events`.

    A list has its number among those of all columns in `string`.
    """

    present: Array
    type: Array
    number: Array
    string: Array


def refused_type(name: str, type_: str) -> str:
    """The error of a column of a type that no attribute has, and that is asked for."""
    return (
        f"the column {name!r} is of type {type_}, and filters, --location or --id name it; "
        "attributes are numbers, strings, booleans and arrays of these: cast it to one of them"
    )


def needed_names(names: Iterable[str], form: EventForm) -> frozenset[str]:
    """The attributes that are used: those that the filters of a table name, those of location and id."""
    named = (*(form.location or ()), *((form.id,) if form.id is not None else ()))
    return frozenset((*names, *named))


class _Pools:
    """What columns share: the distinct strings and the lists."""

    def __init__(self) -> None:
        self.strings: dict[str, int] = {}
        self.lists = ListsBuilder(self.strings)


def events_of_columns(columns: Mapping[str, Any], form: EventForm, needed: frozenset[str] | None = None) -> Events:
    """The events with the attributes in `columns`; `form` names the columns of location and id, if any.

    Of columns that are not in `needed` (None: all are) nothing but their length is asked.  As with rows, the columns
    of the location stay attributes and the column of the id does not.  Raises ModelError, naming the column, for unequal
    lengths and for every value that `model.value_of` refuses.
    """
    lengths = {name: _length(name, values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ModelError(f"columns must have one length, found {', '.join(f'{name!r}: {n}' for name, n in lengths.items())}")
    n_events = next(iter(lengths.values()), 0)
    for name in (*(form.location or ()), *((form.id,) if form.id is not None else ())):
        if name not in columns:
            raise ModelError(f"there is no column {name!r}; there are: {', '.join(map(repr, columns))}")
    pools = _Pools()
    names = [check_name(name) for name in columns if name != form.id and (needed is None or name in needed)]
    made = [_named(name, columns[name], pools) for name in names]
    present = np.array([column.present for column in made], bool).reshape(len(names), n_events).T

    def flat(field: str, dtype: type[np.generic]) -> Array:
        """A field of all columns, event by event, without the absent ones."""
        found: Array = np.array([getattr(column, field) for column in made], dtype).reshape(len(names), n_events).T[present]
        return found

    return Events(
        offsets=offsets_of(present.sum(axis=1)),
        name=np.broadcast_to(np.arange(len(names), dtype=np.uint32), present.shape)[present],
        type=flat("type", np.uint8),
        number=flat("number", np.float64),
        string=flat("string", np.uint32),
        names=Strings.of(name.encode() for name in names),
        strings=Strings.of(text.encode() for text in pools.strings),
        location=None if form.location is None else _locations(form.location, dict(zip(names, made, strict=True))),
        ids=None if form.id is None else _ids(form.id, columns[form.id]),
        lists=pools.lists.build(),
    )


def _length(name: str, values: Any) -> int:
    try:
        return len(values)
    except TypeError:
        raise ModelError(f"column {name!r}: needs an array or a list of values, found {type(values).__name__}") from None


def _named(name: str, values: Any, pools: _Pools) -> InputColumn:
    try:
        return _column(values, pools)
    except ModelError as error:
        raise ModelError(f"column {name!r}: {error}") from None


def _column(values: Any, pools: _Pools) -> InputColumn:
    if isinstance(values, (list, tuple)):
        return _column_of_objects(values, range(len(values)), pools)
    null, array = _without_nulls(values)
    place = np.arange(len(array)) if null is None else np.flatnonzero(~null)
    found = _column_of_numbers(array) if array.dtype.kind in "biuf" else _column_of_objects(array.tolist(), place, pools)
    if null is None:
        return found
    column = InputColumn(*(np.zeros(len(null), field.dtype) for field in found))
    for whole, part in zip(column, found, strict=True):
        whole[place] = part
    return column


def _without_nulls(values: Any) -> tuple[Array | None, Array]:
    """bool[n], which entries of an array or a column of a data frame are null (None if its type has no nulls), and the other
    entries.

    Nulls are dropped before the column becomes a NumPy array, because NumPy has no nulls and would turn them into numbers.
    """
    null: Array | None = None
    if isinstance(values, np.ma.MaskedArray) and values.ndim == 1:
        null, values = np.ma.getmaskarray(values), values.compressed()
    elif not isinstance(getattr(values, "dtype", None), np.dtype):  # in pandas' columns of NumPy's types NaN is a number
        for ask, drop in _NULLS:
            if hasattr(values, ask) and hasattr(values, drop):
                null, values = np.asarray(getattr(values, ask)(), bool), getattr(values, drop)()
                break
    array = np.asarray(values)
    if array.ndim != 1:
        raise ModelError(f"a column has one dimension, found {array.ndim}")
    if array.dtype.kind in "mM":  # NumPy would return some of them as integers, in units of its own
        raise ModelError(f"dates and durations ({array.dtype}) are no values; send strings, or numbers in some unit")
    return null, array


def _column_of_numbers(array: Array) -> InputColumn:
    """A column of numbers or booleans without nulls."""
    if array.dtype.kind in "iu":
        beyond = array[(array > MAX_EXACT_INTEGER) | (array < -MAX_EXACT_INTEGER)]
        if len(beyond):
            value_of(int(beyond[0]))  # raises the model's error
    double = array.astype(np.float64)
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        for wider in array[(double != array) & (array == array)]:
            value_of(wider)  # likewise
    n = len(array)
    type_ = Type.BOOLEAN if array.dtype.kind == "b" else Type.NUMBER
    return InputColumn(np.ones(n, bool), np.full(n, type_, np.uint8), double + 0.0, np.zeros(n, np.uint32))


def _column_of_objects(values: Sequence[Any], places: Sequence[int] | Array, pools: _Pools) -> InputColumn:
    """A column of entries that each have a type of their own; `places` are their positions in the whole column, for
    errors.
    """
    n = len(values)
    column = InputColumn(np.zeros(n, bool), np.zeros(n, np.uint8), np.zeros(n), np.zeros(n, np.uint32))
    for i, raw in enumerate(values):
        if is_null(raw):
            continue
        try:
            value = attribute_of(raw)
        except ModelError as error:
            raise ModelError(f"entry {places[i]}: {error}") from None
        column.present[i] = True
        if isinstance(value, tuple):
            column.type[i], column.string[i] = Type.LIST, pools.lists.add(value)
        elif isinstance(value, str):
            column.type[i], column.string[i] = Type.STRING, pools.strings.setdefault(value, len(pools.strings))
        else:
            column.type[i], column.number[i] = Type.BOOLEAN if type(value) is bool else Type.NUMBER, value
    return column


def _ids(name: str, values: Any) -> Strings:
    """The ids in a column; empty for absent ones."""
    entries: Iterable[Any] = values
    if not isinstance(values, (list, tuple)):
        null, array = _without_nulls(values)
        rest = iter(array.tolist())
        entries = rest if null is None else (None if absent else next(rest) for absent in null.tolist())
    ids = []
    for i, raw in enumerate(entries):
        try:
            ids.append(b"" if is_null(raw) else label(raw, "id").encode())
        except ModelError as error:
            raise ModelError(f"column {name!r}: entry {i}: {error}") from None
    return Strings.of(ids)


def _locations(names: tuple[str, str], made: dict[str, InputColumn]) -> Array | None:
    """f64[n, 2]: locations, checked as `model.make_event` does; None when no event has one."""
    x, y = (made[name] for name in names)
    for name, column in zip(names, (x, y), strict=True):
        wrong = column.present & ((column.type != Type.NUMBER) | ~np.isfinite(column.number))
        if wrong.any():
            raise ModelError(
                f"column {name!r}: entry {int(wrong.argmax())}: the coordinates of a location must be finite numbers"
            )
    alone = x.present != y.present
    if alone.any():
        raise ModelError(f"event {int(alone.argmax())}: the location needs both {names[0]!r} and {names[1]!r}")
    found = np.where(x.present[:, None], np.column_stack([x.number, y.number]), np.nan)
    return found if x.present.any() else None
