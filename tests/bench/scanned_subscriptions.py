"""Subscriptions of JSON lines to a table: the scanner beside the reader of single lines, in one process, tables compared.

    python tests/bench/scanned_subscriptions.py SCENARIO [--filters N] [--lines-by-rows N] [--repetitions 5]
                                                [--predicates] [--spark] [--directory DIR] [-o records.jsonl]

Makes the scenario's subscriptions with `mpi-match generate` where they are not there yet.  A repetition measures, one after
the other: `rows` to the columns of `Subscriptions` for the first lines (what `match` did before there was a scanner); the
scanner for all lines, from a warm file; `compile subscriptions --local`, from the file to the table on disk.  The tables of
the first lines must have the same digest, and no line may be left by the scanner.

With `--predicates` each subscription is written as a text, `a > 3 and b in (1, 2)`.

With `--spark` tables as `compile subscriptions` makes them in a Spark session that has made one before: of JSON lines, and
of the same as Parquet.  In turns: `compiled`, the whole job; `parsed`, its first step alone; `judged`, that step where every
row is judged by itself, of a tenth of the rows.  The processor time is that of this process, Java and all Python workers.
The tables must have the arrays of `--local`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

from scanned_events import Times, cpu_of_all

sys.path[:0] = [str(Path(__file__).resolve().parents[i]) for i in (1, 2)]

from bench.keeping import PYTHON, keep, last_json

from mpi_match.commands.compile_locally import compile_locally
from mpi_match.compute.compile_cache import compile_s
from mpi_match.ingest.files.blocks import read_blocks
from mpi_match.ingest.json import subscription_scanner
from mpi_match.ingest.json.subscription_scanner import SubscriptionScanner, read_subscriptions
from mpi_match.ingest.rows.judge import read_rows, subscription_filters
from mpi_match.table.subscriptions import Subscriptions
from mpi_match.table.table import Table


def by_rows(path: Path) -> Subscriptions:
    """The columns of a file, each line an object."""
    found = read_rows([path], subscription_filters, [])
    return Subscriptions.of(item for each in found for item in each or ())


def as_predicates(lines: Path, texts: Path) -> None:
    """Write subscriptions of JSON lines, of plain constraints, with predicates as text."""

    def value(operand: Any) -> str:
        return "'" + operand.replace("'", "''") + "'" if isinstance(operand, str) else json.dumps(operand)

    def term(name: str, op: str, operand: Any = None) -> str:
        name = f'"{name}"'
        if op == "between":
            return f"{name} between {operand[0]} and {operand[1]}"
        if isinstance(operand, list):
            return f"{name} {op} ({', '.join(map(value, operand))})"
        return f"{name} {op}" if operand is None else f"{name} {op} {value(operand)}"

    with lines.open("rb") as source, texts.open("w") as target:
        for line in source:
            row = json.loads(line)
            row["predicate"] = " and ".join(term(*each) for each in row.pop("constraints"))
            target.write(json.dumps(row) + "\n")


def prepared(options: argparse.Namespace, directory: Path) -> Path:
    """The file of a scenario's subscriptions, which is made if it is not there."""
    path = directory / "subscriptions.jsonl"
    if not path.exists():
        words = ["generate", options.scenario, "-o", str(directory), "--filters", str(options.filters), "--format", "jsonl"]
        last_json([*PYTHON, "mpi_match", *words, "--events", "1", "--json"])
    if not options.predicates:
        return path
    texts = directory / "predicates.jsonl"
    if not texts.exists():
        as_predicates(path, texts)
    return texts


