"""JSON lines to answers on a GPU, from memory and from a file, with the time of each step; the CPU judges the answers.

    lines_per_s   kernels      device time of finding rows, scanning and ordering them, of one block
                  with_copy    a block in pinned memory to codes, blocks one after the other
                  answers      blocks in pinned memory to answers, overlapped
                  file         the file to answers as `match` reads it: ranges are read and scanned ahead
                  match, run   the file to a file of answers, by `match` and by `run` in one process (`on_disk`)
    steps_s       of one block: read (from the file, by one thread), copy, rows, scan, order, match (kernels), and answers
                  (from the launch to the host, less the kernels)
    read_bytes_per_s   the file to pinned memory, with as many threads as `match` has

Scanned events must equal those of the CPU's scanner, and their answers those of `keyed`; every timed path must find the same
number of answers.  Each is run once before it is timed.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.cluster import run
from mpi_match.cluster.options import RunOptions
from mpi_match.commands.match import MatchOptions, match_rows
from mpi_match.commands.scan_ahead import ahead_of_gpu, scanned_ahead
from mpi_match.engines import Engine, match_all, open_engine
from mpi_match.environment.machine import origin
from mpi_match.events.batch import EventBatch
from mpi_match.gpu.kernels import open_gpu
from mpi_match.gpu.line_scanner import GpuLineScanner
from mpi_match.ingest.files.blocks import LineBlock
from mpi_match.ingest.files.ranges import GPU_RANGE_BYTES, ranges_of
from mpi_match.ingest.json.event_scanner import EventScanner, LineScanner
from mpi_match.ingest.json.subscription_scanner import read_subscriptions
from mpi_match.ingest.rows.judge import EventForm
from mpi_match.ingest.rows.to_json import event_rows, subscription_rows
from mpi_match.lab.bench.ahead import batches_ahead
from mpi_match.lab.bench.engines import require
from mpi_match.lab.bench.read.events import ReadPlan
from mpi_match.lab.bench.read.long_lines import MADE, made_lines
from mpi_match.lab.bench.read.times import Times, median_s
from mpi_match.lab.workloads.files import LOCATION
from mpi_match.model import Json
from mpi_match.table.table import Table

BLOCKS_AHEAD = 2
"""Number of blocks in memory that are scanned ahead."""


class _Made(NamedTuple):
    """Subscriptions as rows; the form of events; `n_lines` lines, u8, in one block."""

    subscriptions: list[dict[str, Any]]
    form: EventForm
    lines: Array
    n_lines: int


def _make(plan: ReadPlan) -> _Made:
    """Draw the workload of a plan, whose `n_events` is the number of lines in a block."""
    if plan.scenario in MADE:
        rows, text = made_lines(plan.scenario, plan.n_events, plan.corpora, plan.n_filters)
        return _Made(rows, EventForm(), _bytes_of(text), text.count(b"\n"))
    scenario = plan.drawn_from
    form = EventForm(LOCATION if scenario.area else None)
    events = event_rows(scenario.events(plan.n_events, 0), form if scenario.area else None)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in events).encode()
    return _Made(list(subscription_rows(scenario.subscriptions(0))), form, _bytes_of(text), plan.n_events)


def _bytes_of(text: bytes) -> Array:
    return np.frombuffer(bytearray(text), np.uint8)


def _match_blocks(engine: Engine, scanner: LineScanner, blocks: list[Array]) -> int:
    """Match blocks of lines in memory, which threads scan ahead; returns the number of answers."""

    def scanned(block: Array) -> EventBatch:
        return scanner.scan(LineBlock(block, "", 1), []).batch

    batches = batches_ahead([partial(scanned, block) for block in blocks], BLOCKS_AHEAD)
    return sum(found.n_matches for found in match_all(engine, batches))


def _match_file(engine: Engine, scanner: LineScanner, path: Path) -> int:
    """Match the lines of a file, which threads read and scan ahead; returns the number of answers."""
    with scanned_ahead([path], scanner, engine.host_memory, [], None, ahead_of_gpu()) as blocks:
        return sum(found.n_matches for found in match_all(engine, (each.batch for each in blocks)))


def _read_all(engine: Engine, path: Path) -> int:
    """Read a file as `scanned_ahead` does; returns the number of lines."""
    how = ahead_of_gpu()
    with ThreadPoolExecutor(how.threads) as threads:
        ranges = ranges_of(path, how.range_bytes)
        return sum(threads.map(lambda each: each.read(engine.host_memory).n_lines, ranges))


def _time_steps(engine: Engine, made: _Made, table: Table, path: Path, repetitions: int) -> tuple[dict[str, float], int]:
    """Seconds of each step for one block, and its number of answers.  Raises WrongAnswer where the CPU disagrees."""
    gpu = open_gpu()
    lines = GpuLineScanner(gpu, table.vocabulary, made.form)
    data, buffers, on_cpu = made.lines.copy(), lines.buffers(), EventScanner(table.vocabulary, made.form)
    gpu.pinned_regions.hold(data)
    rows = lines.scan(data, buffers)
    expected, found = on_cpu.scan(LineBlock(data, "", 1), []).batch, lines.fetched(rows, buffers)
    require(len(rows.flagged) <= made.n_lines // 10_000, f"{len(rows.flagged)} lines were left to rows")
    if not len(rows.flagged):
        same = np.array_equal(found.offsets, expected.offsets) and np.array_equal(found.attributes, expected.attributes)
        places = [b"" if each is None else each.tobytes() for each in (found.location, expected.location)]
        require(same and places[0] == places[1], "the events of the GPU and of the CPU differ")
    judge = open_engine("keyed", table).match(expected)
    batch = engine.scanner(on_cpu).scan(LineBlock(data, "", 1), []).batch
    require(engine.match(batch) == judge, "the answers of keyed_cuda and of keyed differ")
    scans = [lines.scan(data, buffers).steps_s for _ in range(repetitions)]
    first = next(ranges_of(path, ahead_of_gpu().range_bytes))
    read = median_s(lambda: first.read(engine.host_memory), repetitions) * len(data) / (first.stop - first.start)
    kernels, walls = [], []
    for _ in range(repetitions):
        before, started = engine.kernel_s, time.perf_counter()
        engine.match(batch)
        walls.append(time.perf_counter() - started)
        kernels.append(engine.kernel_s - before)
    of_scan = {step: statistics.median(each[step] for each in scans) for step in scans[0]}
    match = statistics.median(kernels)
    return {"read": read, **of_scan, "match": match, "answers": statistics.median(walls) - match}, judge.n_matches


def _time_commands(made: _Made, table: Table, subscriptions: Path, path: Path, n_answers: int) -> dict[str, float]:
    """Lines per second of `match` and `run`, which write their answers beside the subscriptions; a batch of `run` has about
    as many bytes as a range of `match`."""
    directory, form = subscriptions.parent, made.form
    batch = max(GPU_RANGE_BYTES * made.n_lines // len(made.lines), 1)
    compiled = directory / "table.h5"
    table.save(compiled)
    found = {}
    for _ in range(2):  # the first one fills caches
        local = match_rows(subscriptions, path, directory / "matches.h5", MatchOptions(form, "keyed_cuda"))
        options = RunOptions(
            compiled, path, directory / "run.h5", form=form, engine="keyed_cuda", batch=batch, journal=False
        )
        of_run = run(options)
        assert of_run is not None, "this process is the master"
        for what, summary in (("match", local), ("run", of_run)):
            require(summary.matches == n_answers, f"{what}: {summary.matches} answers, expected {n_answers}")
            by_gpu = summary.scanned_on_gpu > 0.9 * summary.events  # the CPU scans a short last block
            require(by_gpu, f"{what}: the GPU scanned {summary.scanned_on_gpu} of {summary.events} lines")
            found[what] = summary.events_per_s
    return found


def measure_on_gpu(plan: ReadPlan, directory: Path, times: int, *, on_disk: bool) -> Json:
    """The record of a block of lines that is repeated `times` in memory and in a file; `on_disk` times the commands too.

    Raises WrongAnswer, EngineError.
    """
    made = _make(plan)
    path, subscriptions = directory / "events.jsonl", directory / "subscriptions.jsonl"
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made.subscriptions)
    subscriptions.write_text(text, encoding="utf-8")
    with path.open("wb") as handle:
        for _ in range(times):
            handle.write(made.lines.tobytes())
    table = Table.from_subscriptions(read_subscriptions([subscriptions], []).subscriptions)
    engine = open_engine("keyed_cuda", table)
    steps_s, n_answers = _time_steps(engine, made, table, path, plan.repetitions)
    memory = np.tile(made.lines, min(times, 4))
    engine.pin([memory])
    n_bytes, n_lines, n_all_answers = len(made.lines), times * made.n_lines, times * n_answers
    blocks = [memory[at : at + n_bytes] for at in range(0, len(memory), n_bytes)]
    blocks = [blocks[k % len(blocks)] for k in range(times)]
    scanner = engine.scanner(EventScanner(table.vocabulary, made.form))
    block = LineBlock(blocks[0], "", 1)

    def checked(found: int) -> int:
        require(found == n_all_answers, f"{found} answers, expected {n_all_answers}")
        return n_lines

    ways: dict[str, Callable[[], int]] = {
        "with_copy": lambda: len(scanner.scan(block, []).batch),
        "answers": lambda: checked(_match_blocks(engine, scanner, blocks)),
        "file": lambda: checked(_match_file(engine, scanner, path)),
    }
    for work in ways.values():
        work()  # not counted
    rates = {what: Times() for what in ways}
    for _ in range(plan.repetitions):
        for what, work in ways.items():
            rates[what].add(work)
    kernels = made.n_lines / sum(steps_s[step] for step in ("rows", "scan", "order"))
    per_s: dict[str, dict[str, float]] = {
        "kernels": {"median": kernels},
        **{way: each.record() for way, each in rates.items()},
    }
    if on_disk:
        found = _time_commands(made, table, subscriptions, path, n_all_answers)
        per_s |= {what: {"median": each} for what, each in found.items()}
    return {
        "what": "scanned events on a GPU",
        "scenario": plan.scenario,
        "filters": table.n_filters,
        "lines": n_lines,
        "lines_of_a_block": made.n_lines,
        "bytes": times * n_bytes,
        "runs": plan.repetitions,
        "lines_per_s": per_s,
        "steps_s": steps_s,
        "read_bytes_per_s": times * n_bytes / median_s(lambda: _read_all(engine, path), plan.repetitions),
        **origin(),
    }
