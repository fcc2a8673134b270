"""The scanner against `rows` on many mutants of lines, good and bad, on the CPU and with `--gpu` on a GPU.

    python tests/support/judged_mutants.py [--lines 10000000] [--seed 1] [--processes N] [--gpu] [-o records.jsonl]

Processes make parts of the lines, each from a seed of its own; they scan them, have `rows` judge every line, and compare
events, locations and rejects.  A GPU scans the same lines: rows that it does not flag must be those events, and it must flag
about as many as the CPU does.  It flags lines that need more room than a thread has there; and it reads some byte by byte
that the CPU, which reads vectors, flags, such as a vertical tab behind a row.  Ends with an error at the first difference.
One JSON line: lines, rejected ones, flagged ones on each.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from event_lines import VOCABULARY, mutated_lines

from mpi_match.environment.machine import origin
from mpi_match.events.events import Events
from mpi_match.ingest.files.blocks import LineBlock
from mpi_match.ingest.json.event_scanner import EventScanner
from mpi_match.ingest.rows.judge import EventForm, Reject, event_of_row, names_of, read_rows
from mpi_match.lab.bench.report import append_json, json_line

FORM = EventForm(("x", "y"))
NAMES = names_of(VOCABULARY, FORM)
PART_LINES = 125_000
FLAGGED_APART = 1e-3
"""Share of the lines by which the numbers of flagged ones may differ."""


def judged_part(directory: Path, seed: int, n_lines: int) -> tuple[int, int, int]:
    """Make a part, compare the scanner with `rows`, and keep bytes and events: rows, rejected ones, flagged ones."""
    path = directory / f"{seed}.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in mutated_lines(n_lines, seed)))
    data = np.fromfile(path, np.uint8)
    rejects: list[Reject] = []
    expected_rejects: list[Reject] = []
    found = EventScanner(VOCABULARY, FORM, 1).scan(LineBlock(data, str(path.absolute()), 1), rejects)
    events = list(read_rows([path], lambda row: event_of_row(row, FORM, names_of(VOCABULARY, FORM)), expected_rejects))
    expected = Events.of(events).encode(VOCABULARY)
    assert rejects == expected_rejects, f"seed {seed}: the rejects differ"
    for name in ("offsets", "attributes", "location", "rejected"):
        a, b = getattr(found.batch, name), getattr(expected, name)
        assert np.array_equal(a, b, equal_nan=name == "location"), f"seed {seed}: {name} differ"
    np.savez(directory / f"{seed}.npz", offsets=a_of(expected.offsets), attributes=expected.attributes)
    if expected.location is not None:
        np.save(directory / f"{seed}-location.npy", expected.location)
    np.save(directory / f"{seed}-rejected.npy", a_of(expected.rejected))
    return len(expected), len(a_of(expected.rejected)), found.n_flagged


def a_of(array: np.ndarray | None) -> np.ndarray:
    """The array, or an empty one."""
    return np.zeros(0, np.uint32) if array is None else array


def flagged_by_gpu(directory: Path, seeds: range) -> int:
    """Scan all parts on a GPU and compare rows that are not flagged; how many are."""
    from mpi_match.gpu import line_scanner
    from mpi_match.gpu.kernels import open_gpu
    from mpi_match.gpu.line_scanner import GpuLineScanner

    line_scanner.NOT_TRIED = 0  # all are looked at as plain lines first
    scanner, n_flagged = GpuLineScanner(open_gpu(), VOCABULARY, FORM), 0
    buffers = scanner.buffers()
    for seed in seeds:
        rows = scanner.scan(np.fromfile(directory / f"{seed}.jsonl", np.uint8), buffers)
        found, expected = scanner.fetched(rows, buffers), np.load(directory / f"{seed}.npz")
        kept = np.ones(rows.n_rows, bool)
        kept[rows.flagged] = False
        assert not kept[np.load(directory / f"{seed}-rejected.npy")].any(), f"seed {seed}: a bad row is not flagged"
        lengths = np.diff(expected["offsets"])
        assert np.array_equal(np.diff(found.offsets), np.where(kept, lengths, 0)), f"seed {seed}: attributes differ"
        assert np.array_equal(found.attributes, expected["attributes"][np.repeat(kept, lengths)]), (
            f"seed {seed}: codes differ"
        )
        location = np.load(directory / f"{seed}-location.npy")
        assert found.location is not None
        assert found.location[kept].tobytes() == location[kept].tobytes(), f"seed {seed}: locations differ"
        n_flagged += len(rows.flagged)
    return n_flagged


def measure(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    seeds = range(options.seed, options.seed + -(-options.lines // PART_LINES))
    n = min(PART_LINES, options.lines)
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as processes:
        parts = list(processes.map(judged_part, [directory] * len(seeds), seeds, [n] * len(seeds)))
    rows, rejected, flagged = (sum(each) for each in zip(*parts, strict=True))
    record = {"what": "mutated lines", "lines": rows, "rejected": rejected, "flagged": flagged}
    if options.gpu:
        record["flagged_by_gpu"] = flagged_by_gpu(directory, seeds)
        assert abs(record["flagged_by_gpu"] - flagged) <= FLAGGED_APART * rows, record
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        record = {**measure(options, Path(directory)), **origin()}
    sys.stdout.write(json_line(record) + "\n")
    if options.output:
        append_json(options.output, [record])


if __name__ == "__main__":
    main()
