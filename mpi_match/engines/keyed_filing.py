"""Under which features is a filter filed?  Its rarest ones, as many as a cost model says.

How rare a feature is among events is not known when an index is built.  The subscriptions are the only evidence: names are
taken to be published as often as they are subscribed to, and values likewise.  A wrong guess costs time, never an answer.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from mpi_match.arrays import Array, offsets_of, owners, sums
from mpi_match.engines.keyed_rows import (
    ABSENT,
    EQ,
    EXISTS,
    FEATURE,
    HI,
    IN,
    LO,
    NAME,
    NE,
    NOT_IN,
    OP,
    SET,
    FilterRows,
    jit,
    parallel_jit,
)

NONE = np.uint32(0xFFFFFFFF)
"""No feature."""
MAX_DEPTH = 3
MAX_LIST = 16
"""An `in` of at most this many values files its filter once for each; a longer one is filed under its name."""
VISIT_COST, VERIFY_COST = 1.0, 2.0
"""Relative cost of visiting a node and of a candidate that fails."""


def feature_weights(rows: FilterRows) -> Array:
    """How often an event that has one attribute has each feature, f64[P + n_sets]; P + s is "a code of list s"."""
    n_virtual, n_features = rows.n_virtual, rows.n_features
    by_name, by_code, listed = np.zeros(n_virtual), np.zeros(n_features - n_virtual), np.zeros(len(rows.set_size))
    _count_features(rows.records, by_name, by_code, listed)
    by_name /= max(by_name.sum(), 1.0)
    in_list = np.repeat(rows.set_first, rows.set_size) + rows.set_codes
    np.add.at(by_code, in_list - n_virtual, np.repeat(listed / np.maximum(rows.set_size, 1), rows.set_size))
    name_of_code = owners(rows.code_offsets)
    total = np.maximum(np.bincount(name_of_code, by_code, minlength=n_virtual), 1.0)
    by_code *= (by_name / total)[name_of_code]
    weight = np.concatenate([by_name, by_code])
    return np.concatenate([weight, sums(weight[in_list], rows.set_offsets)])


@jit
def _count_features(records: Array, by_name: Array, by_code: Array, listed: Array) -> None:
    """Count the rows that ask for each name, for each value of a name, and for one of each operand list."""
    for record in records:
        if record[FEATURE] >= 0:
            by_name[record[NAME]] += 1
        if record[OP] == EQ:
            by_code[record[FEATURE] - len(by_name)] += 1
        elif record[OP] == IN:
            listed[record[SET]] += 1


def choose_features(rows: FilterRows, weight: Array) -> tuple[Array, Array]:
    """Each filter's rarest features i64[n_filters, MAX_DEPTH] and how likely it is to match f32[n_filters] (`_choose`)."""
    n_filters = len(rows.offsets) - 1
    chosen, likelihood = np.full((n_filters, MAX_DEPTH), -1, np.int64), np.zeros(n_filters, np.float32)
    _choose(rows.offsets, rows.records, weight, rows.set_size, np.diff(rows.code_offsets), chosen, likelihood)
    return chosen, likelihood


