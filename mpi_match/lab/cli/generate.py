"""`generate SCENARIO`: the subscriptions and events of a published workload, as files."""

from __future__ import annotations

from pathlib import Path

import click

from mpi_match.cli.errors import CliCommand
from mpi_match.cli.options import FILE, MAX_FILTERS, json_option, param_option
from mpi_match.cli.terminal import Progress, print_json, say
from mpi_match.humanize import plural
from mpi_match.lab.cli.options import SCENARIO


@click.command(cls=CliCommand, short_help="Generate a workload of a published scenario.")
@click.argument("scenario", metavar="SCENARIO", type=SCENARIO)
@click.option("-o", "--output", "directory", type=FILE, required=True, help="Directory for the files; created if missing.")
@click.option(
    "--filters", "n_filters", type=click.IntRange(1, MAX_FILTERS), help="Number of filters.  [default: the scenario's own]"
)
@param_option
@click.option("--events", "n_events", type=click.IntRange(0), default=100_000, help="Number of events.")
@click.option("--seed", type=click.IntRange(0), default=0, help="The same seed gives the same rows.")
@click.option(
    "--format", "format_", type=click.Choice(["h5", "jsonl"]), default="h5", help="h5: compiled, without Spark; jsonl: rows."
)
@json_option
def generate(
    scenario: str,
    directory: Path,
    n_filters: int | None,
    parameters: dict[str, str],
    n_events: int,
    seed: int,
    format_: str,
    as_json: bool,
) -> None:
    """Generate the subscriptions and events of a published SCENARIO.

    Writes table.h5 and events.h5 (ready for `run`), or subscriptions.jsonl and events.jsonl (input of `compile`, `match`).

        ccm              250,000 filters on 10 interfaces, 1.0 M constraints on numbers (Margara & Cugola, DEBS 2011)
        ccm-original     the generator of the evaluation, number for number: 250,962 filters, 280 matches in 1,000 events
        ccm-strings      as published: half of the constraints on strings
        ccm-zipf1        popular and rare names: Zipf's law, exponent 1
        ccm-zipf2        the same, exponent 2
        ccm-10-names     10 names instead of 100
        ccm-wide         8 to 10 attributes per event
        ccm-large        2.5 M filters
        many-interfaces  1 M interfaces with one filter each
        debs2009         6 M filters of 10 constraints out of 1,500, events of 50 attributes (Farroukh et al., DEBS 2009)
        debs2009-blocks  2 M filters of 6 constraints, events of 30 attributes
        clcb             250,000 interfaces with 10 filters, areas of 0.01 % of the plane (Cugola & Margara, Middleware 2012)
        clcb-zipf        interfaces and events crowded into towns
        clcb-area-0.001  areas of 0.001 % of the plane
        clcb-area-0.1    areas of 0.1 %
        clcb-area-1      areas of 1 %
        clcb-large       1 M interfaces with 10 filters
        clcb-hard        every event satisfies every constraint, only areas decide
        intervals        100,000 filters of 10 intervals of half the values on 20 attributes (Qian et al., INFOCOM 2014)
        intervals-narrow 5 intervals of a tenth of the values
        intervals-large  intervals with 1 M filters
        intervals-normal normal values, popular and rare attributes, events with 10 to 20 of them
        intervals-covering    half of the filters lie within an earlier one
        intervals-correlated  attributes of an event depend on each other
        intervals-skewed      half of the answers come from a tenth of the filters
        stock            100,000 filters of a popular or rare name, a range of prices and a volume
        packets          10,000 packet rules: prefixes, ports exact, ranged or any, the protocol (after ClassBench, 2005)
        tagmatch         1 M tag sets of 3 to 7 of 200,000 tags; an event has one of them and 2 to 4 more tags (EuroSys 2017)
        tagmatch-keys    the same with more keys than sets, and popular sets

    Events of the clcb scenarios have locations: in JSON the attributes x and y (`--location x,y`).
    """
    from mpi_match.lab.workloads.files import write_workload
    from mpi_match.lab.workloads.parameters import with_parameters
    from mpi_match.lab.workloads.scenarios import SCENARIOS

    of_filters = {} if n_filters is None else {"filters": str(n_filters)}
    chosen = with_parameters(SCENARIOS[scenario], {**of_filters, **parameters})
    with Progress("filters and events") as progress:
        done = write_workload(chosen, directory, n_events, seed, format_, progress)
    say(f"{plural(done['filters'], 'filter')} with {plural(done['constraints'], 'constraint')} in {done['subscriptions']}")
    say(f"{plural(done['events'], 'event')} in {done['event_file']}")
    if as_json:
        print_json(done)
