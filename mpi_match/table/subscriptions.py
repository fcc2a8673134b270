"""Subscriptions as flat columns, as they were written: not encoded, not sorted.

Every source of subscriptions (JSON rows, Parquet, Python objects, generators) produces this form, and a table is built from
nothing else, so a table made by Spark and one made in memory cannot differ.

Filters have no order of their own: the same subscriptions give the same table however they were read, split or shuffled.  A
filter's position in the table follows from its interface and its *content key*, a 128-bit hash of its constraints (in any
order), area and id.  The key is computed from the raw values alone, so any process can compute it without seeing the other
filters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of, owners, sums
from mpi_match.arrays.exact import nearest_doubles, of_values, residues
from mpi_match.arrays.strings import Strings, sort_distinct
from mpi_match.model import Filter
from mpi_match.table.conditions import decompose
from mpi_match.table.kinds import kind_of
from mpi_match.table.operands import column_operands
from mpi_match.table.virtual_names import digests_of, of_constraint, part_places

HASHED_AT_ONCE = 2**14
"""Filters hashed together, so that intermediate results stay in a core's cache."""


@dataclass(frozen=True)
class Subscriptions:
    """n filters with c constraints with k operands.

    labels, names, strings   distinct byte strings, in any order; names may be virtual (`virtual_names`)
    ids                      byte strings, some of them perhaps equal
    interface                i64[n]      index into `labels`
    constraint_offsets       i64[n + 1]  constraints of each filter
    area                     f64[n, 3]   centre x, y and radius; NaN in all three where there is none
    id                       i64[n]      index into `ids`; -1 for a filter without an id
    name                     i64[c]      index into `names`
    kind                     u8[c]       see `kinds`
    operand_offsets          i64[c + 1]  operands of each constraint: none, one, low and high, the values of a list,
                                         or a prefix and its `prefix_bound`
    number                   exact[k]    the operand when it is a number (a boolean is 0 or 1), see `arrays.exact`
    string                   i64[k]      index into `strings` when it is a string, else -1
    """

    labels: Strings
    names: Strings
    strings: Strings
    ids: Strings
    interface: Array
    constraint_offsets: Array
    area: Array
    id: Array
    name: Array
    kind: Array
    operand_offsets: Array
    number: Array
    string: Array

    @property
    def n_filters(self) -> int:
        return len(self.interface)

    @property
    def n_constraints(self) -> int:
        return len(self.kind)

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> Subscriptions:
        """The columns of checked filters (`model.make_filter`)."""
        builder = SubscriptionsBuilder()
        for item in filters:
            builder.add(item)
        return builder.build()

    @classmethod
    def concat(cls, parts: Sequence[Subscriptions]) -> Subscriptions:
        """The filters of all parts, one part after the other; parts without filters are left out."""
        parts = [part for part in parts if part.n_filters] or list(parts[:1])
        if len(parts) == 1:
            return parts[0]
        (labels, interface), (names, name), (strings, string), (ids, id_) = (
            _merged([getattr(part, pool) for part in parts], [getattr(part, column) for part in parts])
            for pool, column in (("labels", "interface"), ("names", "name"), ("strings", "string"), ("ids", "id"))
        )
        sizes, n_operands = (
            np.concatenate([np.diff(getattr(part, offsets)) for part in parts])
            for offsets in ("constraint_offsets", "operand_offsets")
        )
        area, kind, number = (
            np.concatenate([getattr(part, column) for part in parts]) for column in ("area", "kind", "number")
        )
        return cls(
            labels=labels,
            names=names,
            strings=strings,
            ids=ids,
            interface=interface,
            constraint_offsets=offsets_of(sizes),
            area=area,
            id=id_,
            name=name,
            kind=kind,
            operand_offsets=offsets_of(n_operands),
            number=number,
            string=string,
        )

    @cached_property
    def content_keys(self) -> Array:
        """u64[n, 2]: the content key of every filter."""
        keys = np.empty((self.n_filters, 2), np.uint64)
        hashes_of_names = _hashes_of_names(self.names)
        for half in range(2):
            names, strings = hashes_of_names[:, half], np.append(_hashes(self.strings, half), np.uint64(0))
            for at in range(0, self.n_filters, HASHED_AT_ONCE):
                block = slice(at, min(at + HASHED_AT_ONCE, self.n_filters))
                keys[block, half] = self._keys_of(block, half, names, strings)
        for half in range(2):
            if len(self.ids):  # a filter without an id adds nothing, whether or not others have one
                keys[:, half] += np.append(_hashes((b"=" + id_ for id_ in self.ids), half), np.uint64(0))[self.id]
            keys[:, half] = _mix(keys[:, half])
        return keys

    def _keys_of(self, filters: slice, half: int, names: Array, strings: Array) -> Array:
        """One half of the keys of some filters, before ids are added; `names` and `strings` are hashes."""
        salt = np.uint64(0x9E3779B97F4A7C15 * (half + 1) & 2**64 - 1)
        constraint_offsets = self.constraint_offsets[filters.start : filters.stop + 1]
        rows = slice(int(constraint_offsets[0]), int(constraint_offsets[-1]))
        operand_offsets = self.operand_offsets[rows.start : rows.stop + 1]
        operands = slice(int(operand_offsets[0]), int(operand_offsets[-1]))
        place = np.arange(operands.start, operands.stop) - operand_offsets[:-1][owners(operand_offsets)]
        exact = self.number[operands]
        number = (nearest_doubles(exact) + 0.0).view(np.uint64)
        operand = _mix(number ^ salt) + strings[self.string[operands]] + place.astype(np.uint64)
        if exact.dtype == np.complex128:
            operand += residues(exact).astype(np.int64).view(np.uint64) << np.uint64(32)
        operand = _mix(operand)
        constraint = names[self.name[rows]] + _mix(self.kind[rows].astype(np.uint64) + salt)
        constraint += sums(operand, operand_offsets - operands.start)
        key = sums(_mix(constraint), constraint_offsets - rows.start)
        has_area = np.flatnonzero(~np.isnan(self.area[filters, 2]))
        x, y, r = np.ascontiguousarray((self.area[filters][has_area] + 0.0).T).view(np.uint64)
        key[has_area] += _mix(_mix(_mix(x + salt) + y) + r)
        return key


