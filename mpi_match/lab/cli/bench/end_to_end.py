"""`bench end-to-end`: runs through the launcher, from events on disk to verified answers on disk."""

from __future__ import annotations

import shlex
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from mpi_match.cli.errors import CliCommand
from mpi_match.cli.options import (
    MAX_FILTERS,
    engine_option,
    param_option,
    set_option,
    threads_option,
)
from mpi_match.cli.terminal import say
from mpi_match.humanize import plural, rate
from mpi_match.lab.cli.bench.options import (
    Workers,
    checked_output,
    give,
    launch_options,
    output_option,
    words_of,
)
from mpi_match.lab.cli.options import SCENARIO

_OF_PLAN = (
    *("n_events", "n_filters", "batch", "repetitions", "seed", "check", "threads", "parameters", "under", "workers"),
    "warm_up",
)


@click.command("end-to-end", cls=CliCommand, short_help="Measure runs, from events on disk to verified answers on disk.")
@click.argument("scenario", metavar="SCENARIO", type=SCENARIO)
@engine_option
@set_option
@param_option
@click.option(
    "--filters", "n_filters", type=click.IntRange(1, MAX_FILTERS), help="Number of filters.  [default: the scenario's own]"
)
@click.option("--events", "n_events", type=click.IntRange(1), default=2**25, help="Number of events that are generated.")
@click.option("--times", type=click.IntRange(1), default=1, help="Number of times that the generated events are matched.")
@click.option("--lines", is_flag=True, help="Events are JSON lines, which the workers scan, instead of an event table.")
@click.option("--workers", type=Workers(), default="1", metavar="W,W,...", help="Numbers of workers to measure.")
@click.option("--batch", type=click.IntRange(1), default=2**19, help="Events in a batch.")
@click.option("--repetitions", type=click.IntRange(1), default=3, help="Timed runs; the median is reported.")
@click.option("--warm-up/--no-warm-up", default=True, help="Make an uncounted run first, which compiles and fills caches.")
@click.option("--seed", type=click.IntRange(0), default=0, help="Seed of filters and events.")
@click.option("--check", type=click.IntRange(1), default=40, help="Events whose answers are judged by the naive matcher.")
@threads_option
@launch_options
@click.option("--only-generate", is_flag=True, help="Only write the workload to --directory, for a later call.")
@output_option
def end_to_end(
    scenario: str,
    times: int,
    lines: bool,
    mpirun_flags: str,
    directory: Path | None,
    only_generate: bool,
    output: Path | None,
    **options: Any,
) -> None:
    """Launch runs of a SCENARIO and measure them: from events on disk to answers on disk, as `run` times itself.

    For each number of --workers, an uncounted run comes first (skip it with --no-warm-up if all code is compiled), then the
    repetitions; a sample of the last answers is judged.  A worker has the same number of threads in every run.

        mpi-match bench end-to-end ccm --events 8388608 --workers 1,2,4 --feed shared --results local -o runs.jsonl

    A GPU matches events faster than they are generated: --times 96 lists the same parts of the event table 96 times.

    One JSON line for each number of workers on standard output.  A wrong answer ends the measurement with exit code 1.
    """
    from mpi_match.engines.registry import check_options
    from mpi_match.lab.bench.end_to_end import make_files, measure
    from mpi_match.lab.bench.scaling import ScalingPlan

    if only_generate and directory is None:
        raise click.UsageError("--only-generate needs the --directory that the workload is left in")
    output = checked_output(output)
    of_plan, given = {name: options.pop(name) for name in _OF_PLAN}, options.pop("engine_options")
    check_options([options["engine"]], given)
    sets = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
    how = (*(word for name, value in options.items() for word in words_of(name, value)), *sets)
    plan = ScalingPlan(scenario, how=how, flags=tuple(shlex.split(mpirun_flags)), **of_plan)
    with nullcontext(directory) if directory else tempfile.TemporaryDirectory(prefix="mpi-match-") as place:
        files = make_files(plan, Path(place), times=times, lines=lines)
        if only_generate:
            say(f"{files.events} written")
            return
        chosen = {name: value for name, value in options.items() if value is not None}
        for record in measure(plan, files, Path(place) / "matches.h5", {**chosen, **({"set": given} if given else {})}):
            give([record], output)
            found = record["events_per_s"]
            spread = f"{rate(found['min'])} to {rate(found['max'])}"
            workers, events = plural(record["workers"], "worker"), plural(record["events"], "event")
            where = f"{record['engine']} on {record['device']}"
            say(f"{scenario}, {workers}, {events}: {rate(found['median'])} ({spread}); {where}")
