"""`report`: results as one HTML page, or as a table of columns."""

from __future__ import annotations

import importlib.util
import sys
from itertools import chain
from pathlib import Path

import click

from mpi_match.cli.errors import CliCommand, CliFailure
from mpi_match.cli.options import FILE, REPORT_OUT
from mpi_match.cli.terminal import say
from mpi_match.exit_codes import ExitCode
from mpi_match.lab.cli.plot import need_matplotlib

COLUMN_ENDINGS = (".csv", ".parquet")
"""Endings of files that are written as columns."""


@click.command("report", cls=CliCommand, short_help="Results of bench and experiments as an HTML page, CSV or Parquet.")
@click.argument("results", metavar="RESULTS...", type=FILE, nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    type=REPORT_OUT,
    required=True,
    help="Page (.html, needs no network) or table (.csv, .parquet) to write.",
)
@click.option("--note", "notes", multiple=True, metavar="TEXT", help="Text for the head of the page.  Repeatable.")
def report(results: tuple[Path, ...], output: Path, notes: tuple[str, ...]) -> None:
    """Make one HTML page of RESULTS: files that `bench` or `experiment run` wrote, or directories of them.

    The page names machines and commits, has every figure with its parameters, compares printed with measured values, and
    states the limits of the numbers.

    With another ending, write them as columns: one row for each result, nested fields under dotted names (`match_s.median`).
    """
    from mpi_match.lab.bench.columns import write_columns
    from mpi_match.lab.bench.report import read_results
    from mpi_match.lab.papers.html_report import write_report

    if output.suffix not in COLUMN_ENDINGS:
        need_matplotlib("report")
    elif output.suffix == ".parquet" and not importlib.util.find_spec("pyarrow"):
        raise CliFailure(f"Parquet needs pyarrow: {sys.executable} -m pip install pyarrow", ExitCode.ENVIRONMENT)
    files = read_results(results)
    records = list(chain.from_iterable(files))
    if output.suffix in COLUMN_ENDINGS:
        if notes:
            raise click.UsageError("--note works only with a page (.html)")
        write_columns(records, output)
    else:
        write_report(records, output, notes)
    say(f"{output} written from {len(records):,} results in {len(files)} files")
