"""`bench routing`: routing of events to shards against broadcast."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from mpi_match.cli.errors import CliCommand
from mpi_match.cli.options import ENGINE, MAX_FILTERS
from mpi_match.cli.terminal import say
from mpi_match.lab.cli.bench.options import Workers, checked_output, give, output_option
from mpi_match.lab.cli.options import SCENARIO
from mpi_match.model import Json


@click.command("routing", cls=CliCommand, short_help="Measure routing of events to shards against broadcast.")
@click.argument("scenario", metavar="SCENARIO", type=SCENARIO)
@click.option("--engine", type=ENGINE, default="keyed", show_default=True, help="Engine of the shards.")
@click.option("--filters", type=click.IntRange(1, MAX_FILTERS), help="Number of filters.  [default: the scenario's own]")
@click.option("--events", "n_events", type=click.IntRange(1), default=2**18, show_default=True, help="Number of events.")
@click.option("--batch", type=click.IntRange(1), default=65_536, show_default=True, help="Events in a batch.")
@click.option("--shards", type=Workers(), default="2,4,8,16", show_default=True, help="Numbers of shards, at most 64.")
@click.option("--repetitions", type=click.IntRange(1), default=5, show_default=True, help="Timed passes.")
@click.option("--seed", type=click.IntRange(0), default=0, help="Seed of filters and events.")
@output_option
def routing(
    scenario: str, engine: str, filters: int | None, shards: tuple[int, ...], output: Path | None, **options: int
) -> None:
    """Measure what `run --route` saves on SCENARIO, against a broadcast of every event to every shard.

        mpi-match bench routing clcb --filters 100000 -o routing.jsonl

    In one process, without MPI: the events of each shard are cut out, and matched by an engine of one thread, one shard
    after the other.  `left_out` is the share of (event, shard) pairs that are not sent, `no_answer` of those without an
    answer, `busiest` the share of the events that the busiest shard gets; CPU times are for an event, of the master's wire
    forms and of matching at all workers.

    One JSON line for each way and number of shards on standard output, a table on standard error.  A wrong answer ends the
    measurement with exit code 1.
    """
    from mpi_match.cluster.distribution.routing import MOST_SHARDS
    from mpi_match.lab.bench.report import aligned
    from mpi_match.lab.bench.routing import RoutingPlan, measure_routing
    from mpi_match.lab.workloads.scenarios import SCENARIOS

    if shards[0] < 2 or shards[-1] > MOST_SHARDS:
        raise click.BadParameter(f"a run routes to 2 to {MOST_SHARDS} shards", param_hint="--shards")
    output = checked_output(output)
    drawn = SCENARIOS[scenario] if filters is None else SCENARIOS[scenario].scaled(filters)
    plan, found = RoutingPlan(drawn, n_shards=shards, engine=engine, **options), []
    with tempfile.TemporaryDirectory(prefix="mpi-match-") as place:
        for records in measure_routing(plan, Path(place), say):
            give(records, output)
            found += records
    head = ["Shards", "How", "Left out", "No answer", "Busiest", "Bytes", "Master (us)", "Workers (us)"]
    click.echo("\n".join(aligned(head, [_row(record) for record in found])), err=True)


def _row(record: Json) -> list[str]:
    shares = (f"{record[name]:.1%}" for name in ("left_out", "no_answer", "busiest"))
    numbers = f"{record['bytes_per_event']:.1f}", f"{record['master_us']:.3f}", f"{record['workers_us']:.3f}"
    return [str(record["shards"]), record["how"], *shares, *numbers]
