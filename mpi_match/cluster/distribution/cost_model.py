"""Estimates the work that each filter costs, from the table alone, for dividing a table among workers.

An engine that indexes filters by their rarest features (`registry.Entry.cost_class`: "indexed") verifies a filter when an
event has all of them.  The subscriptions are the only evidence of that frequency: a name is assumed to be published as often
as it is subscribed to, and so is the operand of `=`.  So the work of a filter is

    the product of its up to three rarest features, at most one of a name     1 for a filter without any
    × the share of the plane that its circle's square takes                   if it has an area
    × how often its interface is not yet matched then                         if answers are interfaces: after a match, an
                                                                              engine skips the interface's other filters
    + a constant                                                              every filter makes index and caches larger

A large table is sampled: only the first filter of every 2, 4, ... consecutive ones (a *grain*) counts.  So the estimate
takes some megabytes, however large the table.

An engine that scans ("scanned") evaluates every constraint on the event's names: its work is the sum, over the constraints,
of how often their names are published.

Measured with `keyed` on a table whose first quarter of filters has one or two constraints on popular names and the others
three to five on any: divided into four by count, the most loaded shard took 3.2 times the mean time for an event, divided by
this estimate 1.4 times; with such filters ever more frequent along the table, and with the published workloads, both stay
below 1.3.  A wrong estimate costs balance, never an answer.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import jit
from mpi_match.engines.registry import REGISTRY
from mpi_match.operators import Form
from mpi_match.table.kinds import IS_KIND, KIND_OF_PRESENCE, OP_MASK, typed_forms
from mpi_match.table.range_reader import RangeReader

DEPTH = 3
"""The most features that a filter is indexed by."""
PRESENCE_WORK = 0.15
"""The constant work of a filter, relative to the mean."""
_ABSENT = int(Form.ABSENT)
_FEATURES = 1 << Form.EQUAL | 1 << Form.ATOM
"""Forms with a feature of their own, besides that of their name."""
_INTERVALS = 1 << Form.BELOW | 1 << Form.ABOVE | 1 << Form.WITHIN | 1 << Form.PREFIX


class _Names(NamedTuple):
    """The names of a table: the first row of each and a last offset, the number of codes of each, and the number of
    attributes of an event."""

    offsets: Array
    n_codes: Array
    width: float


class _Rows(NamedTuple):
    """Consecutive constraints of a table, numbered from `first`; `kind` is that of `kinds.typed_forms`."""

    first: int
    kind: Array
    lo: Array
    hi: Array
    filter_id: Array


class _Estimate(NamedTuple):
    """The statistics of each grain.

    rarest       f32[n_grains, DEPTH]  how often an event has each of the rarest features, ascending
    last_name    i64[n_grains]         the name of the last feature
    scanned      f32[n_grains]         sum of how often an event has the names
    likelihood   f32[n_grains]         logarithm of how often an event matches, each code being equally likely
    """

    rarest: Array
    last_name: Array
    scanned: Array
    likelihood: Array

    @classmethod
    def empty(cls, n_grains: int) -> _Estimate:
        """No constraint has been counted."""
        rarest, last_name = np.ones((n_grains, DEPTH), np.float32), np.full(n_grains, -1, np.int64)
        return cls(rarest, last_name, np.zeros(n_grains, np.float32), np.zeros(n_grains, np.float32))


def work_of(table: RangeReader, engine: str, *, filters: bool = False) -> Array:
    """f64[n_grains]: the relative work of each grain of filters for an engine.  One pass over the file's constraints.

    An event is assumed to have as many attributes as a filter has constraints; `filters`: the answers are filters.
    Raises StorageError for a damaged file.
    """
    grain = table.grain
    sample = np.arange(0, table.n_filters, grain)
    n, width = len(sample), table.n_constraints / max(table.n_filters, 1)
    names, estimate = _Names(table.name_offsets, table.n_codes, width), _Estimate.empty(n)
    for rows in table.rows():
        first, kind, *others = rows
        _add(names, _Rows(first, typed_forms(np.where(IS_KIND[kind], kind, KIND_OF_PRESENCE)), *others), grain, estimate)
    if engine in REGISTRY and REGISTRY[engine].cost_class == "scanned":  # `auto` is of the other class
        return estimate.scanned.astype(np.float64)
    share = _shares_of_plane(*table.areas(sample))
    looked_at = estimate.rarest.prod(axis=1, dtype=np.float64) * share
    if not filters:
        interface = table.interfaces(sample)
        matches = grain * np.bincount(interface, np.exp(estimate.likelihood) * share, minlength=table.n_interfaces)
        # Of filters that are verified one after the other until one matches, when m should match: (1 - e^-m) / m of them.
        passed_over = np.where(matches > 1e-9, -np.expm1(-matches) / np.maximum(matches, 1e-9), 1.0)
        looked_at *= passed_over[interface]
    work: Array = looked_at + PRESENCE_WORK * looked_at.sum() / max(n, 1)
    return work


def _shares_of_plane(has_area: Array, circles: Array) -> Array:
    """f64[n]: the area of the square around a filter's circle, relative to that of all; 1 without a circle."""
    shares = np.ones(len(has_area))
    if len(circles):
        # scaled by a power of two, so that sums and products do not overflow
        circles = np.ldexp(circles, -2 - int(np.frexp(np.abs(circles).max())[1]))
        centre, radius = circles[:, :2], circles[:, 2:]
        plane = np.prod((centre + radius).max(axis=0) - (centre - radius).min(axis=0))
        shares[has_area] = 4 * radius[:, 0] ** 2 / plane if plane > 0 else 1.0
    return shares


@jit
def _add(names: _Names, rows: _Rows, grain: int, estimate: _Estimate) -> None:
    """Count rows.  The rows of one feature are consecutive and form a run."""
    offsets, n_codes, width = names
    first, kind, lo, hi, filter_id = rows
    rarest, last_name, scanned, likelihood = estimate
    total, name, row = offsets[-1], np.searchsorted(offsets, first, side="right") - 1, 0
    while row < len(kind):
        while offsets[name + 1] <= first + row:
            name += 1
        end, form = row, kind[row] & OP_MASK
        while end < len(kind) and first + end < offsets[name + 1] and kind[end] == kind[row] and lo[end] == lo[row]:
            end += 1
        published = min(width * (offsets[name + 1] - offsets[name]) / total, 1.0)
        has = published
        if _FEATURES >> form & 1:
            has = min(width * (end - row) / total, 1.0)
        elif form == _ABSENT:
            has = 1.0
        for r in range(row, end):
            f = np.int64(filter_id[r])
            if f & (grain - 1):
                continue
            f //= grain
            if f >= len(scanned):
                continue  # a fault of the file, which is detected when its ranges are read
            scanned[f] += published
            satisfies = has
            if _INTERVALS >> form & 1:
                satisfies *= (np.float64(hi[r]) - np.float64(lo[r]) + 1.0) / n_codes[name]
            likelihood[f] += math.log(max(satisfies, 1e-30))
            at = rarest.shape[1] - 1
            if last_name[f] == name or rarest[f, at] <= has:
                continue
            last_name[f] = name
            while at > 0 and rarest[f, at - 1] > has:
                rarest[f, at] = rarest[f, at - 1]
                at -= 1
            rarest[f, at] = has
        row = end
