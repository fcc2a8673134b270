"""Lets any number of threads match with one engine while another thread may change it.

A search needs working memory, its *scratch*, and updates change arrays in place.  Two classes keep threads apart:

    ScratchSets   every match has its own set of scratch memory     CPU engines
    Turns         one match after another                           engines with a queue, GPU engines above all

Both give an update exclusive use of the engine.  A match never sees half of an update: it waits until the update is over,
and an update waits for the matches in progress.  State that an exception has interrupted is not used again:

- after an interrupted match its scratch set is dropped, and the next match makes another one (`Turns`: it is rebuilt);
- after an interrupted update the engine refuses to match, since it has neither the old filters nor the new ones.

A forked child has none of its parent's threads, and those may have held any of these locks, so it gets new ones.  A child
cannot use its parent's GPU memory, so GPU engines refuse to match in it.

The locks are taken by `with`, so that no interrupt comes between taking and releasing.  Readers do not compete for a lock:
each set has its own, and only an update waits for it.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from mpi_match.compute.forks import renew_in_child
from mpi_match.errors import EngineError

T = TypeVar("T")

_INTERRUPTED = (
    "an update of engine {!r} failed or was interrupted half-way, so its filters are unknown; open the engine again"
)
_WITHIN = "engine {!r} was called during a match or an update of its own, perhaps by a signal handler"
_FORKED = (
    "the process was forked after its parent had opened engine {!r}, whose GPU a child cannot use; open the engine in a "
    "process that was started by 'spawn' or 'forkserver', or use a CPU engine"
)


class Scratch:
    """Working memory of one match; engines derive their own.  `busy` is held while a match uses it."""

    def __init__(self) -> None:
        self.busy = threading.Lock()


S = TypeVar("S", bound=Scratch)


class ScratchSets(Generic[S]):
    """The scratch sets of an engine: as many as there have been simultaneous matches; `make(engine)` makes one.

    No reference to the engine is kept, so its memory is freed with the last reference elsewhere.

    free          unused sets; the one used last is taken first
    is_changing   True while an update is in progress, and after one that was interrupted
    """

    def __init__(self, engine: Any, make: Callable[[Any], S]) -> None:
        self._name, self._make = engine.name, make
        self._writer = threading.RLock()
        self._sets: weakref.WeakSet[S] = weakref.WeakSet()
        self.free: deque[S] = deque()
        self.is_changing = False
        self.free.append(self.another(engine))
        renew_in_child(self)

    @property
    def sets(self) -> list[S]:
        """All scratch sets, including those in use."""
        return list(self._sets)

    @property
    def is_broken(self) -> bool:
        """True after an interrupted update."""
        with self._writer:
            return self.is_changing

    def another(self, engine: object) -> S:
        """Make one more set, after waiting for an update in progress.  Raises EngineError after an interrupted update."""
        with self._writer:
            self._refuse()
            made = self._make(engine)
            self._sets.add(made)
            return made

    def wait_for_update(self) -> None:
        """Return when no update is in progress.  Raises EngineError after an interrupted update."""
        with self._writer:
            self._refuse()

    def update(self, engine: Any, apply: Callable[..., object], *given: Any) -> None:
        """Call `apply(engine, *given)` while no match is in progress, and raise what it raises; see also `is_broken`."""
        with self._writer:
            self._refuse()
            self.is_changing = True  # from here on no match begins
            try:
                for each in self.sets:
                    with each.busy:
                        pass
            except BaseException:
                self.is_changing = False  # nothing is changed yet
                raise
            apply(engine, *given)
            self.is_changing = False

    def _refuse(self) -> None:
        if self.is_changing:  # this thread holds the lock, so no other thread is changing it
            raise EngineError(_INTERRUPTED.format(self._name))

    def forked(self) -> None:
        """Discard the sets that the parent's other threads used."""
        self._writer = threading.RLock()
        self.free.clear()
        self._sets = weakref.WeakSet()


class Turns:
    """Lets one thread after another use an engine, without keeping a reference to it.

    After an interrupted match, the engine's `renew` is called before the next one.  With `on_gpu`, a forked child is
    refused.
    """

    def __init__(self, engine: Any, *, on_gpu: bool) -> None:
        self._name, self._on_gpu = engine.name, on_gpu
        self._turn = threading.RLock()
        self._is_used = self._is_spoilt = self._is_forked = self.is_changing = False
        renew_in_child(self)

    @property
    def is_broken(self) -> bool:
        """True after an interrupted update."""
        with self._turn:
            return self.is_changing and not self._is_used

    def take(self, engine: Any, work: Callable[..., T], *given: object) -> T:
        """Return `work(engine, *given)`, called while no other thread uses the engine.

        Raises EngineError after an interrupted update, in a forked child of a GPU engine's process, and when called within
        itself.
        """
        with self._turn:
            self._refuse()
            try:
                self._is_used = True
                if self._is_spoilt:
                    engine.renew()
                self._is_spoilt = True  # until the work has succeeded
                done = work(engine, *given)
                self._is_spoilt = False
                return done
            finally:
                self._is_used = False

    def update(self, engine: Any, apply: Callable[..., object], *given: Any) -> None:
        """Call `apply(engine, *given)` while no other thread uses the engine, and raise what it raises; see also
        `is_broken`."""
        self.take(engine, self._change, apply, *given)

    def _change(self, engine: object, apply: Callable[..., object], *given: object) -> None:
        self.is_changing = True
        apply(engine, *given)
        self.is_changing = False

    def _refuse(self) -> None:
        if self._is_forked:
            raise EngineError(_FORKED.format(self._name))
        if self._is_used:
            raise EngineError(_WITHIN.format(self._name))
        if self.is_changing:
            raise EngineError(_INTERRUPTED.format(self._name))

    def forked(self) -> None:
        """Mark as interrupted a match that another thread of the parent was running."""
        self._turn = threading.RLock()
        self._is_spoilt, self._is_used, self._is_forked = self._is_spoilt or self._is_used, False, self._on_gpu
