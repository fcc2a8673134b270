"""`compare`: results of two files, or of two revisions that are measured here."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import click

from mpi_match.cli.errors import CliCommand
from mpi_match.cli.terminal import say


@click.command("compare", cls=CliCommand, short_help="Compare two files of bench results, or two revisions.")
@click.argument("old")
@click.argument("new")
@click.argument("words", metavar="[-- BENCH ARGUMENT...]", nargs=-1)
@click.option("--rounds", type=click.IntRange(1), default=5, help="Rounds of measurement of two revisions, by turns.")
def compare(old: str, new: str, words: tuple[str, ...], rounds: int) -> None:
    """Compare the results of `bench` in NEW with those in OLD, files or directories: better, worse, or within the noise.

    Results of the same scenario, parameters, engine, options and number of events are compared by their events per second.
    A difference counts when the intervals of both (all repetitions, or all seeds or rounds) do not overlap.  A single
    measurement has no interval and gets no verdict.

    With arguments of `bench` after --, OLD and NEW are revisions of this repository, measured by turns:

        mpi-match compare main~5 main -- ccm --engine keyed --filters 20000

    One line for each on standard output.
    """
    from mpi_match.lab.bench.comparison import comparison_table
    from mpi_match.lab.bench.report import read_results
    from mpi_match.lab.bench.revisions import measure_revisions

    if words:
        before, after = measure_revisions((old, new), words, rounds, say)
    else:
        before, after = (list(chain.from_iterable(read_results([Path(each)]))) for each in (old, new))
    table, unmatched = comparison_table(before, after)
    click.echo(table)
    if unmatched:
        say(f"{unmatched} results are in only one of the two")
