"""The interface of engines.

    engine.match(batch)             exact, never truncated
    engine.begin(batch).end()       the same, but the next batch may begin before this one ends
    engine.update(changes)          visible to every later batch

An engine derives from `Engine`, implements `match` and `nbytes`, and overrides the other methods that it supports.  The
registry (`registry`) lists engines by name.  Decorators of these methods serialise threads where necessary (`sharing`),
check batches and changes, and take rejected rows out of a batch:

    @matching      `match` of a CPU engine, which also receives its own scratch memory            threads run side by side
    @in_turn       `match`, `begin` and `end` of an engine that matches one batch after another   threads take turns
    @updating      `update`                                                                       no thread matches meanwhile
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
from mpi_match.model import describe
from mpi_match.table.table import Table

if TYPE_CHECKING:
    from mpi_match.ingest.json.event_scanner import LineScanner  # loads Numba
    from mpi_match.ingest.rows.judge import EventForm

MOST_BEGUN = 3
"""Most batches in progress at a time: one for each pipeline slot of a GPU, even if a batch fills only one slot."""


Answer = TypeVar("Answer")


class Pending(Protocol):
    """A batch that an engine has begun to match.  Its memory must not change until `end` returns."""

    def end(self) -> Matches:
        """Return the answer; call it once.  Raises whatever `match` would have raised."""
        ...


@runtime_checkable
class Waiting(Pending, Protocol):
    """A begun batch whose events may wait, to be matched together with events of later batches."""

    def poll(self) -> bool:
        """Match the events that have waited long enough.  Returns True when no event of the batch still waits."""
        ...


class Engine(ABC):
    """Finds the filters of one table that the events of a batch match.

    Any number of threads may call `match`, `begin` and `update` at the same time.  Each answer reflects the table either
    before an update or after it, never a mixture.  On the CPU, matches run side by side; GPU engines and `tagmatch` match
    one batch after another.  After an exception in `match`, such as an interrupt, the next `match` works normally; after one
    in `update` the engine refuses to match (`is_broken`).

    An engine is made from a table: `Class(table, device, threads, live=live)`, plus `options=`, by name, where the registry
    lists options; `open_engine` documents these arguments.  An engine for a fixed table can be pickled and copied: the copy
    is opened again with the same arguments.

    Class attributes:
        takes_changes   True for an engine that can be opened for a table that will change
        compiles        True for an engine with CPU code that is compiled at the first call (`prewarm`)
        n_functions     approximate number of functions that this compiles, for a progress bar
        serves_parts    the reason why it cannot be an engine of `staged`; None for one that serves `exists` and `absent`
        places          True if `placed` copies batches to a GPU

    Instance attributes:
        name      its name in the registry
        device    the device it runs on, in words ("cpu, 2 threads", "NVIDIA H200")
        gpu       the UUID of its GPU; None for a CPU engine
        options   the value of each option that the registry lists for it, by name
        reads_published   True if it matches events as they were published, which `bench` makes for it
    """

    takes_changes: ClassVar[bool] = False
    compiles: ClassVar[bool] = False
    n_functions: ClassVar[int] = 10
    serves_parts: ClassVar[str | None] = None
    places: ClassVar[bool] = False

    name: str
    device: str
    gpu: str | None = None
    options: Mapping[str, OptionValue] = {}
    reads_published: bool = False
    _table: Table
    _live: bool = False
    _sharing: ScratchSets[Any] | Turns | None = None
    _again: tuple[Callable[..., Engine], Mapping[str, Any]] | None = None
    """The function that opens the engine again, and its arguments by name."""

    def __reduce__(self) -> tuple[object, ...]:
        """Support `pickle` and `copy`: the copy is opened again from the table.  Raises TypeError for an engine that takes
        changes."""
        if self._again is None or self._again[1]["live"]:
            raise TypeError(
                f"engine {self.name!r} cannot be pickled or copied, because its table may have changed since it was opened; "
                "pickle its LiveMatcher, or open one for the table there"
            )
        return self._again[0], self._again[1:]

    @classmethod
    def compiled_apart(cls, packed: str) -> Sequence[Part]:
        """The parts that matching compiles in addition to building, for attributes of dtype `packed`; both can be compiled
        in parallel."""
        return ()

    @classmethod
    def compiled_for_lines(cls, packed: str, form: EventForm) -> Sequence[Part]:
        """The parts that `scanner` compiles for lines of this form."""
        return ()

    @classmethod
    def serves(cls, table: Table) -> str | None:
        """Return the reason why the engine cannot serve a table, naming one that can; None if it can.  Builds nothing."""
        return None

    @abstractmethod
    def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        """Return the matched interfaces of every event; with `filters`, the matched filters.

        Safe to call from any thread.  Raises EngineError for a batch encoded with another vocabulary, and for an engine
        whose last update was interrupted (`is_broken`).
        """

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes that the engine holds in addition to the table."""

    @property
    def shared_nbytes(self) -> int:
        """Bytes of arrays of the table that the engine reads while it matches, and does not count among `nbytes`."""
        return 0

    def begin(self, batch: EventBatch, *, filters: bool = False) -> Matches | Pending:
        """Begin to match a batch.  An engine that does not overlap batches returns the answer at once.

        A GPU engine fetches the answer of one batch while it matches the next, provided the next is begun before the first
        is ended.  Batches may be ended in any order, in the thread that began them.  Each is matched as if it were the only
        one: it sees only the changes made before it began, and its own `end` raises its errors.  Raises EngineError like
        `match`.
        """
        return self.match(batch, filters=filters)

    def extended(self, batch: EventBatch, found: Matches, attribute_of: Array) -> EventBatch:
        """The batch, without rejected rows, with further attributes: attribute_of[id] for each of an event's ids in the
        answers `found`.  `attribute_of` is packed, ascends with each event's ids, and has names that the event lacks."""
        from mpi_match.events.extended import extended  # loads Numba

        return extended(batch, found.offsets, found.ids, attribute_of)

    def placed(self, batch: EventBatch) -> EventBatch:
        """A batch on the host, without rejected rows, as one on the GPU if the engine `places` batches there, to match them
        several times; otherwise the batch itself."""
        return batch

    def update(self, changes: Changes) -> None:
        """Apply changes in order.  Every later `match` sees them; batches already begun do not.

        Safe to call from any thread: it waits for matches in progress, and later matches wait for it.  Raises EngineError,
        without changing anything, when the engine was not opened `live` or the added filters are encoded with another
        vocabulary.  After any other exception, such as an interrupt or an impossible change, the engine refuses to match
        (`is_broken`).
        """
        raise EngineError(fixed_only(self.name))

    @property
    def is_broken(self) -> bool:
        """True after an interrupted update: `match` and `update` then raise EngineError, and a new engine must be opened for
        the changed table."""
        return self._sharing is not None and self._sharing.is_broken

    def renew(self) -> None:
        """Rebuild the state that an interrupted match may have left inconsistent.  Called before the next match, if matches
        take turns."""

    def _check_changes(self, changes: Changes) -> None:
        """Raise EngineError for changes that the engine does not take, before anything is changed."""
        check_changes(self.name, self._live, self._table, changes)

    def pin(self, memory: Sequence[Array]) -> None:
        """Pin contiguous arrays that hold the coming batches.  They must not change while the engine exists.

        A GPU engine copies directly from pinned memory.
        """

    def host_memory(self, n_bytes: int) -> Array:
        """Return u8[n_bytes] of uninitialised memory for lines that the engine's scanner will read.  Safe to call from any
        thread.

        A GPU engine returns pinned memory while it has enough, and reuses it once no reference is left.
        """
        found: Array = np.empty(n_bytes, np.uint8)
        return found

    def scanner(self, scanner: LineScanner) -> LineScanner:
        """Return the scanner to use for this engine: `scanner`, which runs on the CPU, or one that runs on the engine's
        GPU."""
        return scanner

    def warm_up(self, example: Callable[[], EventBatch | None], *, filters: bool = False) -> None:
        """Match an example of the coming batches, so that the first real batch does not wait for kernels or memory.

        A GPU engine loads its kernels and allocates memory; other engines do not call `example`.  An error while matching
        the example is ignored; later matches raise it.
        """

    def time_steps(self) -> None:
        """Measure `steps_s` from now on, which may slow the engine down."""

    @property
    def steps_s(self) -> Mapping[str, float]:
        """Seconds spent so far in each phase of the engine, in order; empty if it measures none."""
        return {}

    @property
    def exact(self) -> bool:
        """Tells whether the engine's answers are exact.  Only an engine opened for measurement (`open_engine`) may report
        false positives."""
        return True

    @property
    def candidates(self) -> int | None:
        """Number of filters verified so far, over all events; None if the engine does not count them."""
        return None

    @property
    def kernel_s(self) -> float:
        """Seconds so far in which at least one matching kernel ran; 0 without kernels, and when these are not timed."""
        return 0.0


