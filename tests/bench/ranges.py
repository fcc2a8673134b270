"""`keyed` with and without its bitmap, by turns in one process: what tables of ranges gain.

    python tests/bench/ranges.py [SCENARIO ...] [--filters N] [--events 2000] [--repetitions 9] [-o records.jsonl]

One thread.  Both engines match the same batch again and again, taking turns; the clock is that of the process's own time,
so that other programs on the machine count little.  Their answers must be equal, and the counting engine judges some.  One
JSON line for each scenario: microseconds an event of both (median, least, most), the median of the ratios of turns,
candidates and matches for each event, bytes of the bitmap's rows for each of its filters.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[i]) for i in (1, 2)]

from bench.keeping import keep

from mpi_match.engines import open_engine
from mpi_match.engines.keyed.cpu import Keyed, consolidated
from mpi_match.lab.bench.workload import Workload
from mpi_match.lab.workloads.scenarios import SCENARIOS

LINES_EVENTS = 200
"""Events that the slower engine matches in a turn: its time is that of a scan."""
JUDGED = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", default=["intervals", "intervals-narrow", "stock", "packets"])
    parser.add_argument("--filters", type=int)
    parser.add_argument("--events", type=int, default=2000)
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    for name in options.scenarios:
        keep(measured(name, options.filters, options.events, options.repetitions), options.output)


def measured(name: str, n_filters: int | None, n_events: int, repetitions: int) -> dict[str, Any]:
    """The record of one scenario.  Raises AssertionError for a wrong answer."""
    scenario = SCENARIOS[name] if n_filters is None else SCENARIOS[name].scaled(n_filters)
    workload = Workload.of(scenario, n_events, 0)
    table, events, some = workload.table, workload.events, workload.events[:LINES_EVENTS]
    open_engine("keyed", table, threads=1)  # compiles
    engines = {
        "bitmap": (Keyed(table, threads=1), events),
        "lists": (Keyed(table, threads=1, built=consolidated(table, live=False, with_bitmap=False)), some),
    }
    answers = {which: engine.match(batch) for which, (engine, batch) in engines.items()}
    assert engines["bitmap"][0].match(some) == answers["lists"], "they differ"
    judge = open_engine("counting", table).match(events[:JUDGED])
    assert engines["bitmap"][0].match(events[:JUDGED]) == judge, "counting says otherwise"
    spent: dict[str, list[float]] = {which: [] for which in engines}
    candidates = dict.fromkeys(engines, 0.0)
    for turn in range(repetitions):
        for which in sorted(engines, reverse=bool(turn % 2)):
            engine, batch = engines[which]
            before, began = engine.candidates, time.process_time()
            engine.match(batch)
            spent[which].append((time.process_time() - began) / len(batch) * 1e6)
            candidates[which] = (engine.candidates - before) / len(batch)
    bitmap = engines["bitmap"][0].bitmap
    in_bitmap = len(bitmap.filters)
    return {
        "what": "ranges",
        "scenario": scenario.name,
        "n_filters": table.n_filters,
        "in_bitmap": in_bitmap,
        "row_bytes": bitmap.rows.bits.nbytes / max(in_bitmap, 1),
        "us": {
            which: {"median": statistics.median(times), "min": min(times), "max": max(times)}
            for which, times in spent.items()
        },
        "ratio": statistics.median(a / b for a, b in zip(spent["lists"], spent["bitmap"], strict=True)),
        "candidates_per_event": candidates,
        "matches_per_event": answers["bitmap"].n_matches / n_events,
        "checked": {"lists": LINES_EVENTS, "counting": JUDGED},
    }


if __name__ == "__main__":
    main()
