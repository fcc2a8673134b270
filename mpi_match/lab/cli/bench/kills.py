"""`bench kills`: runs whose ranks are killed, again and again."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from mpi_match.cli.errors import CliCommand, CliFailure
from mpi_match.cli.options import placement_option
from mpi_match.cli.terminal import say
from mpi_match.humanize import plural
from mpi_match.lab.cli.bench.options import checked_output, give, output_option
from mpi_match.model import Json

_WORKERS, _MASTER, _OUTCOMES = "workers", "master", "outcomes"
_ONLY = {name: (_WORKERS,) for name in ("stops", "placement", "least", "batch")} | {"workers": (_WORKERS, _MASTER)}
"""Options that apply only to some of the kinds."""


@click.command("kills", cls=CliCommand, short_help="Kill ranks of runs at random moments and compare the answers.")
@click.argument("whom", metavar="[workers|master|outcomes]", type=click.Choice([_WORKERS, _MASTER, _OUTCOMES]))
@click.option(
    "--kills", "n_kills", type=click.IntRange(1), help="Number of kills; for outcomes, of each kind.  [default: 100; 5]"
)
@click.option("--stops", type=click.IntRange(0), default=0, help="Number of workers that are also stopped for a while.")
@click.option("--workers", type=click.IntRange(0), default=3, help="Workers of a run; for master, 0 means one process.")
@click.option(
    "--least", type=click.IntRange(2), help="Least number of workers; each run has a random number up to --workers."
)
@click.option(
    "--batch", type=click.IntRange(1), default=25, show_default=True, help="Events in a batch; up to 16 are a short one."
)
@placement_option
@click.option("--seed", type=click.IntRange(0), default=0, help="Seed of the moments and victims.")
@click.option(
    "--limit",
    "limit_s",
    type=click.FloatRange(0, min_open=True),
    help="Seconds after which a run hangs.  [default: 300; 60]",
)
@output_option
@click.pass_context
def kills(
    ctx: click.Context, /, whom: str, n_kills: int | None, limit_s: float | None, output: Path | None, **options: Any
) -> None:
    """Launch runs on this host, kill ranks at random moments, and compare the answers with those of an undisturbed run.

    workers: kill some workers of each run, which goes on without them, with the launcher's flags for fault tolerance.
    master: kill rank 0 repeatedly, each time followed by `run --resume`.  outcomes: kill or stop a worker, or kill the
    master, with and without those flags, and report the outcomes.

        mpi-match bench kills workers --kills 500 --stops 50 --workers 5 --least 2 -o kills.jsonl

    One JSON line on standard output; Ctrl-C ends it early.  Different answers, and runs that hang, end with exit code 1.
    """
    given = {name for name in options if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    if wrong := [name for name in sorted(given) if whom not in _ONLY.get(name, (whom,))]:
        raise click.UsageError(f"--{wrong[0]} cannot be used with {whom}")
    if whom == _WORKERS and options["workers"] < (options["least"] or 2):
        raise click.UsageError("--workers must be at least 2, so that one is left, and at least --least")
    output = checked_output(output)
    n_kills = n_kills or (5 if whom == _OUTCOMES else 100)
    limit_s = limit_s or (60.0 if whom == _OUTCOMES else 300.0)
    measure = {_WORKERS: _workers, _MASTER: _master, _OUTCOMES: _outcomes}[whom]
    with tempfile.TemporaryDirectory(prefix="kills-") as directory:
        record, wrong_answers = measure(n_kills, limit_s, Path(directory), options)
    give([record], output)
    if wrong_answers:
        raise CliFailure(wrong_answers)


def _workers(n_kills: int, limit_s: float, directory: Path, options: Json) -> tuple[Json, str]:
    from mpi_match.lab.bench.kills.disturbed_run import record
    from mpi_match.lab.bench.kills.workers import measure

    began, seed, placement = time.monotonic(), options["seed"], options["placement"]
    workers = (options["least"] or options["workers"], options["workers"])
    how = ("--placement", placement, "--batch", str(options["batch"]))
    tally = measure(n_kills, options["stops"], workers, seed, limit_s, directory, how, say)
    given = {"workers": workers, "placement": placement, "batch": options["batch"], "seed": seed}
    found = record("workers killed", began, **given, **tally.record())
    return found, "" if tally.good else f"not all runs were right: {tally}"


def _master(n_kills: int, limit_s: float, directory: Path, options: Json) -> tuple[Json, str]:
    from mpi_match.lab.bench.kills.disturbed_run import record
    from mpi_match.lab.bench.kills.master import kill_masters

    began = time.monotonic()
    ranks = 1 + options["workers"]
    found = kill_masters(n_kills, ranks, directory, seed=options["seed"], limit_s=limit_s, tell=say)
    good = found["right"] and not found["hangs"]
    wrong = (
        "" if good else f"not all runs were right: {plural(found['hangs'], 'hang')}, digests {', '.join(found['digests'])}"
    )
    return record("masters killed", began, **found), wrong


def _outcomes(times: int, limit_s: float, directory: Path, options: Json) -> tuple[Json, str]:
    from mpi_match.lab.bench.kills.disturbed_run import record
    from mpi_match.lab.bench.kills.outcomes import survey

    began = time.monotonic()
    found = survey(times, directory, seed=options["seed"], limit_s=limit_s, tell=say)
    return record("what survives", began, limit_s=limit_s, seed=options["seed"], outcomes=found), ""


@click.command(
    "memory", cls=CliCommand, short_help="Run very many batches and check that the memory of the ranks does not grow."
)
@click.option("--batches", type=click.IntRange(100), default=1_000_000, show_default=True, help="Batches of one event each.")
@click.option(
    "--stop", "stop_s", type=click.FloatRange(0), default=20.0, show_default=True, help="Seconds that a worker is stopped."
)
@click.option(
    "--bound", type=click.FloatRange(0), default=64.0, show_default=True, help="MiB that the memory of a rank may grow by."
)
@output_option
def memory(batches: int, stop_s: float, bound: float, output: Path | None) -> None:
    """Match one event a batch with a master and two workers on this host, and watch the memory of every rank.

    After a quarter of the events a worker is stopped for longer than its deadline.  Growth counts from the first tenth on.

        mpi-match bench memory --batches 100000

    One JSON line on standard output.  Memory that grows by more than --bound, a stop that the run does not notice, and
    answers that differ from those of one process are failures: exit code 1.
    """
    from mpi_match.lab.bench.kills.disturbed_run import record
    from mpi_match.lab.bench.kills.memory import measure

    output = checked_output(output)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="memory-") as directory:
        found = measure(batches, stop_s, Path(directory))
    give([record("memory kept", began, **found)], output)
    grown = max(rank["grown_mib"] for rank in found["ranks"])
    say(f"{plural(batches, 'batch')} in {found['wall_s']:,.0f} s; memory grew by at most {grown:.1f} MiB")
    if not found["same_bytes"]:
        raise CliFailure("the answers differ from those of one process")
    if not found["happened"].get("overdue"):
        raise CliFailure("no batch of the stopped worker became overdue")
    if grown > bound:
        raise CliFailure(f"the memory of a rank grew by {grown:.1f} MiB, more than {bound:g}")