class SeveralEngines(Engine):
    """Several engines as one.  The first does the work that takes a single one (`host_memory`, `scanner`)."""

    _engines: Sequence[Engine]

    def host_memory(self, n_bytes: int) -> Array:
        return self._engines[0].host_memory(n_bytes)

    def scanner(self, scanner: LineScanner) -> LineScanner:
        """The first engine's scanner; the other engines copy the events that it scans on a GPU."""
        return self._engines[0].scanner(scanner)

    @property
    def is_broken(self) -> bool:
        return any(engine.is_broken for engine in self._engines)

    @property
    def nbytes(self) -> int:
        return sum(engine.nbytes for engine in self._engines)


def matching(find: Callable[[Any, EventBatch, Any, bool], Answer]) -> Callable[..., Answer]:
    """Decorator that makes `match` or `begin` of an engine whose `_sharing` is `ScratchSets` from `find(engine, batch,
    scratch, filters)`.

    Scratch that was in use when an exception occurred is not used again.
    """

    @wraps(find)
    def match(engine: Engine, batch: EventBatch, *, filters: bool = False) -> Any:
        try:
            rejected = batch.rejected  # an event is matched in a few microseconds, and isinstance takes a tenth of one
        except AttributeError:
            raise not_a_batch(batch) from None
        if rejected is not None:
            return _with_rejected(match(engine, batch.accepted, filters=filters), rejected)
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
    """Decorator that makes `match` or `begin` of an engine whose `_sharing` is `Turns` from `take(engine, batch,
    filters)`."""

    @wraps(take)
    def taking(engine: Engine, batch: EventBatch, *, filters: bool = False) -> Any:
        try:
            rejected = batch.rejected
        except AttributeError:
            raise not_a_batch(batch) from None
        if rejected is not None:
            return _with_rejected(taking(engine, batch.accepted, filters=filters), rejected)
        check_batch(engine._table, batch)
        turns: Any = engine._sharing
        return turns.take(engine, take, batch, filters)

    return taking


