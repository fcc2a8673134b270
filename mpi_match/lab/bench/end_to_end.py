"""From events on disk to answers on disk, through the launcher: one master, W workers, as a user's run.

* **Timed** by the runs themselves: from the first batch to the answers safe on disk.  A first run, which compiles and fills
  caches, is not counted (`ScalingPlan.warm_up`).
* **Checked.**  A sample of the last answers is judged against the naive matcher (`verify`).
* **Long enough.**  A fast engine finishes a small workload before it reaches its steady state.  With `times` the event table
  is an index that repeats the same parts, or the lines are a directory that repeats the same file.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from mpi_match.environment.machine import origin
from mpi_match.ingest.rows.judge import PLAIN, EventForm
from mpi_match.lab.bench.engines import WrongAnswer
from mpi_match.lab.bench.scaling import Run, ScalingPlan, launched
from mpi_match.lab.workloads.files import LOCATION, kept_workload, repeat_events
from mpi_match.matches.matches import id_dtype
from mpi_match.model import Json
from mpi_match.table.table import Table
from mpi_match.verify.verify import VerifiedFiles, verify

LINES_FILTERS = 1000
"""Number of filters written beside lines of events; a run of lines does not read them."""


class EndToEndFiles(NamedTuple):
    """The input of the runs; `form` is that of lines."""

    table: Path
    events: Path
    form: EventForm


def make_files(plan: ScalingPlan, directory: Path, *, times: int = 1, lines: bool = False) -> EndToEndFiles:
    """Write the table and the events, `times` times over, unless an earlier call did.

    Raises StorageError, OSError.
    """
    scenario, table = plan.drawn_from, directory / "table.h5"
    if not lines:
        kept_workload(scenario, directory, plan.n_events, plan.seed)
        events = directory / "events.h5"
        if times > 1:
            repeat_events(events, times, directory / f"events-x{times}.h5")
            events = directory / f"events-x{times}.h5"
        return EndToEndFiles(table, events, PLAIN)
    table, beside = directory / "lines" / "table.h5", directory / "lines" / "rows"
    kept_workload(scenario, table.parent, 1, plan.seed)
    kept_workload(scenario.scaled(LINES_FILTERS), beside, plan.n_events, plan.seed, "jsonl")
    events = beside / "events.jsonl"
    if times > 1:
        events = _linked(events, times)
    return EndToEndFiles(table, events, EventForm(LOCATION) if scenario.area else PLAIN)


def _linked(events: Path, times: int) -> Path:
    """A directory that links a file of lines `times` times."""
    path = events.with_name(f"events-x{times}")
    path.mkdir(exist_ok=True)
    for i in range(times):
        link = path / f"part-{i:03}.jsonl"
        link.unlink(missing_ok=True)  # of lines that were here before
        link.hardlink_to(events)
    return path


def measure(
    plan: ScalingPlan, files: EndToEndFiles, output: Path, chosen: Mapping[str, object], run: Run = launched
) -> Iterator[Json]:
    """Run with each number of workers of a plan, into `output`; yields a record for each.

    A record has `what` ("end to end", or "lines end to end"), `scenario`, `n_filters`, what is `chosen` (the options of
    `run` in `plan.how`, by name), `threads`, `batch`, `runs`, `events_per_s` (median, min, max over the runs), `events`,
    `matches`, `engine`, `device`, `workers`, `answer_bytes_per_s` (counts and ids, as written), `verified`, and its origin.
    Raises WrongAnswer, LaunchError, StorageError, OSError.
    """
    table = Table.load(files.table)
    form = ("--location", ",".join(files.form.location)) if files.form.location else ()
    for workers in plan.workers:
        one = replace(plan, how=(*plan.how, *form))
        for _ in range(plan.warm_up):
            run(one, workers, files.table, files.events, output)
        last = [run(one, workers, files.table, files.events, output) for _ in range(plan.repetitions)]
        verdict = verify(VerifiedFiles(files.table, files.events, output, form=files.form), plan.check or 1, plan.seed)
        if verdict.difference is not None:
            raise WrongAnswer(f"{workers} workers have a wrong answer to {verdict.difference}")
        rates = [summary["events_per_s"] for summary in last]
        per_event = _answer_bytes(table, last[-1]) / last[-1]["events"]
        yield {
            "what": "lines end to end" if files.events.suffix != ".h5" else "end to end",
            "scenario": plan.scenario,
            "n_filters": table.n_filters,
            **chosen,
            "threads": plan.threads_each,
            "batch": plan.batch,
            "runs": len(rates),
            "events_per_s": {"median": statistics.median(rates), "min": min(rates), "max": max(rates)},
            **{key: last[-1][key] for key in ("events", "matches", "engine", "device", "workers")},
            "answer_bytes_per_s": statistics.median(rates) * per_event,
            "verified": {"verified": True, "checked": verdict.checked, "judge": verdict.judge},
            **origin(),
        }


def _answer_bytes(table: Table, summary: Json) -> int:
    """Bytes of a run's counts and ids, in messages and on disk."""
    n_ids = table.n_interfaces
    return int(summary["events"] * id_dtype(n_ids + 1).itemsize + summary["matches"] * id_dtype(n_ids).itemsize)
