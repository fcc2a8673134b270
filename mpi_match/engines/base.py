"""The interface of engines.

    engine.match(batch)             exact, never truncated
    engine.begin(batch).end()       the same, where the next batch may begin before this one ends
    engine.update(changes)          visible to every later batch

An engine derives from `Engine`, implements `match` and `nbytes`, and overrides the other methods that it supports.  The
registry (`registry`) lists it by name.  Decorators of these methods keep threads apart (`sharing`), check batches and
changes, and take rejected rows out of a batch:

    @matching      match of an engine on the CPU, which gets scratch of its own besides       any number of threads at once
    @in_turn       match, begin and end of an engine that matches one batch after the other   one thread after the other
    @updating      update                                                                     no thread matches meanwhile
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.changes.changes import Changes
from mpi_match.compute.compile_parts import Part
from mpi_match.engines.entries import REGISTRY
from mpi_match.engines.option import OptionValue
from mpi_match.engines.sharing import ScratchSets, Turns
from mpi_match.errors import EngineError
from mpi_match.events.batch import EventBatch
from mpi_match.matches.matches import Matches
from mpi_match.table.table import Table

if TYPE_CHECKING:
    from mpi_match.ingest.json.event_scanner import LineScanner  # loads Numba

MOST_BEGUN = 3
"""Batches that are begun at a time: one for each pipeline slot of a GPU, even if each batch has events for one slot only."""


Answer = TypeVar("Answer")


class Pending(Protocol):
    """A batch that an engine has begun to match; its memory must not change until `end` returns."""

    def end(self) -> Matches:
        """Its answer, once.  Raises what `match` would have raised."""
        ...


@runtime_checkable
class Waiting(Pending, Protocol):
    """A begun batch that may wait for events of later batches, to be matched with them."""

    def poll(self) -> bool:
        """Would `end` return without matching events that wait?  Matches those first that have waited for long enough."""
        ...


class Engine(ABC):
    """Finds what the events of a batch match in one table.

    Any number of threads may call `match`, `begin` and `update` at the same time.  Each answer is that of the filters before
    an update or of those after it, never of some of both.  On the CPU matches run side by side; an engine on a GPU, and
    `tagmatch`, match one batch after the other.  After an exception in `match`, such as an interrupt, the next `match` is
    right; after one in `update` the engine refuses to match (`is_broken`).

    It is made from a table: `Class(table, device, threads, live=live)`, and `options=` by name where the registry has any;
    `open_engine` has what these mean.  Pickled or copied, an engine for a fixed table is opened again, in the same way.

    Of the class:
        takes_changes   can it be opened for a table that will change?
        compiles        is there code for the CPU that is compiled at the first call (`prewarm`)?
        n_functions     about how many functions that compiles, for a progress bar

    Of each engine:
        name      its name in the registry
        device    what it runs on, in words ("cpu, 2 threads", "NVIDIA H200")
        gpu       the UUID of its GPU; None for one that runs on the CPU
        options   the value of each of the options that the registry has for it, by name
    """

    takes_changes: ClassVar[bool] = False
    compiles: ClassVar[bool] = False
    n_functions: ClassVar[int] = 10

    name: str
    device: str
    gpu: str | None = None
    options: Mapping[str, OptionValue] = {}
    _table: Table
    _live: bool = False
    _sharing: ScratchSets[Any] | Turns | None = None
    _again: tuple[Callable[..., Engine], Mapping[str, Any]] | None = None
    """Opens the engine again with these arguments of `open_engine`, by name."""

    def __reduce__(self) -> tuple[Any, ...]:
        """For `pickle` and `copy`: its table and how it was opened, to be opened again.  Raises TypeError for one that takes
        changes."""
        if self._again is None or self._again[1]["live"]:
            raise TypeError(
                f"engine {self.name!r} cannot be pickled or copied, because its table may have changed since it was opened; "
                "pickle its LiveMatcher, or open one for the table there"
            )
        return self._again[0], self._again[1:]

    @classmethod
    def compiled_apart(cls, packed: str) -> Sequence[Part]:
        """What matching compiles besides building, for attributes of the packed type, so that both can be done at once."""
        return ()

    @classmethod
    def serves(cls, table: Table) -> str | None:
        """Why it cannot serve a table, and which engine can; None when it can.  Nothing is built to find out."""
        return None

    @abstractmethod
    def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        """Matched interfaces of every event; with `filters`, matched filters instead.

        Any thread may call it at any time.  Raises EngineError for a batch encoded with another vocabulary, and for an
        engine whose last update was interrupted (`is_broken`).
        """

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes that the engine holds besides the table."""

    def begin(self, batch: EventBatch, *, filters: bool = False) -> Matches | Pending:
        """Begin to match a batch; an engine that does not overlap batches returns its answer.

        An engine on a GPU matches the next batch while the answer of this one is fetched, if the next one is begun before
        this one is ended.  Batches may be ended in any order, in the thread in which they were begun.  Each is matched as if
        it were the only one: with the changes from before its beginning only, and its errors are raised by its own `end`.
        Raises EngineError like `match`.
        """
        return self.match(batch, filters=filters)

    def update(self, changes: Changes) -> None:
        """Apply changes in order: every later `match` sees them, and no batch that was begun before.

        Any thread may call it at any time: it waits for matches in progress, and later ones wait for it.
        Raises EngineError when the engine was not opened `live`, or the added filters are encoded with another vocabulary;
        then nothing has changed.  After any other exception, such as an interrupt or a change that cannot be made, the
        engine refuses to match (`is_broken`).
        """
        raise EngineError(fixed_only(self.name))

    @property
    def is_broken(self) -> bool:
        """True after an update that was interrupted half-way: `match` and `update` raise EngineError, and a new engine for
        the changed table has to be opened."""
        return self._sharing is not None and self._sharing.is_broken

    def renew(self) -> None:
        """Make anew what an interrupted match may have left half-way; called before the next one, if matches take turns."""

    def _check_changes(self, changes: Changes) -> None:
        """Raise EngineError for changes that it does not take, before anything is changed."""
        check_changes(self.name, self._live, self._table, changes)

    def pin(self, memory: Sequence[Array]) -> None:
        """Pin contiguous arrays that hold the batches to come and do not change while the engine exists.

        An engine on a GPU can copy from them directly.
        """

    def host_memory(self, n_bytes: int) -> Array:
        """Memory u8 of any content for lines that its scanner will get; any thread may ask.

        That of an engine on a GPU is pinned, as long as there is enough, and used again when no reference to it is left.
        """
        found: Array = np.empty(n_bytes, np.uint8)
        return found

    def scanner(self, scanner: LineScanner) -> LineScanner:
        """What scans lines for it, instead of the CPU's `scanner` if it takes events on its GPU."""
        return scanner

    def warm_up(self, example: Callable[[], EventBatch | None], *, filters: bool = False) -> None:
        """Match an example of the batches to come, so that the first of them does not wait for kernels or memory.

        An engine on a GPU loads its kernels and allocates memory; other engines do not call `example`.  Errors of matching
        the example are left to later matches.
        """

    def time_steps(self) -> None:
        """Measure `steps_s` from now on, which may make the engine slower."""

    @property
    def steps_s(self) -> Mapping[str, float]:
        """Seconds that each of the engine's own phases took so far, in their order; empty where it measures none."""
        return {}

    @property
    def exact(self) -> bool:
        """Are its answers exact?  Only an engine that `bench` measures (`open_engine`) may find more than what matches."""
        return True

    @property
    def candidates(self) -> int | None:
        """Filters that it has verified so far, for all events together; None where it does not count them."""
        return None

    @property
    def kernel_s(self) -> float:
        """Seconds in which at least one matching kernel ran so far; 0 where there are none, or they are not measured."""
        return 0.0


