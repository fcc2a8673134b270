"""JSON lines to codes and to answers: the scanner beside the reader of single lines, in one process, answers compared.

    python tests/bench/scanned_events.py SCENARIO [--events N] [--lines-by-rows N] [--filters N] [--threads 1,2]
                                         [--repetitions 5] [--columns | --tables | --spark [--ways splits,...]]
                                         [--directory DIR] [-o records.jsonl]

SCENARIO is one of `mpi-match generate`, `contains` (see `contained`), or one of long lines (see `long_lines`; some need
`--corpora DIR`).  Makes the scenario's events as JSON lines with
`mpi-match generate` where they are not there yet, and its table and engine (`keyed`) in memory.  A repetition measures, one
after the other: `rows`, `Events.of` and `encode` on the first lines (what `match` did before there was a scanner); the
scanner with so many threads, from lines in memory to codes; both from a warm file to the file of answers, as `match` does.
The answers to the first lines must be the same bytes, and no line may be left by the scanner.  One JSON line for each number
of threads: lines per second (median, least, greatest), nanoseconds of processor time for a line, seconds that compiling took
where the cache was empty.

With `--columns` Arrow tables of the scenario's values instead, to codes: one with a column for every name, most of it null
(`sparse`), and one of five columns without nulls, of integers and doubles in turns (`dense`); beside them entry by entry,
`events_of_arrow` and `encode` of the first rows, as `make_batch` did before.  Codes of the first rows must be the same,
and the answers to them.

With `--tables` event tables, as `compile events --local` makes them, of JSON lines and of the same rows as Parquet: beside
`rows`, `Events.of` and `save_events` on the first rows (what the Spark stage did in its tasks before).  Both tables of the
first rows must have the same digest.

With `--spark` event tables as `compile events` makes them in a Spark session that has made one before: of a file of JSON
lines, of the same in one `.gz`, and as Parquet.  In turns: files that tasks read (`splits`), rows of Spark in the partitions
that it makes (`ranges`), and rows that Spark sorts (`sorted`).  The processor time is that of this process, Java and all
Python workers; the first compile of each file is given apart: in the first of all, Java and workers load their code.  The
batches of all tables must be the same as those of `compile events --local`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numba
import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[i]) for i in (1, 2)]

from bench.contained import N_WORDS, contained
from bench.keeping import PYTHON, keep, last_json
from bench.long_lines import LONG_LINES, long_lines

from mpi_match.commands.compile_locally import compile_events_locally
from mpi_match.commands.match import ANSWERS_WAITING, MATCHED_AT_ONCE
from mpi_match.commands.scan_ahead import ahead_of_cpu, scanned_ahead
from mpi_match.compute.compile_cache import compile_s
from mpi_match.engines import Engine, open_engine
from mpi_match.events.batch import EventBatch
from mpi_match.events.event_table import EventTable, save_events
from mpi_match.events.events import Events
from mpi_match.ingest.columns.arrow_to_events import event_of_columns
from mpi_match.ingest.columns.frames import encode_arrow, events_of_arrow, reader_of
from mpi_match.ingest.columns.python import needed_names
from mpi_match.ingest.files.blocks import LineBlock, read_blocks
from mpi_match.ingest.json.event_scanner import EventQueue, EventScanner, SharedScanner
from mpi_match.ingest.json.subscription_scanner import read_subscriptions
from mpi_match.ingest.rows.judge import PLAIN, EventForm, event_of_row, names_of, read_rows, subscription_filters
from mpi_match.lab.workloads.files import LOCATION
from mpi_match.lab.workloads.scenarios import SCENARIOS, Scenario
from mpi_match.matches.file import MatchesWriter
from mpi_match.matches.write_behind import WriteBehind
from mpi_match.storage.range_read import ordinary_memory
from mpi_match.table.table import Table


def by_rows(path: Path, form: EventForm, table: Table) -> Iterator[EventBatch]:
    """Batches of a file, each line an object."""
    names = names_of(table.vocabulary, form)
    events = read_rows([path], lambda row: event_of_row(row, form, names), [])
    while block := list(islice(events, MATCHED_AT_ONCE)):
        yield Events.of(block).encode(table.vocabulary)


def scanned(path: Path, scanner: EventScanner, threads: int) -> Iterator[EventBatch]:
    """Batches of a file, scanned as `match` does; every line must be judged by the scanner itself."""
    how = ahead_of_cpu(threads)
    with (
        nullcontext(scanner.scan(block, []) for block in read_blocks([path]))
        if threads == 1
        else scanned_ahead([path], SharedScanner(scanner), ordinary_memory, [], None, how)
    ) as blocks:
        queue = EventQueue(blocks)
        while taken := queue.take(MATCHED_AT_ONCE):
            yield taken[0]
        assert queue.n_flagged == 0, f"{queue.n_flagged} lines were left to rows"


def codes_of(blocks: list[LineBlock], scanner: EventScanner, threads: int) -> int:
    """Scan blocks of lines in memory, by so many threads; how many events there are."""
    if threads == 1:
        return sum(len(scanner.scan(block, []).batch) for block in blocks)
    shared = SharedScanner(scanner)
    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(lambda block: len(shared.scan(block, []).batch), blocks))


def answer(batches: Iterator[EventBatch], engine: Engine, table: Table, output: Path) -> int:
    """Match batches and write the answers, as `match` does; how many events there are."""
    with (
        MatchesWriter(output, table.n_interfaces, table.labels) as writer,
        WriteBehind(writer.append, ANSWERS_WAITING) as written,
    ):
        for batch in batches:
            written.put(engine.match(batch))
        written.finish()
    return writer.n_events


def answered(path: Path, scanner: EventScanner, threads: int, engine: Engine, table: Table, output: Path) -> int:
    """Scan and match the lines of a file; how many events there are."""
    return answer(scanned(path, scanner, threads), engine, table, output)


class Times:
    """Rates of what is done several times: lines per second, and processor time by a clock, seconds."""

    def __init__(self, clock: Callable[[], float] = time.process_time) -> None:
        self._clock = clock
        self.rates: list[float] = []
        self.cpu_ns: list[float] = []

    def add(self, work: Callable[[], int]) -> None:
        """Do `work`, which returns the number of its lines."""
        wall, cpu = time.perf_counter(), self._clock()
        n_lines = work()
        self.rates.append(n_lines / (time.perf_counter() - wall))
        self.cpu_ns.append((self._clock() - cpu) / n_lines * 1e9)

    def record(self) -> dict[str, float]:
        """What is kept of them."""
        return {
            "median": statistics.median(self.rates),
            "min": min(self.rates),
            "max": max(self.rates),
            "cpu_ns_per_line": min(self.cpu_ns),
        }


def prepared(options: argparse.Namespace, directory: Path) -> tuple[Table, EventForm, Path]:
    """The table of a scenario, the form of its events, and the file of these, which is made if it is not there."""
    path = directory / "events.jsonl"
    if options.scenario == "contains":
        rows, lines = contained(options.events, options.filters or N_WORDS)
        path.write_bytes(lines.tobytes())
        (directory / "subscriptions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        read = read_subscriptions([directory / "subscriptions.jsonl"], [])
        return Table.from_subscriptions(read.subscriptions), PLAIN, path
    if options.scenario in LONG_LINES:
        rows, found = long_lines(options.scenario, options.events, options.corpora)
        path.write_bytes(found)
        return Table.from_filters([each for row in rows for each in subscription_filters(row)]), PLAIN, path
    scenario = SCENARIOS[options.scenario]
    scenario = scenario.scaled(options.filters) if options.filters else scenario
    if not path.exists():
        words = ["generate", options.scenario, "-o", str(directory), "--filters", "1000", "--format", "jsonl"]
        last_json([*PYTHON, "mpi_match", *words, "--events", str(options.events), "--json"])
    return Table.from_subscriptions(scenario.subscriptions(0)), EventForm(LOCATION if scenario.area else None), path


def measure(options: argparse.Namespace, directory: Path) -> Iterator[dict[str, Any]]:
    """Records of a scenario, one for each number of threads."""
    table, form, path = prepared(options, directory)
    first, answers = directory / "first.jsonl", directory / "answers.h5"
    with path.open("rb") as handle:
        first.write_bytes(b"".join(islice(handle, options.lines_by_rows)))
    engine = open_engine("keyed", table)
    compiled = compile_s()
    scanner = EventScanner(table.vocabulary, form)
    compiled = compile_s() - compiled
    blocks = list(read_blocks([path]))
    for threads in options.threads:
        numba.set_num_threads(threads)
        answer(scanned(first, scanner, threads), engine, table, answers)
        same = answers.read_bytes()
        times = {what: Times() for what in ("rows_codes", "rows_answers", "codes", "answers")}
        for _ in range(options.repetitions):
            times["codes"].add(partial(codes_of, blocks, scanner, threads))
            times["rows_codes"].add(lambda: sum(map(len, by_rows(first, form, table))))
            times["answers"].add(partial(answered, path, scanner, threads, engine, table, answers))
            times["rows_answers"].add(lambda: answer(by_rows(first, form, table), engine, table, answers))
            assert answers.read_bytes() == same, "the answers differ"
        yield {
            "what": "scanned events",
            "scenario": options.scenario,
            "filters": table.n_filters,
            "lines": codes_of(blocks, scanner, threads),
            "bytes": sum(len(block.data) for block in blocks),
            "threads": threads,
            "runs": options.repetitions,
            "compile_s": compiled,
            "lines_per_s": {what: found.record() for what, found in times.items()},
        }


def arrow_tables(scenario: Scenario, n: int) -> dict[str, Any]:
    """A table with a column for every name, and one of the same values in five columns."""
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


def of_columns(options: argparse.Namespace, directory: Path) -> Iterator[dict[str, Any]]:
    """Records of columns, one for each table and number of threads."""
    scenario = SCENARIOS[options.scenario]
    scenario = scenario.scaled(options.filters) if options.filters else scenario
    table = Table.from_subscriptions(scenario.subscriptions(0))
    vocabulary, engine = table.vocabulary, open_engine("keyed", table)
    for shape, columns in arrow_tables(scenario, options.events).items():
        first = columns.slice(0, options.lines_by_rows)

        def by_entry(first: Any = first) -> EventBatch:
            return events_of_arrow(reader_of(first), PLAIN, []).encode(vocabulary)

        def encoded(columns: Any = columns) -> EventBatch:
            return encode_arrow(reader_of(columns), vocabulary, PLAIN, [])

        found, expected = encoded(first), by_entry()
        assert all(map(np.array_equal, found.columns, expected.columns)), "the codes differ"
        assert engine.match(found) == engine.match(expected), "the answers differ"
        for threads in options.threads:
            numba.set_num_threads(threads)
            times = {what: Times() for what in ("codes", "entries_codes")}
            for _ in range(options.repetitions):
                times["codes"].add(lambda: len(encoded()))
                times["entries_codes"].add(lambda: len(by_entry()))
            yield {
                "what": "encoded columns",
                "scenario": options.scenario,
                "filters": table.n_filters,
                "shape": shape,
                "columns": columns.num_columns,
                "events": len(encoded()),
                "threads": threads,
                "runs": options.repetitions,
                "events_per_s": {what: found.record() for what, found in times.items()},
            }


def tables(options: argparse.Namespace, directory: Path) -> Iterator[dict[str, Any]]:
    """Records of event tables, one for each form of the rows and number of threads."""
    import pyarrow as pa
    import pyarrow.json
    import pyarrow.parquet as pq

    table, form, lines = prepared(options, directory)
    vocabulary, output, compiled = table.vocabulary, directory / "compiled.h5", directory / "table.h5"
    table.save(compiled)
    required = needed_names(vocabulary.attribute_names, form)
    columns = directory / "events.parquet"
    pq.write_table(pa.json.read_json(lines), columns)
    firsts = {"lines": directory / "first.jsonl", "columns": directory / "first.parquet"}
    with lines.open("rb") as handle:
        firsts["lines"].write_bytes(b"".join(islice(handle, options.lines_by_rows)))
    pq.write_table(pq.read_table(columns).slice(0, options.lines_by_rows), firsts["columns"])

    def rows_of(source: str) -> Iterator[Any]:
        if source == "lines":
            return iter(read_rows([firsts[source]], lambda row: event_of_row(row, form), []))
        rows = pq.read_table(firsts[source]).to_pylist()
        return (event_of_columns(row, form, required, set()) for row in rows)

    def by_rows_to_table(source: str) -> int:
        events = Events.of(rows_of(source))
        save_events(events, output, vocabulary)
        return len(events)

    def compiled_to_table(path: Path) -> int:
        done = compile_events_locally([str(path)], compiled, output, form)
        assert done.rejected == 0
        return done.events

    def digest() -> str:
        with EventTable(output, vocabulary) as found:
            return found.digest

    for source, whole in (("lines", lines), ("columns", columns)):
        by_rows_to_table(source)
        expected = digest()
        compiled_to_table(firsts[source])
        assert digest() == expected, "the event tables differ"
        for threads in options.threads:
            numba.set_num_threads(threads)
            times = {what: Times() for what in ("rows", "compiled")}
            for _ in range(options.repetitions):
                times["rows"].add(partial(by_rows_to_table, source))
                times["compiled"].add(partial(compiled_to_table, whole))
            yield {
                "what": "event tables",
                "scenario": options.scenario,
                "filters": table.n_filters,
                "source": source,
                "events": compiled_to_table(whole),
                "bytes": whole.stat().st_size,
                "threads": threads,
                "runs": options.repetitions,
                "events_per_s": {what: found.record() for what, found in times.items()},
            }


def cpu_of_all() -> float:
    """Processor time of this process, of those that it started, of theirs, and so on, seconds."""
    used: dict[int, int] = {}
    started: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            used[int(path.parent.name)] = sum(map(int, fields[11:15]))
            started.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found, total = [os.getpid()], 0
    while found:
        process = found.pop()
        total += used.get(process, 0)
        found += started.get(process, ())
    return total / os.sysconf("SC_CLK_TCK")


def in_spark(options: argparse.Namespace, directory: Path) -> Iterator[dict[str, Any]]:
    """Records of event tables that Spark makes, one for each form of the rows."""
    import pyarrow as pa
    import pyarrow.json
    import pyarrow.parquet as pq

    from spark_prep import events as spark_events
    from spark_prep import job, splits
    from spark_prep.session import session

    table, form, lines = prepared(options, directory)
    compiled, expected, output = (directory / name for name in ("compiled.h5", "table.h5", "spark.h5"))
    table.save(compiled)
    sources = {"lines": lines, "lines in one .gz": directory / "packed.jsonl.gz", "columns": directory / "events.parquet"}
    with gzip.open(sources["lines in one .gz"], "wb") as packed:
        packed.write(lines.read_bytes())
    pq.write_table(pa.json.read_json(lines), sources["columns"], row_group_size=2**16)
    session().range(10).count()

    def compile_(path: Path) -> int:
        done = job.compile_events([str(path)], compiled, output, form)
        assert done.rejected == 0
        return done.events

    def by_spark(path: Path, *, in_ranges: bool) -> int:
        with (
            patch.object(splits, "local_files", lambda _: None),
            patch.object(spark_events, "are_in_ranges", lambda *_: in_ranges),
        ):
            return compile_(path)

    def check() -> None:
        with EventTable(output, table.vocabulary) as found, EventTable(expected, table.vocabulary) as wanted:
            batches = found.batch(0, len(found)), wanted.batch(0, len(wanted))
            assert all(map(np.array_equal, batches[0].columns, batches[1].columns)), "the batches differ"

    for source, path in sources.items():
        compile_events_locally([str(path)], compiled, expected, form)
        ways = {
            "splits": partial(compile_, path),
            "ranges": partial(by_spark, path, in_ranges=True),
            "sorted": partial(by_spark, path, in_ranges=False),
        }
        ways = {way: ways[way] for way in options.ways}
        times = {way: Times(cpu_of_all) for way in ways}
        first = Times(cpu_of_all)
        for way, work in ways.items():
            (first if way == "splits" else Times(cpu_of_all)).add(work)
            check()
        for _ in range(options.repetitions):
            for way, work in ways.items():
                times[way].add(work)
        yield {
            "what": "event tables in Spark",
            "scenario": options.scenario,
            "filters": table.n_filters,
            "source": source,
            "events": compile_(path),
            "bytes": path.stat().st_size,
            "runs": options.repetitions,
            "first": first.record(),
            "events_per_s": {way: found.record() for way, found in times.items()},
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--lines-by-rows", type=int, default=2**15)
    parser.add_argument("--filters", type=int)
    parser.add_argument("--threads", type=lambda text: [int(each) for each in text.split(",")], default=[1, 2])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--columns", action="store_true")
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--ways", type=lambda text: text.split(","), default=["splits", "ranges", "sorted"])
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--corpora", type=Path, default=Path("corpora"))
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    directory = options.directory or Path(tempfile.gettempdir()) / f"mpi-match-lines-{options.scenario}-{options.events}"
    directory.mkdir(parents=True, exist_ok=True)
    kinds = {"columns": of_columns, "tables": tables, "spark": in_spark}
    for record in next((kinds[kind] for kind in kinds if getattr(options, kind)), measure)(options, directory):
        keep(record, options.output)


if __name__ == "__main__":
    main()
