"""`bench routing`: what a routing of events to shards could leave out."""

from __future__ import annotations

from pathlib import Path

import click

from mpi_match.cli.errors import CliCommand
from mpi_match.cli.options import MAX_FILTERS
from mpi_match.lab.cli.bench.options import Workers, checked_output, give, output_option
from mpi_match.lab.cli.options import SCENARIO


@click.command("routing", cls=CliCommand, short_help="Count the events that a shard could do without.")
@click.argument("scenario", metavar="SCENARIO", type=SCENARIO)
@click.option("--filters", type=click.IntRange(1, MAX_FILTERS), help="Number of filters.  [default: the scenario's own]")
@click.option("--events", type=click.IntRange(1), default=4000, show_default=True, help="Number of events.")
@click.option("--shards", type=Workers(), default="2,4,8,16", show_default=True, help="Numbers of shards, at most 64.")
@click.option("--seed", type=click.IntRange(0), default=0, help="Seed of filters and events.")
@output_option
def routing(
    scenario: str, filters: int | None, events: int, shards: tuple[int, ...], seed: int, output: Path | None
) -> None:
    """Measure which share of the events of SCENARIO need not go to a shard, for three ways to divide the filters.

        mpi-match bench routing clcb --filters 100000 -o routing.jsonl

    Filters are divided by interface, as a run divides them; by their rarest name or equality; or by place.  An event goes to
    the shards with a filter whose rarest feature and cell it has.  `left_out` is the share of (event, shard) pairs that are
    left out, `no_answer` of those without an answer, `busiest` the share of the events that the busiest shard gets.

    One JSON line for each way and number of shards on standard output, a table on standard error.
    """
    from mpi_match.lab.bench.report import aligned
    from mpi_match.lab.bench.routing import MOST_SHARDS, measure_routing
    from mpi_match.lab.workloads.scenarios import SCENARIOS

    if shards[-1] > MOST_SHARDS:
        raise click.BadParameter(f"at most {MOST_SHARDS} shards are counted", param_hint="--shards")
    output = checked_output(output)
    drawn = SCENARIOS[scenario] if filters is None else SCENARIOS[scenario].scaled(filters)
    found = measure_routing(drawn, events, shards, seed)
    give(found, output)
    shares = ("left_out", "no_answer", "busiest")
    rows = [[each["order"], str(each["shards"]), *(f"{each[name]:.1%}" for name in shares)] for each in found]
    click.echo("\n".join(aligned(["Divided by", "Shards", "Left out", "No answer", "Busiest"], rows)), err=True)