def matching(find: Callable[[Any, EventBatch, Any, bool], Matches]) -> Callable[..., Matches]:
    """Decorator: `match` of an engine whose `_sharing` is `ScratchSets`; `find(engine, batch, scratch, filters)`.

    A set of scratch that an exception leaves is not used again.
    """

    @wraps(find)
    def match(engine: Engine, batch: EventBatch, *, filters: bool = False) -> Matches:
        if batch.rejected is not None:
            return match(engine, batch.accepted, filters=filters).with_rejected(batch.rejected)
        check_batch(engine._table, batch)
        sets: Any = engine._sharing
        while True:
            try:
                scratch = sets.free.pop()
            except IndexError:
                scratch = sets.another(engine)
            with scratch.busy:
                if not sets.is_changing:
                    found = find(engine, batch, scratch, filters)
                    break
            sets.free.append(scratch)
            sets.wait_for_update()
        sets.free.append(scratch)
        return found

    return match


def in_turn(take: Callable[[Any, EventBatch, bool], Answer]) -> Callable[..., Answer]:
    """Decorator: `match` or `begin` of an engine whose `_sharing` is `Turns`; `take(engine, batch, filters)`."""

    @wraps(take)
    def taking(engine: Engine, batch: EventBatch, *, filters: bool = False) -> Any:
        if batch.rejected is not None:
            found = taking(engine, batch.accepted, filters=filters)
            return found.with_rejected(batch.rejected) if isinstance(found, Matches) else _Apart(found, batch.rejected)
        check_batch(engine._table, batch)
        turns: Any = engine._sharing
        return turns.take(engine, take, batch, filters)

    return taking


