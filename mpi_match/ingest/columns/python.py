"""Reads events as columns that a program passes: one array or list for each attribute, all of the same length, as in data
frames.

    {"temp": np.array([31.0, 25.5, 19.0]), "city": ["Milan", None, "Turin"]}        3 events, the second has no city

The meaning of an entry depends on the type of its column alone:

    float and integer arrays      numbers.  NaN is a number too (it satisfies only `exists`): it does *not* mean absent
    boolean arrays                booleans
    string arrays (NumPy U, T)    strings
    masked arrays                 as their data; masked entries are nulls
    structured arrays             their fields, under dotted names
    Arrow, polars and pandas      as their data, with nulls.  pandas' own types (`Int64`, `string`, `category`, Arrow's) have
                                  nulls, NumPy's have none
    dates, times, timestamps      native times, which satisfy `exists` and have an instant; those that another operator names
                                  are refused
    lists and object arrays       each entry as in a row: None, pandas' NA and NaT, and NumPy's `masked` are nulls; objects
                                  have dotted names

Columns of durations that a constraint names are refused, whatever library they come from: send strings, or numbers in some
unit.

In columns of NumPy's types pandas writes NaN for missing values, also in columns of strings.  State which one you mean:
`frame.convert_dtypes()` makes those null, and so does `frame["city"].where(frame["city"].notna(), None)`.

`ingest.columns.frames` reads columns of one type each.  All others are read here, as rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import repeat
from typing import Any, Protocol, runtime_checkable

import numpy as np

from mpi_match.ingest.rows.judge import EventForm
from mpi_match.model import Json, ModelError, check_name
from mpi_match.table.vocabulary import Vocabulary


@runtime_checkable
class Frame(Protocol):
    """A data frame of pandas, polars or Arrow: columns by their names."""

    @property
    def columns(self) -> Any:
        """The names of the columns; Arrow has the columns here, and their names in `column_names`."""
        ...

    def __getitem__(self, name: str, /) -> Any: ...


def columns_of_frame(frame: Frame) -> Json:
    """The columns of a data frame by name.  Raises ModelError for duplicate names."""
    names = list(getattr(frame, "column_names", frame.columns))
    if len(set(names)) < len(names):
        raise ModelError(f"two columns have the name {next(name for i, name in enumerate(names) if name in names[:i])!r}")
    return {name: frame[name] for name in names}


def refused_type(name: str, type_: str) -> str:
    """The error of a column that is needed and has a type that no attribute has."""
    said = f"the column {name!r} is of type {type_}, and filters, --location or --id name it; "
    if type_.startswith(("timestamp", "date", "time")):
        return said + (
            "of a native time filters may ask presence and instant, and event tables keep none: match the file itself, or "
            "give texts of RFC 3339, such as '2026-05-01T12:00:00Z'"
        )
    return said + "attributes are numbers, strings, booleans and arrays of these: cast it to one of them"


class NeededNames(frozenset[str]):
    """Names of attributes that are used.

    presence   constraints only ask for their presence
    instants   constraints compare their instants, and perhaps ask if they are there
    every      constraints ask for all strings, so all columns are used
    """

    presence: frozenset[str] = frozenset()
    instants: frozenset[str] = frozenset()
    every: bool = False


def needed_names(names: Iterable[str], form: EventForm) -> NeededNames:
    """The attributes with these names, and those of location and id."""
    return NeededNames((*names, *(form.location or ()), *((form.id,) if form.id is not None else ())))


def needed_by(vocabulary: Vocabulary, form: EventForm) -> NeededNames:
    """The attributes that the filters of a table name, and those of location and id.

    Columns of native times serve for attributes that filters ask only for presence or the instant.
    """
    found = needed_names(vocabulary.attribute_names, form)
    found.presence, found.instants = vocabulary.presence_names - {*form.names}, vocabulary.instant_names - {*form.names}
    found.every = vocabulary.asks_every_string
    return found


def wanted_columns(
    columns: Mapping[Any, object], form: EventForm, needed: frozenset[str] | None, n_rows: int = 0
) -> tuple[Json, int]:
    """The columns of attributes in `needed` (None: all), with the number of events; `v` is needed for `v.x`.

    There are `n_rows` events if there are no columns.

    Raises ModelError for unequal lengths, for names that are not strings, for a value that is not a column, and when the
    location or the id has none.
    """
    lengths = {check_name(name): _length(name, values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ModelError(f"columns must have one length, found {', '.join(f'{name!r}: {n}' for name, n in lengths.items())}")
    for name in (*(form.location or ()), *((form.id,) if form.id is not None else ())):
        if lengths.keys().isdisjoint(_holders(name)):
            raise ModelError(f"there is no column {name!r}; there are: {', '.join(map(repr, lengths))}")
    holders = None if needed is None else {holder for name in needed for holder in _holders(name)}
    found = {name: columns[name] for name in lengths if holders is None or name in holders}
    return found, next(iter(lengths.values()), n_rows)


def _holders(name: str) -> list[str]:
    """The names of columns that may have an attribute: `a.b.c`, `a.b`, `a`."""
    parts = name.split(".")
    return [".".join(parts[:n]) for n in range(len(parts), 0, -1)]


def _length(name: object, values: object) -> int:
    if isinstance(values, (str, bytes, Mapping, Set)) or not hasattr(values, "__len__"):
        found = f"found {type(values).__name__}; one event is a list of one row"
        raise ModelError(f"column {name!r}: needs an array or a list of values, {found}")
    if (n := getattr(values, "ndim", 1)) != 1:
        raise ModelError(f"column {name!r}: a column has one dimension, found {n}")
    return len(values)


def rows_of(columns: Mapping[str, object], n: int) -> Iterator[Json]:
    """The rows of n events."""
    if not columns:
        return repeat({}, n)
    names, entries = list(columns), map(_entries, columns.values())
    return (dict(zip(names, row, strict=True)) for row in zip(*entries, strict=True))


def _entries(values: Any) -> Sequence[Any]:
    """The entries of a column, each as in a row."""
    if isinstance(values, (list, tuple)):
        return values
    if isinstance(values, np.ma.MaskedArray) and values.dtype.names is None:
        masked = np.ma.getmaskarray(values).tolist()
        return [None if hidden else entry for entry, hidden in zip(_entries(values.data), masked, strict=True)]
    if isinstance(values, np.ndarray):
        if values.dtype.names is not None:
            return list(rows_of({name: values[name] for name in values.dtype.names}, len(values)))
        kind, size = values.dtype.kind, values.dtype.itemsize
        return list(values) if kind in "mM" or (kind == "f" and size > 8) else values.tolist()
    for method in ("to_pylist", "to_list"):  # Arrow's; those of polars and pandas
        if hasattr(values, method):
            entries: list[Any] = getattr(values, method)()
            if type(getattr(values, "dtype", None)).__name__ in _NULLS_AS_NAN:
                return [None if null else entry for entry, null in zip(entries, values.isna().tolist(), strict=True)]
            return entries
    return list(values)


_NULLS_AS_NAN = frozenset(("CategoricalDtype", "StringDtype"))
"""Types of pandas whose nulls are NaN in a list."""