def updating(apply: Callable[[Any, Changes], None]) -> Callable[[Any, Changes], None]:
    """Decorator of an engine's `update`: checks the changes, then applies them while no other thread uses the engine."""

    @wraps(apply)
    def update(engine: Engine, changes: Changes) -> None:
        engine._check_changes(changes)
        sharing: Any = engine._sharing
        sharing.update(engine, apply, changes)

    return update


def _with_rejected(found: Matches | Pending, rejected: Array) -> Matches | Pending:
    """The answer, or a begun batch, with answers for rejected rows."""
    return found.with_rejected(rejected) if isinstance(found, Matches) else _Apart(found, rejected)


class _Apart(NamedTuple):
    """A begun batch without its rejected rows; `end` adds them to the answer."""

    begun: Pending
    rejected: Array

    def end(self) -> Matches:
        return self.begun.end().with_rejected(self.rejected)


def match_all(engine: Engine, batches: Iterable[EventBatch], *, filters: bool = False) -> Iterator[Matches]:
    """Yield the answers to batches, in order.  MOST_BEGUN batches are in progress at a time, so that a GPU always has one to
    match."""
    begun: deque[Matches | Pending] = deque()
    for batch in batches:
        begun.append(engine.begin(batch, filters=filters))
        while begun and (isinstance(begun[0], Matches) or len(begun) == MOST_BEGUN):
            yield ended(begun.popleft())
    while begun:
        yield ended(begun.popleft())


def ended(begun: Matches | Pending) -> Matches:
    """The answer of a batch that may have been answered at once.  Raises whatever its `match` would have raised."""
    return begun if isinstance(begun, Matches) else begun.end()


def fixed_only(name: str) -> str:
    """Return the error message of an engine that serves only fixed tables; it names the registered engines that take
    changes."""
    *others, last = (other for other, entry in REGISTRY.items() if entry.takes_changes)
    return f"engine {name!r} serves tables that do not change; {', '.join(others)} and {last} take changes"


def check_changes(name: str, live: bool, table: Table, changes: Changes) -> None:
    """Raise EngineError if the engine was opened for a fixed table, or if the added filters are encoded with another
    vocabulary."""
    if not live:
        raise EngineError(f"engine {name!r} was opened for a table that does not change; open it with live=True")
    if changes.added is not None and changes.added.vocabulary.fingerprint != table.vocabulary.fingerprint:
        raise EngineError("the added filters were encoded with another vocabulary than the engine's table")


def not_a_batch(found: object) -> EngineError:
    """The error of an engine that is given events in another form than a batch."""
    return EngineError(f"an engine matches a batch of make_batch, found {describe(found)}; mpi_match.match takes others")


def check_batch(table: Table, batch: EventBatch) -> None:
    """Raise EngineError for anything but a batch, and for one that was encoded with another vocabulary than the table's."""
    try:
        fingerprint = batch.fingerprint
    except AttributeError:
        raise not_a_batch(batch) from None
    if fingerprint != table.vocabulary.fingerprint:
        raise EngineError("the batch was encoded with another table's vocabulary; encode the events with this table")
