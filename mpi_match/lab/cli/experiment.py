"""`experiment`: tables and figures of the five papers, listed and run."""

from __future__ import annotations

import importlib.util
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mpi_match.cli.errors import CliGroup
from mpi_match.cli.options import ENGINES, FILE, flat_engines
from mpi_match.cli.terminal import print_json, say
from mpi_match.lab.cli.options import axes_of
from mpi_match.model import Json

if TYPE_CHECKING:
    from mpi_match.lab.bench.sweep import Axis


@click.group("experiment", cls=CliGroup, short_help="Reproduce tables and figures of the five papers.")
def experiment() -> None:
    """Reproduce the tables and figures of the five papers, and compare with the printed values."""


@experiment.command("list", short_help="List all experiments.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with the printed values.")
def list_(as_json: bool) -> None:
    """List every table and figure of the five papers, and the reasons why some are not run."""
    from mpi_match.lab.papers.catalog import EXPERIMENTS
    from mpi_match.lab.papers.claims import of_experiment

    if as_json:
        found: dict[str, Any] = {}
        for name, each in EXPERIMENTS.items():
            values = [value._asdict() for value in of_experiment(each)]
            found[name] = {"title": each.title, "not_rerun": each.not_rerun, "published": values}
        print_json(found)
        return
    for name, each in EXPERIMENTS.items():
        click.echo(f"{name:<20}  {each.title}" + (f" [not run: {each.not_rerun}]" if each.not_rerun else ""))


KEPT_SHARE = 1 / 8
"""Share of the memory that workloads shared by experiments may take."""


@experiment.command("run", short_help="Run experiments.")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option(
    "-o", "--output", "directory", type=FILE, required=True, help="Directory for NAME.jsonl and figures; created if missing."
)
@click.option(
    "--scale",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    help="Share of the paper's filters, or of 10 million if it has more; below a tenth, fewer events too.",
)
@click.option(
    "--only", "only", multiple=True, metavar="KEY=VALUE,...", callback=axes_of, help="Measure only points with these values."
)
@click.option(
    "--engine",
    "engines",
    multiple=True,
    type=ENGINES,
    metavar="NAME[,NAME...]",
    callback=flat_engines,
    help="Measure only these engines of the experiments.",
)
@click.option(
    "--events",
    type=click.IntRange(1),
    help="Most events to match, where their number is not varied; fewer make rates and times less certain.",
)
@click.option("--seeds", type=click.IntRange(1), default=1, help="Number of seeds for each point.")
@click.option(
    "--repetitions",
    type=click.IntRange(1),
    help="Timed runs over all events; the median counts.  [default: 3; 1 with less than a tenth of the filters]",
)
@click.option("--format", "ending", type=click.Choice(["svg", "pdf", "png"]), default="svg", help="Form of the figures.")
def run(names: tuple[str, ...], directory: Path, only: tuple[Axis, ...], ending: str, **how: Any) -> None:
    """Run the experiments with these NAMEs, all of a system (`ccm`, `clcb`), or `all`.

    Each is measured with the faithful engine, the paper's baselines and our own engines, as far as they run on this machine:
    an engine that needs a missing GPU is skipped, never simulated.  Answers are checked in the same run.  Points that the
    directory already has, for this commit and machine, are not measured again, and each point is written at once. So an
    interrupted command can be repeated, and a slow engine can have a command of its own, with fewer events.

    Standard output compares printed and measured values, including those that the directory had before.
    """
    from mpi_match.environment.machine import machine
    from mpi_match.lab.bench.workload import KeptWorkloads
    from mpi_match.lab.papers.catalog import EXPERIMENTS
    from mpi_match.lab.papers.run import SMALL_SCALE, ExperimentPlan, shares, with_earlier
    from mpi_match.lab.papers.run import run as measure
    from mpi_match.storage import reported

    chosen = _chosen(names)
    _check_points(chosen, only)
    _check_engines(chosen, how["engines"])
    how["repetitions"] = how["repetitions"] or (1 if how["scale"] < SMALL_SCALE else 3)
    plan = ExperimentPlan(**how, only={axis.key: axis.values for axis in only})
    workloads = KeptWorkloads(int(machine()["memory_gib"] * 2**30 * KEPT_SHARE))
    with reported(directory):
        directory.mkdir(parents=True, exist_ok=True)
    for name in chosen:
        each = EXPERIMENTS[name]
        of_all = " and ".join(f"{share:.2g}" for share in shares(each, plan))
        share = f"; here with {of_all} of the filters" if plan.scale < 1 and each.runs else ""
        click.echo(f"# {name}: {each.title}{share}")
        if each.not_rerun:
            click.echo(f"# not run: {each.not_rerun}\n")
            continue
        path, started = directory / f"{name}.jsonl", time.monotonic()
        records = measure(each, plan, path, partial(_tell, name), workloads)
        _show(name, with_earlier(records, path), directory / f"{name}.{ending}")
        if each.runs:
            _tell(name, f"done in {time.monotonic() - started:.0f} s")


