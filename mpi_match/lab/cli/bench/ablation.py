"""`bench ablation`: each option of engines, changed one at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mpi_match.cli.errors import CliCommand
from mpi_match.cli.options import MAX_FILTERS, NameOf, set_option, threads_option
from mpi_match.cli.terminal import say
from mpi_match.lab.cli.bench.options import checked_output, give, output_option
from mpi_match.lab.cli.options import SCENARIO

EVERY_ENGINE = "all"
"""Stands for all engines with options."""


@click.command("ablation", cls=CliCommand, short_help="Measure each option of engines, changed one at a time.")
@click.argument(
    "engines", metavar="ENGINE...", type=NameOf("mpi_match.engines", "REGISTRY", EVERY_ENGINE), nargs=-1, required=True
)
@click.option(
    "--scenario", type=SCENARIO, help="Workload.  [default: that of the engine's paper; ccm-strings for other engines]"
)
@set_option
@click.option(
    "--filters", "n_filters", type=click.IntRange(1, MAX_FILTERS), help="Number of filters.  [default: the scenario's own]"
)
@click.option("--events", "n_events", type=click.IntRange(1), default=1000, show_default=True, help="Number of events.")
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True, help="Events in a batch.")
@click.option("--repetitions", type=click.IntRange(1), default=3, help="Timed runs over all events; the median is reported.")
@click.option("--seed", type=click.IntRange(0), default=0, help="Seed of filters and events.")
@threads_option
@output_option
def ablation(engines: tuple[str, ...], scenario: str | None, output: Path | None, **options: Any) -> None:
    """Measure each ENGINE as it is, then with each other value of each of its options, one option changed at a time.

        mpi-match bench ablation ccm -o ccm.jsonl
        mpi-match bench ablation all --filters 100000 --set tagmatch.variant=cpu -o options.jsonl

    An option with many numbers is measured with half and twice its default.  The default, with what `--set` gives, is
    measured before and after each variant, and a variant has its ratio to the mean of both.  `all` are all engines with
    options; one that cannot run on this machine is named.

    One JSON line for each variant on standard output, or in the file as soon as its engine is done; a table on standard
    error, the slowest variants first.  A wrong answer ends the measurement with exit code 1.
    """
    from mpi_match.engines.registry import REGISTRY, check_options, options_of
    from mpi_match.lab.bench.ablation import OWN_SCENARIO, ablate, ablation_table
    from mpi_match.lab.bench.engines import BenchOptions

    output = checked_output(output)
    chosen = [name for name in REGISTRY if options_of(name)] if EVERY_ENGINE in engines else list(dict.fromkeys(engines))
    check_options(chosen, options["engine_options"], measured=True)
    for engine in chosen:
        found = ablate(engine, scenario or OWN_SCENARIO.get(engine, "ccm-strings"), BenchOptions(**options), say)
        give(found, output)
        click.echo(ablation_table(found), err=True)
