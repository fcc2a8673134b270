"""The registry of engines, which opens one by name, for a table, with options; or the fastest that can serve (`auto`).

An engine is imported only when it is opened: those on a GPU load Numba's CUDA.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from mpi_match.engines.base import Engine, fixed_only
from mpi_match.engines.fastest import FastestOf
from mpi_match.engines.option import Option, OptionValue
from mpi_match.errors import EngineError, OptionError
from mpi_match.table.table import Table

log = logging.getLogger(__name__)


class Entry(NamedTuple):
    """An engine of the registry: its class, a description of one line, and its options; as `module:name`, imported lazily.

    Options have modules of their own, so that asking for them needs neither Numba's CUDA nor a GPU.  `on_cpu`: an option,
    and its values with which an engine for a GPU needs none.
    """

    engine: str
    says: str
    options: str = ""
    on_cpu: tuple[str, tuple[str, ...]] = ("", ())

    def needs_gpu(self, given: Mapping[str, object]) -> bool:
        """Does it run on a GPU, with these options by key?"""
        option, values = self.on_cpu
        return self.says.startswith("GPU") and given.get(option) not in values


REGISTRY = {
    "reference": Entry("mpi_match.engines.reference:Reference", "CPU  asks the model about every filter"),
    "counting": Entry("mpi_match.engines.counting:Counting", "CPU  counts satisfied constraints on the event's names"),
    "sff": Entry(
        "mpi_match.lab.baselines.sff.engine:Sff",
        "CPU  counts by Siena's index of predicates (Carzaniga and Wolf, SIGCOMM 2003; baseline)",
        "mpi_match.lab.baselines.sff.options:SFF_OPTIONS",
    ),
    "betree": Entry(
        "mpi_match.lab.baselines.betree.engine:BeTree",
        "CPU  divides filters by names and values in turn (Sadoghi and Jacobsen, SIGMOD 2011; baseline)",
        "mpi_match.lab.baselines.betree.options:BETREE_OPTIONS",
    ),
    "rtree": Entry(
        "mpi_match.lab.baselines.rtree.engine:RTree",
        "CPU  an R*-tree of the areas (libspatialindex by the package rtree; baseline)",
    ),
    "duckdb": Entry(
        "mpi_match.lab.baselines.duckdb:DuckDb", "CPU  counts satisfied constraints in SQL (the package duckdb; baseline)"
    ),
    "keyed": Entry("mpi_match.engines.keyed.cpu:Keyed", "CPU  looks at filters that share rare features with the event"),
    "keyed_cuda": Entry("mpi_match.engines.keyed.cuda:KeyedCuda", "GPU  the same index, thousands of events at a time"),
    "twophase": Entry(
        "mpi_match.engines.twophase.engine:TwoPhase",
        "CPU  predicates first, then clusters of filters (Farroukh et al., DEBS 2009)",
        "mpi_match.engines.twophase.options:TWOPHASE_OPTIONS",
    ),
    "ccm": Entry(
        "mpi_match.engines.ccm.engine:Ccm",
        "GPU  a thread for each constraint (Margara and Cugola, DEBS 2011)",
        "mpi_match.engines.ccm.options:CCM_OPTIONS",
    ),
    "clcb": Entry(
        "mpi_match.engines.clcb.engine:Clcb",
        "GPU  areas first, then constraints (Cugola and Margara, Middleware 2012)",
        "mpi_match.engines.clcb.options:CLCB_OPTIONS",
    ),
    "tagmatch": Entry(
        "mpi_match.engines.tagmatch.engine:TagMatch",
        "GPU  tag sets only: signatures, by partitions (Rogora et al., EuroSys 2017); --set variant=cpu: CPU",
        "mpi_match.engines.tagmatch.options:TAGMATCH_OPTIONS",
        on_cpu=("variant", ("cpu", "prefix-tree")),
    ),
}
AUTO = ("keyed_cuda", "keyed")
"""Engines that `auto` tries, in order."""
MOST_COMPARED = 1_000_000
"""Of a table with more filters `auto` opens one engine only: a second index takes more memory and time than it saves."""
LAST = "counting"
"""Engine that `auto` opens when a table that does not change is too large for all of these."""


def engine_class(name: str) -> type[Engine]:
    """The class of an engine.  Raises EngineError for an unknown name, and where its dependencies are not installed."""
    engine: type[Engine] = _imported(_entry(name).engine)
    return engine


def _entry(name: str) -> Entry:
    if name not in REGISTRY:
        raise EngineError(f"unknown engine {name!r}; there are: {', '.join((*REGISTRY, 'auto'))}")
    return REGISTRY[name]


def _imported(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def open_engine(
    name: str,
    table: Table,
    device: int | None = None,
    threads: int | None = None,
    *,
    live: bool = False,
    options: Mapping[str, object] | None = None,
    measured: bool = False,
) -> Engine:
    """Build an engine for a table.

    Parameters: `name` one of `REGISTRY` or "auto"; `device` the GPU's number among the visible ones (None: chosen by local
    rank); `threads` CPU threads (None: all that the process may use); `live` whether the table will change (`update`);
    `options` values or their texts, by `key` or `engine.key` (with "auto": of those engines that it may choose); `measured`
    whether answers need not be exact, if an option says so, because they are only measured.
    Raises EngineError, in one line, when the engine is unknown, needs a GPU that is not there, or cannot serve the table or
    its changes; OptionError for an option that it does not have.
    """
    given = options or {}
    check_options([name], given, measured=measured)
    if name == "auto":
        return _open_auto(table, device, threads, live, given)
    engine = engine_class(name)
    if live and not engine.takes_changes:
        raise EngineError(fixed_only(name))
    if reason := engine.serves(table):
        raise EngineError(reason)
    build: Callable[..., Engine] = engine
    read = {"options": read_options(name, given, measured=measured)} if options_of(name) else {}

    def open_(table: Table) -> Engine:
        return build(table, device, threads, live=live, **read)

    if not engine.compiles:
        return open_(table)
    from mpi_match.engines.prewarm import load, prewarm

    prewarm(name, engine, open_, table, live=live)  # before the table's own engine, which may leave no room for another
    opened = open_(table)
    if opened.gpu is None:  # those on a GPU do so themselves
        load(opened, table)
    return opened


def compile_s() -> float:
    """Seconds that this process has spent so far on compiling engines, or on waiting for another process that did."""
    cache = sys.modules.get("mpi_match.compute.compile_cache")  # which loads numba; not loaded, it has compiled nothing
    return 0.0 if cache is None else float(cache.compile_s())


def _open_auto(table: Table, device: int | None, threads: int | None, live: bool, options: Mapping[str, object]) -> Engine:
    opened: list[Engine] = []
    for name in AUTO:
        if opened and (live or table.n_filters > MOST_COMPARED):
            break
        own = of_engine(name, options)
        try:
            if _entry(name).needs_gpu(own):
                _require_gpu()
            opened.append(open_engine(name, table, device, threads, live=live, options=own))
        except EngineError as error:
            log.info("engine %s passed over: %s", name, error)
            reason = error
    if opened:
        return opened[0] if len(opened) == 1 else FastestOf(opened)
    if live:
        raise reason
    log.warning("%s; engine %s matches, which is slow", reason, LAST)
    return open_engine(LAST, table)


def _require_gpu() -> None:
    """Raise EngineError where there is no GPU, which the driver knows before Numba's CUDA is loaded: that takes as long as
    all else that a small run does."""
    from mpi_match.gpu.driver import visible_gpus

    visible_gpus()


# Options


def options_of(name: str) -> tuple[Option, ...]:
    """The options of an engine.  Raises EngineError for an unknown name."""
    found: tuple[Option, ...] = _imported(path) if (path := _entry(name).options) else ()
    return found


def of_engine(name: str, given: Mapping[str, object]) -> dict[str, object]:
    """Of options by `key` or `engine.key` those of one engine, by `key`; for `auto`, all of them unchanged."""
    if name == "auto":
        return dict(given)
    owned = ((key.rpartition("."), value) for key, value in given.items())
    return {key: value for (owner, _, key), value in owned if owner in ("", name)}


def read_options(name: str, given: Mapping[str, object], *, measured: bool = False) -> dict[str, OptionValue]:
    """The value of each option of an engine, by name: the given ones, and defaults for the others.

    Raises OptionError for an option that the engine does not have, for a value that an option cannot have, and, unless
    `measured`, for one with which answers are not exact.
    """
    known = {option.name: option for option in options_of(name)}
    mine = of_engine(name, given)
    if unknown := [key for key in mine if key not in known]:
        has = f"it has: {', '.join(known)}" if known else "it has none"
        raise OptionError(f"{name} has no option {unknown[0]!r}; {has}")
    values = {key: option.read(mine[key]) if key in mine else option.default for key, option in known.items()}
    for key, option in known.items():
        if option.measured is not None and values[key] == option.measured and not measured:
            raise OptionError(f"with {name}.{option.spelled(values[key])} answers are not exact, so only bench takes it")
    return values


def check_options(engines: Iterable[str], given: Mapping[str, object], *, measured: bool = False) -> None:
    """Check options given for several engines.

    Raises OptionError for an option that none of the engines has, that is ambiguous among them, or that has an invalid
    value, or one that is for measuring only if it is not `measured`; EngineError for an unknown engine.
    """
    if not given:
        return
    used = list(dict.fromkeys(each for name in engines for each in (AUTO if name == "auto" else (name,))))
    for key in given:
        owner, _, option = key.rpartition(".")
        if not owner and len(used) > 1:
            raise OptionError(f"whose is {key!r}? Write ENGINE.{option}, with an engine of: {', '.join(used)}")
        if owner and owner not in used:
            raise OptionError(f"{key!r} is of an engine that is not used; used: {', '.join(used)}")
    for name in used:
        read_options(name, given, measured=measured)