def _tell(name: str, text: str) -> None:
    say(f"{name} {text}")


def _chosen(names: tuple[str, ...]) -> list[str]:
    """The selected experiments, in the order of the papers."""
    from mpi_match.lab.papers.catalog import EXPERIMENTS, SYSTEMS

    for name in names:
        if name not in (*EXPERIMENTS, *SYSTEMS, "all"):
            raise click.UsageError(f"there is no experiment {name!r}; `mpi-match experiment list` lists them")
    return [name for name, each in EXPERIMENTS.items() if "all" in names or name in names or each.system in names]


def _check_points(names: list[str], only: tuple[Axis, ...]) -> None:
    """Refuse values that no selected experiment has."""
    from mpi_match.lab.papers.catalog import EXPERIMENTS
    from mpi_match.lab.papers.run import fixed_value

    runs = [run for name in names for run in EXPERIMENTS[name].runs]
    have = [(axis.key, value) for run in runs for axis in run.axes for value in axis.values]
    have += [(axis.key, value) for run in runs for axis in only if (value := fixed_value(run, axis.key)) is not None]
    have += [
        (axis.key, each) for name in names for run in EXPERIMENTS[name].ranks if (axis := run.axis) for each in axis.values
    ]
    for axis in only:
        for value in axis.values:
            if (axis.key, value) not in have:
                values = list(dict.fromkeys(each for key, each in have if key == axis.key))
                known = f"{axis.key}={','.join(values)}" if values else ", ".join(dict.fromkeys(key for key, _ in have))
                raise click.UsageError(f"no selected experiment has a point {axis.key}={value}; they have: {known}")


def _check_engines(names: list[str], engines: tuple[str, ...]) -> None:
    """Refuse engines that no selected experiment measures."""
    from mpi_match.lab.papers.catalog import EXPERIMENTS

    have = {engine for name in names for run in EXPERIMENTS[name].runs for engine in run.engines}
    for engine in engines:
        if engine not in have:
            raise click.UsageError(
                f"no selected experiment measures the engine {engine!r}; they have: {', '.join(sorted(have)) or 'none'}"
            )


def _show(name: str, records: list[Json], figure: Path) -> None:
    from mpi_match.lab.bench.sweep_report import draw, draw_steps, sweep_table, told_apart_by
    from mpi_match.lab.papers.catalog import EXPERIMENTS
    from mpi_match.lab.papers.claims import table
    from mpi_match.lab.papers.run import not_run

    each = EXPERIMENTS[name]
    if each.runs:
        click.echo(f"# kept: {each.kept}")
        click.echo(f"# differs: {each.differs}")
        for line in not_run(each):
            click.echo(f"# {line}")
    click.echo("\n".join(table(each, records)))
    for scenario in dict.fromkeys(record["scenario"] for record in records):
        click.echo(sweep_table([record for record in records if record["scenario"] == scenario]))
    if each.x and records and importlib.util.find_spec("matplotlib"):
        draw(records, figure, each.x, told_apart_by(records, each.x), each.y)
        say(f"{figure} written")
    if any(record.get("steps_s") for record in records) and importlib.util.find_spec("matplotlib"):
        phases = figure.with_stem(f"{name}-phases") if each.x else figure
        draw_steps(records, phases)
        say(f"{phases} written")
    click.echo()
