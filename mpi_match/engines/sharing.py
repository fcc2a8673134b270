"""Lets any number of threads match with one engine, while one of them may change it.

A search needs memory to work in, its *scratch*, and updates change arrays in place.  Two classes keep threads apart:

    ScratchSets   every match takes a set of scratch of its own     engines on the CPU
    Turns         one match after the other                         engines with a queue, on a GPU above all

Both give changes the engine for themselves.  A match never sees half of an update: it waits until the update is over, and an
update waits for the matches in progress.  What an exception interrupts is not used again:

- a match: its set is dropped, and the next match makes another one (`Turns`: what it worked in is made anew);
- an update: the engine refuses to match from then on, since it has neither the old filters nor the new ones.

A child process that is forked has none of its parent's threads, which may have held any of these locks.  It gets new ones.
What a parent's GPU holds is not there in a child, so engines on a GPU refuse to match in it.

The locks are taken by `with`, which no interrupt separates from its body.  A reader takes no lock that other readers want:
a set's own lock is free but for an update that waits for it.
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
_WITHIN = "engine {!r} is asked to match within a match or an update of its own, by a signal handler perhaps"
_FORKED = (
    "the process was forked after its parent had opened engine {!r}, whose GPU a child cannot use; open the engine in a "
    "process that was started by 'spawn' or 'forkserver', or use keyed"
)


class Scratch:
    """Memory that one match works in; engines derive theirs.  `busy` is held meanwhile."""

    def __init__(self) -> None:
        self.busy = threading.Lock()


S = TypeVar("S", bound=Scratch)


class ScratchSets(Generic[S]):
    """The sets of scratch of an engine, as many as there ever were matches at the same time; `make(engine)` makes one.

    The engine is not kept: it and its memory go when the last reference to it does.

    free          sets that no match uses; the one that was used last is taken first
    is_changing   an update has begun and is not over, or was interrupted
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
        """All of them, those in use too."""
        return list(self._sets)

    @property
    def is_broken(self) -> bool:
        """True after an update that was interrupted."""
        with self._writer:
            return self.is_changing

    def another(self, engine: Any) -> S:
        """One more set; waits for an update in progress.  Raises EngineError after one that was interrupted."""
        with self._writer:
            self._refuse()
            made = self._make(engine)
            self._sets.add(made)
            return made

    def wait_for_update(self) -> None:
        """Return when no update is in progress.  Raises EngineError after one that was interrupted."""
        with self._writer:
            self._refuse()

    def update(self, engine: Any, apply: Callable[..., object], *given: Any) -> None:
        """`apply(engine, *given)`, while no match is in progress.  Raises what it raises; see also `is_broken`."""
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
        if self.is_changing:  # and this thread holds the lock: so no other one is changing it
            raise EngineError(_INTERRUPTED.format(self._name))

    def forked(self) -> None:
        """See `Renewable.forked`: the sets that the parent's other threads used are left out."""
        self._writer = threading.RLock()
        self.free.clear()
        self._sets = weakref.WeakSet()


class Turns:
    """Lets one thread after the other use an engine, which is not kept.

    After a match that was interrupted, `renew` of the engine is called before the next one.  `on_gpu`: a forked child is
    refused.
    """

    def __init__(self, engine: Any, *, on_gpu: bool) -> None:
        self._name, self._on_gpu = engine.name, on_gpu
        self._turn = threading.RLock()
        self._is_used = self._is_spoilt = self._is_forked = self.is_changing = False
        renew_in_child(self)

    @property
    def is_broken(self) -> bool:
        """True after an update that was interrupted."""
        with self._turn:
            return self.is_changing and not self._is_used

    def take(self, engine: Any, work: Callable[..., T], *given: Any) -> T:
        """`work(engine, *given)`, while no other thread uses the engine.

        Raises EngineError after an update that was interrupted, in a forked child without the GPU, and within itself.
        """
        with self._turn:
            self._refuse()
            try:
                self._is_used = True
                if self._is_spoilt:
                    engine.renew()
                self._is_spoilt = True  # until it has gone well
                done = work(engine, *given)
                self._is_spoilt = False
                return done
            finally:
                self._is_used = False

    def update(self, engine: Any, apply: Callable[..., object], *given: Any) -> None:
        """`apply(engine, *given)`, while no other thread uses the engine.  Raises what it raises; see also `is_broken`."""
        self.take(engine, self._change, apply, *given)

    def _change(self, engine: Any, apply: Callable[..., object], *given: Any) -> None:
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
        """See `Renewable.forked`: if another thread of the parent was matching, its match is interrupted here."""
        self._turn = threading.RLock()
        self._is_spoilt, self._is_used, self._is_forked = self._is_spoilt or self._is_used, False, self._on_gpu
