"""Options and types of arguments that several commands share."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import click

from mpi_match import cluster

Function = TypeVar("Function", bound=Callable[..., Any])
MAX_FILTERS = 2**32 - 1
"""A table has no more."""


class FileName(click.Path):
    """The name of a file or directory; an empty one, which a shell makes of an unset variable, would be this directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        if value == "":
            self.fail("the name is empty", param, ctx)
        return super().convert(value, param, ctx)


class FigureName(FileName):
    """The name of a figure, whose ending says its format."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        path = super().convert(value, param, ctx)
        if path.suffix.lower() not in FIGURES:
            self.fail(f"{value!r} does not end in {', '.join(FIGURES[:-1])} or {FIGURES[-1]}", param, ctx)
        return path


FILE = FileName(path_type=Path)
FIGURES = (".png", ".svg", ".pdf")
FIGURE = FigureName(path_type=Path)


class NameOf(click.ParamType):
    """A name of a registry, which is imported only when names are needed: to check one, or to list them in the help."""

    name = "name"

    def __init__(self, module: str, registry: str, *also: str) -> None:
        self._module, self._registry, self._also = module, registry, also

    def names(self) -> list[str]:
        """Every name that there is."""
        return [*self._also, *getattr(importlib.import_module(self._module), self._registry)]

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """All names, as in `[auto|keyed]`."""
        return f"[{'|'.join(self.names())}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The name itself when there is such a one."""
        if value not in self.names():
            self.fail(f"there is no {value!r}; there are: {', '.join(self.names())}", param, ctx)
        return value


class ByteSize(click.ParamType):
    """A number of bytes, such as 1500000, 64M or 2G; K, M and G are 2^10, 2^20 and 2^30."""

    name = "bytes"
    _UNITS: ClassVar = {"": 0, "K": 10, "M": 20, "G": 30}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        number = str(value).rstrip("KMG")
        unit = str(value)[len(number) :]
        if not number.isdecimal() or unit not in self._UNITS or int(number) < 1:
            self.fail(f"{value!r} is no number of bytes such as 64M or 2G", param, ctx)
        return int(number) << self._UNITS[unit]


ENGINE = NameOf("mpi_match.engines", "ENGINES", "auto")
SCENARIO = NameOf("mpi_match.workloads.scenarios", "SCENARIOS")

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object with the summary on standard output."
)
engine_option = click.option(
    "--engine", type=ENGINE, default="auto", help="Engine that matches; auto is the fastest that can run here."
)
threads_option = click.option(
    "--threads",
    type=click.IntRange(1),
    help="CPU threads of an engine.  [default: NUMBA_NUM_THREADS, else the cores of this process]",
)


def _numbers(ctx: click.Context, option: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    if value is None:
        return None
    numbers = value.split(",")
    if not all(number.isdecimal() for number in numbers):
        raise click.BadParameter(f"{value!r} is no list of GPU numbers such as 0,1,2,3")
    return tuple(map(int, numbers))


gpu_map_option = click.option(
    "--gpu-map",
    metavar="N,N,...",
    callback=_numbers,
    help="GPUs of a host's first, second, ... worker, by number among those visible.  [default: 0,1,2,...]",
)
schedule_option = click.option(
    "--schedule",
    type=click.Choice(cluster.SCHEDULES),
    default=cluster.RunOptions.schedule,
    help="Which worker gets a batch: one that has room; each in turn.",
)
placement_option = click.option(
    "--placement",
    type=click.Choice(cluster.PLACEMENTS),
    default=cluster.RunOptions.placement,
    help="Which filters a worker has: all; a part, divided among all workers; a part, divided in each of --groups groups.",
)
groups_option = click.option("--groups", type=click.IntRange(1), help="Groups of workers for --placement hybrid.")
feed_option = click.option(
    "--feed",
    type=click.Choice(cluster.FEEDS),
    default=cluster.RunOptions.feed,
    help="Where a worker has events from: the master; memory that its host shares; the file.",
)
results_option = click.option(
    "--results",
    type=click.Choice(cluster.RESULTS),
    default=cluster.RunOptions.results,
    help="Who writes the answers; local: every worker, beside the output.",
)
credits_option = click.option(
    "--credits",
    type=click.IntRange(1),
    default=cluster.RunOptions.credits,
    help="Batches that a worker may hold unanswered.",
)
journal_option = click.option(
    "--journal/--no-journal", default=cluster.RunOptions.journal, help="Keep answers safe in a journal until all are there."
)
share_gpus_option = click.option(
    "--share-gpus", is_flag=True, help="Let two workers be on one GPU, which is refused otherwise."
)
filters_option = click.option(
    "--filters", is_flag=True, help="Answer with the matched filters (their numbers) instead of interfaces."
)
strict_option = click.option(
    "--strict", is_flag=True, help="Stop with exit code 3 at a bad row, instead of setting it aside."
)


def _check_location(ctx: click.Context, option: click.Parameter, value: str | None) -> str | None:
    from mpi_match.ingest.rows import EventForm
    from mpi_match.model import ModelError

    try:
        EventForm.of(value, None)
    except ModelError as error:
        raise click.BadParameter(str(error)) from None
    return value


location_option = click.option(
    "--location",
    metavar="X,Y",
    callback=_check_location,
    help="The two attributes that hold an event's coordinates, such as position.x,position.y.",
)
id_option = click.option(
    "--id", "id_", metavar="NAME", help="The attribute that holds an event's id; it is then no attribute."
)
