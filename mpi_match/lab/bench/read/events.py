"""JSON lines or Arrow columns to codes and to answers: compiled code beside Python's reader of single rows.

Both read the same events in one process, by turns, and must give the same answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numba
import numpy as np

from mpi_match.commands.match import ANSWERS_WAITING, MATCHED_AT_ONCE
from mpi_match.commands.scan_ahead import ahead_of_cpu, scanned_ahead
from mpi_match.compute.compile_cache import compile_s
from mpi_match.engines import Engine, open_engine
from mpi_match.environment.machine import origin
from mpi_match.events.batch import EventBatch
from mpi_match.events.events import Events
from mpi_match.ingest.batches.event_queue import EventQueue
from mpi_match.ingest.columns.frames import encode_arrow, events_of_arrow, reader_of
from mpi_match.ingest.files.blocks import LineBlock, read_blocks
from mpi_match.ingest.json.event_scanner import EventScanner, SharedScanner
from mpi_match.ingest.rows.judge import PLAIN, EventForm, event_of_row, names_of, read_rows, subscription_filters
from mpi_match.lab.bench.engines import require
from mpi_match.lab.bench.read.long_lines import MADE, made_lines
from mpi_match.lab.bench.read.times import Times
from mpi_match.lab.workloads.files import LOCATION, kept_workload
from mpi_match.lab.workloads.scenarios import SCENARIOS, Scenario
from mpi_match.matches.file import MatchesWriter
from mpi_match.matches.write_behind import WriteBehind
from mpi_match.model import Json
from mpi_match.storage.range_read import ordinary_memory
from mpi_match.table.table import Table

if TYPE_CHECKING:
    import pyarrow as pa

UNREAD_FILTERS = 1000
"""Number of filters that are generated beside lines of events; the table is made in memory, so these are not read."""


class ReadPlan(NamedTuple):
    """The input, and the number of times that it is read.

    `reference_rows` is the number of rows that Python reads for comparison, `corpora` a folder of real data (`long_lines`).
    """

    scenario: str
    n_events: int
    n_filters: int | None
    threads: tuple[int, ...]
    repetitions: int
    reference_rows: int
    corpora: Path

    @property
    def drawn_from(self) -> Scenario:
        """The scenario with the wanted number of filters."""
        scenario = SCENARIOS[self.scenario]
        return scenario if self.n_filters is None else scenario.scaled(self.n_filters)


def _by_rows(path: Path, form: EventForm, table: Table) -> Iterator[EventBatch]:
    """Batches of a file, read line by line in Python."""
    names = names_of(table.vocabulary, form)
    events = read_rows([path], lambda row: event_of_row(row, form, names), [])
    while block := list(islice(events, MATCHED_AT_ONCE)):
        yield Events.of(block).encode(table.vocabulary)


def _scanned(path: Path, scanner: EventScanner, threads: int) -> Iterator[EventBatch]:
    """Batches of a file, scanned as `match` does.  Raises WrongAnswer if the scanner leaves a line to `rows`."""
    how = ahead_of_cpu(threads)
    with (
        nullcontext(scanner.scan(block, []) for block in read_blocks([path]))
        if threads == 1
        else scanned_ahead([path], SharedScanner(scanner), ordinary_memory, [], None, how)
    ) as blocks:
        queue = EventQueue(blocks)
        while taken := queue.take(MATCHED_AT_ONCE):
            yield taken[0]
        require(queue.totals.n_flagged == 0, f"{queue.totals.n_flagged} lines were left to rows")


def _encode_blocks(blocks: list[LineBlock], scanner: EventScanner, threads: int) -> int:
    """Scan blocks of lines in memory with `threads` threads; returns the number of events."""
    if threads == 1:
        return sum(len(scanner.scan(block, []).batch) for block in blocks)
    shared = SharedScanner(scanner)
    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(lambda block: len(shared.scan(block, []).batch), blocks))


def _write_answers(batches: Iterator[EventBatch], engine: Engine, table: Table, output: Path) -> int:
    """Match batches and write the answers, as `match` does; returns the number of events."""
    with (
        MatchesWriter(output, table.n_interfaces, table.labels) as writer,
        WriteBehind(writer.append, ANSWERS_WAITING) as written,
    ):
        for batch in batches:
            written.put(engine.match(batch))
        written.finish()
    return writer.n_events


def _prepare(plan: ReadPlan, directory: Path) -> tuple[Table, EventForm, Path]:
    """The table, the form of its events, and the file of lines, which is kept in `directory`."""
    path = directory / "events.jsonl"
    if plan.scenario in MADE:
        rows, lines = made_lines(plan.scenario, plan.n_events, plan.corpora, plan.n_filters)
        path.write_bytes(lines)
        return Table.from_filters([each for row in rows for each in subscription_filters(row)]), PLAIN, path
    scenario = plan.drawn_from
    kept_workload(scenario.scaled(UNREAD_FILTERS), directory, plan.n_events, 0, "jsonl")
    return Table.from_subscriptions(scenario.subscriptions(0)), EventForm(LOCATION if scenario.area else None), path


def measure_lines(plan: ReadPlan, directory: Path) -> Iterator[Json]:
    """Records of JSON lines, one for each number of threads.

    Each repetition times lines in memory to codes, and a warm file to the file of answers; Python reads the first lines.
    Raises WrongAnswer when their answers differ.
    """
    table, form, path = _prepare(plan, directory)
    first, answers = directory / "first.jsonl", directory / "answers.h5"
    with path.open("rb") as handle:
        first.write_bytes(b"".join(islice(handle, plan.reference_rows)))
    engine = open_engine("keyed", table)
    compiled = compile_s()
    scanner = EventScanner(table.vocabulary, form)
    compiled = compile_s() - compiled
    blocks = list(read_blocks([path]))

    def scan_and_match(lines: Path, threads: int) -> int:
        return _write_answers(_scanned(lines, scanner, threads), engine, table, answers)

    def encode_rows() -> int:
        return sum(map(len, _by_rows(first, form, table)))

    def match_rows() -> int:
        return _write_answers(_by_rows(first, form, table), engine, table, answers)

    for threads in plan.threads:
        numba.set_num_threads(threads)
        scan_and_match(first, threads)
        expected = answers.read_bytes()
        times = {what: Times() for what in ("rows_codes", "rows_answers", "codes", "answers")}
        for _ in range(plan.repetitions):
            times["codes"].add(partial(_encode_blocks, blocks, scanner, threads))
            times["rows_codes"].add(encode_rows)
            times["answers"].add(partial(scan_and_match, path, threads))
            times["rows_answers"].add(match_rows)
            require(answers.read_bytes() == expected, "the answers of the scanner and of rows differ")
        yield {
            "what": "scanned events",
            "scenario": plan.scenario,
            "filters": table.n_filters,
            "lines": _encode_blocks(blocks, scanner, threads),
            "bytes": sum(len(block.data) for block in blocks),
            "threads": threads,
            "runs": plan.repetitions,
            "compile_s": compiled,
            "lines_per_s": {what: found.record() for what, found in times.items()},
            **origin(),
        }


def _arrow_tables(scenario: Scenario, n: int) -> dict[str, pa.Table]:
    """`sparse`: a column for every name, mostly null; `dense`: the same values in five columns without nulls."""
    import pyarrow as pa

    events = scenario.event_range(0, n)
    columns, event = {}, np.repeat(np.arange(n), np.diff(events.offsets))
    for k, name in enumerate(events.names):
        values, mask = np.zeros(n), np.ones(n, bool)
        rows = event[events.name == k]
        values[rows], mask[rows] = events.number[events.name == k], False
        columns[name.decode()] = pa.array(values, mask=mask)
    dense = np.resize(events.number, (5, n))
    names = list(columns)[:5]
    made = {name: pa.array(dense[k].astype(np.int64 if k % 2 else np.float64)) for k, name in enumerate(names)}
    return {"sparse": pa.table(columns), "dense": pa.table(made)}


def measure_columns(plan: ReadPlan) -> Iterator[Json]:
    """Records of Arrow columns to codes, one for each table and number of threads.

    The first rows are also encoded entry by entry.  Raises WrongAnswer when their codes or answers differ.
    """
    table = Table.from_subscriptions(plan.drawn_from.subscriptions(0))
    vocabulary, engine = table.vocabulary, open_engine("keyed", table)

    def by_entry(columns: pa.Table) -> EventBatch:
        return events_of_arrow(reader_of(columns), PLAIN, []).encode(vocabulary)

    def encoded(columns: pa.Table) -> EventBatch:
        return encode_arrow(reader_of(columns), vocabulary, PLAIN, [])

    def count_encoded(columns: pa.Table) -> int:
        return len(encoded(columns))

    def count_by_entry(columns: pa.Table) -> int:
        return len(by_entry(columns))

    for shape, columns in _arrow_tables(plan.drawn_from, plan.n_events).items():
        first = columns.slice(0, plan.reference_rows)
        found, expected = encoded(first), by_entry(first)
        require(all(map(np.array_equal, found.columns, expected.columns)), "the codes differ")
        require(engine.match(found) == engine.match(expected), "the answers differ")
        for threads in plan.threads:
            numba.set_num_threads(threads)
            times = {what: Times() for what in ("codes", "entries_codes")}
            for _ in range(plan.repetitions):
                times["codes"].add(partial(count_encoded, columns))
                times["entries_codes"].add(partial(count_by_entry, first))
            yield {
                "what": "encoded columns",
                "scenario": plan.scenario,
                "filters": table.n_filters,
                "shape": shape,
                "columns": columns.num_columns,
                "events": plan.n_events,
                "threads": threads,
                "runs": plan.repetitions,
                "events_per_s": {what: found.record() for what, found in times.items()},
                **origin(),
            }