@parallel_jit
def _choose(
    offsets: Array, records: Array, weight: Array, set_size: Array, n_codes: Array, chosen: Array, likelihood: Array
) -> None:
    """Fill `chosen` and `likelihood`.

    chosen       i64[n_filters, K]  the rarest features, rarest first, at most one per name; -1 where there are fewer.  P + s
                 stands for "a code of operand list s": at most one of those, and only for short lists
    likelihood   f32[n_filters]  logarithm of the chance that an event with all its names satisfies the filter, each code
                 equally likely
    """
    n_features = len(weight) - len(set_size)
    depth = chosen.shape[1]
    for f in numba.prange(len(offsets) - 1):
        n_chosen, has_set = 0, False
        row, end = offsets[f], offsets[f + 1]
        while row < end:
            best, name = np.int64(-1), records[row, NAME]
            while row < end and records[row, NAME] == name:  # the rows of a filter are in the order of their names
                op, candidate = records[row, OP], np.int64(records[row, FEATURE])
                likelihood[f] += _log_chance(records[row], set_size, n_codes)
                if op == IN and set_size[records[row, SET]] <= MAX_LIST and not has_set:
                    candidate = n_features + records[row, SET]
                if candidate >= 0 and (best < 0 or weight[candidate] < weight[best]):
                    best = candidate
                row += 1
            at = n_chosen
            while best >= 0 and at > 0 and weight[best] < weight[chosen[f, at - 1]]:
                at -= 1
            if best < 0 or at == depth:
                continue
            has_set = has_set or bool(best >= n_features)
            for i in range(min(n_chosen, depth - 1), at, -1):
                chosen[f, i] = chosen[f, i - 1]
            chosen[f, at] = best
            n_chosen = min(n_chosen + 1, depth)


@jit
def _log_chance(record: Array, set_size: Array, n_codes: Array) -> float:
    """Logarithm of the share of its name's codes that satisfy a constraint; 0 for those that nearly every code satisfies."""
    op = record[OP]
    if op in (NE, NOT_IN, ABSENT, EXISTS):
        return 0.0
    width = set_size[record[SET]] if op == IN else record[HI] - record[LO] + 1
    return math.log(width / n_codes[record[NAME]])


def choose_depth(chosen: Array, weight: Array, width: float) -> int:
    """How many features a key should have, for events of `width` attributes.

    With keys of d features an event meets C(d) candidates: the sum, over the filters, of the probability that it has all of
    the key.  Of the nodes of level d it visits at most C(d), and at most as many as there are combinations of its features.
    The cheapest d is taken.
    """
    probability = np.where(chosen >= 0, np.minimum(np.append(weight, 0.0)[chosen] * width, 1.0), 1.0)
    candidates = [float(p) for p in np.cumprod(probability, axis=1).sum(axis=0)]
    costs, visits, combinations = [], 0.0, 1.0
    for depth in range(1, chosen.shape[1] + 1):
        combinations *= max(2.0 * width - depth + 1, 1.0) / depth
        visits += min(candidates[depth - 1], combinations)
        costs.append(VISIT_COST * visits + VERIFY_COST * candidates[depth - 1])
    return int(np.argmin(costs)) + 1


def expand(filters: Array, chosen: Array, rows: FilterRows) -> tuple[Array, Array, Array]:
    """One filed row for each of `filters`, or for each value of the operand list in its key.

    Returns the rows' filters, operand lists (or -1) and features.
    """
    n_features = rows.n_features
    is_set = chosen >= n_features
    set_of = np.where(is_set, chosen - n_features, -1).max(axis=1, initial=-1)
    copies = np.where(set_of >= 0, rows.set_size[set_of] if len(rows.set_size) else 1, 1)
    place = np.repeat(np.arange(len(chosen)), copies)
    features, filed_set = chosen[place], set_of[place]
    spread = np.flatnonzero(filed_set >= 0)
    if len(spread):
        starts = offsets_of(copies)[:-1]
        s = filed_set[spread]
        code = rows.set_codes[rows.set_offsets[s] + (spread - starts[place[spread]])]
        column = is_set[place[spread]].argmax(axis=1)
        features[spread, column] = rows.set_first[s] + code
    return filters[place], filed_set, features


def rank_features(features: Array, weight: Array) -> Array:
    """u32[P]: the features in use numbered from rare to frequent, NONE for the others."""
    used = np.zeros(len(weight), bool)
    used[features[features >= 0]] = True
    ids = np.flatnonzero(used)
    rank = np.full(len(weight), NONE, np.uint32)
    rank[ids[np.argsort(weight[ids], kind="stable")]] = np.arange(len(ids), dtype=np.uint32)
    return rank
