"""One event at a time through the cluster: how long from the master to a worker and back, answers checked in the same run.

    python tests/bench/one_event.py [SCENARIO] [--events 20000] [--engine auto] [--repetitions 3] [--sample 40]
                                    [--directory DIR] [-o records.jsonl]

One master and one worker under mpirun (flags for it in the environment: MPIRUN_FLAGS) with `mpi-match run --batch 1
--credits 1`: an event is sent when the one before has been answered.  The clock is `run`'s own, in the master: it starts
when the encoded event is about to be sent and stops when its matched interfaces are there.  `mpi-match verify` judges a
sample of the last answers against the naive matcher.  One JSON line: p50 and p99 of each run and the median of both,
verdict, machine, versions, commit, command.  A first run, which compiles and fills the caches, is made and not counted.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from end_to_end import keep, summaries_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", nargs="?", default="ccm")
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--filters", type=int)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--sample", type=int, default=40)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    directory = options.directory or Path(tempfile.gettempdir()) / f"mpi-match-{options.scenario}-{options.events}"
    how = ["--engine", options.engine, "--batch", "1", "--credits", "1"]
    summaries, verdict = summaries_of(options, directory, 1, how)
    trips = [summary["round_trip_us"] for summary in summaries]
    record = {
        "what": "one event",
        "scenario": options.scenario,
        "runs": trips,
        "round_trip_us": {name: statistics.median(trip[name] for trip in trips) for name in trips[0]},
        "events_per_s": statistics.median(summary["events_per_s"] for summary in summaries),
        **{key: summaries[-1][key] for key in ("events", "matches", "engine", "device", "workers")},
        "verified": verdict,
    }
    keep(record, options.output)


if __name__ == "__main__":
    main()
