"""Begun batches, whose queries wait together in the queues.

    numbers    0 ........... 99 | 100 ... 149 |          | 200 ... 219
    batch      first              second        (ended)    fourth

While a batch is begun, its queries have unique numbers, from `first` on.  Queues and (query, set) pairs refer to queries by
these numbers.  A batch takes the first free numbers.
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
    """The queries of a batch, numbered `first` to `stop`, the latter excluded.

    filters    True if filters are requested, False for interfaces
    n_ids      upper bound, exclusive, of the ids in the answer
    n_waiting  (query, partition) pairs that wait in queues
    pairs      u64 (query, set) pairs that match so far; queries are counted from 0
    answer     the answer, if it had to be found before the table changed
    error      the error of another batch with which queries of this one were lost
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
    """All begun batches, in the order of their numbers; `signatures` u64[n, 3] holds those of the queries, by number."""

    def __init__(self) -> None:
        self._batches: list[BegunBatch] = []
        self.signatures = np.zeros((0, SIGNATURE_WORDS), np.uint64)

    def __iter__(self) -> Iterator[BegunBatch]:
        return iter(tuple(self._batches))

    def add(self, queries: Queries, filters: bool, n_ids: int) -> BegunBatch:
        """Assign numbers to the queries of a batch."""
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
        """Free the numbers of a batch without waiting queries."""
        self._batches.remove(batch)

    def fail(self, error: BaseException) -> None:
        """Discard all batches; their `end` will raise an error caused by this one."""
        for batch in self._batches:
            batch.error, batch.n_waiting = error, 0
        self._batches = []

    def leave_queues(self, numbers: Array) -> None:
        """Record that each of these queries, u32, has left one queue."""
        n_left = np.bincount(self._owners(numbers), minlength=len(self._batches))
        for batch, n in zip(self._batches, n_left.tolist(), strict=True):
            batch.n_waiting -= n

    def collect(self, found: list[Array]) -> None:
        """Assign matching (query, set) pairs u64 to the batches of the queries."""
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
        """The position in `_batches` of the batch that each number belongs to."""
        firsts = np.array([batch.first for batch in self._batches], np.int64)
        return np.searchsorted(firsts, numbers.astype(np.int64), side="right") - 1
