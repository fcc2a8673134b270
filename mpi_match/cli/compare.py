"""`compare`: two files of results, old and new."""

from __future__ import annotations

from pathlib import Path

import click

from mpi_match.cli.errors import CliCommand
from mpi_match.cli.options import FILE
from mpi_match.cli.terminal import say


@click.command("compare", cls=CliCommand, short_help="Compare two files of bench results.")
@click.argument("old", type=FILE)
@click.argument("new", type=FILE)
def compare(old: Path, new: Path) -> None:
    """Compare the results of `bench` in NEW with those in OLD: better, worse, or within the noise.

    Results of the same scenario, parameters, engine, options and number of events are compared by their events per second.
    A difference counts when the intervals of both (all repetitions, or all seeds) do not overlap.

    One line for each on standard output.
    """
    from mpi_match.bench.comparison import comparison_table
    from mpi_match.bench.report import read_json

    table, unmatched = comparison_table(read_json(old), read_json(new))
    click.echo(table)
    if unmatched:
        say(f"{unmatched} results are in one of the files only")
