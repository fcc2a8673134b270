"""`report`: results as one HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from mpi_match.cli.errors import CliCommand
from mpi_match.cli.options import FILE, HTML_OUT
from mpi_match.cli.plot import need_matplotlib
from mpi_match.cli.terminal import say


@click.command("report", cls=CliCommand, short_help="Show results of bench and experiments as an HTML page.")
@click.argument("results", metavar="RESULTS...", type=FILE, nargs=-1, required=True)
@click.option("-o", "--output", type=HTML_OUT, required=True, help="Page to write (.html); it needs no network.")
def report(results: tuple[Path, ...], output: Path) -> None:
    """Make one HTML page of RESULTS: files that `bench` or `experiment run` wrote, or directories of them.

    The page says what ran where, has every figure with its parameters, sets printed values beside measured ones, and says
    what the numbers cannot show.
    """
    from mpi_match.bench.report import read_json
    from mpi_match.experiments.html_report import write_report
    from mpi_match.storage import StorageError

    need_matplotlib("report")
    files = [file for each in results for file in (sorted(each.glob("*.jsonl")) if each.is_dir() else [each])]
    if not files:
        raise StorageError(f"{results[0]}: no files of results (.jsonl) in it")
    records = [record for file in files for record in read_json(file)]
    write_report(records, output)
    say(f"{output} written from {len(records):,} results in {len(files)} files")
