"""`bench load`: latency against offered load, and the knee."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from mpi_match.cli.errors import CliCommand
from mpi_match.cli.options import ENGINE, MAX_FILTERS, set_option, threads_option
from mpi_match.cli.terminal import say
from mpi_match.lab.cli.bench.options import (
    checked_output,
    directory_option,
    give,
    mpirun_flags_option,
    output_option,
)
from mpi_match.lab.cli.options import SCENARIO
from mpi_match.model import Json


@click.command("load", cls=CliCommand, short_help="Measure latency against offered load, and find the knee.")
@click.argument("scenario", metavar="SCENARIO", type=SCENARIO)
@click.option("--engine", type=ENGINE, default="keyed", show_default=True, help="Engine to measure.")
@set_option
@click.option(
    "--filters", "n_filters", type=click.IntRange(1, MAX_FILTERS), help="Number of filters.  [default: the scenario's own]"
)
@click.option("--events", "n_events", type=click.IntRange(1), default=100_000, show_default=True, help="Number of events.")
@click.option(
    "--batch", type=click.IntRange(1), default=4096, show_default=True, help="Most events that are matched together."
)
@click.option("--repetitions", type=click.IntRange(1), default=1, show_default=True, help="Timed runs at each load.")
@click.option(
    "--workers",
    type=click.IntRange(1),
    metavar="N",
    help="Measure whole runs, of a master and this many workers, instead of an engine in this process.",
)
@mpirun_flags_option
@directory_option
@click.option("--seed", type=click.IntRange(0), default=0, help="Seed of filters and events.")
@threads_option
@output_option
def load(
    scenario: str,
    engine: str,
    workers: int | None,
    mpirun_flags: str,
    directory: Path | None,
    output: Path | None,
    **options: Any,
) -> None:
    """Measure the latency of an engine in this process on SCENARIO, at loads from a tenth of the rate that it serves when
    no event waits for another, until a load is not served any more.

        mpi-match bench load ccm --engine keyed --events 4000000 -o load.jsonl

    Events arrive as a Poisson process; a latency is from arrival to answer: p50, p99 and p99.9.  The knee is the load with
    the most events/s for each microsecond of p99.

    With --workers, events are JSON lines in files that come into a directory which a run follows, and a latency is from
    the rename of a file until the answers are written: scanning, messages and writing are in it.

    One JSON line for each load on standard output as soon as it is measured, the first without load; at the end a table
    on standard error.  A wrong answer ends the measurement with exit code 1.
    """
    from mpi_match.lab.bench.engines import BenchOptions
    from mpi_match.lab.bench.load import load_table, measure_load

    output = checked_output(output)
    if workers is None:
        measured = measure_load(engine, scenario, BenchOptions(**options), tell=say)
    else:
        measured = _of_runs(scenario, engine, workers, mpirun_flags, directory, options)
    found = []
    for record in measured:
        give([record], output)
        found.append(record)
    click.echo(load_table(found), err=True)


def _of_runs(
    scenario: str, engine: str, workers: int, mpirun_flags: str, directory: Path | None, options: dict[str, Any]
) -> Iterator[Json]:
    """The records of whole runs, as they are measured."""
    from mpi_match.lab.bench.run_load import LEAST_OFFERED, measure_run_load
    from mpi_match.lab.bench.scaling import ScalingPlan

    if options.pop("repetitions") > 1:
        raise click.UsageError("--repetitions is for an engine in this process, not with --workers")
    if options["n_events"] < LEAST_OFFERED:
        raise click.UsageError(f"with --workers, a run needs at least {LEAST_OFFERED:,} events")
    how = ["--engine", engine]
    for key, value in options.pop("engine_options").items():
        how += ["--set", f"{key}={value}"]
    plan = ScalingPlan(scenario, (workers,), how=tuple(how), flags=tuple(shlex.split(mpirun_flags)), **options)
    place = tempfile.TemporaryDirectory(prefix="mpi-match-") if directory is None else nullcontext(str(directory))
    with place as name:
        yield from measure_run_load(plan, Path(name), tell=say)
