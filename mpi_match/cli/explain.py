"""`explain`: why an event is delivered, or not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mpi_match.cli.errors import CliCommand
from mpi_match.cli.options import (
    FILE,
    FILE_OR_STDIN,
    csv_options,
    form_of,
    id_option,
    json_option,
    language_option,
    location_option,
    pipeline_option,
)
from mpi_match.cli.terminal import print_json, say
from mpi_match.cli.translate import as_rows
from mpi_match.exit_codes import ExitCode
from mpi_match.humanize import plural, visible
from mpi_match.model import ModelError

if TYPE_CHECKING:
    from mpi_match.table.table import Table


@click.command("explain", cls=CliCommand, short_help="Explain why an event matches, or what the nearest filters miss.")
@click.option("--table", type=FILE, required=True, help="Constraint table, or subscriptions as JSON lines.")
@language_option(of="The table is")
@pipeline_option
@click.option("--events", type=FILE_OR_STDIN, required=True, help="The events, in any form that `run` reads.")
@location_option
@id_option
@csv_options
@click.option("--event", "number", type=click.IntRange(0), default=0, metavar="N", help="Number of the event, from 0.")
@click.option("--interface", metavar="LABEL", help="Explain only the filters of this interface.")
@click.option("--filter", metavar="ID", help="Explain only the filters with this id, or the filter with this number.")
@click.option(
    "--most",
    type=click.IntRange(1),
    default=5,
    help="Most filters, and most alternatives of each condition, that are shown.",
)
@json_option
def explain(
    table: Path,
    events: Path,
    number: int,
    interface: str | None,
    filter: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Explain the answer for one event: the filters that match or, if none does, the nearest ones and what they miss.

    All filters of the table are compared: the nearest ones match if the fewest constraints turn out otherwise.  A line for
    each of these constraints has the value that it met and what it asks for.  Attributes that no filter names are listed,
    too: one of them may be misspelt.

    Exit code 0 if a filter matches, 6 if none does, 3 for a rejected row, and for an interface, a filter or an event that
    does not exist.
    """
    from mpi_match.ingest.rows.row_files import is_compiled
    from mpi_match.table.table import Table
    from mpi_match.verify.explain import explain_file

    if interface is not None and filter is not None:
        raise click.UsageError("--interface and --filter: ask about one of them")
    if given["language"] and is_compiled(table):
        raise click.UsageError(f"{table} is compiled; --language is for rules")
    form = form_of(given)
    with as_rows([table], given["language"], given["pipelines"], strict=False) as (rows,):
        loaded = Table.load(table) if is_compiled(table) else _of_rows(rows)
    most = given["most"]
    found = explain_file(loaded, events, number, form, interface=interface, filter=filter, most=most)
    if as_json:
        print_json({"event": number, **found.row()})
    else:
        click.echo("\n".join(visible(line) for line in found.lines(most)))
    if found.rejected:
        click.get_current_context().exit(ExitCode.BAD_INPUT)
    if not found:
        click.get_current_context().exit(ExitCode.NO_MATCH)


def _of_rows(path: Path) -> Table:
    """The table of subscriptions as rows; reports bad rows.  Raises ModelError, also if no row is good, OSError."""
    from mpi_match.api import make_table
    from mpi_match.ingest.rows.judge import Reject, nothing_usable

    rejects: list[Reject] = []
    made = make_table(path, rejects=rejects)
    if not made.n_filters:
        raise ModelError(nothing_usable(str(path), "subscription", len(rejects), rejects[0] if rejects else None))
    if rejects:
        say(f"{plural(len(rejects), 'subscription')} rejected, such as {rejects[0].place}: {rejects[0].reason}")
    return made
