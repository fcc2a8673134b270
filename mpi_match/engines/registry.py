"""Opens an engine of the registry (`entries`) for a table, by name and with options; `auto` opens the fastest that can
serve.

An engine's module is imported only when the engine is opened, because GPU engines load Numba's CUDA.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from numbers import Integral
from typing import TYPE_CHECKING, Any

from mpi_match.compute.compile_parts import Part, compile_ahead
from mpi_match.engines.base import Engine, fixed_only
from mpi_match.engines.entries import AUTO as AUTO
from mpi_match.engines.entries import LAST as LAST
from mpi_match.engines.entries import REGISTRY as REGISTRY
from mpi_match.engines.entries import Entry as Entry
from mpi_match.engines.fastest import FastestOf
from mpi_match.engines.option import Option, OptionValue
from mpi_match.errors import EngineError, OptionError
from mpi_match.model import Filter, constraint, describe
from mpi_match.table.subscriptions import SubscriptionsBuilder
from mpi_match.table.table import Table

if TYPE_CHECKING:
    from mpi_match.ingest.rows.judge import EventForm

log = logging.getLogger(__name__)


MOST_COMPARED = 1_000_000
"""Filters of the largest table for which `auto` opens several engines; beyond it a second index costs more memory and time
than it saves."""


def engine_class(name: str) -> type[Engine]:
    """Import the class of an engine.  Raises EngineError for an unknown name, or if its dependencies are not installed."""
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

    Parameters:
        name      a name in `REGISTRY`, or "auto"
        device    the GPU's number among the visible ones; None: chosen by local rank
        threads   CPU threads; None: all that the process may use
        live      True if the table will change (`update`)
        options   values or their texts, by `key` or `engine.key`; with "auto", of the engines that it may choose
        measured  True if answers may be inexact because they are only measured; an option must then ask for it

    Any number of threads may use the engine at the same time (see `Engine`).  Raises EngineError, in one line, when the
    engine is unknown, needs a missing GPU, or cannot serve the table or its changes; OptionError for an option
    that it does not have.
    """
    if not isinstance(name, str) or not isinstance(table, Table):
        found = f"{type(name).__name__} and {type(table).__name__}"
        raise EngineError(f"open_engine takes an engine's name and a table (make_table, load_table), found {found}")
    for what, value, least in (("device", device, 0), ("threads", threads, 1)):
        if value is not None and not (isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least):
            raise EngineError(f"{what} must be an integer of at least {least}, or None, found {describe(value)}")
    if not isinstance(options, (Mapping, type(None))):
        raise EngineError(f"options are a dict, such as {{'twophase.merge': 'local'}}, found {describe(options)}")
    given = options or {}
    check_options([name], given, measured=measured)

    def open_(table: Table) -> Engine:
        if name == "auto":
            return _open_auto(table, device, threads, live, given)
        return _open_named(name, table, device, threads, live=live, given=given, measured=measured)

    opened = _open_staged(name, table, open_, threads, live=live) if len(table.vocabulary.parts) else open_(table)
    how = {"device": device, "threads": threads, "live": live, "options": options, "measured": measured}
    opened._again = _open_again, {"name": name, "table": table, **how}
    return opened


def _open_staged(name: str, table: Table, open_: Callable[[Table], Engine], threads: int | None, *, live: bool) -> Engine:
    """Open an engine for each stage of a table with conditions.  Raises EngineError."""
    from mpi_match.engines.staged import StagedEngine

    if name != "auto" and (reason := engine_class(name).serves_parts):
        raise EngineError(reason)
    return StagedEngine(table, open_, threads, live=live)


def _open_again(how: Mapping[str, Any]) -> Engine:
    """Open a pickled engine with the given arguments of `open_engine`."""
    return open_engine(**how)


def _open_named(
    name: str,
    table: Table,
    device: int | None,
    threads: int | None,
    *,
    live: bool,
    given: Mapping[str, object],
    measured: bool,
) -> Engine:
    """Open an engine of REGISTRY; parameters as for `open_engine`."""
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

    on_gpu = _entry(name).needs_gpu(read.get("options", {}))
    # before the table's own engine, which may leave too little memory for another
    prewarm(name, engine, open_, table, live=live, loads=not on_gpu)
    opened = open_(table)
    if opened.gpu is None:  # GPU engines do so themselves
        load(opened, table)
    return opened


USUAL_DTYPE = "uint32"
"""The dtype of the attributes of most tables."""


