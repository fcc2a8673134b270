"""The content of a file, declared once for each kind of file, and checked from that declaration alone.

    CHANGES = Schema(
        "changes",
        attributes=(count("n_changes", "n"), digest("table")),
        columns=(
            Dataset("changes/before_event", I8, ("n",), (ascends, is_at_least(0))),
            Dataset("changes/kind", U1, ("n",), (is_among(Change),)),
            *pool("interfaces", "k", are_text, are_distinct),
            ...

A shape is a tuple of sizes: numbers, and words that stand for the same number everywhere.  An attribute states its size;
other sizes are taken from the first column that has them.

Types and shapes are compared when a file is opened, from its declarations (`misfits`), and again with the arrays, which may
come from another source.  Conditions on values are *rules*: functions of a column that return what is wrong with it, or
None.  Every rule assumes that those before it hold, so a caller stops at the first fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from mpi_match.arrays.csr import Array, DType, are_bounds, ascends_within
from mpi_match.arrays.strings import Strings, is_utf8

U1, U2, U4, U8, I2, I8, F8, TEXT = "|u1", "<u2", "<u4", "<u8", "<i2", "<i8", "<f8", "S"
"""Types of columns; TEXT is a string of any fixed length."""
T = TypeVar("T")
_DIGEST = re.compile("[0-9a-f]{64}")


class Declared(Protocol):
    """A column as a file declares it, or an array."""

    @property
    def dtype(self) -> DType: ...

    @property
    def shape(self) -> tuple[int, ...]: ...


class Content(NamedTuple):
    """The input of a rule besides its column: all arrays by name, and the sizes."""

    arrays: Mapping[str, Array]
    sizes: Mapping[str, int]


Fault = str | None
"""The fault, as text; None without one."""


@dataclass(frozen=True)
class Attribute:
    """A root attribute, or a member of a JSON object: its check, and the size that it states."""

    name: str
    fault: Callable[[object], Fault]
    size: str | None = None
    optional: bool = False


@dataclass(frozen=True)
class Dataset:
    """A dataset: its type (one of several), its shape, and its rules, which produce the end of a sentence that begins with
    its name.

    ranged   readers read any range of it, so it must be contiguous and without a filter
    """

    name: str
    dtype: str | tuple[str, ...]
    shape: tuple[str | int, ...]
    rules: tuple[Callable[[str, Content], Fault], ...] = ()
    optional: bool = False
    ranged: bool = False

    def type_fault(self, found: Declared) -> Fault:
        """The fault in the type or the number of dimensions."""
        dtypes = (self.dtype,) if isinstance(self.dtype, str) else self.dtype
        if found.dtype.str not in dtypes and not (TEXT in dtypes and found.dtype.kind == TEXT):
            return f"{self.name} is {found.dtype.str}, expected {' or '.join(dtypes)}"
        if len(found.shape) != len(self.shape):
            return f"{self.name} has {len(found.shape)} dimensions, expected {len(self.shape)}"
        return None


@dataclass(frozen=True)
class Schema:
    """The content of files of one kind.  Datasets that it does not name are ignored.

    rules      conditions between columns
    derived    sizes computed from those known by then
    together   datasets of which a file has all or none
    without    datasets that must be absent
    inside     schemas of groups, by the prefix of their names
    instead    the schema of files that have a dataset of this name
    parts      what parts of an index have, if such a file may be one: "pieces" of columns, any of them, or whole "files"
    is_piece   it describes such a part: columns are optional, and of any length
    noun       the name of a file of this kind in messages, and `remedy` what to do when it is invalid
    """

    kind: str
    attributes: tuple[Attribute, ...] = ()
    columns: tuple[Dataset, ...] = ()
    rules: tuple[Callable[[Content], Fault], ...] = ()
    derived: Mapping[str, Callable[[Mapping[str, int]], int]] = field(default_factory=dict)
    together: tuple[tuple[str, ...], ...] = ()
    without: tuple[str, ...] = ()
    inside: Mapping[str, Schema] = field(default_factory=dict)
    instead: Mapping[str, Schema] = field(default_factory=dict)
    parts: Literal["pieces", "files"] | None = None
    is_piece: bool = False
    noun: str = "file of mpi-match"
    remedy: str = "make it again"

    def of(self, names: Iterable[str]) -> Schema:
        """The schema of a file that has datasets of these names."""
        there = set(names)
        return next((schema for name, schema in self.instead.items() if name in there), self)

    @property
    def of_part(self) -> Schema:
        """The schema of a part of an index."""
        in_pieces = self.parts == "pieces"
        attributes = (*(() if in_pieces else self.attributes), count("rows"))
        return replace(self, kind=f"{self.kind}-part", attributes=attributes, parts=None, is_piece=in_pieces)

    def misfits(self, declared: Mapping[str, Declared], attributes: Mapping[str, object] | None = None) -> Iterator[str]:
        """The faults in types and shapes, and in root attributes if any are given."""
        if not self.is_piece:
            yield from _Shapes(self).faults(declared, attributes)
            return
        yield from attribute_faults(self.attributes, attributes or {})
        found = (column.type_fault(declared[column.name]) for column in self.columns if column.name in declared)
        yield from (fault for fault in found if fault)

    def faults(
        self,
        arrays: Mapping[str, Array],
        attributes: Mapping[str, object] | None = None,
        declared: Mapping[str, Declared] | None = None,
    ) -> Iterator[str]:
        """The faults in the arrays of a file, one sentence for each; none for a valid file.

        If `declared` has all columns of the file, `arrays` may be some of them.
        """
        shapes = _Shapes(self)
        yield from shapes.faults(arrays if declared is None else declared, attributes)
        content = Content(arrays, shapes.sizes)
        for column in self.columns:
            if column.name in arrays:
                yield from (f"{column.name} {fault}" for rule in column.rules if (fault := rule(column.name, content)))
        yield from (fault for each in self.rules if (fault := each(content)))
        for prefix, schema in self.inside.items():
            yield from (f"{prefix}{fault}" for fault in schema.faults(_within(prefix, arrays)))


class _Shapes:
    """Compares shapes with those of a schema, and determines the sizes."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self.sizes: dict[str, int] = {}
        self._stated: dict[str, str] = {}

    def faults(self, declared: Mapping[str, Declared], attributes: Mapping[str, object] | None) -> Iterator[str]:
        """The faults; the sizes are known after the last one."""
        schema = self._schema
        if attributes is not None:
            yield from attribute_faults(schema.attributes, attributes)
            for each in schema.attributes:
                if each.size is not None:
                    self._know(each.size, int(attributes[each.name]), f"the attribute {each.name}")  # type: ignore[call-overload]
        yield from (f"{name} must not be there" for name in schema.without if name in declared)
        for names in schema.together:
            if 0 < sum(name in declared for name in names) < len(names):
                yield f"{' and '.join(names)} must be there both or not at all"
        for column in schema.columns:
            if column.name in declared:
                yield from self._of_column(column, declared[column.name])
            elif not column.optional:
                yield f"there is no dataset {column.name}"
        for prefix, inner in schema.inside.items():
            yield from (f"{prefix}{fault}" for fault in inner.misfits(_within(prefix, declared)))

    def _of_column(self, column: Dataset, found: Declared) -> Iterator[str]:
        if fault := column.type_fault(found):
            yield fault
        for wanted, n in zip(column.shape, found.shape, strict=True):
            if isinstance(wanted, int):
                if n != wanted:
                    yield f"{column.name} has {n} columns, expected {wanted}"
                continue
            size, _, more = wanted.partition(" + ")
            n -= int(more or 0)
            if size in self._schema.derived and size not in self.sizes:
                self._know(size, self._schema.derived[size](self.sizes), "what else is there")
            if n < 0:
                yield f"{column.name} has no rows, expected one at least"
            elif self.sizes.get(size, n) != n:
                yield f"{column.name} has {n:,} rows{f' and {more}' if more else ''}, expected {self.sizes[size]:,}, " + (
                    f"as {self._stated[size]} says"
                )
            self._know(size, n, column.name)

    def _know(self, size: str, n: int, stated: str) -> None:
        self.sizes.setdefault(size, n)
        self._stated.setdefault(size, stated)


