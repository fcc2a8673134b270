"""Filters are added to a live table until its engine has to grow: how long matching pauses meanwhile.

    python tests/bench/growth.py [--engine keyed_cuda] [--scenario clcb] [--filters 2500000] [--more 0.5] [--at-once 100]
                                 [--bound MS] [-o records.jsonl]

Filters like those of the table, at random places, are added so many at once, until there are more by the share `--more`;
after every such update an event is matched.  One JSON line:

    update_ms, event_ms   an update, and the event right behind it: at the middle, in the tail, at worst
    table_ms              time of the names in Python (`LiveTable.apply`), which is not the engine's
    same_ms               work that is always the same (`pauses`)
    worst                 the five longest of each: after how many filters had come, and how their time was spent (`pauses`)
    filter_us             an added filter, by all updates together

Half way and in the end answers are judged (`live_judge`).  With `--bound`, the bench fails when an update
or an event took longer.
"""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from bench.crowd import identified
from bench.end_to_end import keep
from bench.live_judge import judge
from bench.pauses import Pauses

from mpi_match.changes.live_table import LiveTable
from mpi_match.engines import open_engine
from mpi_match.ingest.rows import ChangeRow
from mpi_match.model import Area, Change
from mpi_match.table.table import Table
from mpi_match.workloads.sampling import Sampler, radius_of
from mpi_match.workloads.scenarios import SCENARIOS, Scenario

CONTENTS = 2000
"""Filters of the table, whose contents the added ones have in turn."""
EVENTS = 1000
PARTS = ("table", "update", "event")
"""What is timed in each round."""
LEAST = 20_000
"""Filters of the table that comes first."""


def growing(scenario: Scenario, engine_name: str, more: float, at_once: int) -> dict[str, Any]:
    """Add filters until there are more by a share; what it took, and what was judged."""
    table = identified(Table.from_subscriptions(scenario.subscriptions(0)))
    live = LiveTable(table)
    engine = open_engine(engine_name, live.table, live=True)
    events = scenario.event_range(0, EVENTS)
    batch = events.encode(table.vocabulary)
    rng = np.random.default_rng(7)
    contents = [table.filter(i) for i in range(CONTENTS)]
    places, radius = Sampler(scenario.place_exponent), radius_of(scenario.area)
    n_calls = max(round(more * table.n_filters / at_once), 2)
    judged = 0
    engine.match(batch[:1])
    gc.collect()  # as a worker does, so that the collector does not scan millions of ids
    gc.freeze()
    with Pauses(*PARTS) as pauses:
        for call in range(n_calls):
            rows = []
            for i, (x, y) in enumerate(places.draw(rng, at_once).tolist(), call * at_once):
                item = contents[i % CONTENTS]._replace(area=Area(x, y, radius), id=f"came-{i}")
                rows.append(ChangeRow(Change.ADD, filters=(item,)))
            event = batch[call % EVENTS : call % EVENTS + 1]
            pauses.start()
            changes = live.apply(rows, [])
            pauses.stop()
            assert changes is not None, "the contents are the table's, so its vocabulary has what they ask for"
            engine.update(changes)
            pauses.stop()
            engine.match(event)
            pauses.stop()
            pauses.keep(call * at_once)
            if call in (n_calls // 2, n_calls - 1):
                judged += judge(live, engine, events, batch, rng)
    return {
        "engine": engine.name,
        "device": engine.device,
        "n_filters": table.n_filters,
        "came": n_calls * at_once,
        "at_once": at_once,
        **{f"{part}_ms": pauses.spread(part) for part in pauses.parts},
        "worst": {part: pauses.longest(part) for part in pauses.parts},
        "filter_us": round(pauses.total_ms("update") / (n_calls * at_once) * 1e3, 2),
        "answers_judged": judged,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="keyed", help="one that takes changes")
    parser.add_argument("--scenario", default="clcb", choices=sorted(n for n, s in SCENARIOS.items() if s.area))
    parser.add_argument("--filters", type=int, default=2_500_000)
    parser.add_argument("--more", type=float, default=0.5, help="filters that come, as a share of those that are there")
    parser.add_argument("--at-once", type=int, default=100)
    parser.add_argument("--bound", type=float, help="milliseconds that no update and no event may take")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    scenario = SCENARIOS[options.scenario].scaled(options.filters)
    growing(scenario.scaled(LEAST), options.engine, options.more, options.at_once)  # everything is compiled
    record: dict[str, Any] = {"what": "growth", "scenario": scenario.name}
    record |= growing(scenario, options.engine, options.more, options.at_once)
    keep(record, options.output)
    longest = max(record["update_ms"]["max"], record["event_ms"]["max"])
    if options.bound is not None and longest > options.bound:
        raise SystemExit(f"matching stood still for {longest} ms, more than {options.bound}")


if __name__ == "__main__":
    main()
