"""JSON lines to answers on a GPU, from memory and from a file, and the time of each part; judged by the CPU in the same run.

    python tests/bench/lines_on_gpu.py SCENARIO [--lines 524288] [--times 32] [--filters N] [--repetitions 3] [--on-disk]
                                       [--directory DIR] [-o records.jsonl]

SCENARIO is one of `mpi-match generate`, or `contains`: 10,637 strings that one name may contain, and strings of 100 bytes,
all distinct.  The lines are made once, and stand in memory and in a file `--times`.  Prints one JSON line:

    lines_per_s   kernels      device time of finding rows, scanning and ordering them, of one block
                  with_copy    a block in pinned memory to codes, one after the other
                  answers      blocks in pinned memory to answers, overlapped
                  file         the file to answers as `match` has them: ranges of it read and scanned ahead, overlapped
                  match, run   with `--on-disk`: the file to a file of answers, by `match` and by `run` in one process
    steps_s       of one block: read (from the file, by one thread), copy, rows, scan, order, match (kernels), and answers
                  (from the launch to the host, less the kernels)
    read_bytes_per_s   the file to pinned memory by as many threads as `match` has

The events of the lines must be those of the CPU's scanner, and their answers those of `keyed`; whatever is timed must have
as many answers.  Before each time there is one that does not count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[i]) for i in (1, 2)]

from bench.contained import N_WORDS, contained
from bench.keeping import keep
from scanned_events import Times

from mpi_match.arrays.csr import Array
from mpi_match.cluster import run
from mpi_match.cluster.options import RunOptions
from mpi_match.commands.match import MatchOptions, match_rows
from mpi_match.commands.scan_ahead import ahead_of_gpu, scanned_ahead
from mpi_match.engines import Engine, match_all, open_engine
from mpi_match.events.batch import EventBatch
from mpi_match.gpu.kernels import open_gpu
from mpi_match.gpu.line_scanner import GpuLineScanner
from mpi_match.ingest.files.blocks import LineBlock
from mpi_match.ingest.files.ranges import ranges_of
from mpi_match.ingest.json.event_scanner import EventScanner, LineScanner, ScannedEvents
from mpi_match.ingest.json.subscription_scanner import read_subscriptions
from mpi_match.ingest.rows.judge import EventForm
from mpi_match.ingest.rows.to_json import event_rows, subscription_rows
from mpi_match.lab.workloads.files import LOCATION
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.table.table import Table

BLOCKS_AHEAD = 2
"""Blocks in memory that are scanned ahead."""


class Made(NamedTuple):
    """Subscriptions, as rows; the form of events; n_lines lines, u8, in one block."""

    subscriptions: list[dict[str, Any]]
    form: EventForm
    lines: Array
    n_lines: int


def of_scenario(name: str, n_lines: int, n_filters: int | None) -> Made:
    """The rows of a named workload."""
    scenario = SCENARIOS[name]
    scenario = scenario.scaled(n_filters) if n_filters else scenario
    form = EventForm(LOCATION if scenario.area else None)
    rows = event_rows(scenario.events(n_lines, 0), form if scenario.area else None)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return Made(list(subscription_rows(scenario.subscriptions(0))), form, _bytes_of(text.encode()), n_lines)


def of_contained(n_lines: int, n_filters: int | None) -> Made:
    """Those of `contained`."""
    rows, lines = contained(n_lines, n_filters or N_WORDS)
    return Made(rows, EventForm(), lines, n_lines)


def _bytes_of(text: bytes) -> Array:
    return np.frombuffer(bytearray(text), np.uint8)


def answers_of(engine: Engine, scanner: LineScanner, blocks: list[Array]) -> int:
    """How many answers the lines in memory have, blocks scanned ahead by threads."""

    def batches(threads: ThreadPoolExecutor) -> Iterator[EventBatch]:
        ahead: deque[Future[ScannedEvents]] = deque()
        for block in blocks:
            ahead.append(threads.submit(scanner.scan, LineBlock(block, "", 1), []))
            if len(ahead) > BLOCKS_AHEAD:
                yield ahead.popleft().result().batch
        while ahead:
            yield ahead.popleft().result().batch

    with ThreadPoolExecutor(BLOCKS_AHEAD) as threads:
        return sum(found.n_matches for found in match_all(engine, batches(threads)))


def answers_of_file(engine: Engine, scanner: LineScanner, path: Path) -> int:
    """How many answers the lines of a file have, ranges of it read and scanned ahead."""
    with scanned_ahead([path], scanner, engine.host_memory, [], None, ahead_of_gpu()) as blocks:
        return sum(found.n_matches for found in match_all(engine, (each.batch for each in blocks)))


def read_all(engine: Engine, path: Path) -> int:
    """Read a file as `scanned_ahead` does; its lines."""
    how = ahead_of_gpu()
    with ThreadPoolExecutor(how.threads) as threads:
        ranges = ranges_of(path, how.range_bytes)
        return sum(threads.map(lambda each: each.read(engine.host_memory).n_lines, ranges))


def seconds(work: Callable[[], object], times: int) -> float:
    """The median time of some work, after one that does not count."""
    found = []
    for _ in range(times + 1):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return statistics.median(found[1:])


def steps(engine: Any, made: Made, table: Table, path: Path, repetitions: int) -> tuple[dict[str, float], int]:
    """Seconds of each part for one block, and the answers that it has; raises AssertionError where the CPU has others."""
    gpu = open_gpu()
    lines = GpuLineScanner(gpu, table.vocabulary, made.form)
    data, buffers, on_cpu = made.lines.copy(), lines.buffers(), EventScanner(table.vocabulary, made.form)
    gpu.pinned_regions.hold(data)
    rows = lines.scan(data, buffers)
    expected, found = on_cpu.scan(LineBlock(data, "", 1), []).batch, lines.fetched(rows, buffers)
    assert len(rows.flagged) <= made.n_lines // 10_000, f"{len(rows.flagged)} lines were left to rows"
    if not len(rows.flagged):
        assert np.array_equal(found.offsets, expected.offsets)
        assert np.array_equal(found.attributes, expected.attributes)
        assert (found.location is None) == (expected.location is None)
        if found.location is not None and expected.location is not None:
            assert found.location.tobytes() == expected.location.tobytes()
    judge = open_engine("keyed", table).match(expected)
    batch = engine.scanner(on_cpu).scan(LineBlock(data, "", 1), []).batch
    assert engine.match(batch) == judge, "the answers differ"
    scans = [lines.scan(data, buffers).steps_s for _ in range(repetitions)]
    first = next(ranges_of(path, ahead_of_gpu().range_bytes))
    read = seconds(lambda: first.read(engine.host_memory), repetitions) * len(data) / (first.stop - first.start)
    kernels, walls = [], []
    for _ in range(repetitions):
        before, started = engine.kernel_s, time.perf_counter()
        engine.match(batch)
        walls.append(time.perf_counter() - started)
        kernels.append(engine.kernel_s - before)
    of_scan = {step: statistics.median(each[step] for each in scans) for step in scans[0]}
    match = statistics.median(kernels)
    return {"read": read, **of_scan, "match": match, "answers": statistics.median(walls) - match}, judge.n_matches


def on_disk(form: EventForm, table: Table, subscriptions: Path, path: Path, n_answers: int) -> dict[str, float]:
    """Rates of the commands, which write their answers beside the subscriptions."""
    directory = subscriptions.parent
    compiled = directory / "table.h5"
    table.save(compiled)
    found = {}
    for _ in range(2):
        local = match_rows(subscriptions, path, directory / "matches.h5", MatchOptions(form, "keyed_cuda"))
        options = RunOptions(
            compiled, path, directory / "run.h5", form=form, engine="keyed_cuda", batch=2**19, journal=False
        )
        of_run = run(options)
        assert of_run is not None
        for what, summary in (("match", local), ("run", of_run)):
            assert summary.matches == n_answers, f"{what}: {summary.matches} answers, expected {n_answers}"
            assert summary.scanned_on_gpu > 0.9 * summary.events  # a short last block is not worth the way
            found[what] = summary.events_per_s
    return found


def write_rows(rows: list[dict[str, Any]], path: Path) -> Path:
    """Write JSON lines."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def measure(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """The record of a scenario."""
    make = of_contained if options.scenario == "contains" else lambda *how: of_scenario(options.scenario, *how)
    made = make(options.lines, options.filters)
    path, subscriptions = directory / "events.jsonl", write_rows(made.subscriptions, directory / "subscriptions.jsonl")
    with path.open("wb") as handle:
        for _ in range(options.times):
            handle.write(made.lines.tobytes())
    table = Table.from_subscriptions(read_subscriptions([subscriptions], []).subscriptions)
    engine = open_engine("keyed_cuda", table)
    steps_s, n_answers = steps(engine, made, table, path, options.repetitions)
    memory = np.tile(made.lines, min(options.times, 4))
    engine.pin([memory])
    n_bytes, n_lines, n_all_answers = len(made.lines), int(options.times * made.n_lines), int(options.times * n_answers)
    blocks = [memory[at : at + n_bytes] for at in range(0, len(memory), n_bytes)]
    blocks = [blocks[k % len(blocks)] for k in range(options.times)]
    scanner = engine.scanner(EventScanner(table.vocabulary, made.form))
    block = LineBlock(blocks[0], "", 1)
    rates = {what: Times() for what in ("with_copy", "answers", "file")}

    def same(found: int) -> int:
        assert found == n_all_answers, f"{found} answers, expected {n_all_answers}"
        return n_lines

    for k in range(options.repetitions + 1):
        if k == 1:
            rates = {what: Times() for what in rates}
        rates["with_copy"].add(lambda: len(scanner.scan(block, []).batch))
        rates["answers"].add(lambda: same(answers_of(engine, scanner, blocks)))
        rates["file"].add(lambda: same(answers_of_file(engine, scanner, path)))
    kernels = made.n_lines / sum(steps_s[step] for step in ("rows", "scan", "order"))
    per_s: dict[str, Any] = {"kernels": {"median": kernels}, **{what: each.record() for what, each in rates.items()}}
    if options.on_disk:
        found = on_disk(made.form, table, subscriptions, path, n_all_answers)
        per_s |= {what: {"median": each} for what, each in found.items()}
    return {
        "what": "scanned events on a GPU",
        "scenario": options.scenario,
        "filters": table.n_filters,
        "lines": n_lines,
        "lines_of_a_block": made.n_lines,
        "bytes": options.times * n_bytes,
        "runs": options.repetitions,
        "lines_per_s": per_s,
        "steps_s": steps_s,
        "read_bytes_per_s": options.times * n_bytes / seconds(lambda: read_all(engine, path), options.repetitions),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", choices=["contains", *SCENARIOS])
    parser.add_argument("--lines", type=int, default=2**19)
    parser.add_argument("--times", type=int, default=32)
    parser.add_argument("--filters", type=int)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--on-disk", action="store_true")
    parser.add_argument("--directory", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        keep(measure(options, Path(directory)), options.output)


if __name__ == "__main__":
    main()
