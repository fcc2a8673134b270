"""Access constraints, and the order of filters in which those that ask for the same are neighbours.

The *access constraint* of a filter is the one that the fewest events should satisfy (the access predicate of Farroukh et
al.): a range of codes of one name.  Frequencies are estimated as in `cost_model`: a name is published as often as it is
subscribed to.  `absent`, and the names of parts of conditions, which an event only gets from an engine, give no access.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import jit
from mpi_match.operators import Form
from mpi_match.table.kinds import IS_KIND, KIND_OF_PRESENCE, OP_MASK, typed_forms
from mpi_match.table.range_reader import RangeReader
from mpi_match.table.virtual_names import part_places

ROUTED_CELLS = 64
"""Cells along each side of the plane."""
_CELL_BITS = 6
_EQUAL, _ATOM, _ABSENT = int(Form.EQUAL), int(Form.ATOM), int(Form.ABSENT)
_RANGES = 1 << Form.EQUAL | 1 << Form.BELOW | 1 << Form.ABOVE | 1 << Form.WITHIN | 1 << Form.PREFIX
"""Forms of rows with a range of codes."""
_NONE = -1


class _Keys(NamedTuple):
    """Names and then atoms, as packed attributes number them.

    offsets     i64[n_names + 1]   rows of each name
    n_codes     i64[n_keys]
    atoms       i64[n_names + 1]   key of the first atom of each name
    is_part     bool[n_names]      parts of conditions, which events only get from an engine
    """

    offsets: Array
    n_codes: Array
    atoms: Array
    is_part: Array


class Accesses(NamedTuple):
    """The access constraint of each filter: `key` i64 (-1: it has none), and its codes `lo` to `hi`, u32."""

    key: Array
    lo: Array
    hi: Array


class PlaneCells(NamedTuple):
    """Equal cells of a plane: cell (0, 0) begins at (`x`, `y`), and `scale` is the number of cells along a unit of length.
    Places beyond belong to the cells at the border."""

    x: float
    y: float
    scale: float


def accesses_of(table: RangeReader) -> Accesses:
    """The access constraints of all filters, those of parts too.  One pass over the file's constraints.

    Raises StorageError for a damaged file.
    """
    n, vocabulary = table.n_filters, table.vocabulary
    is_part = np.zeros(vocabulary.n_names, bool)
    is_part[part_places(vocabulary.names)] = True
    n_codes = np.append(table.n_codes, np.ones(vocabulary.n_atoms, np.int64))
    keys = _Keys(table.name_offsets, n_codes, vocabulary.n_names + vocabulary.atom_offsets, is_part)
    found = Accesses(np.full(n, _NONE), np.zeros(n, np.uint32), np.zeros(n, np.uint32))
    least = np.full(n, np.inf, np.float32)
    for first, kind, lo, hi, filter_id in table.rows():
        form = typed_forms(np.where(IS_KIND[kind], kind, KIND_OF_PRESENCE)) & OP_MASK
        _choose(keys, first, form, lo, hi, filter_id, found, least)
    return found


@jit
def _choose(
    keys: _Keys, first: int, form: Array, lo: Array, hi: Array, filter_id: Array, found: Accesses, least: Array
) -> None:
    """Keep for each filter the row that the fewest events should satisfy.  The rows of one operand form a run."""
    offsets, n_codes, atoms, is_part = keys
    row, name = 0, np.searchsorted(offsets, first, side="right") - 1
    while row < len(form):
        while offsets[name + 1] <= first + row:
            name += 1
        end = row
        while end < len(form) and first + end < offsets[name + 1] and form[end] == form[row] and lo[end] == lo[row]:
            end += 1
        n_rows = np.float32(offsets[name + 1] - offsets[name])
        is_atom, is_interval = form[row] == _ATOM, _RANGES >> form[row] & 1
        if form[row] == _ABSENT or is_part[name]:
            row = end
            continue
        for r in range(row, end):
            f = np.int64(filter_id[r])
            if (
                f >= len(least)
                or (is_interval and not lo[r] <= hi[r] < n_codes[name])
                or (is_atom and atoms[name] + lo[r] >= len(n_codes))
            ):
                continue  # a fault of the file, which is detected when its ranges are read
            often = np.float32(end - row) if is_atom or form[row] == _EQUAL else n_rows
            if is_interval and form[row] != _EQUAL:
                often *= np.float32(hi[r] - lo[r] + 1) / np.float32(n_codes[name])
            if often >= least[f]:
                continue
            least[f] = often
            found.key[f] = atoms[name] + lo[r] if is_atom else name
            found.lo[f] = lo[r] if is_interval else 0
            found.hi[f] = hi[r] if is_interval else (0 if is_atom else n_codes[name] - 1)
        row = end


def cells_of(circles: Array) -> PlaneCells:
    """Cells over the centres of circles f64[n, 3]; one cell where these are too far apart to be told apart."""
    if not len(circles):
        return PlaneCells(0.0, 0.0, 0.0)
    low, high = circles[:, :2].min(axis=0), circles[:, :2].max(axis=0)
    with np.errstate(over="ignore"):
        span = float((high - low).max())
    scale = ROUTED_CELLS / span if span > ROUTED_CELLS * np.finfo(np.float64).tiny else 0.0
    return PlaneCells(float(low[0]), float(low[1]), scale)


@jit
def cell_of(cells: PlaneCells, x: float, y: float) -> int:
    """The cell of a place: row times ROUTED_CELLS plus column.  Neither grows less when x or y grow, rounding included."""
    if not cells.scale > 0:
        return 0
    column, row = (x - cells.x) * cells.scale, (y - cells.y) * cells.scale
    column, row = min(max(column, 0.0), ROUTED_CELLS - 1.0), min(max(row, 0.0), ROUTED_CELLS - 1.0)
    return int(row) * ROUTED_CELLS + int(column)


@jit
def along_curve(cells: PlaneCells, circles: Array, found: Array) -> None:
    """Fill `found` i64[n] with the positions of the centres of circles f64[n, 3] along a Z-shaped curve through the
    cells."""
    for i in range(len(circles)):
        cell, position = cell_of(cells, circles[i, 0], circles[i, 1]), 0
        for bit in range(_CELL_BITS):
            position |= (cell >> bit & 1) << 2 * bit | (cell >> (_CELL_BITS + bit) & 1) << 2 * bit + 1
        found[i] = position


def order_of(accesses: Accesses, has_area: Array, circles: Array) -> Array:
    """i64[n]: the filters in the order in which they are cut into shards: without an area by access, with one by place.

    Parameters: `has_area` bool[n], and the areas f64[k, 3] of the k filters that have one.
    """
    position, along = np.full(len(has_area), _NONE), np.empty(len(circles), np.int64)
    along_curve(cells_of(circles), circles, along)
    position[has_area] = along
    found: Array = np.lexsort((accesses.lo, accesses.key, position))
    return found
