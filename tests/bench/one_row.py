"""One event as an object or as the bytes of its JSON, to the labels of its interfaces, in one process.

    python tests/bench/one_row.py [SCENARIO] [--filters 20000] [--events 20000] [--repetitions 5] [-o records.jsonl]

By turns: `RowMatcher.match` of bytes and of dicts, `LiveMatcher.match_one` of bytes, and what took its place before,
`make_batch` and `Engine.match` of a list of one dict; `keyed` with one thread.  All answers must be the same.  One JSON
line: µs, p50 and p99 of each (median of the repetitions).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[i]) for i in (1, 2)]

from bench.keeping import PYTHON, keep, last_json

from mpi_match import LiveMatcher, RowMatcher, make_batch, open_engine
from mpi_match.ingest.rows.judge import parse_json
from mpi_match.lab.workloads.files import LOCATION
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.table.table import Table


def timed(match: Callable[[Any], list[str]], rows: Sequence[Any]) -> tuple[dict[str, float], list[list[str]]]:
    """µs of each call, p50 and p99; and the answers."""
    took, answers = [], []
    for row in rows:
        began = time.perf_counter_ns()
        answer = match(row)
        took.append(time.perf_counter_ns() - began)
        answers.append(answer)
    p50, p99 = np.percentile(took, (50, 99)) / 1000
    return {"p50": float(p50), "p99": float(p99)}, answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", nargs="?", default="ccm")
    parser.add_argument("--filters", type=int, default=20_000)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    scenario = SCENARIOS[options.scenario].scaled(options.filters)
    location = LOCATION if scenario.area else None
    table = Table.from_subscriptions(scenario.subscriptions(0))
    engine = open_engine("keyed", table, threads=1)
    matcher = RowMatcher(table, engine, location=location)
    live = LiveMatcher(table, engine="keyed", threads=1)
    with tempfile.TemporaryDirectory() as directory:
        words = ["generate", options.scenario, "-o", directory, "--filters", "1000", "--format", "jsonl"]
        last_json([*PYTHON, "mpi_match", *words, "--events", str(options.events), "--json"])
        with (Path(directory) / "events.jsonl").open("rb") as handle:
            lines = [line.rstrip() for line in islice(handle, options.events)]
    objects = [parse_json(line) for line in lines]

    def in_a_list(row: Any) -> list[str]:
        return engine.match(make_batch(table, [row], location=location)).labels(table.labels)[0]

    ways: dict[str, tuple[Callable[[Any], list[str]], Sequence[Any]]] = {
        "bytes": (matcher.match, lines),
        "dict": (matcher.match, objects),
        "live_bytes": (lambda row: live.match_one(row, location=location), lines),
        "list_of_one_dict": (in_a_list, objects),
    }
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for _ in range(options.repetitions):
        same = None
        for way, (match, rows) in ways.items():
            took, answers = timed(match, rows)
            found[way].append(took)
            same = answers if same is None else same
            assert answers == same, f"{way}: the answers differ"
    record = {
        "what": "one row",
        "scenario": options.scenario,
        "filters": table.n_filters,
        "events": len(lines),
        "bytes": sum(map(len, lines)),
        "runs": options.repetitions,
        "us": {way: {p: statistics.median(run[p] for run in runs) for p in ("p50", "p99")} for way, runs in found.items()},
    }
    keep(record, options.output)


if __name__ == "__main__":
    main()