def compile_engine_ahead(name: str, form: EventForm | None) -> None:
    """Have other processes compile the code of an engine, and of its scanner for lines of a form (None: it will have none),
    before its table is known; nothing that would raise is compiled."""
    parts: list[Part] = []
    for each in AUTO if name == "auto" else (name,):
        with suppress(EngineError):
            if _entry(each).runs_on == "GPU":
                _require_gpu()
            engine = engine_class(each)
            if engine.compiles:
                parts += engine.compiled_for_lines(USUAL_DTYPE, form) if form is not None else ()
                parts += engine.compiled_apart(USUAL_DTYPE)
                parts.append(Part(f"{each}-{USUAL_DTYPE}", f"{__name__}:{compile_small.__name__}", each))
    compile_ahead(parts)


def compile_small(name: str) -> None:
    """Compile the code that engine `name` needs for a small table, in a process that compiles ahead."""
    rows = SubscriptionsBuilder()
    for k in range(3):
        rows.add(Filter(f"{k}", (constraint("n", "=", k),)))
    open_engine(name, Table.from_subscriptions(rows.build()))


def compile_s() -> float:
    """Seconds that this process has spent so far on compiling engines, or on waiting for another process to compile them."""
    cache = sys.modules.get("mpi_match.compute.compile_cache")  # it loads numba; if it is not loaded, nothing was compiled
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
            opened.append(_open_named(name, table, device, threads, live=live, given=own, measured=False))
        except EngineError as error:
            log.info("engine %s skipped: %s", name, error)
            reason = error
    if opened:
        return opened[0] if len(opened) == 1 else FastestOf(opened)
    if live:
        raise reason
    log.warning("%s; using engine %s, which is slow", reason, LAST)
    return _open_named(LAST, table, device, threads, live=live, given={}, measured=False)


def _require_gpu() -> None:
    """Raise EngineError without a GPU; use what the package has compiled for it.  Asks the driver, because loading Numba's
    CUDA takes as long as the rest of a small run."""
    from mpi_match.gpu.presence import require_driver

    require_driver()
    from mpi_match.gpu.driver import visible_gpus

    gpus = visible_gpus()
    from mpi_match.gpu.kernel_code import use_shipped

    for gpu in gpus:
        use_shipped(gpu.compute_capability)


# Options


def options_of(name: str) -> tuple[Option, ...]:
    """The options of an engine.  Raises EngineError for an unknown name."""
    found: tuple[Option, ...] = _imported(path) if (path := _entry(name).options) else ()
    return found


def of_engine(name: str, given: Mapping[str, object]) -> dict[str, object]:
    """Select one engine's options from options given as `key` or `engine.key`, and return them by `key`; `auto` keeps all,
    unchanged."""
    if name == "auto":
        return dict(given)
    owned = ((key.rpartition("."), value) for key, value in given.items())
    return {key: value for (owner, _, key), value in owned if owner in ("", name)}


def read_options(name: str, given: Mapping[str, object], *, measured: bool = False) -> dict[str, OptionValue]:
    """The value of each option of an engine, by name: the given ones, and defaults for the others.

    Raises OptionError for an option that the engine does not have, for an invalid value and, unless `measured`, for a value
    that makes answers inexact.
    """
    known = {option.name: option for option in options_of(name)}
    mine = of_engine(name, given)
    if unknown := [key for key in mine if key not in known]:
        has = f"it has: {', '.join(known)}" if known else "it has none"
        raise OptionError(f"{name} has no option {unknown[0]!r}; {has}")
    values = {key: option.read(mine[key]) if key in mine else option.default for key, option in known.items()}
    for key, option in known.items():
        if option.measured is not None and values[key] == option.measured and not measured:
            raise OptionError(f"{name}.{option.spelled(values[key])} is only for measuring; bench takes it")
    return values


def check_options(engines: Iterable[str], given: Mapping[str, object], *, measured: bool = False) -> None:
    """Check options that are given for several engines.

    Raises OptionError for an option that no engine has, that several engines have, or whose value is invalid or, unless
    `measured`, makes answers inexact; EngineError for an unknown engine.
    """
    if not given:
        return
    used = list(dict.fromkeys(each for name in engines for each in (AUTO if name == "auto" else (name,))))
    for key in given:
        owner, _, option = key.rpartition(".")
        if not owner and len(used) > 1:
            raise OptionError(
                f"option {key!r} exists in several engines; write ENGINE.{option}, with one of: {', '.join(used)}"
            )
        if owner and owner not in used:
            raise OptionError(f"{key!r} belongs to an engine that is not used; used: {', '.join(used)}")
    for name in used:
        read_options(name, given, measured=measured)
