r"""TagMatch: subset matching of tag sets by signatures, on CPU threads and a GPU together.

Rogora, Papalini, Khazaei, Margara, Carzaniga and Cugola, "High-Throughput Subset Matching on Commodity GPU-Based Systems",
EuroSys 2017.

    query           {gpu, mpi, spark}     an event: the names of its attributes are its tags
    signature       0100 ... 1010         a Bloom filter of 192 bits of all its tags
    pre-process     p3 p17 p90            partitions with a set that may match (`partition_table`), on CPU threads
    queues          p3: ... q, ...        until there are 256 queries, or the oldest has waited long enough (`queues`);
                                          queries of all begun batches wait together (`begun`)
    subset match    (q, {gpu, spark})     on the GPU (`kernel`, `gpu_match`) or the CPU (`cpu_match`)
    look up, reduce, merge                filters, or distinct interfaces, of the matched sets (`lookup`)

Sets are divided into partitions, and sorted, when the engine consolidates (`tag_sets`): when it is opened, when a change
requests it (`Change.CONSOLIDATE`), and automatically when many filters have been added.  Until then added filters are
scanned (`staged`), so every later match sees a change.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.changes.changes import Changes, runs
from mpi_match.compute.parallel import at_most, in_stretches
from mpi_match.engines.base import Engine, Pending, in_turn, updating
from mpi_match.engines.entries import can_serve
from mpi_match.engines.sharing import Turns
from mpi_match.engines.tagmatch.begun import BegunBatch, BegunBatches
from mpi_match.engines.tagmatch.cpu_match import CpuMatcher
from mpi_match.engines.tagmatch.lookup import Keys, Queries, answers_of, sign_queries, verified
from mpi_match.engines.tagmatch.options import ON_CPU, PARTITIONED, TagMatchVariant
from mpi_match.engines.tagmatch.partition_table import PartitionTable
from mpi_match.engines.tagmatch.prefix_tree import PrefixTree
from mpi_match.engines.tagmatch.queues import PartitionBatches, Queues
from mpi_match.engines.tagmatch.staged import Staged
from mpi_match.engines.tagmatch.tag_filters import TagFilters, not_tags, signatures_of_tags
from mpi_match.engines.tagmatch.tag_sets import TagSets
from mpi_match.errors import EngineError
from mpi_match.events.batch import EventBatch, unmarked
from mpi_match.events.signatures import SIGNATURE_WORDS
from mpi_match.humanize import plural
from mpi_match.matches.matches import Matches
from mpi_match.model import Change
from mpi_match.table.table import Table

TAGMATCH_STEPS = ("pre-process", "subset match", "look up", "reduce")
PASS_QUERIES, TIMED_PASS_QUERIES = 16384, 2048
"""Queries that are pre-processed together: without a time-out, and with one, which is checked after each pass."""


class TagMatch(Engine):
    """The tag sets of one table.

    Threads that match at the same time take turns.  `kernel_s` is the device time of all streams, added up, in seconds.
    """

    name = "tagmatch"
    _sharing: Turns
    takes_changes = compiles = True
    serves_parts = f"engine 'tagmatch' serves tag sets, and the table has conditions; {can_serve('conditions')}"

    def __init__(
        self,
        table: Table,
        device: int | None = None,
        threads: int | None = None,
        *,
        live: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._variant = TagMatchVariant(**(options or {}))
        self.options = self._variant._asdict()
        self._table, self._live = table, live
        self._n_threads = max(1, min(threads or len(os.sched_getaffinity(0)), len(os.sched_getaffinity(0))))
        self._on_gpu = self._variant.variant not in ON_CPU
        self.device = f"cpu, {plural(self._n_threads, 'thread')}"
        if self._on_gpu:
            from mpi_match.gpu.kernels import open_gpu  # loads Numba's CUDA

            self._gpu = open_gpu(device)
            self.device, self.gpu = f"{self._gpu.info.name}, {self.device}", self._gpu.info.uuid
        self._n_filters, self._n_interfaces = table.n_filters, table.n_interfaces
        self._tag_signatures = signatures_of_tags(table)
        self._staged = Staged()
        self._steps_s, self._timed = dict.fromkeys(TAGMATCH_STEPS, 0.0), False
        self._n_candidates = self.n_false_positives = 0
        self._begun = BegunBatches()
        self._sharing = Turns(self, on_gpu=self._on_gpu)
        self._build(TagFilters.of(table))

    def _build(self, filters: TagFilters) -> None:
        """Make the sets, partitions and keys of some filters, and upload them to the GPU."""
        variant = self._variant
        if self._on_gpu:
            self._gpu.make_current()
        max_p = variant.max_p if variant.variant in PARTITIONED else None
        with at_most(self._n_threads):
            sets = TagSets.of(filters, self._tag_signatures, max_p, self._n_threads, by_half=variant.pivot == "half")
        self._partition_table, self._gone = PartitionTable.of(sets.partitions), np.zeros(0, bool)
        bounds = sets.partitions.bounds
        if self._on_gpu:
            from mpi_match.engines.tagmatch.gpu_match import GpuMatcher

            self._matcher: GpuMatcher | CpuMatcher = GpuMatcher(self._gpu, sets.signatures, bounds, variant, self._n_threads)
            sets = sets._replace(signatures=sets.signatures[:0])
        else:
            self._matcher = CpuMatcher(sets.signatures, bounds, variant.prefix)
        self._tree = PrefixTree(sets.signatures) if variant.variant == "prefix-tree" else None
        self._sets = sets
        self._queues = self._new_queues()

    @classmethod
    def serves(cls, table: Table) -> str | None:
        return not_tags(table)

    @property
    def n_sets(self) -> int:
        """Number of unique consolidated sets."""
        return len(self._sets.key_offsets) - 1

    @property
    def tags_of_sets(self) -> tuple[Array, Array]:
        """Offsets i64[n_sets + 1] and tags u32 of the unique sets."""
        return self._sets.tag_offsets, self._sets.tags

    @property
    def n_partitions(self) -> int:
        return self._sets.partitions.n

    @property
    def nbytes(self) -> int:
        """Bytes on the host and on the device."""
        own = (*self._partition_table, self._tag_signatures)
        elsewhere = (self._gpu.n_bytes if self._on_gpu else 0) + (0 if self._tree is None else self._tree.nbytes)
        return self._sets.nbytes + sum(array.nbytes for array in own) + elsewhere

    @property
    def exact(self) -> bool:
        return self._variant.exact

    @property
    def candidates(self) -> int | None:
        """Number of (query, set) pairs whose signatures match so far; `n_false_positives` of them are wrong."""
        return self._n_candidates

    @property
    def kernel_s(self) -> float:
        return self._matcher.kernel_s

    def time_steps(self) -> None:
        self._timed = True

    @property
    def steps_s(self) -> Mapping[str, float]:
        """Seconds of the calling thread, which waits for the GPU in `subset match`."""
        return self._steps_s if self._timed else {}

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        """A step of the calling thread and of the threads that no stream uses."""
        started = time.perf_counter()
        with at_most(max(1, self._n_threads - self._matcher.n_busy)):
            yield
        self._steps_s[name] += time.perf_counter() - started

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Make all begun batches fail if the body fails: their queries may have waited together with the lost ones."""
        if self._on_gpu:
            self._gpu.make_current()
        try:
            yield
        except BaseException as error:
            self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        self._begun.fail(error)
        self._queues = self._new_queues()
        self._matcher.forget()

    def renew(self) -> None:
        """Discard the begun batches."""
        with self._whole():
            self._fail(EngineError("a match was interrupted"))

    def _new_queues(self) -> Queues:
        return Queues(self.n_partitions, 1 if self._variant.variant == "gpu-plain" else self._variant.queries)

    @in_turn
    def match(self, batch: EventBatch, filters: bool) -> Matches:
        begun = self._begin(batch, filters)
        return begun if isinstance(begun, Matches) else self._end(begun)

    @in_turn
    def begin(self, batch: EventBatch, filters: bool) -> Matches | Pending:
        """Queries of begun batches wait together in the queues until one of the batches is ended."""
        begun = self._begin(batch, filters)
        return begun if isinstance(begun, Matches) else WaitingBatch(self, begun)

    def _begin(self, batch: EventBatch, filters: bool) -> Matches | BegunBatch:
        n_ids = self._n_filters if filters else self._n_interfaces
        if not batch.n_events:
            return Matches.of([], n_ids)
        with self._whole():
            begun = self._begun.add(self._queries(batch), filters, n_ids)
            if self._tree is None:
                self._route(begun)
            else:
                with self._step("subset match"):
                    begun.pairs = self._tree.find(begun.queries.signatures)
        return begun

    def _queries(self, batch: EventBatch) -> Queries:
        """The queries of a batch, with their signatures."""
        with self._step("pre-process"):
            bounds, attributes, shift = batch.bounds, unmarked(batch.attributes), self._table.vocabulary.shift
            given = batch.signatures
            signatures = np.zeros((batch.n_events, SIGNATURE_WORDS), np.uint64) if given is None else given.copy()
            in_stretches(batch.n_events, sign_queries, bounds, attributes, shift, self._tag_signatures, signatures)
            return Queries(bounds, attributes, shift, signatures)

    def _route(self, begun: BegunBatch) -> None:
        """Put the queries of a batch into the queues of their partitions, and match the queues that are full or due."""
        queries = begun.queries
        n_pass = TIMED_PASS_QUERIES if self._variant.timeout_ms else PASS_QUERIES
        for first in range(0, queries.n, n_pass):
            with self._step("pre-process"):
                query, partition = self._partition_table.routes(queries.signatures[first : first + n_pass])
                self._queues.put(query + np.uint32(begun.first + first), partition, time.perf_counter())
                begun.n_waiting += len(query)
                batches = self._queues.take(self._due)
            self._match_partitions(batches)

    @property
    def _due(self) -> float:
        """Time by which a query must have arrived to be due; minus infinity without a time-out."""
        timeout_s = self._variant.timeout_ms / 1e3
        return time.perf_counter() - timeout_s if timeout_s else -np.inf

    def match_due(self) -> None:
        """Match the queues that are due."""
        self._sharing.take(self, TagMatch._match_due)

    def _match_due(self) -> None:
        if self._queues.since <= (due := self._due):
            with self._whole():
                self._match_partitions(self._queues.take(due))

    def _match_partitions(self, batches: PartitionBatches) -> None:
        with self._step("subset match"):
            self._begun.leave_queues(batches.queries)
            self._begun.collect(self._matcher.begin(batches, self._begun.signatures))

    def end(self, begun: BegunBatch) -> Matches:
        """End a begun batch and return its answer; the queues that hold its queries are matched now.

        Raises EngineError if its queries waited with those of a batch that failed.
        """
        return self._sharing.take(self, TagMatch._ended, begun)

    def _ended(self, begun: BegunBatch) -> Matches:
        if begun.error is not None:
            raise EngineError("another batch failed while events of this batch waited with its events") from begun.error
        return self._end(begun) if begun.answer is None else begun.answer

    def _end(self, begun: BegunBatch) -> Matches:
        mine = range(begun.first, begun.stop)
        with self._whole():
            if begun.n_waiting:
                self._match_partitions(self._queues.take(self._due, of=mine))
            with self._step("subset match"):
                self._begun.collect(self._matcher.finish(mine))
            self._begun.remove(begun)
            pairs = self._look_up(begun)
            with self._step("reduce"):
                others = self._staged.scan(begun.queries, filters=begun.filters)
                ids = self._sets.key_filter if begun.filters else self._sets.key_interface
                keys = Keys(self._sets.key_offsets, ids, self._gone)
                return answers_of(pairs, keys, others, begun.queries.n, begun.n_ids)

    def _look_up(self, begun: BegunBatch) -> Array:
        """The verified pairs of a batch, or all of them with exact=off."""
        with self._step("look up"):
            pairs = np.concatenate([np.empty(0, np.uint64), *begun.pairs])
            self._n_candidates += len(pairs)
            if not self._variant.exact:
                return pairs
            right = verified(pairs, begun.queries, self._sets.tag_offsets, self._sets.tags)
            self.n_false_positives += len(pairs) - len(right)
            return right

    def _check_changes(self, changes: Changes) -> None:
        super()._check_changes(changes)
        if changes.added is not None and (reason := not_tags(changes.added)):
            raise EngineError(f"tagmatch cannot serve the added filters: {reason}")

    @updating
    def update(self, changes: Changes) -> None:
        """Added filters are staged and removed ones marked, until a change requests consolidation."""
        for begun in self._begun:
            begun.answer = self._end(begun)
        self._n_filters, self._n_interfaces = changes.n_filters, changes.n_interfaces
        for kind, run in runs(changes.kind):
            target = changes.target[run]
            if kind == Change.ADD:
                assert changes.added is not None
                added = TagFilters.of(changes.added).take(changes.row[run].astype(np.int64))
                self._staged.add(added._replace(id=target.astype(np.uint32), interface=changes.interface[run]))
            elif kind == Change.REMOVE:
                self._staged.keep(~np.isin(self._staged.filters.id, target))
                self._mark(np.isin(self._sets.key_filter, target))
            elif kind == Change.REMOVE_INTERFACE:
                self._staged.keep(~np.isin(self._staged.filters.interface, target))
                self._mark(np.isin(self._sets.key_interface, target))
            elif kind == Change.CONSOLIDATE:
                self.consolidate()
        if self._staged.filters.n > self._variant.staged:
            self.consolidate()

    def _mark(self, gone: Array) -> None:
        """Mark keys, bool[n_keys], whose filters are removed."""
        self._gone = self._gone | gone if len(self._gone) else gone

    def consolidate(self) -> None:
        """Rebuild the sets, partitions and keys from all present filters."""
        if not self._staged.filters.n and not self._gone.any():
            return
        owner = np.repeat(np.arange(self.n_sets), np.diff(self._sets.key_offsets))
        kept = np.flatnonzero(~self._gone) if len(self._gone) else np.arange(len(owner))
        nothing = np.empty(0, np.uint32)
        sets = TagFilters(
            *(np.broadcast_to(np.uint32(0), self.n_sets), nothing, self._sets.tag_offsets, self._sets.tags)
        )._replace(interface=np.zeros(self.n_sets, np.uint32))
        there = sets.take(owner[kept])._replace(id=self._sets.key_filter[kept], interface=self._sets.key_interface[kept])
        filters = TagFilters.concat([there, self._staged.filters])
        self._build(filters.take(np.argsort(filters.id, kind="stable")))
        self._staged.clear()


class WaitingBatch(NamedTuple):
    """A begun batch, as `begin` returns it."""

    engine: TagMatch
    batch: BegunBatch

    def poll(self) -> bool:
        if self.batch.n_waiting:
            self.engine.match_due()
        return not self.batch.n_waiting

    def end(self) -> Matches:
        return self.engine.end(self.batch)