def updating(apply: Callable[[Any, Changes], None]) -> Callable[[Any, Changes], None]:
    """Decorator: an engine's `update`, which nothing else uses meanwhile; the changes are checked before."""

    @wraps(apply)
    def update(engine: Engine, changes: Changes) -> None:
        engine._check_changes(changes)
        sharing: Any = engine._sharing
        sharing.update(engine, apply, changes)

    return update


class _Apart(NamedTuple):
    """A begun batch without its rejected rows."""

    begun: Pending
    rejected: Array

    def end(self) -> Matches:
        """See `Pending.end`."""
        return self.begun.end().with_rejected(self.rejected)


def match_all(engine: Engine, batches: Iterable[EventBatch], *, filters: bool = False) -> Iterator[Matches]:
    """The answers to batches, in order; MOST_BEGUN are under way at a time, so that a GPU always has one to match."""
    begun: deque[Matches | Pending] = deque()
    for batch in batches:
        begun.append(engine.begin(batch, filters=filters))
        while begun and (isinstance(begun[0], Matches) or len(begun) == MOST_BEGUN):
            yield _ended(begun.popleft())
    while begun:
        yield _ended(begun.popleft())


def _ended(begun: Matches | Pending) -> Matches:
    return begun if isinstance(begun, Matches) else begun.end()


def fixed_only(name: str) -> str:
    """The error message of an engine that serves only fixed tables; names those of the registry that take changes."""
    *others, last = (other for other, entry in REGISTRY.items() if entry.takes_changes)
    return f"engine {name!r} serves tables that do not change; {', '.join(others)} and {last} take changes"


def check_changes(name: str, live: bool, table: Table, changes: Changes) -> None:
    """Refuse changes of an engine that was opened for a fixed table, or filters encoded with another vocabulary."""
    if not live:
        raise EngineError(f"engine {name!r} was opened for a table that does not change; open it with live=True")
    if changes.added is not None and changes.added.vocabulary.fingerprint != table.vocabulary.fingerprint:
        raise EngineError("the added filters were encoded with another vocabulary than the engine's table")


def check_batch(table: Table, batch: EventBatch) -> None:
    """Refuse a batch that was encoded with another vocabulary than the table's."""
    if batch.fingerprint != table.vocabulary.fingerprint:
        raise EngineError("the batch was encoded with another table's vocabulary; encode the events with this table")
