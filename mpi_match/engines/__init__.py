"""Engines: one interface, many ways to find the matching filters.

    engine = open_engine("keyed", table)      building is consolidating: refused here, with the reason, if at all
    answers = engine.match(batch)             exact, never truncated

An engine is a module or a folder, named like its registry entry, the value of `--engine`, and (for a published system) the
paper's name in lower case.  Every engine gives the same answers; `model.covers` is the judge.  From the naive one on,
each is the cure of one slowness of the one before:

    reference   asks the model about every filter                         the definition
    counting    looks at the constraints on the event's names, vectorised   no look at filters without a satisfied constraint
    keyed       looks at the filters that share a rare combination of features with the event, on CPU threads
    ccm         one GPU thread per constraint on the event's names (Margara & Cugola, DEBS 2011)
    clcb        CCM's rows, after a GPU thread per filter has looked at its area (Cugola & Margara, Middleware 2012)
    keyed_cuda  `keyed` on a GPU

`auto` is the fastest of these that this machine can run.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Protocol

from mpi_match.arrays.csr import Array
from mpi_match.changes.changes import Changes
from mpi_match.errors import EngineError as EngineError
from mpi_match.events.batch import EventBatch
from mpi_match.matches.matches import Matches
from mpi_match.table.table import Table

log = logging.getLogger(__name__)

_MODULE_OF = {
    "reference": "reference",
    "counting": "counting",
    "keyed": "keyed.cpu",
    "keyed_cuda": "keyed.cuda",
    "ccm": "ccm.engine",
    "clcb": "clcb.engine",
}
ENGINES = tuple(_MODULE_OF)
"""Registry: names of engines, each with a module of this package that has a class `ENGINE`."""

AUTO = ("keyed_cuda", "keyed")
"""What `auto` tries, in order."""

MOST_BEGUN = 3
"""Batches that are begun at a time: one for each lane of a GPU, should a batch have events for one lane only."""


class Engine(Protocol):
    """What an engine is.

    `name` is its registry name; `device` says in words what it runs on ("cpu, 2 threads", "NVIDIA H200"); `gpu` is the UUID
    of its GPU, None for one that runs on the CPU.
    """

    name: str
    device: str
    gpu: str | None

    def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        """Matched interfaces of every event; with `filters`, matched filters instead.

        Raises EngineError for a batch encoded with another vocabulary.
        """
        ...

    def update(self, changes: Changes) -> None:
        """Let changes take effect: every later `match` sees them, in order, and no batch that was begun before.

        Raises EngineError when the engine was not opened `live`, or the added filters are encoded with another vocabulary.
        """
        ...

    @property
    def nbytes(self) -> int:
        """Bytes that the engine holds besides the table."""
        ...


class Pending(Protocol):
    """A batch that an engine has begun to match; its memory stays as it is until the end."""

    def end(self) -> Matches:
        """Its answer, once.  Raises what `match` would have raised."""
        ...


def begin(engine: Engine, batch: EventBatch, *, filters: bool = False) -> Matches | Pending:
    """Begin to match a batch, or match it: what an engine can only answer at once is answered here.

    So one on a GPU goes on with the next batch while the answer of this one is fetched, if that is begun before this one is
    ended.  It has a method `begin` like this function; the others have none.  Batches may be ended in any order, in the
    thread in which they were begun.  Each is matched as if there were no other: with the changes from before its beginning
    only, and one that fails does so at its own end.  Raises EngineError like `Engine.match`.
    """
    if (own := getattr(engine, "begin", None)) is None:
        return engine.match(batch, filters=filters)
    begun: Matches | Pending = own(batch, filters=filters)
    return begun


def match_all(engine: Engine, batches: Iterable[EventBatch], *, filters: bool = False) -> Iterator[Matches]:
    """The answers to batches, in order.  Each is begun before those before it are ended, so that a GPU always has one to
    match; MOST_BEGUN are under way at a time.
    """
    begun: deque[Matches | Pending] = deque()
    for batch in batches:
        begun.append(begin(engine, batch, filters=filters))
        while begun and (isinstance(begun[0], Matches) or len(begun) == MOST_BEGUN):
            yield _ended(begun.popleft())
    while begun:
        yield _ended(begun.popleft())


def _ended(begun: Matches | Pending) -> Matches:
    return begun if isinstance(begun, Matches) else begun.end()


def pin(engine: Engine, memory: Sequence[Array]) -> None:
    """Tell an engine of contiguous arrays that batches will lie in, and that stay as they are while there is the engine.

    One on a GPU can copy from there instead of from a copy of it.  It has a method `pin(array)`; the others have none.
    """
    if (hold := getattr(engine, "pin", None)) is not None:
        for each in memory:
            hold(each)


def warm_up(engine: Engine, example: Callable[[], EventBatch | None], *, filters: bool = False) -> None:
    """Have an engine match a batch like those that will come, if there is an example, so that the first of them waits for
    nothing.

    One on a GPU loads its kernels then and takes memory for such batches.  It has a method `warm_up(batch, filters=...)`;
    the others have none, and then nobody asks for the example.  What matching it raises, matching it again will.
    """
    if (own := getattr(engine, "warm_up", None)) is not None and (batch := example()) is not None:
        with suppress(EngineError):
            own(batch, filters=filters)


def open_engine(
    name: str, table: Table, device: int | None = None, threads: int | None = None, *, live: bool = False
) -> Engine:
    """Build an engine for a table.

    Parameters: `name` one of `ENGINES` or "auto"; `device` the GPU's number among the visible ones (None: chosen by local
    rank); `threads` CPU threads (None: all that the process may use); `live` whether the table will change (`update`).
    Raises EngineError, in one line, when the engine is unknown, needs a GPU that is not there, or cannot serve the table or
    its changes.
    """
    if name == "auto":
        return _open_auto(table, device, threads, live)
    if name not in ENGINES:
        raise EngineError(f"unknown engine {name!r}; there are: {', '.join((*ENGINES, 'auto'))}")
    module = importlib.import_module(f"mpi_match.engines.{_MODULE_OF[name]}")

    def open_(table: Table) -> Engine:
        opened: Engine = module.ENGINE(table, device=device, threads=threads, live=live)
        return opened

    if not getattr(module.ENGINE, "compiles", False):
        return open_(table)
    from mpi_match.engines import prewarm

    prewarm.rehearse(name, open_, table, live=live)  # before the table's own engine, which may leave no room for another
    engine = open_(table)
    if engine.gpu is None:  # those on a GPU do so themselves
        prewarm.load(engine, table)
    return engine


def compile_s() -> float:
    """Seconds that this process has spent so far on compiling engines, or on waiting for another process that did."""
    cache = sys.modules.get("mpi_match.compute.compile_cache")  # which loads numba; not loaded, it has compiled nothing
    return 0.0 if cache is None else float(cache.compile_s())


def _open_auto(table: Table, device: int | None, threads: int | None, live: bool) -> Engine:
    for name in AUTO:
        try:
            return open_engine(name, table, device, threads, live=live)
        except EngineError as error:
            log.info("engine %s passed over: %s", name, error)
            reason = error
    raise reason


def refuse_changes(name: str, live: bool) -> None:
    """What an engine that serves only fixed tables says when it is opened for one that will change."""
    if live:
        raise EngineError(f"engine {name!r} serves tables that do not change; keyed, keyed_cuda and clcb take changes")


def check_changes(name: str, live: bool, table: Table, changes: Changes) -> None:
    """Refuse changes of an engine that was opened for a fixed table, or filters encoded with another vocabulary."""
    if not live:
        raise EngineError(f"engine {name!r} was opened for a table that does not change; open it with live=True")
    if changes.added is not None and changes.added.vocabulary.fingerprint != table.vocabulary.fingerprint:
        raise EngineError("the added filters were encoded with another vocabulary than the engine's table")


def check_batch(table: Table, batch: EventBatch) -> None:
    """Refuse a batch that was encoded with another vocabulary than the table's, or lacks the locations that areas need."""
    if batch.fingerprint != table.vocabulary.fingerprint:
        raise EngineError("the batch was encoded with another table's vocabulary; encode the events with this table")
