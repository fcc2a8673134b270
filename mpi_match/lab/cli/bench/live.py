"""`bench soak` and `bench growth`: an engine whose table changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mpi_match.cli.errors import CliCommand, CliFailure
from mpi_match.cli.options import ENGINE, MAX_FILTERS
from mpi_match.cli.terminal import say
from mpi_match.humanize import plural, rate
from mpi_match.lab.cli.bench.options import checked_output, give, output_option
from mpi_match.lab.cli.options import SCENARIO

_scenario = click.argument("scenario", metavar="SCENARIO", type=SCENARIO)
_engine = click.option("--engine", type=ENGINE, default="keyed", help="Engine; it must take changes.")
_filters = click.option(
    "--filters", type=click.IntRange(1, MAX_FILTERS), help="Number of filters.  [default: the scenario's]"
)


@click.command("soak", cls=CliCommand, short_help="Match and change for minutes; check pauses, memory and answers.")
@_scenario
@_engine
@_filters
@click.option("--minutes", type=click.FloatRange(0, min_open=True), default=10.0, help="Duration in minutes.")
@click.option("--changes", type=click.FloatRange(0, min_open=True), default=0.1, help="Changes for each event.")
@click.option("--batch", "batch_events", type=click.IntRange(1), default=10_000, help="Events between two updates.")
@click.option(
    "--bound", type=click.FloatRange(0), default=0.02, help="Allowed rise of memory in the second half, as a share."
)
@click.option("--note-every", type=click.FloatRange(0), default=5.0, help="Seconds between two readings of memory.")
@click.option("--judge-every", type=click.FloatRange(0), default=100.0, help="Seconds between two samples of answers.")
@output_option
def soak(scenario: str, engine: str, filters: int | None, output: Path | None, **plan: Any) -> None:
    """Match events of a SCENARIO with areas and change its subscriptions continuously.

    Filters and interfaces move, come and go, always with new names.  Reports the pauses of matching, and whether memory
    stays flat; the naive matcher judges a sample of answers at intervals.

        mpi-match bench soak clcb-zipf --filters 200000 --minutes 10 -o soak.jsonl

    One JSON line on standard output.  Growing memory or a wrong answer ends with exit code 1.
    """
    from mpi_match.lab.bench.live.soak import SoakPlan
    from mpi_match.lab.bench.live.soak import soak as measure

    output = checked_output(output)
    record = measure(_with_areas(scenario, filters), engine, SoakPlan(**plan))
    give([record], output)
    memory = record["memory"]["resident"]
    say(
        f"{scenario}: {rate(record['events_per_s'])} and {record['changes_per_s']:,} changes/s for {record['minutes']:g} "
        f"minutes; {_pauses(record['pauses_ms'])}; {memory['first_mib']:,.0f} to {memory['last_mib']:,.0f} MiB"
    )
    if not record["flat"]:
        raise CliFailure(f"memory is not flat: it rose by more than {record['bound']:.1%}")


@click.command("growth", cls=CliCommand, short_help="Add filters until the engine has to grow, and measure the pauses.")
@_scenario
@_engine
@_filters
@click.option(
    "--more", type=click.FloatRange(0, min_open=True), default=0.5, help="Filters to add, as a share of the table."
)
@click.option("--at-once", type=click.IntRange(1), default=100, help="Filters added in one update.")
@click.option("--bound", type=click.FloatRange(0, min_open=True), help="Milliseconds that an update or an event may take.")
@output_option
def growth(
    scenario: str, engine: str, filters: int | None, more: float, at_once: int, bound: float | None, output: Path | None
) -> None:
    """Add filters to a SCENARIO with areas until its engine has to grow, and measure the pauses of matching.

    An event is matched after every update; the naive matcher judges answers half-way and at the end.

        mpi-match bench growth clcb --engine keyed_cuda --bound 50 -o growth.jsonl

    One JSON line on standard output.  A pause over --bound or a wrong answer ends with exit code 1.
    """
    from mpi_match.lab.bench.live.growth import grow

    output = checked_output(output)
    record = grow(_with_areas(scenario, filters), engine, more, at_once)
    give([record], output)
    pauses = _pauses({part: record[f"{part}_ms"] for part in ("update", "event")})
    say(f"{scenario}: {plural(record['came'], 'filter')} added, {at_once} at once; {pauses}")
    longest = max(record["update_ms"]["max"], record["event_ms"]["max"])
    if bound is not None and longest > bound:
        raise CliFailure(f"matching paused for {longest} ms, more than {bound}")


def _with_areas(name: str, filters: int | None) -> Any:
    """A scenario whose filters can move."""
    from mpi_match.lab.workloads.scenarios import SCENARIOS

    scenario = SCENARIOS[name]
    if not scenario.area:
        with_areas = ", ".join(each for each, found in SCENARIOS.items() if found.area)
        raise click.UsageError(f"the filters of {name} have no areas; these have: {with_areas}")
    return scenario if filters is None else scenario.scaled(filters)


def _pauses(found: dict[str, dict[str, float]]) -> str:
    shown = (
        f"{part} {found[part]['p50']:.2f} / {found[part]['p99']:.2f} / {found[part]['max']:.2f}"
        for part in ("update", "event")
    )
    return f"ms (median / p99 / longest): {', '.join(shown)}"
