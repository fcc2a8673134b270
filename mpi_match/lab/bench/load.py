"""Latency against offered load: an engine at rising shares of the rate that it serves, and the knee of the curve.

    closed loop    the rate that the engine serves when events do not wait for each other
    open loop      events that arrive at shares of that rate (`open_loop`): p50 to p99.9, waiting included; beyond it, the
                   load grows until it is not served any more

The knee is the load with the greatest power: the rate that is served over the time that 99 % of the events stay below
(Kleinrock, "Power and deterministic rules of thumb for probabilistic problems in computer communications", ICC 1979).
Below it the engine is often idle; above it events wait.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from mpi_match.lab.bench.engines import BenchOptions, KeptEngines, compare
from mpi_match.lab.bench.report import aligned
from mpi_match.lab.bench.workload import Workload
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.model import Json

SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1)
"""Offered load as shares of the rate of the closed loop."""
NEXT_LOAD, LARGEST_SHARE = 1.25, 4.0
"""The factor from a load that is served, above the rate of the closed loop, to the next one; the largest load."""
LEAST_SERVED = 0.9
"""A load is served if at least this share of it is."""
LEAST_RUN_S, MOST_RUN_S = 1.0, 2.0
"""Seconds that a run has to last, so that its latencies are not those of a moment; after which no more events arrive."""
LATENCIES = ("p50", "p99", "p99.9")


def measure_load(
    engine: str,
    scenario: str,
    options: BenchOptions,
    shares: Sequence[float] = SHARES,
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[Json]:
    """Measure an engine without load, then at each share of the rate that it served, and beyond; yields a record of each as
    soon as it is measured.

    `options.n_events` are the most events of a run.  A record is that of `compare` with `what` ("load") and `share` (None
    for the closed loop).  Raises what `compare` raises.
    """
    drawn = SCENARIOS[scenario] if options.n_filters is None else SCENARIOS[scenario].scaled(options.n_filters)
    workload, kept = Workload.of(drawn, options.n_events, options.seed), KeptEngines()
    tell("as fast as it can")
    (closed,) = compare(drawn, [engine], options, workload, kept=kept)
    found = [{**closed, "what": "load", "share": None}]
    yield found[0]
    for share in offered_shares(shares, found):
        rate = share * closed["events_per_s"]
        n_events = min(options.n_events, math.ceil(rate * MOST_RUN_S))
        if n_events != len(workload.events):
            workload = Workload.of(drawn, n_events, options.seed, workload)
        tell(f"{share:g} of {closed['events_per_s']:,.0f} events/s")
        (record,) = compare(drawn, [engine], replace(options, rate=rate), workload, kept=kept)
        found.append({**record, "what": "load", "share": share})
        yield found[-1]


def offered_shares(shares: Sequence[float], found: Sequence[Json]) -> Iterator[float]:
    """The shares of the closed loop's rate, in order; then, if they exceed it, larger ones for as long as the last record of
    `found` shows that its load was served.
    """
    yield from shares
    share = shares[-1]
    while (
        share >= 1 and share * NEXT_LOAD <= LARGEST_SHARE and found[-1]["events_per_s"] >= LEAST_SERVED * found[-1]["rate"]
    ):
        share *= NEXT_LOAD
        yield share


def knee_of(records: Sequence[Json]) -> int:
    """The number of the record with the greatest power, among those whose events arrived at a rate."""
    offered = [number for number, record in enumerate(records) if record["share"] is not None]
    return max(offered, key=lambda number: records[number]["events_per_s"] / records[number]["latency_us"]["p99"])


def load_table(records: Sequence[Json]) -> str:
    """The curve as text; `records` are all of a measurement."""
    knee = records[knee_of(records)]
    offered = [record for record in records if record["share"] is not None]
    rows = [
        [
            f"{record['share']:.2f}",
            f"{record['rate']:,.0f}",
            f"{record['events_per_s']:,.0f}",
            *(f"{record['latency_us'][name]:,.1f}" for name in LATENCIES),
            "knee" if record is knee else "",
        ]
        for record in offered
    ]
    shortest_s = min(record["n_events"] / record["rate"] for record in offered)
    needed = math.ceil(LEAST_RUN_S * max(record["rate"] for record in offered))
    notes = (
        f"# the knee has the most events/s for each microsecond of p99; {LEAST_SERVED:.0%} of a load count as served",
        f"# runs as short as {shortest_s:.2g} s: latencies vary; `--events {needed}` makes each last {LEAST_RUN_S:g} s"
        if shortest_s < LEAST_RUN_S
        else "",
    )
    head = ["Load", "Offered/s", "Served/s", *(f"{name} (us)" for name in LATENCIES), ""]
    return "\n".join([*aligned(head, rows), *filter(None, notes)])
