"""Measures how often signatures of `tagmatch` match by chance, beside the formula of TagMatch's paper.

Measured are the pairs of query and set that the engine finds by their signatures and then rejects.  Predicted is the sum
over pairs of query and set of (1 - e^(-7 t / 192)) ^ (7 u), for a query of t tags that lacks u > 0 tags of the set
(section 3, footnote 3).
"""

from __future__ import annotations

import math

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import jit
from mpi_match.engines import open_engine
from mpi_match.engines.tagmatch.engine import TagMatch
from mpi_match.environment.machine import origin
from mpi_match.events.signatures import SIGNATURE_BITS, SIGNATURE_HASHES
from mpi_match.lab.bench.engines import require
from mpi_match.lab.bench.workload import Workload
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.model import Json

_COUNTS = 16
"""Counts for each query; the last one is of sets with at least 15 missing tags."""


def measure_false_positives(n_filters: int, n_events: int) -> Json:
    """The record of `n_filters` tag sets and `n_events` queries.  Raises WrongAnswer."""
    scenario = SCENARIOS["tagmatch"].scaled(n_filters)
    workload = Workload.of(scenario, n_events, 0)
    engine = open_engine("tagmatch", workload.table, options={"variant": "cpu", "max_p": 2000})
    assert isinstance(engine, TagMatch)
    before = engine.candidates, engine.n_false_positives  # includes the example that compiles it
    found = engine.match(workload.events)
    judge = open_engine("keyed", workload.table)
    require(found == judge.match(workload.events), "the answers of tagmatch and of keyed differ")
    candidates, wrong = (engine.candidates or 0) - (before[0] or 0), engine.n_false_positives - before[1]
    raw = scenario.events(n_events, 0)
    sizes = np.diff(raw.offsets)
    known = np.array([workload.table.vocabulary.name_id(name) for name in raw.names], np.int64)
    n_missing = _missing_tags(raw.offsets, known[raw.name], workload.table.vocabulary.n_names, *engine.tags_of_sets)
    chance = 1 - np.exp(-SIGNATURE_HASHES * sizes / SIGNATURE_BITS)
    terms = [n_missing[:, u] * chance ** (SIGNATURE_HASHES * u) for u in range(1, n_missing.shape[1])]
    return {
        "what": "false positives",
        "n_filters": n_filters,
        "n_sets": engine.n_sets,
        "n_events": n_events,
        "tags_per_query": float(sizes.mean()),
        "right_per_query": (candidates - wrong) / n_events,
        "measured_per_query": wrong / n_events,
        "predicted_per_query": math.fsum(np.concatenate(terms)) / n_events,
        **origin(),
    }


@jit
def _missing_tags(offsets: Array, tag: Array, n_tags: int, tag_offsets: Array, tags: Array) -> Array:
    """For each query the numbers of sets that have 0, 1, 2, ... tags that it lacks, i64[n, _COUNTS]."""
    found, has = np.zeros((len(offsets) - 1, _COUNTS), np.int64), np.zeros(n_tags, np.uint8)
    for query in range(len(offsets) - 1):
        for k in range(offsets[query], offsets[query + 1]):
            if tag[k] >= 0:
                has[tag[k]] = 1
        for i in range(len(tag_offsets) - 1):
            missing = 0
            for k in range(tag_offsets[i], tag_offsets[i + 1]):
                missing += 1 - has[tags[k]]
            found[query, min(missing, _COUNTS - 1)] += 1
        has[:] = 0
    return found
