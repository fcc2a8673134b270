"""The lists that are values of attributes, as flat arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from mpi_match.arrays.csr import Array, ArraySource, offsets_of
from mpi_match.arrays.exact import exact
from mpi_match.arrays.strings import Strings
from mpi_match.model import RESIDUE_MASK, Type, Value, joined, split


class ValueColumns(Protocol):
    """The columns of `Events` that hold values."""

    @property
    def type(self) -> Array: ...

    @property
    def number(self) -> Array: ...

    @property
    def string(self) -> Array: ...


def exact_numbers(type_: Array, number: Array, string: Array) -> Array:
    """The exact array (`arrays.exact`) of columns as in `Events`: numbers, 0 and 1 of booleans, 0 of others."""
    return exact(number, np.where(type_ == Type.NUMBER, string, 0))


@dataclass(frozen=True, eq=False)
class ListColumns:
    """l lists of k elements.

    offsets                 i64[l + 1]         elements of each list
    type, number, string    u8, f64, u32 [k]   of each element, as the columns of `Events` are of an attribute
    numbers                 exact[k]           of type NUMBER, as in `Events`
    """

    offsets: Array
    type: Array
    number: Array
    string: Array

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def numbers(self) -> Array:
        return exact_numbers(self.type, self.number, self.string)

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """Every column with the name of its dataset in a file."""
        yield from (("lists/offsets", self.offsets), ("lists/type", self.type))
        yield from (("lists/number", self.number), ("lists/string", self.string))

    @classmethod
    def read(cls, source: ArraySource) -> ListColumns:
        """From the arrays of `arrays`."""
        return cls(*(source.array(f"lists/{column}") for column in ("offsets", "type", "number", "string")))

    @classmethod
    def concat(cls, parts: Sequence[ListColumns]) -> ListColumns:
        """The lists of all parts, one part after the other; they share one pool of strings."""
        lengths = np.concatenate([np.zeros(0, np.int64), *(np.diff(part.offsets) for part in parts)])
        columns = (("type", np.uint8), ("number", np.float64), ("string", np.uint32))
        joined = (np.concatenate([np.zeros(0, dtype), *(getattr(p, name) for p in parts)]) for name, dtype in columns)
        return cls(offsets_of(lengths), *joined)


def value_of(columns: ValueColumns, row: int, strings: Strings) -> Value:
    """The value, other than a list, in a row of columns as in `Events`, in the form of the model."""
    number, string = float(columns.number[row]), int(columns.string[row])
    if columns.type[row] == Type.STRING:
        return strings[string].decode()
    if columns.type[row] == Type.BOOLEAN:
        return bool(number)
    return joined(number, string)


@dataclass
class Values:
    """Values, none of them a list, appended one by one; `strings` has the number of each text so far."""

    strings: dict[str, int]
    type: list[int] = field(default_factory=list)
    number: list[float] = field(default_factory=list)
    string: list[int] = field(default_factory=list)

    def append(self, type_: Type, number: float, string: int) -> None:
        """Append one value in the form of columns."""
        self.type.append(type_)
        self.number.append(number)
        self.string.append(string)

    def add(self, value: Value) -> None:
        """Append one value of the model."""
        if isinstance(value, str):
            self.append(Type.STRING, 0.0, self.strings.setdefault(value, len(self.strings)))
        else:
            nearest, residue = split(value)
            self.append(Type.BOOLEAN if type(value) is bool else Type.NUMBER, nearest, residue & RESIDUE_MASK)

    def columns(self) -> dict[str, Array]:
        """The columns `type`, `number` and `string`."""
        types = (np.uint8, np.float64, np.uint32)
        columns = zip(("type", "number", "string"), (self.type, self.number, self.string), types, strict=True)
        return {name: np.array(column, dtype) for name, column, dtype in columns}


class ListsBuilder:
    """Appends lists one by one."""

    def __init__(self, strings: dict[str, int]) -> None:
        self._values = Values(strings)
        self._lengths: list[int] = []

    def add(self, values: tuple[Value, ...]) -> int:
        """Append a list.  Returns its number."""
        self._lengths.append(len(values))
        for value in values:
            self._values.add(value)
        return len(self._lengths) - 1

    def build(self) -> ListColumns | None:
        """The lists, or None if there are none."""
        return (
            ListColumns(offsets_of(np.array(self._lengths, np.int64)), **self._values.columns()) if self._lengths else None
        )
