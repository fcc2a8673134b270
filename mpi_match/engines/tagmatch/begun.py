"""Batches that are begun, whose queries wait in the queues together.

    numbers    0 ........... 99 | 100 ... 149 |          | 200 ... 219
    batch      first              second        (ended)    fourth

While a batch is begun, its queries have numbers of their own, from `first` on, by which queues, and pairs of query and set,
name them.  A batch takes the first numbers that are free.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.engines.tagmatch.lookup import Queries
from mpi_match.events.signatures import SIGNATURE_WORDS
from mpi_match.matches.matches import Matches


@dataclass(eq=False)
class BegunBatch:
    """The queries of a batch, with the numbers `first` to `stop`.

    filters    are filters asked for, or interfaces?
    n_ids      ids of the answer are less than this
    n_waiting  pairs of query and partition that wait in queues
    pairs      u64 of query, counted from 0, and set that match so far
    answer     where it had to be found before the table changed
    error      of another batch, with which queries of this one were lost
    """

    queries: Queries
    first: int
    filters: bool
    n_ids: int
    n_waiting: int = 0
    pairs: list[Array] = field(default_factory=list)
    answer: Matches | None = None
    error: BaseException | None = None

    @property
    def stop(self) -> int:
        return self.first + self.queries.n


class BegunBatches:
    """All of them, in the order of their numbers; `signatures` u64[n, 3] are those of the queries, by number."""

    def __init__(self) -> None:
        self._batches: list[BegunBatch] = []
        self.signatures = np.zeros((0, SIGNATURE_WORDS), np.uint64)

    def __iter__(self) -> Iterator[BegunBatch]:
        return iter(tuple(self._batches))

    def add(self, queries: Queries, filters: bool, n_ids: int) -> BegunBatch:
        """Give the queries of a batch numbers."""
        place, first = 0, 0
        for batch in self._batches:
            if batch.first - first >= queries.n:
                break
            place, first = place + 1, batch.stop
        begun = BegunBatch(queries, first, filters, n_ids)
        self._batches.insert(place, begun)
        if begun.stop > len(self.signatures):
            more = np.zeros((max(begun.stop, 2 * len(self.signatures)), SIGNATURE_WORDS), np.uint64)
            more[: len(self.signatures)] = self.signatures
            self.signatures = more
        self.signatures[first : begun.stop] = queries.signatures
        return begun

    def remove(self, batch: BegunBatch) -> None:
        """Free its numbers; none of its queries waits any more."""
        self._batches.remove(batch)

    def fail(self, error: BaseException) -> None:
        """Forget all batches; they fail because of an error."""
        for batch in self._batches:
            batch.error, batch.n_waiting = error, 0
        self._batches = []

    def leave_queues(self, numbers: Array) -> None:
        """Queries u32 have left a queue each."""
        n_left = np.bincount(self._owners(numbers), minlength=len(self._batches))
        for batch, n in zip(self._batches, n_left.tolist(), strict=True):
            batch.n_waiting -= n

    def collect(self, found: list[Array]) -> None:
        """Give the pairs u64 of query and set that match to the batches of the queries."""
        for pairs in found:
            if len(self._batches) == 1:
                self._batches[0].pairs.append(pairs - np.uint64(self._batches[0].first << 32))
                continue
            owner = self._owners(pairs >> np.uint64(32))
            order = np.argsort(owner, kind="stable")
            bounds = np.searchsorted(owner[order], np.arange(len(self._batches) + 1))
            for k in np.flatnonzero(np.diff(bounds)).tolist():
                batch = self._batches[k]
                batch.pairs.append(pairs[order[bounds[k] : bounds[k + 1]]] - np.uint64(batch.first << 32))

    def _owners(self, numbers: Array) -> Array:
        """Which batch, by its place, has each of these numbers."""
        firsts = np.array([batch.first for batch in self._batches], np.int64)
        return np.searchsorted(firsts, numbers.astype(np.int64), side="right") - 1
