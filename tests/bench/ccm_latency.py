"""How long CCM or CLCB takes for one event, and how many events a batch matches per second, answers checked in the same run.

    python tests/bench/ccm_latency.py [--engine ccm] [--workload ccm] [--filters N] [--events 4000] [--batch-events 65536]

One JSON object per line on standard output.  Needs a GPU.  What is timed:

    match     engine.match(batch of one event): from encoded attributes in memory to the answer in memory, host's clock
    graph     only the driver: copy in, kernels, copy out, wait, without writing the event and reading the answer
    batch     engine.match(a large batch): median of five, and the device time of its kernels

Every answer of the single events is compared with the batch's, and a sample of both with the counting engine's.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from mpi_match.engines import open_engine
from mpi_match.engines.ccm import engine as ccm
from mpi_match.engines.clcb import engine as clcb
from mpi_match.events.batch import EventBatch
from mpi_match.gpu.kernels import Graph, driver_versions
from mpi_match.matches.matches import Matches
from mpi_match.table.table import Table
from mpi_match.workloads.scenarios import SCENARIOS

WARM_UP = 200
CHECKED = 40


def show(**result: Any) -> None:
    """One line of output."""
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()


def spread(seconds: list[float]) -> dict[str, float]:
    """Microseconds at the middle and in the tail."""
    micro = np.array(seconds) * 1e6
    return {f"p{p}_us": round(float(np.percentile(micro, p)), 2) for p in (1, 50, 90, 99, 99.9)}


def check(found: Matches, expected: Matches, what: str) -> None:
    """Stop at a difference."""
    if found != expected:
        at = next(i for i in range(found.n_events) if not np.array_equal(found[i], expected[i]))
        raise SystemExit(
            f"WRONG ANSWER: {what}, event {at}: {found[at].tolist()[:20]}, expected {expected[at].tolist()[:20]}"
        )


def graphs(engine: ccm.Ccm | clcb.Clcb) -> Iterator[Graph]:
    """The captured graphs of an engine that has matched single events, from the one that is next, over and over."""
    if isinstance(engine, clcb.Clcb):
        by_runs = next(iter(engine._one.values()))
        return (by_runs._graphs[by_runs._runs.take()] for _ in count())
    by_copies = next(iter(engine._one.values()))
    return (by_copies._graphs[(by_copies._copy + number) % len(by_copies._graphs)] for number in count())


def single_events(engine: ccm.Ccm | clcb.Clcb, batch: EventBatch, filters: bool) -> tuple[list[float], list[float], Matches]:
    """Seconds of each event, of each graph alone, and the answers."""
    events = [batch[i : i + 1] for i in range(batch.n_events)]
    for event in (events * WARM_UP)[:WARM_UP]:
        engine.match(event, filters=filters)
    answers, times, clock = [], [], time.perf_counter
    gc.collect()
    gc.disable()
    for event in events:
        start = clock()
        answer = engine.match(event, filters=filters)
        times.append(clock() - start)
        answers.append(answer)
    graph_times = []
    for graph in islice(graphs(engine), 4 * min(len(events), 500)):  # so many that all turns come equally often
        start = clock()
        graph.launch()
        engine._stream.synchronize()
        graph_times.append(clock() - start)
    gc.enable()
    return times, graph_times, Matches.concat(answers)


def batches(engine: ccm.Ccm | clcb.Clcb, batch: EventBatch, filters: bool) -> tuple[dict[str, float], Matches]:
    """Rates of a large batch, and its answers."""
    answers = engine.match(batch, filters=filters)
    walls, kernels = [], []
    for _ in range(5):
        before, start = engine.kernel_s, time.perf_counter()
        again = engine.match(batch, filters=filters)
        walls.append(time.perf_counter() - start)
        kernels.append(engine.kernel_s - before)
        check(again, answers, "batch, again")
    wall, kernel = statistics.median(walls), statistics.median(kernels)
    rates = {"events_per_s": batch.n_events / wall, "kernel_events_per_s": batch.n_events / max(kernel, 1e-9)}
    return {name: round(rate) for name, rate in rates.items()}, answers


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", default="ccm", choices=["ccm", "clcb"])
    parser.add_argument("--workload", default="ccm", choices=sorted(SCENARIOS))
    parser.add_argument("--filters", type=int, help="another number of filters than the workload's own")
    parser.add_argument("--events", type=int, default=4000)
    parser.add_argument("--batch-events", type=int, default=65536)
    parser.add_argument("--judge", default="counting", help="the engine that judges a sample")
    options = parser.parse_args()
    scenario = SCENARIOS[options.workload]
    if options.filters:
        scenario = scenario.scaled(options.filters)
    table = Table.from_subscriptions(scenario.subscriptions(0))
    batch = scenario.events(options.batch_events, 1).encode(table.vocabulary)
    judge = open_engine(options.judge, table)
    start = time.perf_counter()
    engine = open_engine(options.engine, table)
    build_s = time.perf_counter() - start
    assert isinstance(engine, (ccm.Ccm, clcb.Clcb))
    show(
        what="built",
        engine=options.engine,
        workload=options.workload,
        filters=table.n_filters,
        constraints=table.n_constraints,
        interfaces=table.n_interfaces,
        device=engine.device,
        driver=driver_versions(),
        build_s=round(build_s, 3),
        upload_s=round(engine.upload_s, 3),
        device_bytes=engine.nbytes,
    )
    few = ccm.MASK_INTERFACES
    for kind, few_interfaces, filters in (("mask", few, False), ("list", -1, False), ("filters", few, True)):
        if kind == "mask" and (options.engine != "ccm" or table.n_interfaces > few):
            continue
        ccm.MASK_INTERFACES = few_interfaces
        engine._one.clear()
        times, graph_times, ones = single_events(engine, batch[: options.events], filters)
        rates, many = batches(engine, batch, filters)
        first = many.offsets[options.events]
        check(
            Matches.from_offsets(many.offsets[: options.events + 1], many.ids[:first], many.n_ids),
            ones,
            f"{kind}: batch against single events",
        )
        sample = min(CHECKED, options.events)
        expected = judge.match(batch[:sample], filters=filters)
        check(
            Matches.from_offsets(ones.offsets[: sample + 1], ones.ids[: ones.offsets[sample]], ones.n_ids),
            expected,
            f"{kind}: against {options.judge}",
        )
        show(
            what="match",
            answer=kind,
            events=options.events,
            **spread(times),
            mean_us=round(statistics.fmean(times) * 1e6, 2),
        )
        show(what="graph", answer=kind, **spread(graph_times))
        show(what="batch", answer=kind, events=batch.n_events, matches=many.n_matches, device_bytes=engine.nbytes, **rates)
    show(what="checked", single=options.events, sample=sample, judge=options.judge)


if __name__ == "__main__":
    main()
