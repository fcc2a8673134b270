"""Options that several commands of the laboratory have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mpi_match.cli.options import NameOf
from mpi_match.errors import OptionError

if TYPE_CHECKING:
    from mpi_match.lab.bench.sweep import Axis

SCENARIO = NameOf("mpi_match.lab.workloads.scenarios", "SCENARIOS")


def axes_of(ctx: click.Context, option: click.Parameter, values: tuple[str, ...]) -> tuple[Axis, ...]:
    """The parsed values of a repeatable option KEY=VALUE,..."""
    from mpi_match.lab.bench.sweep import Axis  # loads what measures

    try:
        return tuple(map(Axis.of, values))
    except OptionError as error:
        raise click.BadParameter(str(error)) from None