def _within(prefix: str, named: Mapping[str, T]) -> dict[str, T]:
    """The entries with names that begin with the prefix, by the rest of the name."""
    return {name.removeprefix(prefix): each for name, each in named.items() if name.startswith(prefix)}


# Attributes.


def attribute_faults(wanted: Iterable[Attribute], found: Mapping[str, object]) -> Iterator[str]:
    """The fault in the attributes of a file, or in a JSON object."""
    for each in wanted:
        if each.name in found:
            if fault := each.fault(found[each.name]):
                yield f"the attribute {each.name} {fault}"
        elif not each.optional:
            yield f"there is no attribute {each.name}"


def count(name: str, size: str | None = None, *, most: int = 2**62) -> Attribute:
    """A non-negative integer, which is a size."""

    def fault(value: object) -> Fault:
        if type(value) is int and 0 <= value <= most:
            return None
        return f"is {_shown(value)}, expected an integer from 0 to {most:,}"

    return Attribute(name, fault, size)


def digest(name: str, *, optional: bool = False, empty: bool = False) -> Attribute:
    """A digest: 64 hexadecimal digits; optionally empty."""

    def fault(value: object) -> Fault:
        if isinstance(value, str) and (_DIGEST.fullmatch(value) or (empty and not value)):
            return None
        return f"is {_shown(value)}, expected a digest of 64 hexadecimal digits"

    return Attribute(name, fault, optional=optional)


