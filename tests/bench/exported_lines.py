"""Answers to JSON lines and to Arrow: the compiled writer beside Python's encoder, in one process, the bytes compared.

    python tests/bench/exported_lines.py [--events 1000000] [--labels 0.3,3] [--threads 1,2] [--repetitions 5]
                                           [-o records.jsonl]

Random answers of so many labels an event on average, of 1,000 interfaces, to a file in memory; every 20th event through
`json.dumps`; and all as an Arrow file in memory, whose answers are compared with those of the lines.  One JSON line for
each: events per second, median, least and greatest.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
import pyarrow as pa

sys.path[:0] = [str(Path(__file__).resolve().parents[i]) for i in (1, 2)]

from bench.keeping import keep

from mpi_match.arrays.strings import Strings
from mpi_match.matches.arrow import BATCH_EVENTS, ArrowAnswers
from mpi_match.matches.json_lines import LineWriter
from mpi_match.matches.matches import Matches

N_INTERFACES = 1000


def rate_of(n: int, work: Callable[[], bytes], rates: list[float]) -> bytes:
    began = time.perf_counter()
    found = work()
    rates.append(n / (time.perf_counter() - began))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--labels", type=lambda text: [float(each) for each in text.split(",")], default=[0.3, 3.0])
    parser.add_argument("--threads", type=lambda text: [int(each) for each in text.split(",")], default=[1, 2])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    labels = Strings.of(f"mobile-{i}".encode() for i in range(N_INTERFACES))
    writer, n = LineWriter("interface", labels), options.events
    for mean in options.labels:
        generator = np.random.default_rng(0)
        event = generator.integers(0, n, int(mean * n))
        answers = Matches.from_pairs(event, generator.integers(0, N_INTERFACES, len(event)), n, N_INTERFACES)

        def compiled(answers: Matches = answers) -> bytes:
            pieces = (
                piece
                for start in range(0, n, BATCH_EVENTS)
                for piece in writer.lines(start, answers[start : start + BATCH_EVENTS], None)
            )
            return b"".join(piece.tobytes() for piece in pieces)

        def by_rows(answers: Matches = answers) -> bytes:
            rows = enumerate(answers[: n // 20].labels(labels))
            return "".join(json.dumps({"event": i, "interfaces": each}) + "\n" for i, each in rows).encode()

        def arrow(answers: Matches = answers) -> bytes:
            table, file = ArrowAnswers("interface", labels, N_INTERFACES).table(answers, None), pa.BufferOutputStream()
            with pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
            return bytes(file.getvalue())

        first = pa.ipc.open_file(pa.py_buffer(arrow())).read_all().slice(0, n // 20).to_pylist()
        assert "".join(json.dumps(each) + "\n" for each in first).encode() == by_rows(), "the answers differ"
        compiled()
        for threads in options.threads:
            numba.set_num_threads(threads)
            rates: dict[str, list[float]] = {"compiled": [], "rows": [], "arrow": []}
            for _ in range(options.repetitions):
                lines = rate_of(n, compiled, rates["compiled"])
                assert lines.startswith(rate_of(n // 20, by_rows, rates["rows"])), "the lines differ"
                rate_of(n, arrow, rates["arrow"])
            record = {
                "what": "exported lines",
                "labels": mean,
                "events": n,
                "bytes": len(lines),
                "threads": threads,
                "runs": options.repetitions,
                "events_per_s": {
                    way: {"median": statistics.median(each), "min": min(each), "max": max(each)}
                    for way, each in rates.items()
                },
            }
            keep(record, options.output)


if __name__ == "__main__":
    main()
