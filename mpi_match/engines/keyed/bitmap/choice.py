"""Chooses the filters of a table that go into the bitmap: those for which a bit in each row costs less than a list entry.

    in lists       the chance that an event has the filter's key, and so tests the filter.  It is estimated as in
                   `index.features`, but at least as the fraction of the table's filters that have the key: events may
                   combine names as filters do
    in the bitmap  a 512th of a line in each column, for every event, and a verification if all of its rows have the bit

Costs are in units of one failed verification.  If few interfaces are matched by many filters, an event soon has matched all
of them and reads no more lists, so lists cost less.  The bitmap as a whole must save more than entering an event into it
costs.  If few filters then remain for the lists, they also go into the bitmap, provided that costs less than walking the
trie.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import inlined, jit
from mpi_match.compute.parallel import ROW, in_stretches, stretch_of
from mpi_match.engines.keyed.bitmap.bins import Bins
from mpi_match.engines.keyed.bitmap.rows import Bitmap, chances
from mpi_match.engines.keyed.grid.predicates import checks_of
from mpi_match.engines.keyed.index.build import without_area
from mpi_match.engines.keyed.index.features import choose_features
from mpi_match.engines.keyed.index.filter_rows import ABSENT, ROW_KIND, ROW_NAME, CodedFilters, FilterRows
from mpi_match.engines.keyed.index.layout import hash_of
from mpi_match.engines.keyed.index.value_classes import ValueClasses
from mpi_match.table.kinds import OP_MASK
from mpi_match.table.table import Table

ROW_COST = 0.0003
"""Cost of a filter's bit in one row, in failed verifications.  Measured, as all of these costs: reading a line of a row
takes 3 ns, verifying a candidate 20 ns."""
LEAST_COLUMNS = 4
ENTERING_COST, COLUMN_COST = 4.0, 1.0
"""Least savings of a bitmap, in failed verifications: per event, and per column."""
WALK_COST, ATTRIBUTE_COST = 2.0, 1.2
"""Cost of walking a trie, and of looking up an attribute's features, in failed verifications."""
FEW_FILTERS = 8
"""Most filters of a table that is treated as opened only to compile code: the code for bitmaps is compiled for it, too."""
PRUNED = 0.25
"""Fraction of the lines that an event reads, if they hold few filters."""
_hash_of = inlined(hash_of)


class DividedFilters(NamedTuple):
    """The filters of a table without areas, u32: those in lists, and the bitmap of the others, or None."""

    listed: Array
    bitmap: Bitmap | None


def divide(table: Table, rows: FilterRows, weight: Array, classes: ValueClasses) -> DividedFilters:
    """Choose the filters of the bitmap from the weights of their features, and build it."""
    filters = np.flatnonzero(without_area(table)).astype(ROW)
    width = float(np.mean(table.filters.size)) if table.n_filters else 0.0
    in_lists = _list_costs(table, rows, (weight, classes), width)
    if 0 < table.n_filters <= FEW_FILTERS:
        _ready(table, rows, filters)
    candidates = filters[in_lists[filters] > LEAST_COLUMNS * ROW_COST]
    if in_lists[candidates].sum() <= ENTERING_COST:
        return DividedFilters(filters, None)
    coded = _Coded.of(table, rows, candidates)
    saved, n_columns = coded.saved(in_lists[candidates]), len(coded.bins.n_bins)
    chosen = candidates[saved > 0]
    if saved[saved > 0].sum() <= ENTERING_COST + COLUMN_COST * n_columns:
        return DividedFilters(filters, None)
    if PRUNED * ROW_COST * n_columns * (len(filters) - len(chosen)) < WALK_COST + ATTRIBUTE_COST * width:
        chosen = filters
    if len(chosen) != len(candidates):
        coded = _Coded.of(table, rows, chosen)
    if not coded.bins.n_rows:
        return DividedFilters(filters, None)
    return DividedFilters(np.setdiff1d(filters, chosen, assume_unique=True), coded.bitmap())


def _ready(table: Table, rows: FilterRows, filters: Array) -> None:
    """Compile the code that builds a bitmap before a larger table of this type needs it."""
    coded = _Coded.of(table, rows, filters)
    coded.saved(np.zeros(len(filters)))
    if coded.bins.n_rows:
        coded.bitmap().remove(np.zeros(0, np.int64))


class _Coded(NamedTuple):
    """Some filters, their bins, and their checks: places in `words`, and the bits of a code."""

    filters: Array
    bins: Bins
    places: Array
    words: Array
    shift: int

    @classmethod
    def of(cls, table: Table, rows: FilterRows, filters: Array) -> _Coded:
        return cls(filters, Bins.of(rows, filters), *checks_of(table, rows, filters), table.vocabulary.shift)

    def saved(self, in_lists: Array) -> Array:
        """f64[n]: the cost that the bitmap saves for each filter, compared with the lists."""
        chance = np.empty(len(self.places), np.float32)
        in_stretches(len(chance), chances, self.places, self.words, self.shift, self.bins, chance)
        return np.asarray(in_lists * (1.0 - 2.0 * chance) - ROW_COST * len(self.bins.n_bins))

    def bitmap(self) -> Bitmap:
        return Bitmap.of(self.bins, self.filters, self.places, self.words, self.shift)


def _list_costs(table: Table, rows: FilterRows, features: tuple[Array, ValueClasses], width: float) -> Array:
    """f64[n_filters]: how often an event of `width` attributes tests each filter if it is in a list."""
    weight, classes = features
    chosen, likelihood = choose_features(rows, weight, classes)
    cost, matched = np.empty(table.n_filters), np.empty(table.n_filters)
    n_alike = np.zeros(1 << (4 * table.n_filters).bit_length(), np.uint32)
    _count_alike(chosen, n_alike)
    in_stretches(table.n_filters, _fill_costs, rows.coded, chosen, weight, width, (likelihood, n_alike), (cost, matched))
    return np.asarray(cost * min(1.0, table.n_interfaces / max(float(matched.sum()), 1.0)))


@jit
def _count_alike(chosen: Array, n_alike: Array) -> None:
    """Count the filters of each key, by its hash."""
    for key in chosen:
        n_alike[_place_of_key(key, n_alike)] += np.uint32(1)


@inlined
def _place_of_key(key: Any, n_alike: Array) -> np.uint64:
    hashed = np.uint64(0)
    for feature in key:
        hashed = _hash_of(hashed ^ np.uint64(np.uint32(feature)))
    return hashed & np.uint64(len(n_alike) - 1)


@jit
def _fill_costs(
    stretch: int,
    n_stretches: int,
    filters: CodedFilters,
    chosen: Array,
    weight: Array,
    width: float,
    known: tuple[Array, Array],
    filled: tuple[Array, Array],
) -> None:
    """Fill `cost` and `matched`, f64: the chances that an event has each filter's key, and that it matches the filter."""
    (offsets, records, _), (likelihood, n_alike), (cost, matched) = filters, known, filled
    for f in stretch_of(len(cost), stretch, n_stretches):
        cost[f] = 1.0
        for feature in chosen[f]:
            cost[f] *= min(weight[feature] * width, 1.0) if feature >= 0 else 1.0
        cost[f] = max(cost[f], n_alike[_place_of_key(chosen[f], n_alike)] / len(cost))
        matched[f], last = np.exp(likelihood[f]), np.int64(-1)
        for row in range(offsets[f], offsets[f + 1]):
            name = np.int64(records[row, ROW_NAME])
            if name != last and records[row, ROW_KIND] & OP_MASK != ABSENT:
                matched[f] *= min(weight[name] * width, 1.0)
            last = name
