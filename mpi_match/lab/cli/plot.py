"""`plot`: the report of a run, or results of `bench` over a parameter."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import click

from mpi_match.cli.errors import CliCommand, CliFailure
from mpi_match.cli.options import FIGURE_OUT, FILE
from mpi_match.cli.terminal import say
from mpi_match.exit_codes import ExitCode


@click.command("plot", cls=CliCommand, short_help="Draw the report of a run, or results of bench.")
@click.argument("files", metavar="FILE...", type=FILE, nargs=-1, required=True)
@click.option("--x", metavar="KEY", help="Draw results of `bench` over this parameter, such as names or ccm.reset.")
@click.option(
    "--by", metavar="KEY,...", help="A line for each combination of these.  [default: engine, and other varied keys]"
)
@click.option(
    "--y", metavar="QUANTITY", default="events_per_s", help="Quantity to draw over it, such as us_per_event or build_s."
)
@click.option(
    "-o", "--output", type=FIGURE_OUT, help="Figure to write (.png, .svg, .pdf).  [default: the first FILE, ending in .png]"
)
def plot(files: tuple[Path, ...], x: str | None, by: str | None, y: str, output: Path | None) -> None:
    """Draw FILE, which `run --report` wrote: rate and each worker's share over time, with the incidents.

    If the file has several runs, the last one is drawn.

    With --x, draw the results of `bench` in all FILEs: a quantity over a parameter, medians and intervals.

        mpi-match plot names.jsonl --x names --by engine -o names.pdf
    """
    need_matplotlib("plot")
    output = output or files[0].with_suffix(".png")
    if x is None:
        _draw_run(files, output)
        return
    from mpi_match.lab.bench.report import read_json
    from mpi_match.lab.bench.sweep_report import draw, told_apart_by

    records = [record for file in files for record in read_json(file)]
    draw(records, output, x, by.split(",") if by else told_apart_by(records, x), y)
    say(f"{output} written")


def _draw_run(files: tuple[Path, ...], output: Path) -> None:
    from mpi_match.lab.run_plot import draw
    from mpi_match.monitor.report import read_report

    with files[0].open("rb") as file:
        is_of_bench = b'"scenario"' in file.readline()
    if is_of_bench or len(files) > 1:
        raise click.UsageError(
            "results of `bench` need --x KEY, the parameter of the x axis; only one report of a run can be drawn"
        )
    found = read_report(files[0])
    draw(found[-1], output)
    say(f"{output} written" + (f" (the last of {len(found)} runs in {files[0]})" if len(found) > 1 else ""))


def need_matplotlib(what: str) -> None:
    """Raise CliFailure with the command that installs matplotlib, before any work is done."""
    if not importlib.util.find_spec("matplotlib"):
        raise CliFailure(f"{what} needs matplotlib: pip install 'mpi-match[plot]'", ExitCode.ENVIRONMENT)
