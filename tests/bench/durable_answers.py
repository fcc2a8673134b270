"""What it takes to keep long answers safe: noted where they are in the file, or written twice (decision record 9).

    python tests/bench/durable_answers.py [--batches 1500] [--times 5]

Writes the answers of batches of 4,096 events, 32 filters each, as the master of a run does, in one of four ways:

    noted      present behaviour: answers go to the file of matches, and the journal notes their places
    copied     short answers' way: all of them go to the journal and to the file
    compacted  all of them go to a part, as workers write them, and when all are there from the part into the file
    unsafe     without a journal

and prints a JSON line for each way: seconds until the last batch is written and until the file is in its place (medians),
and bytes that the process has written.  The ways take turns, so that what else the machine does hits all of them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mpi_match.arrays.csr import Array
from mpi_match.arrays.strings import Strings
from mpi_match.cluster.results import output
from mpi_match.journal.reader import EventRange, RunIdentity
from mpi_match.matches.file import MatchesWriter
from mpi_match.matches.part_index import Parts, PartWriter

N_EVENTS, N_EACH = 4096, 32
SYNC_EVERY = 64
"""Batches after which a part is synced: about as often as the journal is."""


class Took(NamedTuple):
    """Seconds until the last batch and until the file is in its place, and bytes written meanwhile."""

    last_s: float
    whole_s: float
    n_bytes: int


def written_bytes() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))


def compacted(directory: Path, identity: RunIdentity, batches: list[EventRange], counts: Array, ids: Array) -> float:
    """Returns when the last batch was written."""
    path = directory / "1-rank-0.answers"
    with PartWriter(path, identity) as part:
        for i, events in enumerate(batches, 1):
            part.append(events, counts, ids)
            if i % SYNC_EVERY == 0 or i == len(batches):
                part.sync()
    last = time.perf_counter()
    with MatchesWriter(directory / "matches.h5", identity.n_ids, Strings.of(()), identity.unit) as writer:
        for record, found in Parts([path], identity).in_order:
            writer.append_raw(*found.answers(record))
    return last


def by_master(way: str, path: Path, identity: RunIdentity, batches: list[EventRange], counts: Array, ids: Array) -> float:
    """Returns when the last batch was written."""
    journalled = way != "unsafe"
    with output.Output(path, identity, Strings.of(()), resume=False, journalled=journalled) as answers:
        for events in batches:
            answers.write(events.start, counts, ids)
        last = time.perf_counter()
        answers.finish()
    return last


def took(way: str, n_batches: int) -> Took:
    rng = np.random.default_rng(1)
    identity = RunIdentity("filter", 1_000_000, n_batches * N_EVENTS, "a", "b", "")
    types = identity.types
    counts, ids = np.full(N_EVENTS, N_EACH, types[0]), rng.integers(0, 10**6, N_EVENTS * N_EACH).astype(types[1])
    batches = [EventRange(i * N_EVENTS, (i + 1) * N_EVENTS) for i in range(n_batches)]
    output.LONG_ANSWER_BYTES = 2**60 if way == "copied" else 2**14
    with tempfile.TemporaryDirectory() as directory:
        before, began = written_bytes(), time.perf_counter()
        if way == "compacted":
            last = compacted(Path(directory), identity, batches, counts, ids)
        else:
            last = by_master(way, Path(directory) / "matches.h5", identity, batches, counts, ids)
        whole = time.perf_counter()
        return Took(last - began, whole - began, written_bytes() - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=1500)
    parser.add_argument("--times", type=int, default=5)
    given = parser.parse_args()
    found: dict[str, list[Took]] = defaultdict(list)
    for _ in range(given.times):
        for way in ("noted", "copied", "compacted", "unsafe"):
            found[way].append(took(way, given.batches))
    for way, each in found.items():
        last_s, whole_s, n_bytes = (statistics.median(values) for values in zip(*each, strict=True))
        seconds = {"last_s": round(last_s, 2), "whole_s": round(whole_s, 2)}
        sys.stdout.write(json.dumps({"way": way, **seconds, "written_mib": round(n_bytes / 2**20)}) + "\n")


if __name__ == "__main__":
    main()
