"""Checks candidates constraint by constraint, in compiled code, for engines that find them in their own way.

The arrays that it reads have the first numbers of an engine's table of pointers (`candidate_arrays`); filters are in the
engine's own order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of, take_ranges
from mpi_match.compute.array_pointers import line, rows, sheets
from mpi_match.compute.compile_cache import nested
from mpi_match.engines.keyed.index.filter_rows import (
    ABSENT,
    IN_LIST,
    LISTED,
    ROW_HI,
    ROW_KIND,
    ROW_LO,
    ROW_NAME,
    UNEQUAL,
    FilterRows,
)
from mpi_match.lab.baselines.event_by_event import is_in_area, lower_bound
from mpi_match.table.kinds import KIND_SHIFT, OP_MASK

(
    CANDIDATE_OFFSETS,
    CANDIDATE_RECORDS,
    CANDIDATE_CIRCLE,
    CANDIDATE_CIRCLES,
    CANDIDATE_SEGMENTS,
    CANDIDATE_SET_OFFSETS,
    CANDIDATE_SET_CODES,
    CANDIDATE_CODE_OF,
) = range(8)
N_CANDIDATE_ARRAYS = 8
OF_TABLE = (CANDIDATE_CIRCLES, CANDIDATE_SET_OFFSETS, CANDIDATE_SET_CODES)
"""The arrays that belong to the table."""
NO_CODE = -1
"""The code of a name that the event lacks."""
NO_INTERVAL = LISTED | 1 << UNEQUAL | 1 << ABSENT
"""Forms, as a set of bits, whose constraints are not plain intervals from `lo` to `hi`."""


def candidate_arrays(
    filter_rows: FilterRows, order: Array, circle: Array, circles: Array
) -> dict[int, tuple[Array, object]]:
    """The arrays that matches read, by number, each with its type.

    Parameters: `order` i64[n] of the filters; `circle` and `circles` as in `areas_of`.
    """
    offsets, records = filter_rows.offsets, filter_rows.records
    size = np.diff(offsets)[order]
    return {
        CANDIDATE_OFFSETS: (offsets_of(size), np.int64),
        CANDIDATE_RECORDS: (records[take_ranges(offsets[order], size)], np.uint32),
        CANDIDATE_CIRCLE: (circle[order] if len(circle) else circle, np.int32),
        CANDIDATE_CIRCLES: (circles, np.float64),
        CANDIDATE_SEGMENTS: (filter_rows.segments, np.int64),
        CANDIDATE_SET_OFFSETS: (filter_rows.set_offsets, np.int64),
        CANDIDATE_SET_CODES: (filter_rows.set_codes, np.uint32),
    }


def candidate_scratch(n_names: int) -> dict[int, tuple[Array, object]]:
    """The array that a match writes, by number, for `n` names and atoms."""
    return {CANDIDATE_CODE_OF: (np.full(n_names, NO_CODE, np.int64), np.int64)}


@nested
def note_codes(attributes: Array, shift: int, table: Array) -> Array:
    """Note the code of each name of an event; returns the names, for `forget_codes`."""
    code_of, packed = line(table, CANDIDATE_CODE_OF, np.int64), attributes.astype(np.int64)
    names, mask = packed >> shift, (np.int64(1) << shift) - 1
    for i in range(len(names)):
        code_of[names[i]] = packed[i] & mask
    return names


@nested
def forget_codes(names: Array, table: Array) -> None:
    """Forget the codes of an event."""
    code_of = line(table, CANDIDATE_CODE_OF, np.int64)
    for name in names:
        code_of[name] = NO_CODE


@nested
def _satisfies(code: Any, record: Any, table: Any) -> Any:
    """Returns whether a code satisfies a constraint that is not a plain interval."""
    kind, name = np.int64(record[ROW_KIND]), np.int64(record[ROW_NAME])
    form = kind & OP_MASK
    if form == ABSENT or code == NO_CODE:
        return (form == ABSENT) == (code == NO_CODE)
    lists, codes = line(table, CANDIDATE_SET_OFFSETS, np.int64), line(table, CANDIDATE_SET_CODES, np.uint32)
    low, inside = np.int64(record[ROW_LO]), False
    if LISTED >> form & 1:
        at = lower_bound(codes, lists[low], lists[low + 1], code)
        inside = at < lists[low + 1] and codes[at] == code
        if form == IN_LIST:
            return inside
    else:
        inside = low == code
    segments = sheets(table, CANDIDATE_SEGMENTS, np.int64)
    return not inside and segments[kind >> KIND_SHIFT, 0, name] <= code and code <= segments[kind >> KIND_SHIFT, 1, name]


@nested
def is_match(f: Any, event: Any, table: Any) -> Any:
    """Returns whether the event with the noted codes satisfies every constraint of filter f and lies in its area.

    Stops at the first unsatisfied constraint.
    """
    offsets, records = line(table, CANDIDATE_OFFSETS, np.int64), rows(table, CANDIDATE_RECORDS, np.uint32)
    code_of = line(table, CANDIDATE_CODE_OF, np.int64)
    for r in range(offsets[f], offsets[f + 1]):
        code, form = code_of[records[r, ROW_NAME]], records[r, ROW_KIND] & OP_MASK
        if NO_INTERVAL >> form & 1:
            if not _satisfies(code, records[r], table):
                return False
        elif code < records[r, ROW_LO] or code > records[r, ROW_HI]:
            return False
    return is_in_area(f, event, line(table, CANDIDATE_CIRCLE, np.int32), rows(table, CANDIDATE_CIRCLES, np.float64))
