"""Looks at a run some times a second, in a thread of its own.

    Standing ◄── Watch, every TICK_S ──► look ──► LiveView, RunReport, ...

The run waits for none of them.  A terminal that was stopped, or a disk that is slow, holds up this thread and nothing else;
an observer that fails is left out from then on, with one line that says why.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol

from mpi_match.monitor.status import RunStatus

log = logging.getLogger(__name__)

TICK_S = 0.25
LAST_LOOK_S = 2.0
"""How long the end of a run waits for a look that is under way."""


class Observer(Protocol):
    """What looks at a run."""

    def check(self) -> None:
        """Raise StorageError where the observer's output cannot be written; called before any work is done."""

    def begin(self, status: RunStatus) -> None:
        """All workers are ready, nothing is sent yet.  What this raises ends the run before it begins."""

    def look(self, status: RunStatus) -> None:
        """Some time has passed."""

    def end(self, status: RunStatus, error: BaseException | None) -> None:
        """The last look: all is done, or the run failed with `error`."""


class Watch:
    """Called with the run's status it is a context manager (`RunOptions.watch`); while that lasts, observers look."""

    def __init__(self, observers: Sequence[Observer], tick_s: float = TICK_S) -> None:
        self._observers, self._tick_s = list(observers), tick_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __call__(self, status: RunStatus) -> Watch:
        """This run, before any work is done.  Raises StorageError where an observer cannot write."""
        for observer in self._observers:
            observer.check()
        self._status = status
        return self

    def __enter__(self) -> Watch:
        for observer in self._observers:
            observer.begin(self._status)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join(LAST_LOOK_S)
        if self._thread.is_alive():
            log.warning("whoever watches this run has not looked up for %.0f s; it ends without them", LAST_LOOK_S)
            return
        for observer in self._observers:
            try:
                observer.end(self._status, error)
            except Exception as failure:
                log.error("%s", failure)

    def _run(self) -> None:
        while not self._over.wait(self._tick_s):
            for observer in list(self._observers):
                try:
                    observer.look(self._status)
                except Exception as failure:
                    log.error("the run goes on without %s: %s", type(observer).__name__, failure)
                    self._observers.remove(observer)
