"""One event, as an object or as the bytes of its JSON, to the labels of its interfaces: the latency of a call."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from mpi_match.api import RowMatcher, make_batch
from mpi_match.engines import open_engine
from mpi_match.environment.machine import origin
from mpi_match.ingest.rows.judge import parse_json
from mpi_match.lab.bench.engines import require
from mpi_match.lab.bench.read.events import UNREAD_FILTERS, ReadPlan
from mpi_match.lab.workloads.files import LOCATION, kept_workload
from mpi_match.live import LiveMatcher
from mpi_match.model import Json
from mpi_match.table.table import Table


def _timed(match: Callable[[Any], list[str]], rows: Sequence[object]) -> tuple[dict[str, float], list[list[str]]]:
    """The p50 and p99 of the calls, in microseconds; and the answers."""
    took, answers = [], []
    for row in rows:
        began = time.perf_counter_ns()
        answer = match(row)
        took.append(time.perf_counter_ns() - began)
        answers.append(answer)
    p50, p99 = np.percentile(took, (50, 99)) / 1000
    return {"p50": float(p50), "p99": float(p99)}, answers


def measure_rows(plan: ReadPlan, directory: Path) -> Json:
    """The record of a scenario: `keyed` with one thread, called with bytes, with dicts, and with lists of one dict.

    Raises WrongAnswer when the answers differ.
    """
    scenario = plan.drawn_from
    location = LOCATION if scenario.area else None
    table = Table.from_subscriptions(scenario.subscriptions(0))
    engine = open_engine("keyed", table, threads=1)
    matcher = RowMatcher(table, engine, location=location)
    live = LiveMatcher(table, engine="keyed", threads=1)
    kept_workload(scenario.scaled(UNREAD_FILTERS), directory, plan.n_events, 0, "jsonl")
    with (directory / "events.jsonl").open("rb") as handle:
        lines = [line.rstrip() for line in islice(handle, plan.n_events)]
    objects = [parse_json(line) for line in lines]

    def match_list(row: Json) -> list[str]:
        return engine.match(make_batch(table, [row], location=location)).labels(table.labels)[0]

    ways: dict[str, tuple[Callable[[Any], list[str]], Sequence[object]]] = {
        "bytes": (matcher.match, lines),
        "dict": (matcher.match, objects),
        "live_bytes": (lambda row: live.match_one(row, location=location), lines),
        "list_of_one_dict": (match_list, objects),
    }
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for _ in range(plan.repetitions):
        expected = None
        for way, (match, rows) in ways.items():
            took, answers = _timed(match, rows)
            found[way].append(took)
            expected = answers if expected is None else expected
            require(answers == expected, f"{way}: the answers differ")
    return {
        "what": "one row",
        "scenario": plan.scenario,
        "filters": table.n_filters,
        "events": len(lines),
        "bytes": sum(map(len, lines)),
        "runs": plan.repetitions,
        "us": {way: {p: statistics.median(run[p] for run in runs) for p in ("p50", "p99")} for way, runs in found.items()},
        **origin(),
    }
