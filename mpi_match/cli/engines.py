"""`engines`: the registry of engines and their options."""

from __future__ import annotations

from typing import Any

import click

from mpi_match.cli.errors import CliCommand
from mpi_match.cli.options import NameOf
from mpi_match.cli.terminal import print_json


@click.command("engines", cls=CliCommand, short_help="List engines and their options.")
@click.argument("names", metavar="[ENGINE]...", type=NameOf("mpi_match.engines", "REGISTRY"), nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def engines(names: tuple[str, ...], as_json: bool) -> None:
    """List the engines, or those that are named, with the options that `--set` takes on `match`, `run` and `bench`.

    An option is shown with its values, its default, its effect, and its section in the engine's paper.
    """
    from mpi_match.engines.registry import REGISTRY, options_of

    found: dict[str, Any] = {}
    for name in names or REGISTRY:
        entry = REGISTRY[name]
        found[name] = {"runs_on": entry.runs_on, "takes_changes": entry.takes_changes, "says": entry.says, "options": {}}
        for option in options_of(name):
            found[name]["options"][option.name] = {
                "values": option.values,
                "default": option.spelled(option.default).partition("=")[2],
                "says": option.says,
                "section": option.section,
            }
    if as_json:
        print_json(found)
        return
    for name, engine in found.items():
        click.echo(f"{name:<11} {engine['runs_on']}  {'changes' if engine['takes_changes'] else '-':<7}  {engine['says']}")
        for key, option in engine["options"].items():
            click.echo(f"    {key}={option['values']}  [{option['default']}]")
            click.echo(f"        {option['says']} ({option['section']})")
