"""Keys made of the features that filters are indexed by, in the order of the posting lists.

    features of each filter      expanded, one value of a list each     ranks, ascending       sorted
    f0   temp, city              f0          temp, city                 3 1  ->  1 3           1 3   f0
    f1   city in (a, b)          f1, list 0  city=a                     0        0             0     f1, list 0
                                 f1, list 0  city=b                     2        2             2     f1, list 0

A filter has one key, or one for each class of the values of one `in` (`value_classes`).  Features in use are ranked from
rare to frequent, so that an ascending key begins with its rarest feature.  Sorting makes the rows of one key adjacent, which
forms the lists, and also keys with a common prefix, which forms the trie (`index.layout`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import jit
from mpi_match.compute.parallel import MAX_ROWS, in_stretches, running_sum, stable_order, stretch_of, take
from mpi_match.engines.entries import can_serve
from mpi_match.engines.keyed.index.features import NONE
from mpi_match.engines.keyed.index.filter_rows import FilterRows
from mpi_match.engines.keyed.index.value_classes import ValueClasses
from mpi_match.errors import EngineError

LIKELIHOOD_BITS = 16
"""Bits to which likelihoods are rounded."""


class Expanded(NamedTuple):
    """The E pairs of a filter and the features of one of its keys.

    filter_id  u32[E]
    set_id     i32[E]         operand list that one of the features is a value of, or -1
    features   i32[E, depth]  padded with -1
    """

    filter_id: Array
    set_id: Array
    features: Array


class OperandLists(NamedTuple):
    """The operand lists of a table by classes: see `FilterRows.set_first`, and `ValueClasses` for the others."""

    first: Array
    offsets: Array
    codes: Array


class PackedColumns(NamedTuple):
    """The columns `first` to `last` of a key, of `width` bits each, packed into one word; NONE becomes `none`."""

    first: int
    last: int
    width: int
    none: int


def expand(filters: Array, chosen: Array, depth: int, rows: FilterRows, classes: ValueClasses) -> Expanded:
    """Make one key for each of `filters`, or, for a filter with an operand list, one for each class of the list.

    A key consists of the first `depth` features of `chosen`, i32[n_filters, K].  Raises EngineError for 2^32 keys.
    """
    copies = np.empty(len(filters), np.uint32)
    in_stretches(len(filters), _count_copies, filters, chosen, depth, np.diff(classes.offsets), rows.n_features, copies)
    places = running_sum(copies)
    if places[-1] > MAX_ROWS:
        raise EngineError(f"keyed would need 2^32 index entries or more for the table; {can_serve('any size')}")
    n = places[-1]
    expanded = Expanded(np.empty(n, np.uint32), np.empty(n, np.int32), np.empty((n, depth), np.int32))
    lists = OperandLists(rows.set_first, classes.offsets, classes.codes)
    in_stretches(len(filters), _expand, filters, chosen, places, lists, rows.n_features, expanded)
    return expanded


@jit
def _count_copies(
    stretch: int,
    n_stretches: int,
    filters: Array,
    chosen: Array,
    depth: int,
    set_size: Array,
    n_features: int,
    copies: Array,
) -> None:
    """Count the keys of each filter."""
    for i in stretch_of(len(filters), stretch, n_stretches):
        n = np.int64(1)
        for d in range(depth):
            if chosen[filters[i], d] >= n_features:
                n = set_size[chosen[filters[i], d] - n_features]
        copies[i] = n


@jit
def _expand(
    stretch: int,
    n_stretches: int,
    filters: Array,
    chosen: Array,
    places: Array,
    lists: OperandLists,
    n_features: int,
    expanded: Expanded,
) -> None:
    """Fill `expanded`, in which filter i has the rows places[i] to places[i + 1]."""
    (set_first, set_offsets, set_codes), (filter_id, set_id, features) = lists, expanded
    for i in stretch_of(len(filters), stretch, n_stretches):
        for at in range(places[i], places[i + 1]):
            filter_id[at], set_id[at] = filters[i], -1
            for d in range(features.shape[1]):
                feature = np.int64(chosen[filters[i], d])
                if feature >= n_features:
                    set_id[at] = feature - n_features
                    code = set_codes[set_offsets[feature - n_features] + at - places[i]]
                    feature = set_first[feature - n_features] + np.int64(code)
                features[at, d] = feature


def rank_features(features: Array, weight: Array) -> Array:
    """u32[P]: the rank of each feature in use, from rare to frequent; NONE for the others."""
    used = np.zeros(len(weight), bool)
    in_stretches(len(features), _mark_used, features, used)
    ids = np.flatnonzero(used)
    bits = weight[ids].view(np.uint64)  # non-negative doubles sort like their bits
    rank = np.full(len(weight), NONE, np.uint32)
    rank[ids[stable_order(bits, int(bits.max(initial=0)))]] = np.arange(len(ids), dtype=np.uint32)
    return rank


@jit
def _mark_used(stretch: int, n_stretches: int, features: Array, used: Array) -> None:
    """Set used[f] for features that occur; threads that write the same item write the same value."""
    for at in stretch_of(len(features), stretch, n_stretches):
        for d in range(features.shape[1]):
            if features[at, d] >= 0 and not used[features[at, d]]:
                used[features[at, d]] = True


def make_keys(features: Array, feature_rank: Array) -> Array:
    """u32[E, depth]: the ranks of the features, ascending within a row, padded with NONE."""
    keys = np.empty(features.shape, np.uint32)
    in_stretches(len(keys), _rank_and_sort, features, feature_rank, keys)
    return keys


@jit
def _rank_and_sort(stretch: int, n_stretches: int, features: Array, feature_rank: Array, keys: Array) -> None:
    """Fill `keys`."""
    for at in stretch_of(len(keys), stretch, n_stretches):
        for d in range(keys.shape[1]):
            rank = feature_rank[features[at, d]] if features[at, d] >= 0 else NONE
            place = d
            while place > 0 and keys[at, place - 1] > rank:
                keys[at, place] = keys[at, place - 1]
                place -= 1
            keys[at, place] = rank


def order_of_lists(keys: Array, n_features: int, filter_id: Array, interface: Array, likelihood: Array) -> Array:
    """u32[E]: rows ordered by key, then by interface, then from the likeliest filter to the least likely, in 2^16 steps.

    Parameters: `keys` u32[E, depth] below n_features, or NONE, which comes last; `filter_id` u32[E]; `interface` u32 and
    `likelihood` f32 of every filter.
    """
    largest = int(interface.max(initial=0)) << LIKELIHOOD_BITS | (1 << LIKELIHOOD_BITS) - 1
    words = np.empty(len(keys), np.uint64)
    least, most = float(likelihood.min(initial=0)), float(likelihood.max(initial=-math.inf))
    steps = ((1 << LIKELIHOOD_BITS) - 1) / max(most - least, 1e-9)
    in_stretches(len(keys), _pack_likelihood, filter_id, interface, likelihood, most, steps, words)
    order = stable_order(words, largest)
    width = max(n_features.bit_length(), 1)
    together = 64 // width
    for last in range(keys.shape[1], 0, -together):
        columns = PackedColumns(max(last - together, 0), last, width, n_features)
        in_stretches(len(keys), _pack_columns, keys, order, columns, words)
        order = take(order, stable_order(words, (1 << width * min(last, together)) - 1))
    return order


@jit
def _pack_likelihood(
    stretch: int,
    n_stretches: int,
    filter_id: Array,
    interface: Array,
    likelihood: Array,
    most: float,
    steps: float,
    words: Array,
) -> None:
    """Fill `words`: interface << LIKELIHOOD_BITS | number of steps by which a filter is below the likeliest."""
    for at in stretch_of(len(words), stretch, n_stretches):
        f = filter_id[at]
        words[at] = np.int64(interface[f]) << LIKELIHOOD_BITS | np.int64((most - likelihood[f]) * steps)


@jit
def _pack_columns(stretch: int, n_stretches: int, keys: Array, order: Array, columns: PackedColumns, words: Array) -> None:
    """Fill `words` with columns of the keys in `order`."""
    first, last, width, none = columns
    for i in stretch_of(len(order), stretch, n_stretches):
        word = np.uint64(0)
        for d in range(first, last):
            word = word << np.uint64(width) | np.uint64(min(np.int64(keys[order[i], d]), np.int64(none)))
        words[i] = word
