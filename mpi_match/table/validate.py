"""What must hold between a table's arrays before anything is computed from them.

Checksums say that a file is what its writer wrote; these checks say that the writer wrote a table.  Whatever an engine
relies on is looked at here, once, when a table is loaded: dtypes and lengths, CSR bounds, sort orders, ids and codes in
range, sizes that add up.  A table that passes can be indexed without another test, on a GPU too.

Everything is one pass over flat arrays; nothing here is proportional to Python objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from mpi_match.arrays.csr import Array, are_bounds
from mpi_match.model import LISTS, OPS_OF_TYPE
from mpi_match.table.constraints import CODE, FILTER_ID, KIND
from mpi_match.table.subscriptions import kind_of
from mpi_match.table.vocabulary import ATOM_OPS

if TYPE_CHECKING:
    from mpi_match.table.table import Table

_OTHER_DTYPES: dict[str, np.dtype[Any]] = {
    "constraints/kind": KIND,
    "constraints/lo": CODE,
    "constraints/hi": CODE,
    "constraints/filter": FILTER_ID,
    "sets/codes": CODE,
    "filters/size": np.dtype(np.uint32),
    "filters/interface": np.dtype(np.uint32),
    "filters/area_filter": FILTER_ID,
    "filters/area": np.dtype(np.float64),
    "filters/id_filter": FILTER_ID,
    "numbers/values": np.dtype(np.float64),
    "atoms/op": np.dtype(np.uint8),
}
VALIDATED_AT_ONCE = 2**20
"""Rows looked at together where a whole column would need a large temporary array."""


def dtype_of(dataset: str) -> np.dtype[Any]:
    """The dtype of a dataset of a table file: offsets are i64, bytes of strings u8."""
    if dataset.endswith("offsets"):
        return np.dtype(np.int64)
    return np.dtype(np.uint8) if dataset.endswith("data") else _OTHER_DTYPES[dataset]


def faults(table: Table) -> Iterator[str]:
    """What is wrong with a table, one sentence for each fault; nothing for a valid one.

    Later checks trust what earlier ones found right: stop at the first fault.
    """
    yield from _shape_faults(table)
    yield from _order_faults(table)
    yield from _range_faults(table)


def _shape_faults(table: Table) -> Iterator[str]:
    """Dtypes, lengths and CSR bounds."""
    for name, array in table.arrays():
        if array.dtype != dtype_of(name):
            yield f"{name} is {array.dtype}, expected {dtype_of(name)}"
        if array.ndim != 1 and name != "filters/area":
            yield f"{name} has {array.ndim} dimensions, expected 1"
    v, c, f = table.vocabulary, table.constraints, table.filters
    strings = {
        "names": v.names,
        "strings": v.strings,
        "atoms": v.atoms,
        "interfaces": table.labels,
        "filters/id": f.ids,
    }
    for what, pool in strings.items():
        if not are_bounds(pool.offsets, len(pool.data)):
            yield f"the offsets of {what} do not fit its data"
    per_name = {
        "numbers": (v.number_offsets, len(v.numbers)),
        "strings": (v.string_offsets, len(v.strings)),
        "atoms": (v.atom_offsets, len(v.atom_op)),
        "constraints": (c.offsets, len(c)),
        "sets": (c.set_offsets, len(c.set_code_offsets) - 1),
    }
    for what, (offsets, total) in per_name.items():
        if len(offsets) != len(v.names) + 1 or not are_bounds(offsets, total):
            yield f"{what}/name_offsets do not fit"
    if len(v.atoms) != len(v.atom_op):
        yield "atoms/op and atoms/offsets differ in length"
    if not are_bounds(c.set_code_offsets, len(c.set_codes)):
        yield "sets/offsets do not fit sets/codes"
    if not len(c.kind) == len(c.lo) == len(c.hi) == len(c.filter_id):
        yield "the columns of constraints differ in length"
    if len(f.interface) != len(f.size):
        yield "filters/size and filters/interface differ in length"
    if f.area.shape != (len(f.area_filter), 3):
        yield "filters/area does not fit filters/area_filter"
    if len(f.ids) != len(f.id_filter):
        yield "filters/id_offsets do not fit filters/id_filter"


def _order_faults(table: Table) -> Iterator[str]:
    """Sort orders: searches and ids depend on them."""
    v, c, f = table.vocabulary, table.constraints, table.filters
    if not v.names.is_sorted():
        yield "names are not sorted"
    if not table.labels.is_sorted():
        yield "the labels of interfaces are not sorted"
    if not _ascends_within(v.number_offsets, v.numbers[:-1] < v.numbers[1:]):
        yield "numbers/values are not sorted within a name"
    if not _ascends_within(v.string_offsets, v.strings.is_below_next()):
        yield "strings are not sorted within a name"
    same_op, next_op = v.atom_op[:-1] == v.atom_op[1:], v.atom_op[:-1] < v.atom_op[1:]
    if not _ascends_within(v.atom_offsets, next_op | same_op & v.atoms.is_below_next()):
        yield "atoms are not sorted within a name"
    if not _ascends_within(c.set_code_offsets, c.set_codes[:-1] < c.set_codes[1:]):
        yield "sets/codes are not sorted within a set"
    if not _ascends(f.interface[:-1] <= f.interface[1:]):
        yield "filters are not sorted by interface"
    for owner, what in ((f.area_filter, "area"), (f.id_filter, "id")):
        if not _ascends(owner[:-1] < owner[1:]):
            yield f"filters/{what}_filter is not sorted"
    if not _rows_ascend(table):
        yield "constraints are not sorted by name, type, operator, operand and filter"


def _range_faults(table: Table) -> Iterator[str]:
    """Ids and codes that point outside, sizes that do not add up."""
    c, f = table.constraints, table.filters
    for ids, n, what in (
        (f.interface, len(table.labels), "a filter has an unknown interface"),
        (f.area_filter, len(f.size), "an area belongs to an unknown filter"),
        (f.id_filter, len(f.size), "an id belongs to an unknown filter"),
        (c.filter_id, len(f.size), "a constraint belongs to an unknown filter"),
    ):
        if int(ids.max(initial=0)) >= max(n, 1) or (len(ids) and not n):
            yield what
    if not (np.isfinite(f.area).all() and (f.area[:, 2] >= 0).all()):
        yield "filters/area holds a circle that is none"
    if np.isnan(table.vocabulary.numbers).any():
        yield "numbers/values holds NaN"
    if not np.isin(table.vocabulary.atom_op, ATOM_OPS).all():
        yield "atoms/op holds an operator that is neither suffix nor contains"
    if not np.array_equal(_counts(c.filter_id, len(f.size)), f.size):
        yield "constraints do not add up to filters/size"
    yield from _code_faults(table)


def _code_faults(table: Table) -> Iterator[str]:
    """Kinds that do not exist, and intervals outside the codes, sets or atoms of their name."""
    v, c = table.vocabulary, table.constraints
    if not len(c):
        return
    starts = np.flatnonzero(np.append(True, c.kind[1:] != c.kind[:-1]) | _first_rows(c.offsets))
    kind = c.kind[starts]  # rows from one start to the next share name and kind
    name = np.searchsorted(c.offsets, starts, side="right") - 1
    known = {kind_of(type_, op): op for type_, ops in OPS_OF_TYPE.items() for op in ops}
    unknown = np.setdiff1d(kind, list(known))
    if len(unknown):
        yield f"constraints/kind holds {int(unknown[0])}, which is no type and operator"
    n_sets, n_atoms = np.diff(c.set_offsets), np.diff(v.atom_offsets)
    listed = np.isin(kind, [k for k, op in known.items() if op in LISTS])
    atomic = np.isin(kind, [k for k, op in known.items() if op in ATOM_OPS])
    limit = np.select([listed, atomic], [n_sets[name], n_atoms[name]], v.n_codes[name])
    if np.any(np.maximum.reduceat(c.hi, starts) >= limit) or np.any(c.lo > c.hi):
        yield "constraints/lo and constraints/hi are not an interval of codes, a set or an atom of their name"
    if int(c.set_codes.max(initial=0)) >= int(v.n_codes.max(initial=1)):
        yield "sets/codes holds an unknown code"


def _first_rows(offsets: Array) -> Array:
    """bool[offsets[-1]]: is a row the first of its list?"""
    first = np.zeros(int(offsets[-1]) + 1, bool)
    first[offsets] = True
    return first[:-1]


def _rows_ascend(table: Table) -> bool:
    c = table.constraints
    tied = ~_first_rows(c.offsets)[1:]  # row i and i + 1 are on one name, and equal in the columns so far
    for column in (c.kind, c.lo, c.hi, c.filter_id):
        a, b = column[:-1], column[1:]
        if np.any(tied & (a > b)):
            return False
        tied &= a == b
    return True


def _counts(ids: Array, n: int) -> Array:
    """i64[n]: how often each id occurs; in blocks, because `bincount` makes a 64-bit copy of what it is given."""
    counts = np.zeros(n, np.int64)
    for at in range(0, len(ids), VALIDATED_AT_ONCE):
        np.add.at(counts, ids[at : at + VALIDATED_AT_ONCE], 1)
    return counts


def _ascends(pairs: Array) -> bool:
    return bool(np.all(pairs))


def _ascends_within(offsets: Array, pairs: Array) -> bool:
    """Does every list ascend, when `pairs` says for each item but the last whether it is below the next?"""
    return bool(np.all(pairs | _first_rows(offsets)[1:])) if len(pairs) else True
