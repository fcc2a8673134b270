"""Events from columns: one array or list for each attribute, all of the same length, as data frames hold them.

    {"temp": np.array([31.0, 25.5, 19.0]), "city": ["Milan", None, "Turin"]}        3 events, the second has no city

What an entry means depends on the column alone, never on its neighbours:

    float and integer arrays      numbers.  NaN is a number too (it satisfies only `exists`): it does *not* mean absent
    boolean arrays                booleans
    string arrays (NumPy U, T)    strings
    masked arrays                 as their data; masked entries are absent
    lists and object arrays       each entry by its own type; None is absent

pandas writes NaN where a value is missing, also in columns of strings.  Say what is meant:
`frame["city"].where(frame["city"].notna(), None).to_list()` makes those absent.  A data frame itself is `dict(frame)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays import Array, offsets_of
from mpi_match.events import Events
from mpi_match.model import MAX_EXACT_INTEGER, ModelError, Type, check_name, label, value_of
from mpi_match.rows import EventForm
from mpi_match.strings import Strings


class Column(NamedTuple):
    """One attribute of n events: `present` bool[n], `type` u8[n], `number` f64[n] and `string` u32[n] as in `Events`."""

    present: Array
    type: Array
    number: Array
    string: Array


def events_of_columns(columns: Mapping[str, Any], form: EventForm) -> Events:
    """The events whose attributes stand in `columns`; `form` names the columns that hold location and id, if any.

    As with rows, the columns of the location stay attributes and the column of the id does not.  Raises ModelError, naming
    the column, for unequal lengths and for whatever `model.value_of` refuses.
    """
    lengths = {name: _length(name, values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ModelError(f"columns must have one length, found {', '.join(f'{name!r}: {n}' for name, n in lengths.items())}")
    n_events = next(iter(lengths.values()), 0)
    for name in (*(form.location or ()), *((form.id,) if form.id is not None else ())):
        if name not in columns:
            raise ModelError(f"there is no column {name!r}; there are: {', '.join(map(repr, columns))}")
    strings: dict[str, int] = {}
    names = [check_name(name) for name in columns if name != form.id]
    made = [_named(name, columns[name], strings) for name in names]
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
        strings=Strings.of(text.encode() for text in strings),
        location=None if form.location is None else _locations(form.location, dict(zip(names, made, strict=True))),
        ids=None if form.id is None else Strings.of(_id(raw) for raw in _entries(columns[form.id])),
    )


def _length(name: str, values: Any) -> int:
    try:
        return len(values)
    except TypeError:
        raise ModelError(f"column {name!r}: needs an array or a list of values, found {type(values).__name__}") from None


def _named(name: str, values: Any, strings: dict[str, int]) -> Column:
    try:
        return _column(values, strings)
    except ModelError as error:
        raise ModelError(f"column {name!r}: {error}") from None


def _column(values: Any, strings: dict[str, int]) -> Column:
    if isinstance(values, (list, tuple)):
        return _column_of_objects(values, strings)
    array = np.ma.asarray(values) if isinstance(values, np.ma.MaskedArray) else np.asarray(values)
    if array.ndim != 1:
        raise ModelError(f"a column has one dimension, found {array.ndim}")
    if array.dtype.kind not in "biuf":
        return _column_of_objects(_entries(array), strings)
    present = ~np.ma.getmaskarray(array)
    number = np.where(present, np.ma.getdata(array), 0)
    if array.dtype.kind in "iu" and len(number):
        beyond = number[(number > MAX_EXACT_INTEGER) | (number < -MAX_EXACT_INTEGER)]
        if len(beyond):
            value_of(int(beyond[0]))  # raises, in the words of the model
    double = number.astype(np.float64)
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        for wider in number[(double != number) & (number == number)]:
            value_of(wider)  # raises likewise
    type_ = Type.BOOLEAN if array.dtype.kind == "b" else Type.NUMBER
    n = len(array)
    return Column(present, np.full(n, type_, np.uint8), double + 0.0, np.zeros(n, np.uint32))


def _column_of_objects(values: list[Any] | tuple[Any, ...], strings: dict[str, int]) -> Column:
    n = len(values)
    column = Column(np.zeros(n, bool), np.zeros(n, np.uint8), np.zeros(n), np.zeros(n, np.uint32))
    for i, raw in enumerate(values):
        if raw is None:
            continue
        try:
            type_, value = value_of(raw)
        except ModelError as error:
            raise ModelError(f"entry {i}: {error}") from None
        column.present[i], column.type[i] = True, type_
        if type_ is Type.STRING:
            column.string[i] = strings.setdefault(value, len(strings))  # type: ignore[arg-type]
        else:
            column.number[i] = value
    return column


def _entries(values: Any) -> list[Any]:
    """Entries of a column as Python objects; masked ones are None."""
    found: list[Any] = values.tolist() if hasattr(values, "tolist") else list(values)
    return found


def _id(raw: Any) -> bytes:
    return b"" if raw is None else label(raw, "id").encode()


def _locations(names: tuple[str, str], made: dict[str, Column]) -> Array | None:
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
