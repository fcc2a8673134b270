"""Queues of partitions: queries wait in them until they fill a batch or have waited too long.

    partition 0    q3 q5 q9                     a batch is the first queries of one queue: 256, or fewer if it has fewer
    partition 1    q1
    ...

All queues are stored as pairs, ordered by partition and then from the oldest query to the newest.  New pairs are merged in.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of, take_ranges
from mpi_match.compute.parallel import stable_order, take


class PartitionBatches(NamedTuple):
    """A list of b batches, ordered so that batches of one partition are far apart.

    partition   i64[b]
    offsets     i64[b + 1]  queries of each
    queries     u32
    """

    partition: Array
    offsets: Array
    queries: Array

    @property
    def n(self) -> int:
        return len(self.partition)

    @classmethod
    def none(cls) -> PartitionBatches:
        nothing = np.empty(0, np.int64)
        return cls(nothing, np.zeros(1, np.int64), nothing.astype(np.uint32))


class Queues:
    """The queries that wait for each of n partitions; a batch has at most `size` of them."""

    def __init__(self, n_partitions: int, size: int) -> None:
        self._n, self._size = n_partitions, size
        self._queries = self._partitions = np.empty(0, np.uint32)
        self._since, self._last = np.full(n_partitions, np.inf), -np.inf

    def put(self, queries: Array, partitions: Array, now: float) -> None:
        """Append queries to the queues of partitions (two arrays u32) at time `now`."""
        self._since[partitions], self._last = np.minimum(self._since[partitions], now), now
        partitions = np.concatenate([self._partitions, partitions])
        order = stable_order(partitions, max(self._n - 1, 0))
        self._partitions, self._queries = take(partitions, order), take(np.concatenate([self._queries, queries]), order)

    @property
    def since(self) -> float:
        """The time at which the longest-waiting query arrived; infinity if none waits."""
        return float(self._since.min(initial=np.inf))

    def take(self, before: float = -np.inf, of: range = range(0)) -> PartitionBatches:
        """Remove and return all full batches, and the batches of queues whose first query has waited since `before` or that
        hold a query in the range `of`."""
        if not len(self._queries):
            return PartitionBatches.none()
        counts = np.bincount(self._partitions, minlength=self._n)
        starts = offsets_of(counts)
        is_due = self._since <= before
        is_due[self._partitions[(of.start <= self._queries) & (self._queries < of.stop)]] = True
        n_taken = np.where(is_due, counts, counts // self._size * self._size)
        n_batches = -(-n_taken // self._size)
        partition = np.repeat(np.arange(self._n), n_batches)
        turn = np.arange(len(partition)) - np.repeat(offsets_of(n_batches)[:-1], n_batches)
        order = np.argsort(turn, kind="stable")
        partition, turn = partition[order], turn[order]
        first = starts[:-1][partition] + turn * self._size
        sizes = np.minimum(self._size, n_taken[partition] - turn * self._size)
        queries = self._queries[take_ranges(first, sizes)]

        left = take_ranges(starts[:-1] + n_taken, counts - n_taken)
        self._queries, self._partitions = self._queries[left], self._partitions[left]
        self._since[n_taken > 0] = np.inf  # entries still queued arrived with the last batch
        self._since[self._partitions] = np.minimum(self._since[self._partitions], self._last)
        return PartitionBatches(partition, offsets_of(sizes), queries)
