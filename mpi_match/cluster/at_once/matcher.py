"""The matcher of a worker without a thread of its own, and the writer of its answers."""

from __future__ import annotations

from collections import deque

from mpi_match.cluster.engine_runner import OpenEngine, ShardsHeld
from mpi_match.cluster.messages import Matched, Received, Work
from mpi_match.cluster.results.worker_writer import MatchedParts
from mpi_match.cluster.transport.backoff import pause
from mpi_match.engines.base import Engine
from mpi_match.matches.matches import Matches
from mpi_match.table.vocabulary import Vocabulary


class InlineRunner:
    """The runner for short batches: `get` matches the next one."""

    def __init__(self, shards: ShardsHeld, vocabulary: Vocabulary, *, filters: bool) -> None:
        self._engine_arguments = shards, vocabulary, filters
        self._work: deque[Work] = deque()

    def engine(self) -> Engine:
        """See `EngineRunner.engine`."""
        self._opened_engine = OpenEngine(*self._engine_arguments)
        return self._opened_engine.engine

    def put(self, work: Work) -> None:
        """See `EngineRunner.put`."""
        self._work.append(work)

    def match_at_once(self, wire: memoryview) -> Matches | None:
        """See `EngineRunner.match_at_once`."""
        return None if self._work else self._opened_engine.match_at_once(wire)

    def get(self, timeout_s: float | None = 0) -> Matched | None:
        """See `EngineRunner.get`; for 0 seconds the core is yielded."""
        if self._work:
            work = self._work.popleft()
            if isinstance(work, Received):
                return self._opened_engine.match(work)
            self._opened_engine.load(work)
        elif timeout_s is not None:
            pause(timeout_s)
        return None

    def stop(self, timeout_s: float) -> None:
        """See `EngineRunner.stop`."""
        self._work.clear()


class InlineWorkerWriter(MatchedParts):
    """A matcher that returns answers after they are synced to disk: `get` writes them to the first of the parts."""

    def get(self, timeout_s: float | None = 0) -> Matched | None:
        """See `EngineRunner.get`."""
        matched = self._matcher.get(timeout_s)
        return None if matched is None else self._written(0, [matched])[0]
