"""The checks that are verified in the grid, filter by filter, in the format of `postings`.

    words    ... | interface, counts, 0, words, checks ... | interface, ...
                   ^ the filter's place

No check is left out, because the key under which a filter was found proves nothing.  Checks of the table's filters refer to
shared operand lists.  An added filter has its own copies right after its checks, also if it is a long filter.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, Int
from mpi_match.compute.compile_cache import jit, nested
from mpi_match.compute.parallel import ROW
from mpi_match.engines.entries import can_serve
from mpi_match.engines.keyed.grid.bucket_keys import SlotKeys
from mpi_match.engines.keyed.index.filter_rows import FilterRows
from mpi_match.engines.keyed.index.postings import COUNT_BITS, HEADER, LONG_HEADER, MAX_CHECKS, Postings, fill_lists
from mpi_match.errors import EngineError
from mpi_match.table.table import Table


class Added(NamedTuple):
    """The filters that changes add: the places of their checks in `words`, their lengths in words including operand lists,
    their keys (`SlotKeys`) and their areas (NaN for none)."""

    places: Array
    words: Array
    lengths: Array
    keys: SlotKeys
    areas: Array

    @classmethod
    def of(cls, table: Table, rows: FilterRows, keys: SlotKeys) -> Added:
        """The filters of a table, from its rows and their keys."""
        places, words = checks_of(table, rows, np.arange(table.n_filters))
        areas = np.full((table.n_filters, 3), np.nan)
        areas[table.filters.area_filter] = table.filters.area
        return cls(places, words, _whole_lengths(places, words), keys, areas)

    @classmethod
    def none(cls, packed: np.dtype) -> Added:
        """An empty set of filters, for a table of this packed type."""
        places, lengths, key = (np.zeros(0, dtype) for dtype in (np.uint32, np.int64, np.uint64))
        return cls(places, np.zeros(0, packed), lengths, SlotKeys(np.zeros(1, np.int64), key), np.zeros((0, 3)))


@nested
def _checks_at(at: Int, words: Array) -> tuple[int, int, range]:
    """For the filter at a place: the first word of its checks, their end, and the words that refer to operand lists."""
    counts, first = np.int64(words[at + 1]), at + HEADER
    n_pairs, n_sets = (counts & MAX_CHECKS) + (counts >> COUNT_BITS & MAX_CHECKS), counts >> 2 * COUNT_BITS
    if words[at + 2] > 1:
        first = np.int64(words[at + 2]) >> 1
        n_pairs, n_sets = np.int64(words[first - 3]) + np.int64(words[first - 2]), np.int64(words[first - 1])
    end = first + 2 * (n_pairs + n_sets)
    return first, end, range(first + 2 * n_pairs + 1, end, 2)


@jit
def _whole_lengths(places: Array, words: Array) -> Array:
    """Words of each filter, i64: header, checks (also of a long filter), and the operand lists that they refer to."""
    found = np.empty(len(places), np.int64)
    for i in range(len(places)):
        at = np.int64(places[i])
        first, end, references = _checks_at(at, words)
        found[i] = HEADER + end - first + (LONG_HEADER if first != at + HEADER else 0)
        for reference in references:
            found[i] += 1 + np.int64(words[np.int64(words[reference]) >> 1])
    return found


@nested
def enter_checks(at: Int, words: Array, interface: Int, to: Int, target: Array) -> None:
    """Copy the filter at `words[at]` to `target[to]`, with the given interface, followed by its operand lists."""
    first, end, references = _checks_at(at, words)
    target[to : to + HEADER] = words[at : at + HEADER]
    target[to] = interface
    behind = to + HEADER
    if first != at + HEADER:
        target[behind : behind + LONG_HEADER] = words[first - LONG_HEADER : first]
        behind += LONG_HEADER
        target[to + 2] = behind << 1
    shift = behind - first
    target[behind : behind + end - first] = words[first:end]
    behind += end - first
    for reference in references:
        listed = np.int64(words[reference])
        place = listed >> 1
        n = 1 + np.int64(words[place])
        target[behind : behind + n] = words[place : place + n]
        target[reference + shift] = behind << 1 | listed & 1
        behind += n


def checks_of(table: Table, rows: FilterRows, filters: Array) -> tuple[Array, Array]:
    """The place u32[n] of each filter's checks, none of them implied by a key, and the words (`postings`)."""
    no_key, no_rank = np.empty((len(filters), 0), np.uint32), np.empty(0, np.uint32)
    postings = Postings(filters.astype(ROW), np.full(len(filters), -1, np.int32), no_key, no_rank)
    lists, words = fill_lists(table, rows, postings, np.arange(len(filters) + 1, dtype=ROW))
    if len(words) >= 2**31:
        raise EngineError(f"the table's filters with areas have 2^31 words of checks or more; {can_serve('any size')}")
    return (lists + np.uint64(1)).astype(np.uint32), words


def lengths(places: Array, words: Array) -> Array:
    """Words of each filter's checks."""
    return words[places.astype(np.int64) - 1].astype(np.int64) - 1
