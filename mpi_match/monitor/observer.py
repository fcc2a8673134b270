"""Calls observers of a run's status every TICK_S, in a thread of its own.

    RunStatus ◄── Watch, every TICK_S ──► look ──► Dashboard, RunReport, MetricsFile

The run never waits for observers.  A stopped terminal or a slow disk blocks this thread alone; an observer that fails is
removed, with one line that says why.
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
"""Seconds that the end of a run waits for observers that are still working."""


class Observer(Protocol):
    """The interface that `Watch` calls with a run's status."""

    def check(self) -> None:
        """Raise StorageError if the observer's output cannot be written; called before any work is done."""

    def begin(self, status: RunStatus) -> None:
        """Called when all workers are ready and no batch is sent yet.  An exception ends the run before it begins."""

    def look(self, status: RunStatus) -> None:
        """Called every TICK_S."""

    def end(self, status: RunStatus, error: BaseException | None) -> None:
        """The last call: the run is complete, or failed with `error`."""


class Watch:
    """Calls `observers` while its block lasts; called with the status of a run it is its own context manager, as
    `RunOptions.watch` has to be.
    """

    def __init__(self, observers: Sequence[Observer], tick_s: float = TICK_S) -> None:
        self._observers, self._tick_s = list(observers), tick_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __call__(self, status: RunStatus) -> Watch:
        """Observe this run; called before any work is done.  Raises StorageError if an observer cannot write."""
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
            log.warning(
                "an observer of the run did not return within %.0f s; the run ends without its last output", LAST_LOOK_S
            )
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
