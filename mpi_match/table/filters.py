"""Columns of the filters of a table: number of constraints, interface, and optional area and id."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.arrays.strings import Strings
from mpi_match.table.constraints import FILTER_ID

INTERFACE_ID = np.dtype(np.uint32)


@dataclass(frozen=True)
class FilterColumns:
    """Columns of n filters.

    size          u32[n]    number of constraints
    interface     u32[n]    ascending
    area_filter   u32[k]    the filters that have an area, ascending
    area          f64[k, 3] their centre x, y and radius
    id_filter     u32[m]    the filters that have an id, ascending
    ids           Strings[m]
    """

    size: Array
    interface: Array
    area_filter: Array
    area: Array
    id_filter: Array
    ids: Strings

    @classmethod
    def of(cls, size: Array, interface: Array, area: Array, has_id: Array, ids: Strings, first: int = 0) -> FilterColumns:
        """From one row per filter, in table order.

        `area` f64[n, 3] is NaN for a filter without one; `has_id` i64[m] are the rows with an id, ascending; `first` is the
        id of the first row.
        """
        has_area = np.flatnonzero(~np.isnan(area[:, 2]))
        return cls(
            size=size.astype(np.uint32),
            interface=interface.astype(INTERFACE_ID),
            area_filter=(has_area + first).astype(FILTER_ID),
            area=np.ascontiguousarray(area[has_area]) + 0.0,
            id_filter=(has_id + first).astype(FILTER_ID),
            ids=ids,
        )
