"""Geometry of the grid: maps circles, points and names to levels, cells, steps within a cell, and home blocks in the table.

`hash_grid` has a picture.  Each function is compiled for the CPU here and for GPUs in `kernels.grid` (`device_twin`): both
must compute the same number, whichever operations a compiler fuses.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpi_match.arrays.csr import Int
from mpi_match.compute.compile_cache import inlined, nested
from mpi_match.engines.keyed.index.layout import hash_of

EVERYWHERE = 2047
"""Level of filters without an area, or with one too large for cells."""
N_LEVELS = 2048
LOW = np.uint64(0xFFFFFFFF)
IN_BITMAP = LOW
"""Bucket key of a filter that has bits in a bitmap instead of an entry in the grid (`bitmap.live_bitmap`)."""
N_GROUPS = 2**12
"""Number of name groups.  An event with more triples of names than this looks all groups up."""

_BIAS = 1000
_ORIGIN = 2**51
_FAR = 1e15
_WIDE = 1e150
_2_40, _2_46 = 2.0**-40, 2.0**-46
_STEPS = 128.0
MIDDLE = 128
_WIDEST = 255
_hash = inlined(hash_of)


def n_threes(n: int) -> int:
    """Number of name groups that an event of `n` attributes looks up."""
    return min(n * (n - 1) * (n - 2) // 6, N_GROUPS)


@nested
def reach_of(x: float, y: float, r: float) -> float:
    """A radius that contains a circle in doubles (`model.inside`) despite rounding, and that is large enough for a level
    >= 0.

    Factors are powers of two, here and below: the result is the same whether or not a compiler fuses operations.
    """
    return r + _2_40 * r + _2_46 * abs(x) + _2_46 * abs(y) + 1e-150


@nested
def level_of(x: float, y: float, r: float) -> int:
    """Level of a circle: its cells are 2^(level - 1000) wide, at least 2 and less than 4 times its reach."""
    if r < 0.0 or not r < _WIDE:
        return EVERYWHERE
    reach = reach_of(x, y, r)
    if not reach < _WIDE:
        return EVERYWHERE
    return math.frexp(2.0 * reach)[1] + _BIAS


@nested
def scale_of(level: Int) -> float:
    """Cells per unit of length, a power of two, so that multiplying by it is exact."""
    return math.ldexp(1.0, int(_BIAS - level))


@nested
def cell_of(value: float, scale: float) -> np.int64:
    """Number of the column (or row) of cells that contains a coordinate; -1 for a coordinate beyond all circles of the
    level."""
    scaled = value * scale
    if abs(scaled) < _FAR:
        return np.int64(math.floor(scaled)) + _ORIGIN
    return np.int64(-1)


@nested
def step_of(value: float, scale: float, cell: Int) -> Any:
    """A coordinate in 128ths of a cell's side, counted from half a side before the cell; at most 255."""
    offset = value * scale - np.float64(cell - _ORIGIN) + 0.5
    return min(max(np.int64(offset * _STEPS), np.int64(0)), np.int64(_WIDEST))


@nested
def name_bit(name: Int) -> np.uint64:
    """The bit of a name in the Bloom filters, u64."""
    return np.uint64(1) << (_hash(np.uint64(name)) >> np.uint64(61))


@nested
def group_of(a: Int, b: Int, c: Int) -> np.int64:
    """The name group of three names, which ascend."""
    return np.int64(_hash(np.uint64(a) << np.uint64(42) ^ np.uint64(b) << np.uint64(21) ^ np.uint64(c)) >> np.uint64(52))


@nested
def hash_of_cell(level: Int, column: Int, row: Int) -> np.uint64:
    """Hash of a cell, u64."""
    mixed = _hash(np.uint64(column))
    mixed = _hash(mixed ^ np.uint64(row))
    return _hash(mixed ^ np.uint64(level))


@nested
def home_of(cell: np.uint64, key: Int, sub_bucket: Int, mask: np.uint64) -> np.int64:
    """Home block of a cell (its hash), a bucket key and its sub-bucket."""
    return np.int64(_hash(cell ^ (np.uint64(key) << np.uint64(12) | np.uint64(sub_bucket))) & mask)


@nested
def span_of(x: Any, y: Any, r: Any) -> tuple:
    """The cells that a circle touches: `(level, scale, first column, first row, columns, rows)`."""
    level = level_of(x, y, r)
    if level == EVERYWHERE:
        return np.int64(level), 0.0, np.int64(0), np.int64(0), np.int64(1), np.int64(1)
    scale, reach = scale_of(level), reach_of(x, y, r)
    column, row = cell_of(x - reach, scale), cell_of(y - reach, scale)
    columns, rows = cell_of(x + reach, scale) - column + 1, cell_of(y + reach, scale) - row + 1
    return np.int64(level), scale, column, row, columns, rows


@nested
def entry_of(slot: Int, names: np.uint64, x: Any, y: Any, r: Any, scale: float, column: Int, row: Int) -> np.uint64:
    """The entry of a circle in one of its cells; `names` u64 is the Bloom filter."""
    if scale == 0.0:
        near = _WIDEST << 16 | MIDDLE << 8 | MIDDLE
    else:
        wide = min(np.int64(reach_of(x, y, r) * scale * _STEPS) + 3, np.int64(_WIDEST))
        near = wide << 16 | step_of(y, scale, row) << 8 | step_of(x, scale, column)
    return np.uint64(slot + 1) << np.uint64(32) | names << np.uint64(24) | np.uint64(near)


@nested
def may_hold(entry: np.uint64, x: Int, y: Int, absent: Int) -> Any:
    """Tells whether the filter of an entry may match an event at a point, given in steps of the cell.

    `absent` has the bits of the Bloom filter that none of the event's names has.  A GPU multiplies 32 bits faster than 64.
    """
    near = np.int64(entry & LOW)
    dx, dy, r = (near & 255) - x, (near >> 8 & 255) - y, near >> 16 & 255
    return (near >> 24 & absent) == 0 and np.uint32(dx * dx + dy * dy) <= np.uint32(r * r)
