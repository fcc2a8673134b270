"""Builds the index of a table, from its filters to its two arrays.

FilterRows ─► features ─► depth ─► keys ─► order ─► Trie ─► NODES, SLOTS, BITS, FEATURES
                                             └────► fill_lists ─► words (`postings`)
"""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.parallel import ROW, find_bounds, take, take_rows
from mpi_match.engines.keyed.index.features import NONE, choose_depth, choose_features
from mpi_match.engines.keyed.index.filter_rows import FilterRows
from mpi_match.engines.keyed.index.keys import expand, make_keys, order_of_lists, rank_features
from mpi_match.engines.keyed.index.layout import (
    BITS,
    CODES,
    ENTRIES,
    EQUALITY,
    FEATURES,
    FILTERS,
    HEADER_WORDS,
    N_BITS,
    N_FEATURES,
    N_SLOTS,
    N_VIRTUAL,
    NODE_WORDS,
    NODES,
    PRESENCE_FEATURES,
    ROOT,
    SHIFT,
    SLOTS,
    SLOTS_PER_WORD,
    KeyedIndex,
)
from mpi_match.engines.keyed.index.postings import Postings, fill_lists
from mpi_match.engines.keyed.index.trie import Trie
from mpi_match.engines.keyed.index.value_classes import ValueClasses
from mpi_match.table.table import Table


def build_index(
    table: Table, rows: FilterRows, weight: Array, classes: ValueClasses, filters: Array | None = None
) -> KeyedIndex:
    """Build the index of `filters` u32, by default all those without an area, from the table's rows and the weights of their
    features.

    An event is expected to have as many attributes as a filter has constraints.  Raises EngineError like `fill_lists`.
    """
    chosen, likelihood = choose_features(rows, weight, classes)
    some = chosen if filters is None else chosen[filters]
    if filters is None:
        filters = np.flatnonzero(without_area(table)).astype(ROW)
    depth = choose_depth(some, weight, float(np.mean(table.filters.size)) if table.n_filters else 0.0)
    filter_id, set_id, features = expand(filters, chosen, depth, rows, classes)
    feature_rank = rank_features(features, classes.weights(weight[: rows.n_features]))
    keys, n_features = make_keys(features, feature_rank), int(np.count_nonzero(feature_rank != NONE))
    feature_rank = classes.spread(feature_rank)
    trie = Trie.of(keys, n_features, order_of_lists(keys, n_features, filter_id, table.filters.interface, likelihood))
    n_slots = 1 << max(4, (2 * len(trie.sparse)).bit_length())
    index, sections = _lay_out(
        {
            SHIFT: table.vocabulary.shift,
            ROOT: trie.n_nodes - 1,
            N_FEATURES: n_features,
            N_BITS: n_slots // SLOTS_PER_WORD,
            N_SLOTS: n_slots,
            N_VIRTUAL: rows.n_virtual,
        },
        {
            PRESENCE_FEATURES: (np.uint32, rows.n_virtual),
            CODES: (np.uint32, rows.n_virtual + 1),
            EQUALITY: (np.uint32, rows.n_features - rows.n_virtual),
            NODES: (np.uint64, NODE_WORDS * trie.n_nodes),
            ENTRIES: (np.uint32, trie.n_nodes + 1),
            FILTERS: (np.uint32, len(trie.order)),
            BITS: (np.uint32, n_slots // SLOTS_PER_WORD),
            SLOTS: (np.uint64, 2 * n_slots),
            FEATURES: (np.uint32, len(trie.feature)),
        },
    )
    sections[PRESENCE_FEATURES][:], sections[EQUALITY][:] = feature_rank[: rows.n_virtual], feature_rank[rows.n_virtual :]
    sections[CODES][:], sections[FEATURES][:] = rows.code_offsets, trie.feature
    sections[FILTERS][:] = take(filter_id, trie.order)
    find_bounds(trie.node, sections[ENTRIES])
    sets = take(set_id.view(ROW), trie.order).view(np.int32)  # a single dtype, so that there is one to compile for
    postings = Postings(sections[FILTERS], sets, take_rows(keys, trie.order), feature_rank)
    lists, words = fill_lists(table, rows, postings, sections[ENTRIES])
    trie.write(lists, sections[NODES], sections[SLOTS], sections[BITS])
    return KeyedIndex(index, words, rows.n_virtual, depth)


def without_area(table: Table) -> Array:
    """bool[n_filters]: marks the filters without an area."""
    chosen = np.ones(table.n_filters, bool)
    chosen[table.filters.area_filter] = False
    return chosen


def _lay_out(numbers: dict[int, int], sections: dict[int, tuple[type, int]]) -> tuple[Array, dict[int, Array]]:
    """Allocate header and sections in one array u64, and return each section, still to be filled, from its dtype and
    length."""
    sizes = {key: -(-np.dtype(dtype).itemsize * length // 32) * NODE_WORDS for key, (dtype, length) in sections.items()}
    index = np.empty(HEADER_WORDS + sum(sizes.values()), np.uint64)
    index[:HEADER_WORDS] = 0
    for key, value in numbers.items():
        index[key] = value
    laid: dict[int, Array] = {}
    end = HEADER_WORDS
    for key, (dtype, length) in sections.items():
        start, end = end, end + sizes[key]
        index[end - min(sizes[key], NODE_WORDS) : end] = 0
        index[key] = start * 8 // np.dtype(dtype).itemsize
        laid[key] = index[start:end].view(dtype)[:length]
    return index, laid