def _merged(pools: list[Strings], columns: list[Array]) -> tuple[Strings, Array]:
    """One pool of the distinct strings of all pools, and the columns of indices into it, end to end; -1 stays -1."""
    merged, place = sort_distinct(Strings.concat(pools))
    first = offsets_of(np.array(list(map(len, pools))))
    moved = np.concatenate([np.where(column < 0, -1, column + at) for column, at in zip(columns, first[:-1], strict=True)])
    return merged, np.append(place, -1)[moved]


def _hashes(items: Iterable[bytes], half: int) -> Array:
    """u64: 64 bits of BLAKE2b of each string, different for each half of a key."""
    person = b"lane%d" % half
    joined = b"".join(hashlib.blake2b(item, digest_size=8, person=person).digest() for item in items)
    return np.frombuffer(joined, "<u8").astype(np.uint64)


def _hashes_of_names(names: Strings) -> Array:
    """u64[len(names), 2]: both halves of the hash of each name; the name of a part is a digest, which is its hash."""
    parts = part_places(names)
    is_part = np.zeros(len(names), bool)
    is_part[parts] = True
    found = np.empty((len(names), 2), np.uint64)
    others = names.take(np.flatnonzero(~is_part))
    for half in range(2):
        found[~is_part, half] = _hashes(others, half)
    found[is_part] = digests_of(names.take(parts))
    return found


def _mix(x: Array) -> Array:
    """The finaliser of splitmix64: every input bit reaches every output bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = x ^ (x >> np.uint64(31))
    return mixed


class SubscriptionsBuilder:
    """Appends filters one by one; `build()` gives the columns."""

    def __init__(self) -> None:
        self._labels: dict[bytes, int] = {}
        self._names: dict[bytes, int] = {}
        self._strings: dict[bytes, int] = {}
        self._interface: list[int] = []
        self._sizes: list[int] = []
        self._area: list[tuple[float, float, float]] = []
        self._ids: dict[bytes, int] = {}
        self._id: list[int] = []
        self._name: list[int] = []
        self._kind: list[int] = []
        self._n_operands: list[int] = []
        self._number: list[float] = []
        self._string: list[int] = []

    def __len__(self) -> int:
        return len(self._interface)

    def add(self, item: Filter) -> None:
        """Append a filter; a filter with a condition is appended as the conjunctions that it consists of."""
        for each in decompose(item):
            self._add(each)

    def _add(self, item: Filter) -> None:
        self._interface.append(self._labels.setdefault(item.interface.encode(), len(self._labels)))
        self._sizes.append(len(item.constraints))
        self._area.append(item.area if item.area is not None else (np.nan, np.nan, np.nan))
        self._id.append(-1 if item.id is None else self._ids.setdefault(item.id.encode(), len(self._ids)))
        for name, type_, op, operand in map(of_constraint, item.constraints):
            self._name.append(self._names.setdefault(name, len(self._names)))
            self._kind.append(kind_of(type_, op))
            texts, numbers = column_operands(type_, op, operand)
            self._string.extend([self._strings.setdefault(text, len(self._strings)) for text in texts])
            self._string.extend([-1] * len(numbers))
            self._number.extend([*([0.0] * len(texts)), *numbers])
            self._n_operands.append(len(texts) + len(numbers))

    def build(self) -> Subscriptions:
        return Subscriptions(
            labels=Strings.of(self._labels),
            names=Strings.of(self._names),
            strings=Strings.of(self._strings),
            ids=Strings.of(self._ids),
            interface=np.array(self._interface, np.int64),
            constraint_offsets=offsets_of(np.array(self._sizes, np.int64)),
            area=np.array(self._area, np.float64).reshape(-1, 3),
            id=np.array(self._id, np.int64),
            name=np.array(self._name, np.int64),
            kind=np.array(self._kind, np.uint8),
            operand_offsets=offsets_of(np.array(self._n_operands, np.int64)),
            number=of_values(self._number),
            string=np.array(self._string, np.int64),
        )
