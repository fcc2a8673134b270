"""Subscriptions of JSON lines to a table: compiled code beside Python's reader of single rows, tables compared."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

from mpi_match.commands.compile_locally import compile_locally
from mpi_match.compute.compile_cache import compile_s
from mpi_match.environment.machine import origin
from mpi_match.ingest.files.blocks import read_blocks
from mpi_match.ingest.json import subscription_scanner
from mpi_match.ingest.json.subscription_scanner import SubscriptionScanner, read_subscriptions
from mpi_match.ingest.rows.judge import read_rows, subscription_filters
from mpi_match.lab.bench.engines import require
from mpi_match.lab.bench.read.events import ReadPlan
from mpi_match.lab.bench.read.times import Times
from mpi_match.lab.workloads.files import kept_workload
from mpi_match.model import Json
from mpi_match.table.subscriptions import Subscriptions
from mpi_match.table.table import Table


def _by_rows(path: Path) -> Subscriptions:
    """The columns of a file, read line by line in Python."""
    found = read_rows([path], subscription_filters, [])
    return Subscriptions.of(item for each in found for item in each or ())


def _write_predicates(lines: Path, texts: Path) -> None:
    """Rewrite subscriptions so that each predicate is a text, as in `a > 3 and b in (1, 2)`."""

    def value(operand: object) -> str:
        return "'" + operand.replace("'", "''") + "'" if isinstance(operand, str) else json.dumps(operand)

    def term(name: str, op: str, operand: object = None) -> str:
        name = f'"{name}"'
        if isinstance(operand, list):
            return (
                f"{name} between {operand[0]} and {operand[1]}"
                if op == "between"
                else f"{name} {op} ({', '.join(map(value, operand))})"
            )
        return f"{name} {op}" if operand is None else f"{name} {op} {value(operand)}"

    with lines.open("rb") as source, texts.open("w", encoding="utf-8") as target:
        for line in source:
            row = json.loads(line)
            row["predicate"] = " and ".join(term(*each) for each in row.pop("constraints"))
            target.write(json.dumps(row) + "\n")


def measure_subscriptions(plan: ReadPlan, directory: Path, *, predicates: bool) -> Json:
    """The record of a scenario's subscriptions, written as JSON, or with predicates as text.

    Each repetition times a warm file to columns, and to a table on disk (`compile subscriptions --local`); Python
    reads the first lines.  Raises WrongAnswer when the tables differ.
    """
    kept_workload(plan.drawn_from, directory, 1, 0, "jsonl")
    path, first, table = directory / "subscriptions.jsonl", directory / "first.jsonl", directory / "table.h5"
    if predicates:
        path = directory / "predicates.jsonl"
        _write_predicates(directory / "subscriptions.jsonl", path)
    with path.open("rb") as handle:
        first.write_bytes(b"".join(islice(handle, plan.reference_rows)))
    subscription_scanner.FEW_BYTES = subscription_scanner.FEW_UNCOMPILED_BYTES = -1  # also short files are compiled code's
    scanner = SubscriptionScanner()
    require(not any(scanner.scan(block.data) for block in read_blocks([path])), "lines were left to rows")
    expected = Table.from_subscriptions(_by_rows(first)).digest
    found = Table.from_subscriptions(read_subscriptions([first], []).subscriptions).digest
    require(found == expected, "the tables of the scanner and of rows differ")
    times = {what: Times() for what in ("rows", "scanned", "compiled")}
    for _ in range(plan.repetitions):
        times["rows"].add(lambda: _by_rows(first).n_filters)
        times["scanned"].add(lambda: read_subscriptions([path], []).n_rows)
        times["compiled"].add(lambda: compile_locally([str(path)], table).rows)
    return {
        "what": "scanned subscriptions",
        "scenario": plan.scenario,
        **({"form": "predicates"} if predicates else {}),
        "filters": Table.load(table).n_filters,
        "bytes": path.stat().st_size,
        "runs": plan.repetitions,
        "compile_s": compile_s(),
        "lines_per_s": {what: found.record() for what, found in times.items()},
        **origin(),
    }
