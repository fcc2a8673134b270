"""Signatures that match by chance: how often they do, and what the formula of TagMatch's paper says.

    python tests/bench/tagmatch_false_positives.py [--filters 100000] [--events 2000] [-o records.jsonl]

Measured: pairs of query and set that the engine finds by their signatures and then sees to be wrong.  Predicted: the sum
over pairs of query and set of (1 - e^(-7 t / 192)) ^ (7 u), for a query of t tags that lacks u > 0 of the set's (section 3,
footnote 3).  One JSON line.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[i]) for i in (1, 2)]

from bench.keeping import keep

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import jit
from mpi_match.engines import open_engine
from mpi_match.engines.tagmatch.engine import TagMatch
from mpi_match.events.signatures import SIGNATURE_BITS, SIGNATURE_HASHES
from mpi_match.lab.bench.workload import Workload
from mpi_match.lab.workloads.scenarios import SCENARIOS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filters", type=int, default=100_000)
    parser.add_argument("--events", type=int, default=2000)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    keep(measured(options.filters, options.events), options.output)


def measured(n_filters: int, n_events: int) -> dict[str, Any]:
    """The record.  Raises AssertionError for a wrong answer."""
    scenario = SCENARIOS["tagmatch"].scaled(n_filters)
    workload = Workload.of(scenario, n_events, 0)
    engine = open_engine("tagmatch", workload.table, options={"variant": "cpu", "max_p": 2000})
    assert isinstance(engine, TagMatch)
    before = engine.candidates, engine.n_false_positives  # of the example that it was compiled with
    found = engine.match(workload.events)
    assert found == open_engine("keyed", workload.table).match(workload.events), "keyed says otherwise"
    candidates, wrong = (engine.candidates or 0) - (before[0] or 0), engine.n_false_positives - before[1]
    raw = scenario.events(n_events, 0)
    sizes = np.diff(raw.offsets)
    known = np.array([workload.table.vocabulary.name_id(name) for name in raw.names], np.int64)
    n_missing = missing_tags(raw.offsets, known[raw.name], workload.table.vocabulary.n_names, *engine.tags_of_sets)
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
    }


MOST_MISSING = 16


@jit
def missing_tags(offsets: Array, tag: Array, n_tags: int, tag_offsets: Array, tags: Array) -> Array:
    """How many sets lack 0, 1, 2, ... of their tags in each query, i64[n, MOST_MISSING]."""
    found, has = np.zeros((len(offsets) - 1, MOST_MISSING), np.int64), np.zeros(n_tags, np.uint8)
    for query in range(len(offsets) - 1):
        for k in range(offsets[query], offsets[query + 1]):
            if tag[k] >= 0:
                has[tag[k]] = 1
        for i in range(len(tag_offsets) - 1):
            missing = 0
            for k in range(tag_offsets[i], tag_offsets[i + 1]):
                missing += 1 - has[tags[k]]
            found[query, min(missing, MOST_MISSING - 1)] += 1
        has[:] = 0
    return found


if __name__ == "__main__":
    main()
