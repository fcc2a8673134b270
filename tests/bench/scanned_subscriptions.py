"""Subscriptions of JSON lines to a table: the scanner beside the reader of single lines, in one process, tables compared.

    python tests/bench/scanned_subscriptions.py SCENARIO [--filters N] [--lines-by-rows N] [--repetitions 5]
                                                [--directory DIR] [-o records.jsonl]

Makes the scenario's subscriptions with `mpi-match generate` where they are not there yet.  A repetition measures, one after
the other: `rows` to the columns of `Subscriptions` for the first lines (what `match` did before there was a scanner); the
scanner for all lines, from a warm file; `compile subscriptions --local`, from the file to the table on disk.  The tables of
the first lines must have the same digest, and no line may be left by the scanner.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

from scanned_events import Times

sys.path[:0] = [str(Path(__file__).resolve().parents[i]) for i in (1, 2)]

from bench.keeping import PYTHON, keep, last_json

from mpi_match.commands.compile_locally import compile_locally
from mpi_match.compute.compile_cache import compile_s
from mpi_match.ingest import subscription_scanner
from mpi_match.ingest.line_blocks import read_blocks
from mpi_match.ingest.rows import read_rows, subscription_filters
from mpi_match.ingest.subscription_scanner import SubscriptionScanner, read_subscriptions
from mpi_match.table.subscriptions import Subscriptions
from mpi_match.table.table import Table


def by_rows(path: Path) -> Subscriptions:
    """The columns of a file, each line an object."""
    found = read_rows([path], subscription_filters, [])
    return Subscriptions.of(item for each in found for item in each or ())


def measure(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """The record of a scenario."""
    path, first, table = directory / "subscriptions.jsonl", directory / "first.jsonl", directory / "table.h5"
    if not path.exists():
        words = ["generate", options.scenario, "-o", str(directory), "--filters", str(options.filters), "--format", "jsonl"]
        last_json([*PYTHON, "mpi_match", *words, "--events", "1", "--json"])
    with path.open("rb") as handle:
        first.write_bytes(b"".join(islice(handle, options.lines_by_rows)))
    subscription_scanner.FEW_BYTES = -1
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
        "filters": Table.load(table).n_filters,
        "bytes": path.stat().st_size,
        "runs": options.repetitions,
        "compile_s": compile_s(),
        "lines_per_s": {what: found.record() for what, found in times.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario")
    parser.add_argument("--filters", type=int, default=1_000_000)
    parser.add_argument("--lines-by-rows", type=int, default=2**15)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    name = f"mpi-match-subscriptions-{options.scenario}-{options.filters}"
    directory = options.directory or Path(tempfile.gettempdir()) / name
    directory.mkdir(parents=True, exist_ok=True)
    keep(measure(options, directory), options.output)


if __name__ == "__main__":
    main()
