"""Shared parts of the `bench` commands: options of launched runs, and the output of records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from mpi_match import cluster
from mpi_match.cli.options import (
    FILE,
    RESULTS_OUT,
    STDOUT,
    Function,
    credits_option,
    feed_option,
    groups_option,
    journal_option,
    placement_option,
    results_option,
    route_option,
    schedule_option,
    share_gpus_option,
)
from mpi_match.environment import mpi_launcher
from mpi_match.model import Json


class Workers(click.ParamType[tuple[int, ...]]):
    """Numbers of workers, as in `1,2,4,8`."""

    name = "workers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The numbers, ascending, each once."""
        if isinstance(value, tuple):
            return value
        try:
            found = tuple(sorted({int(each) for each in value.split(",")}))
        except ValueError:
            found = ()
        if not found or found[0] < 1:
            self.fail(f"{value!r} is not a list of numbers such as 1,2,4,8", param, ctx)
        return found


mpirun_flags_option = click.option(
    "--mpirun-flags", envvar="MPIRUN_FLAGS", default="", metavar="FLAGS", help="Flags for the launcher."
)
under_option = click.option(
    "--under",
    type=click.Choice(mpi_launcher.LAUNCHERS),
    default="mpirun",
    help="Launcher of the ranks; srun and sbatch need Slurm, and a --directory that all hosts see.",
)
directory_option = click.option(
    "--directory", type=FILE, help="Directory for the workload, which is reused.  [default: a temporary one]"
)
output_option = click.option(
    "-o", "--output", type=RESULTS_OUT, help="Add the JSON lines to this file instead of printing them."
)

_LAUNCH_OPTIONS = (
    *(schedule_option, placement_option, groups_option, route_option, feed_option, results_option, credits_option),
    *(journal_option, share_gpus_option, mpirun_flags_option, under_option, directory_option),
)


def launch_options(command: Function) -> Function:
    """Add the options of a command that launches runs: those of `run`, of the launcher, and of the workload."""
    for option in reversed(_LAUNCH_OPTIONS):
        command = option(command)
    return command


def checked_output(output: Path | None) -> Path | None:
    """The file for records, None for standard output; checked before any measurement.  Raises StorageError."""
    from mpi_match.storage import check_output

    if output is None or output == STDOUT:
        return None
    check_output(output, streamed=True)
    return output


def give(results: Sequence[Json], output: Path | None) -> None:
    """Print records, or add them to a file."""
    from mpi_match.lab.bench import report

    if output is None:
        for result in results:
            click.echo(report.json_line(result))
    else:
        report.append_json(output, results)


def words_of(name: str, value: object) -> list[str]:
    """The command-line words of an option of `run`; none for a missing value or a flag at its default."""
    option = name.replace("_", "-")
    if value is None:
        return []
    if not isinstance(value, bool):
        return [f"--{option}", str(value)]
    if value is getattr(cluster.RunOptions, name):
        return []
    return [f"--{option}" if value else f"--no-{option}"]
