"""The number of rows of each filter, counted by all threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import jit, nested
from mpi_match.compute.parallel import in_stretches, stretch_of
from mpi_match.compute.search import lower_bound as lower_bound_of

lower_bound: Any = nested(lower_bound_of)


def add_rows(offsets: Array, filter_id: Array, counts: Array) -> None:
    """Add the number of rows u32 of each filter to `counts` i64[n]; the rows of a name, by offsets i64[n_names + 1],
    ascend."""
    in_stretches(len(counts), _add_rows, offsets, filter_id, counts)


@jit
def _add_rows(stretch: int, n_stretches: int, offsets: Array, filter_id: Array, counts: Array) -> None:
    """Add the rows of a stretch of the filters to `counts`."""
    mine = stretch_of(len(counts), stretch, n_stretches)
    for name in range(len(offsets) - 1):
        last = offsets[name + 1]
        row = lower_bound(filter_id, offsets[name], last, mine.start)
        while row < last and np.int64(filter_id[row]) < mine.stop:
            counts[filter_id[row]] += 1
            row += 1
