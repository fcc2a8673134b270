"""What the grid of `keyed` verifies: the checks of one filter after the other, as `keyed_lists` writes them.

    words    ... | interface, counts, 0, words, checks ... | interface, ...
                   ^ the filter's place

None of them is left out, because nothing relies on the key under which a filter was found.  Those of the table's filters
refer to operand lists that all share; an added filter brings its own, right behind its checks, and they go with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpi_match.arrays import Array
from mpi_match.engines import EngineError
from mpi_match.engines.keyed_lists import COUNT_BITS, HEADER, MAX_CHECKS, fill_lists
from mpi_match.engines.keyed_rows import FilterRows
from mpi_match.table import Table


@dataclass(frozen=True)
class Added:
    """The filters that changes bring: where their checks are in `words`, their keys and areas (NaN for none)."""

    places: Array
    words: Array
    keys: Array
    areas: Array

    @classmethod
    def of(cls, table: Table, rows: FilterRows, keys: Array) -> Added:
        """From the table that holds them, its rows and their keys."""
        places, words = checks_of(table, rows, np.arange(table.n_filters))
        areas = np.full((table.n_filters, 3), np.nan)
        areas[table.filters.area_filter] = table.filters.area
        return cls(places, words, keys, areas)

    def checks(self, row: int, interface: int) -> Array:
        """A filter's words, and behind them the operand lists that it refers to; references count from the first word."""
        at = int(self.places[row])
        own = self.words[at : at - 1 + int(self.words[at - 1])].copy()
        own[0] = interface
        lists, end = [own], len(own)
        for place in references(own):
            listed = int(own[place])
            first = listed >> 1
            lists.append(self.words[first : first + 1 + int(self.words[first])])
            own[place] = end << 1 | listed & 1
            end += len(lists[-1])
        return np.concatenate(lists)

    @staticmethod
    def relocate(checks: Array, place: int) -> None:
        """Let the references of a filter whose words begin at `place` count from the first of all words."""
        for at in references(checks):
            checks[at] = (place << 1) + int(checks[at])


def references(words: Array) -> range:
    """Where a filter's words refer to operand lists."""
    counts = int(words[1])
    n_pairs, n_sets = (counts & MAX_CHECKS) + (counts >> COUNT_BITS & MAX_CHECKS), counts >> 2 * COUNT_BITS
    return range(HEADER + 2 * n_pairs + 1, HEADER + 2 * (n_pairs + n_sets), 2)


def checks_of(table: Table, rows: FilterRows, filters: Array) -> tuple[Array, Array]:
    """Place of each filter's checks u32[n], none of which a key implies, and the words (`keyed_lists`)."""
    no_key = np.empty((len(filters), 0), np.uint32)
    lists, words = fill_lists(
        table, rows, filters, np.full(len(filters), -1), no_key, np.empty(0, np.uint32), np.arange(len(filters) + 1)
    )
    if len(words) >= 2**31:
        raise EngineError("the filters with areas have 2^31 words of checks or more; engine 'counting' can serve the table")
    return (lists + np.uint64(1)).astype(np.uint32), words


def lengths(places: Array, words: Array) -> Array:
    """Words of each filter's checks."""
    return words[places.astype(np.int64) - 1].astype(np.int64) - 1
