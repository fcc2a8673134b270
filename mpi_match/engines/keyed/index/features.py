"""Feature selection: a filter is indexed by its rarest features, as many as a cost model chooses.

The frequency of features among events is unknown when an index is built.  It is estimated from the subscriptions: names are
assumed to be published as often as they are subscribed to, and likewise values.  A wrong estimate costs time but never
changes an answer.
"""

from __future__ import annotations

import math

import numpy as np

from mpi_match.arrays.csr import Array, owners, sums
from mpi_match.compute.compile_cache import jit
from mpi_match.compute.parallel import in_stretches, stretch_of
from mpi_match.engines.keyed.index.filter_rows import (
    ABSENT,
    EXISTS,
    IN_LIST,
    OUT_OF_LIST,
    ROW_HI,
    ROW_KIND,
    ROW_LO,
    ROW_NAME,
    UNEQUAL,
    CodedFilters,
    FilterRows,
    feature_of,
)
from mpi_match.engines.keyed.index.value_classes import ValueClasses
from mpi_match.table.kinds import OP_MASK

NONE = np.uint32(0xFFFFFFFF)
"""Value that means no feature."""
MAX_KEY_FEATURES = 3
VISIT_COST, VERIFY_COST = 1.0, 2.0
"""Relative costs of visiting a node, and of verifying a candidate that fails."""
COST_OF_EVENT, COST_OF_ATTRIBUTE = 80.0, 8.0
"""Costs of an event and of each of its attributes beside the search, in the same unit (about 4 ns on a CPU)."""
WORTHWHILE = 1.05
"""A longer key is chosen if all costs with a shorter one would be more than this many times those with it."""
_BROAD = 1 << UNEQUAL | 1 << OUT_OF_LIST | 1 << ABSENT | 1 << EXISTS
"""Forms that nearly every code satisfies, as a set of bits."""
FILTERS_AT_ONCE = 2**14
"""Filters whose probabilities are summed together, so that the sum does not depend on the number of threads."""


def feature_weights(rows: FilterRows) -> Array:
    """f64[P + n_sets]: the probability that an event of one attribute has each feature; P + s is "a code of list s"."""
    n_virtual = rows.n_virtual
    by_name, by_code = rows.asked[:n_virtual].astype(np.float64), rows.asked[n_virtual:].astype(np.float64)
    by_name /= max(by_name.sum(), 1.0)
    in_list = np.repeat(rows.set_first, rows.set_size) + rows.set_codes
    np.add.at(by_code, in_list - n_virtual, np.repeat(rows.listed / np.maximum(rows.set_size, 1), rows.set_size))
    name_of_code = owners(rows.code_offsets)
    total = np.maximum(np.bincount(name_of_code, by_code, minlength=n_virtual), 1.0)
    by_code *= (by_name / total)[name_of_code]
    weight = np.concatenate([by_name, by_code])
    return np.concatenate([weight, sums(weight[in_list], rows.set_offsets)])


def choose_features(rows: FilterRows, weight: Array, classes: ValueClasses) -> tuple[Array, Array]:
    """Each filter's rarest features i32[n_filters, MAX_KEY_FEATURES], and its `likelihood` f32[n_filters], see `_choose`."""
    n_filters = len(rows.offsets) - 1
    chosen, likelihood = np.empty((n_filters, MAX_KEY_FEATURES), np.int32), np.empty(n_filters, np.float32)
    n_codes = np.diff(rows.code_offsets)
    lists = rows.set_size, classes.is_filed
    in_stretches(n_filters, _choose, rows.coded, weight, lists, n_codes, chosen, likelihood)
    return chosen, likelihood


@jit
def _choose(
    stretch: int,
    n_stretches: int,
    filters: CodedFilters,
    weight: Array,
    lists: tuple[Array, Array],
    n_codes: Array,
    chosen: Array,
    likelihood: Array,
) -> None:
    """Fill `chosen` and `likelihood`.

    chosen       i32[n_filters, K]  the rarest features, rarest first, at most one per name, padded with -1.  P + s is "a
                 code of operand list s": at most one of those, and only of lists that are filed
    likelihood   f32[n_filters]  logarithm of the chance that an event with all its names satisfies the filter, if all codes
                 are equally likely; forms that nearly every code satisfies count as certain
    """
    (offsets, records, first_feature), (set_size, is_filed) = filters, lists
    n_features = len(weight) - len(set_size)
    depth = chosen.shape[1]
    for f in stretch_of(len(offsets) - 1, stretch, n_stretches):
        n_chosen, has_set = 0, False
        logarithm, chance = 0.0, 1.0
        row, end = offsets[f], offsets[f + 1]
        while row < end:
            best, name = np.int64(-1), records[row, ROW_NAME]
            while row < end and records[row, ROW_NAME] == name:  # the rows of a filter are ordered by name
                form, lo = records[row, ROW_KIND] & OP_MASK, np.int64(records[row, ROW_LO])
                candidate = feature_of(form, np.int64(name), lo, first_feature[name])
                if form == IN_LIST:
                    chance *= set_size[lo] / n_codes[name]
                elif not _BROAD >> form & 1:
                    chance *= (np.int64(records[row, ROW_HI]) - lo + 1) / n_codes[name]
                if chance < 1e-250:  # take the logarithm from time to time, before a product of many becomes zero
                    logarithm, chance = logarithm + math.log(chance), 1.0
                if form == IN_LIST and is_filed[lo] and not has_set:
                    candidate = n_features + lo
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
        for i in range(n_chosen, depth):
            chosen[f, i] = -1
        likelihood[f] = logarithm + math.log(chance)


def choose_depth(chosen: Array, weight: Array, width: float) -> int:
    """The number of features that a key should have, for events of `width` attributes.

    With keys of d features an event meets C(d) candidates: the sum, over the filters, of the probability that it has the
    whole key.  It visits at most C(d) nodes of level d, and never more than it has combinations of features.  The
    shortest key is chosen that is worth no longer one (`WORTHWHILE`): an event may have many times `width` attributes, for
    example the parts of conditions that it meets, and each node with children costs it a search among all of them.
    """
    sums_of_blocks = np.zeros((-(-len(chosen) // FILTERS_AT_ONCE), chosen.shape[1]))
    in_stretches(len(chosen), _count_candidates, chosen, weight, width, sums_of_blocks)
    candidates = sums_of_blocks.sum(axis=0).tolist()
    costs, visits, combinations = [], 0.0, 1.0
    for depth in range(1, chosen.shape[1] + 1):
        combinations *= max(2.0 * width - depth + 1, 1.0) / depth
        visits += min(candidates[depth - 1], combinations)
        costs.append(VISIT_COST * visits + VERIFY_COST * candidates[depth - 1])
    whole = COST_OF_EVENT + COST_OF_ATTRIBUTE * width + np.array(costs)
    return int(np.argmax(whole <= WORTHWHILE * whole.min())) + 1


@jit
def _count_candidates(stretch: int, n_stretches: int, chosen: Array, weight: Array, width: float, candidates: Array) -> None:
    """Fill `candidates` f64[n_blocks, K] with the expected number of a block's filters that an event meets under keys of 1
    to K features."""
    for block in stretch_of(len(candidates), stretch, n_stretches):
        for f in range(block * FILTERS_AT_ONCE, min((block + 1) * FILTERS_AT_ONCE, len(chosen))):
            probability = 1.0
            for d in range(chosen.shape[1]):
                if chosen[f, d] >= 0:
                    probability *= min(weight[chosen[f, d]] * width, 1.0)
                candidates[block, d] += probability