def measure(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """The record of a scenario."""
    path, first, table = prepared(options, directory), directory / "first.jsonl", directory / "table.h5"
    with path.open("rb") as handle:
        first.write_bytes(b"".join(islice(handle, options.lines_by_rows)))
    subscription_scanner.FEW_BYTES = subscription_scanner.FEW_UNCOMPILED_BYTES = -1
    scanner = SubscriptionScanner()
    assert not any(scanner.scan(block.data) for block in read_blocks([path])), "lines were left to rows"
    expected = Table.from_subscriptions(by_rows(first)).digest
    assert Table.from_subscriptions(read_subscriptions([first], []).subscriptions).digest == expected, "the tables differ"
    times = {what: Times() for what in ("rows", "scanned", "compiled")}
    for _ in range(options.repetitions):
        times["rows"].add(lambda: by_rows(first).n_filters)
        times["scanned"].add(lambda: read_subscriptions([path], []).n_rows)
        times["compiled"].add(lambda: compile_locally([str(path)], table).rows)
    return {
        "what": "scanned subscriptions",
        "scenario": options.scenario,
        **({"form": "predicates"} if options.predicates else {}),
        "filters": Table.load(table).n_filters,
        "bytes": path.stat().st_size,
        "runs": options.repetitions,
        "compile_s": compile_s(),
        "lines_per_s": {what: found.record() for what, found in times.items()},
    }


def as_columns(lines: Path, columns: Path) -> None:
    """Write subscriptions of JSON lines, of plain constraints, as Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    operands = {"number": pa.float64(), "text": pa.string(), "flag": pa.bool_(), "several": pa.list_(pa.float64())}
    operands["texts"] = pa.list_(pa.string())
    constraint = pa.struct([("name", pa.string()), ("op", pa.string()), *operands.items()])
    schema = pa.schema([("interface", pa.string()), ("constraints", pa.list_(constraint))])

    def operand(value: Any) -> dict[str, Any]:
        if isinstance(value, list):
            return {"texts" if isinstance(value[0], str) else "several": value}
        return {"flag" if isinstance(value, bool) else "text" if isinstance(value, str) else "number": value}

    with lines.open("rb") as handle, pq.ParquetWriter(columns, schema) as writer:
        while block := [json.loads(line) for line in islice(handle, 2**16)]:
            for row in block:
                row["interface"] = str(row["interface"])
                row["constraints"] = [
                    {"name": name, "op": op} | (operand(*rest) if rest else {}) for name, op, *rest in row["constraints"]
                ]
            writer.write_table(pa.Table.from_pylist(block, schema=schema))


def in_spark(options: argparse.Namespace, directory: Path) -> Iterator[dict[str, Any]]:
    """Records of tables that Spark makes, one for each form of the rows."""
    from pyspark.sql import functions as F

    from spark_prep import job, sources, subscriptions
    from spark_prep.session import session

    path, expected, output = prepared(options, directory), directory / "table.h5", directory / "spark.h5"
    compile_locally([str(path)], expected)
    tenth = directory / "tenth.jsonl"
    with path.open("rb") as handle:
        tenth.write_bytes(b"".join(islice(handle, options.filters // 10)))
    files = {"lines": (path, tenth), "columns": (directory / "all.parquet", directory / "tenth.parquet")}
    for lines, columns in zip(*files.values(), strict=True):
        as_columns(lines, columns)
    session().range(10).count()

    def compiled(path: Path) -> int:
        done = job.compile_subscriptions([str(path)], output)
        assert done.rejected == 0
        return done.rows

    def parsed(path: Path) -> int:
        records = subscriptions.parse(sources.read(session(), [str(path)]).rows)
        (row,) = records.agg(F.sum("rows"), F.count("interface")).collect()
        assert row[0] == row[1]
        return int(row[0])

    def judged(path: Path) -> int:
        with patch.object(subscriptions, "_parse_batches", judged_batches):
            return parsed(path)

    for source, (whole, part) in files.items():
        compiled(whole)
        assert Table.load(output) == Table.load(expected), "the tables differ"
        times = {way: Times(cpu_of_all) for way in ("compiled", "parsed", "judged")}
        for _ in range(options.repetitions):
            times["compiled"].add(partial(compiled, whole))
            times["parsed"].add(partial(parsed, whole))
            times["judged"].add(partial(judged, part))
        yield {
            "what": "subscriptions in Spark",
            "scenario": options.scenario,
            "source": source,
            "filters": Table.load(expected).n_filters,
            "bytes": whole.stat().st_size,
            "runs": options.repetitions,
            "rows_per_s": {way: found.record() for way, found in times.items()},
        }


def judged_batches(batches: Iterator[Any]) -> Iterator[Any]:
    """`subscriptions._parse_batches` of rows that are all judged."""
    from spark_prep import subscriptions

    for batch in batches:
        yield from subscriptions._judged(subscriptions.contents(batch), batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario")
    parser.add_argument("--filters", type=int, default=1_000_000)
    parser.add_argument("--lines-by-rows", type=int, default=2**15)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--predicates", action="store_true")
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--directory", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    if options.spark and options.predicates:
        parser.error("--predicates is without --spark")
    name = f"mpi-match-subscriptions-{options.scenario}-{options.filters}"
    directory = options.directory or Path(tempfile.gettempdir()) / name
    directory.mkdir(parents=True, exist_ok=True)
    for record in in_spark(options, directory) if options.spark else [measure(options, directory)]:
        keep(record, options.output)


if __name__ == "__main__":
    main()
