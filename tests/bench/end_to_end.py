"""From an event table on disk to verified answers on disk, through mpirun: one master, N workers.

    python tests/bench/end_to_end.py SCENARIO [--events N] [--times 1] [--workers 1,2,4] [--feed master]
                                     [--results master] [--engine auto] [--threads 1] [--batch 524288] [--credits 8]
                                     [--no-journal] [--lines] [--repetitions 3] [--directory DIR] [-o records.jsonl]

Makes the workload with `mpi-match generate` where it is not there yet, runs `mpi-match run` under mpirun several times,
and has `mpi-match verify` judge a sample of the last answers against the naive matcher.  One JSON line for each number of
workers: events per second (`run`'s own clock: from the first batch to the answers safe on disk), bytes of answers per
second, verdict, machine, versions, commit, command.  A first run, which compiles and fills the caches, is not counted.

With `--lines` the events are JSON lines, which the workers scan.  What matches 500 million events a second is done with
those that are quickly generated before it has started well: with `--times N` the event table is an index that has the same
part N times, or the lines are a directory that has the same file N times.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from mpi_match.cluster import FEEDS, RESULTS
from mpi_match.environment.machine import command, commit, machine, versions
from mpi_match.events.event_table import EventTable, event_counts, save_events
from mpi_match.events.events import Events
from mpi_match.journal.manifest import read_manifest
from mpi_match.matches.matches import id_dtype
from mpi_match.storage import FilePart, parts_directory, write_index
from mpi_match.table.table import Table
from mpi_match.table.vocabulary import Vocabulary
from mpi_match.workloads.files import LOCATION
from mpi_match.workloads.scenarios import SCENARIOS

PYTHON = [sys.executable, "-m"]


def output_of(words: list[str]) -> str:
    """Run a command in the project's root; what it prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


def last_json(words: list[str]) -> dict[str, Any]:
    """Run a command in the project's root; one line of its output is an object (mpirun may add others)."""
    found: dict[str, Any] = json.loads(next(line for line in output_of(words).splitlines() if line.startswith("{")))
    return found