def word(name: str, *words: str) -> Attribute:
    """One of several words."""

    def fault(value: object) -> Fault:
        return None if value in words else f"is {_shown(value)}, expected {' or '.join(map(repr, words))}"

    return Attribute(name, fault)


def _shown(value: object) -> str:
    """The beginning of a value of unknown type."""
    text = f"an integer of {value.bit_length():,} bits" if isinstance(value, int) and abs(value) >= 2**64 else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


# Rules of a column.  Those that take arguments return one.

Rule = Callable[[str, Content], Fault]


def is_csr(size: str) -> Rule:
    """CSR offsets: from 0, ascending, to a size."""

    def fault(name: str, content: Content) -> Fault:
        return None if are_bounds(content.arrays[name], content.sizes[size]) else "does not fit what it is the offsets of"

    return fault


def is_below(size: str) -> Rule:
    """All are less than a size."""

    def fault(name: str, content: Content) -> Fault:
        array = content.arrays[name]
        if len(array) and int(array.max()) >= content.sizes[size]:
            return f"holds {int(array.max()):,}, and there are {content.sizes[size]:,}"
        return None

    return fault


def is_at_least(least: float) -> Rule:
    """None is less."""

    def fault(name: str, content: Content) -> Fault:
        array = content.arrays[name]
        return f"holds {array.min()}, expected at least {least}" if array.size and array.min() < least else None

    return fault


def is_among(values: Iterable[int]) -> Rule:
    """Each is one of a few small integers."""
    allowed = np.zeros(256, bool)
    allowed[list(values)] = True

    def fault(name: str, content: Content) -> Fault:
        array = content.arrays[name]
        if allowed[array].all():
            return None
        return f"holds {int(array[~allowed[array]][0])}, expected one of {', '.join(map(str, np.flatnonzero(allowed)))}"

    return fault


def ascends(name: str, content: Content) -> Fault:
    """No row is less than the one before it."""
    array = content.arrays[name]
    return None if bool(np.all(array[:-1] <= array[1:])) else "is not sorted"


def ascends_strictly(name: str, content: Content) -> Fault:
    """Each row is more than the one before it."""
    array = content.arrays[name]
    return None if bool(np.all(array[:-1] < array[1:])) else "is not sorted, or not distinct"


def ascends_in(offsets: str) -> Rule:
    """Sorted and distinct within each list."""

    def fault(name: str, content: Content) -> Fault:
        array = content.arrays[name]
        sorted_ = ascends_within(content.arrays[offsets], array[:-1] < array[1:])
        return None if sorted_ else f"is not sorted, or not distinct, within the lists of {offsets}"

    return fault


def are_file_names(name: str, content: Content) -> Fault:
    """Names of files in the index's own directory."""
    for each in content.arrays[name].tolist():
        if each in (b"", b".", b"..") or b"/" in each or b"\0" in each or not is_utf8(each):
            return f"holds {_shown(each)}, which is not the name of a file"
    return None


def are_distinct_names(name: str, content: Content) -> Fault:
    """No name occurs twice."""
    names = content.arrays[name].tolist()
    return None if len(set(names)) == len(names) else "holds a name twice"


# Rules of a pool of strings, given for its offsets.


def pool(name: str, n: str, *rules: Rule, separator: str = "/", optional: bool = False) -> tuple[Dataset, Dataset]:
    """The two columns of n strings; `rules` are those of the pool, and are given the name of its offsets."""
    data, offsets = f"{name}{separator}data", f"{name}{separator}offsets"
    return (
        Dataset(data, U1, (f"bytes of {name}",), optional=optional),
        Dataset(offsets, I8, (f"{n} + 1",), (is_csr(f"bytes of {name}"), *rules), optional),
    )


def strings_of(offsets: str, content: Content) -> Strings:
    """The pool with offsets of this name."""
    return Strings(content.arrays[f"{offsets.removesuffix('offsets')}data"], content.arrays[offsets])


def are_text(name: str, content: Content) -> Fault:
    """Each string is UTF-8."""
    bad = strings_of(name, content).not_text()
    return f"and its data hold a string that is not UTF-8, number {int(bad[0]):,}" if len(bad) else None


def are_sorted(name: str, content: Content) -> Fault:
    """Sorted by their bytes, and distinct."""
    return None if strings_of(name, content).is_sorted() else "and its data are not sorted, or not distinct"


def are_sorted_in(offsets: str) -> Rule:
    """Sorted and distinct within each list."""

    def fault(name: str, content: Content) -> Fault:
        below = strings_of(name, content).is_below_next()
        sorted_ = ascends_within(content.arrays[offsets], below)
        return None if sorted_ else f"and its data are not sorted, or not distinct, within the lists of {offsets}"

    return fault


def are_distinct(name: str, content: Content) -> Fault:
    """No string occurs twice."""
    strings = strings_of(name, content)
    return None if len(set(strings)) == len(strings) else "and its data hold a string twice"