def summaries_of(
    options: argparse.Namespace, directory: Path, workers: int, how: list[str]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Make the workload in `directory` where it is not there yet; run it with the options `how`, and judge the last answers.

    Returns the summaries of the runs, but for the first, and the verdict.
    """
    table, events, matches = (directory / name for name in ("table.h5", "events.h5", "matches.h5"))
    times = getattr(options, "times", 1)
    if not events.exists():
        size = ["--filters", str(options.filters)] if options.filters else []
        words = ["generate", options.scenario, "-o", str(directory), "--events", str(options.events), *size, "--json"]
        last_json([*PYTHON, "mpi_match", *words])
    form = []
    if not getattr(options, "lines", False):
        events = repeated(events, table, times) if times > 1 else events
    else:
        events, scenario = directory / "events.jsonl", SCENARIOS[options.scenario]
        form = ["--location", ",".join(LOCATION)] if scenario.area else []
        if not events.exists():
            words = ["generate", options.scenario, "-o", str(directory), "--filters", "1000", "--format", "jsonl"]
            last_json([*PYTHON, "mpi_match", *words, "--events", str(options.events), "--json"])
        events = linked(events, times) if times > 1 else events
    launcher = ["mpirun", *os.environ.get("MPIRUN_FLAGS", "").split(), "-n", str(workers + 1)]
    files = ["--table", str(table), "--events", str(events), *form]
    run = [*launcher, *PYTHON, "mpi4py", "-m", "mpi_match", "run", *files, "-o", str(matches), *how, "--json"]
    summaries = [summary_of(run, matches) for _ in range(options.repetitions + 1)][1:]
    verdict = last_json(
        [*PYTHON, "mpi_match", "verify", *files, "--matches", str(matches), "--sample", str(options.sample), "--json"]
    )
    return summaries, verdict


def summary_of(run: list[str], matches: Path) -> dict[str, Any]:
    """Run, and take the summary from the manifest: mpirun may lose the last line of what a rank prints."""
    output_of(run)
    manifest = read_manifest(matches)
    assert manifest is not None
    summary: dict[str, Any] = manifest["run"]
    return summary


def answer_bytes(table: Path, summary: dict[str, Any]) -> int:
    """Bytes of a run's counts and ids, as messages and as written."""
    n_ids = Table.load(table).n_interfaces
    return int(summary["events"] * id_dtype(n_ids + 1).itemsize + summary["matches"] * id_dtype(n_ids).itemsize)


def repeated(events: Path, table: Path, times: int) -> Path:
    """An event table that has the parts of another so many times; made where it is not there yet."""
    path = events.with_name(f"events-{times}-times.h5")
    if not path.exists():
        vocabulary = Table.load(table).vocabulary
        parts_directory(path).mkdir(exist_ok=True)
        with EventTable(events, vocabulary) as once:
            parts = [part_of(once.raw_part(i), path, i, vocabulary) for i in range(once.n_parts)]
            write_index(path, "events", parts * times, event_counts(times * len(once), vocabulary))
    return path


def linked(events: Path, times: int) -> Path:
    """A directory that has a file of lines so many times; made where it is not there yet."""
    path = events.with_name(f"events-{times}-times")
    path.mkdir(exist_ok=True)
    for i in range(times):
        if not (link := path / f"part-{i:03}.jsonl").exists():
            link.hardlink_to(events)
    return path


def part_of(events: Events, path: Path, number: int, vocabulary: Vocabulary) -> FilePart:
    """A part of the event table at `path`, written."""
    name = f"part-{number}.h5"
    return FilePart(name, len(events), save_events(events, parts_directory(path) / name, vocabulary, "events-part"))


def keep(record: dict[str, Any], output: Path | None) -> None:
    """Print a record, with machine, versions, commit and command, and add it to a file of records."""
    made = {
        "machine": machine(),
        "versions": versions(),
        "commit": commit(),
        "command": command(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    line = json.dumps({**record, **made})
    sys.stdout.write(line + "\n")
    if output:
        with output.open("a", encoding="utf-8") as handle:
            handle.write(line + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario")
    parser.add_argument("--events", type=int, default=2**25)
    parser.add_argument("--filters", type=int)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--workers", type=lambda text: [int(each) for each in text.split(",")], default=[1])
    parser.add_argument("--threads", type=int)
    parser.add_argument("--feed", choices=FEEDS, default="master")
    parser.add_argument("--results", choices=RESULTS, default="master")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--batch", type=int, default=2**19)
    parser.add_argument("--credits", type=int, default=8)
    parser.add_argument("--no-journal", action="store_true")
    parser.add_argument("--lines", action="store_true")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--sample", type=int, default=40)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    directory = options.directory or Path(tempfile.gettempdir()) / f"mpi-match-{options.scenario}-{options.events}"
    how = {key: getattr(options, key) for key in ("engine", "feed", "results", "batch", "credits", "threads")}
    how = {key: value for key, value in how.items() if value is not None}
    words = [word for key, value in how.items() for word in (f"--{key}", str(value))]
    words += ["--no-journal"] * options.no_journal
    for workers in options.workers:
        summaries, verdict = summaries_of(options, directory, workers, words)
        rates = [summary["events_per_s"] for summary in summaries]
        last = summaries[-1]
        record = {
            "what": "lines end to end" if options.lines else "end to end",
            "scenario": options.scenario,
            **how,
            "journal": not options.no_journal,
            "runs": len(rates),
            "events_per_s": {"median": statistics.median(rates), "min": min(rates), "max": max(rates)},
            **{key: last[key] for key in ("events", "matches", "engine", "device", "workers")},
            "answer_bytes_per_s": statistics.median(rates) / last["events"] * answer_bytes(directory / "table.h5", last),
            "verified": verdict,
        }
        keep(record, options.output)


if __name__ == "__main__":
    main()
