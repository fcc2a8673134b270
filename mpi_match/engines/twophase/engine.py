"""The two-phase matcher: finds the predicates that an event satisfies, then the filters that have no others.

Farroukh, Ferzli, Tajuddin and Jacobsen, "Parallel Event Processing for Content-Based Publish/Subscribe Systems", DEBS 2009;
on Fabret et al., "Filtering Algorithms and Implementation for Very Fast Publish/Subscribe Systems", SIGMOD 2001.

    event            temp = 25, wind = 3
    phase 1          bits of the satisfied predicates:       temp > 20,  temp != 30,  wind exists           `predicates`
    phase 2          clusters of the satisfied access predicates, down to each filter's last predicate      `clusters`

The threads that match a batch stay in compiled code from its first event to its last (`threads`) and meet at spinning
barriers (`compute.synchronization`).  The calling thread is one of them.  Simultaneous calls of `match` have separate sets
of threads.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.array_pointers import PointerTable
from mpi_match.compute.parallel import MAX_ROWS, wait_for_all
from mpi_match.compute.synchronization import Cells
from mpi_match.engines.base import Engine, matching
from mpi_match.engines.entries import can_serve
from mpi_match.engines.sharing import Scratch, ScratchSets
from mpi_match.engines.twophase import phases, threads
from mpi_match.engines.twophase.clusters import Clusters
from mpi_match.engines.twophase.options import MERGES, SYNCHRONIZATIONS, TwoPhaseVariant
from mpi_match.engines.twophase.predicates import PREDICATE, Predicates
from mpi_match.events.batch import EventBatch, unmarked
from mpi_match.humanize import plural
from mpi_match.matches.matches import Matches
from mpi_match.table.table import Table

STEPS = ("phase 1", "merging", "waiting", "phase 2")
MOST_THREADS = 256
VECTOR_WORDS = 16
"""The words of a vector of bits are a multiple of this, so that no two groups of threads write to the same cache line."""
_NOWHERE = np.full((1, 2), np.nan)


class TwoPhase(Engine):
    """The predicates and clusters of one table, and the threads that evaluate them."""

    name = "twophase"
    compiles = True
    _sharing: ScratchSets[_Scratch]

    def __init__(
        self,
        table: Table,
        device: int | None = None,
        threads: int | None = None,
        *,
        live: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._variant = TwoPhaseVariant(**(options or {}))
        self.options = self._variant._asdict()
        self._table = table
        self._n_threads = max(1, min(threads or len(os.sched_getaffinity(0)), MOST_THREADS))
        self.device = f"cpu, {plural(self._n_threads, 'thread')}"
        self._group = GroupSize(self._variant, self._n_threads)
        predicates = Predicates.of(table)
        clusters = Clusters.of(table, predicates, by_cost=self._variant.access == "cost")
        self.n_predicates, self.n_access_predicates = predicates.n - 1, len(clusters.access)
        self._arrays, self._n_words = _arrays(table, predicates, clusters), len(predicates.at_first)
        self._answers_of_event = 1.0
        self._timed, self._steps_s = False, dict.fromkeys(STEPS, 0.0)
        self._sharing = ScratchSets(self, TwoPhase._new_scratch)

    def _new_scratch(self) -> _Scratch:
        n_local = self._n_threads if self._variant.merge == "local" else 1
        return _Scratch(self._arrays, self._n_threads, self._n_words, self._table.n_interfaces, n_local)

    @classmethod
    def serves(cls, table: Table) -> str | None:
        if table.n_constraints > MAX_ROWS:
            n = table.n_constraints
            return f"the table has {n:,} constraints, and twophase holds at most 2^32 - 1; {can_serve('any size')}"
        return None

    @property
    def nbytes(self) -> int:
        own = sum(array.nbytes for array, _ in self._arrays.values())
        return own + sum(scratch.nbytes for scratch in self._sharing.sets)

    def time_steps(self) -> None:
        self._timed = True

    @property
    def steps_s(self) -> Mapping[str, float]:
        """Seconds, averaged over the threads of a batch."""
        return self._steps_s if self._timed else {}

    @matching
    def match(self, batch: EventBatch, scratch: _Scratch, filters: bool) -> Matches:
        n, n_ids = batch.n_events, self._table.n_filters if filters else self._table.n_interfaces
        size = self._group.size
        n_threads = min(self._n_threads, -(-n // self._variant.event_block) * size)
        if not n_threads:
            return Matches.of([], n_ids)
        plan, cells = self._plan(n_threads, size, filters, n_ids)
        plan[threads.SERIAL] = scratch.serial
        n_groups = -(-n_threads // size)
        room = int(1.5 * self._answers_of_event * n / n_groups) + threads.FIRST_ROOM if size > 1 else 0
        merged = np.empty((n_groups, room), np.int64)
        scratch.serial += n
        location = _NOWHERE if batch.location is None else batch.location
        started = time.perf_counter()
        events = (unmarked(batch.offsets), unmarked(batch.attributes), unmarked(location))
        shares = _match_shares(plan, cells, (events, merged, scratch.bound.table), scratch)
        if n >= n_groups:
            self._group.took((time.perf_counter() - started) * n_groups / n)
        found = [share for share, _ in shares]
        for group in range(n_groups):
            found.append(merged[group, : cells[threads.GROUPS + group * threads.GROUP_CELLS + threads.MERGED]])
        if self._timed:
            for step, spent in zip(STEPS, np.mean([times for _, times in shares], axis=0).tolist(), strict=True):
                self._steps_s[step] += spent / 1e9
        answers = np.unique(np.concatenate(found))  # several threads of a group may find the same interface
        self._answers_of_event = len(answers) / n
        event, id_ = np.divmod(answers, max(n_ids, 1))
        return Matches.from_counts(np.bincount(event, minlength=n), id_, n_ids)

    def _plan(self, n_threads: int, size: int, filters: bool, n_ids: int) -> tuple[Array, Cells]:
        """The plan of a batch (`threads.match_share`), and the cells in their initial state."""
        cells = Cells(threads.GROUPS + -(-n_threads // size) * threads.GROUP_CELLS)
        plan = np.empty(threads.TWOPHASE_PLAN_WORDS, np.int64)
        plan[threads.N_THREADS], plan[threads.GROUP] = n_threads, size
        plan[threads.SYNCHRONIZATION] = SYNCHRONIZATIONS.index(self._variant.synchronization)
        plan[threads.EVENT_BLOCK] = self._variant.event_block
        plan[threads.ATTRIBUTE_BLOCK] = self._variant.attribute_block
        plan[threads.ACCESS_BLOCK] = self._variant.access_block
        plan[threads.PACKED_SHIFT], plan[threads.FILTERS_ARE_IDS] = self._table.vocabulary.shift, filters
        plan[threads.N_IDS], plan[threads.CELLS_AT], plan[threads.IS_TIMED] = n_ids, cells.address(), self._timed
        plan[threads.MERGES_VECTORS] = MERGES.index(self._variant.merge)
        return plan, cells


class _Scratch(Scratch):
    """Working memory of a match, a row for each of its threads, and the threads, which wait in `pool` for a batch.

    bound      all arrays of the engine, and those that only this match writes
    serial     number of the next event; 0 means no event
    """

    def __init__(
        self, arrays: Mapping[int, tuple[Array, object]], n_threads: int, n_words: int, n_interfaces: int, n_local: int
    ) -> None:
        super().__init__()
        n_words = -(-n_words // VECTOR_WORDS) * VECTOR_WORDS
        own = {
            phases.VECTORS: (np.zeros((n_threads, n_words), np.uint64), np.uint64),
            phases.LOCAL_VECTORS: (np.zeros((n_local, n_words), np.uint64), np.uint64),
            phases.SEEN_BY_THREAD: (np.zeros((n_threads, n_interfaces), np.int64), np.int64),
        }
        self.nbytes = sum(array.nbytes for array, _ in own.values())
        self.bound, self.serial = PointerTable({**arrays, **own}), 1
        self.pool = ThreadPoolExecutor(max(n_threads - 1, 1), "twophase")  # starts a thread when one is needed


def _match_shares(plan: Array, cells: Cells, given: tuple[object, ...], scratch: _Scratch) -> list[tuple[Array, Array]]:
    """Return the results of all threads.  Raises what one of them raised, or an interrupt, after all others have ended."""
    n_threads = int(plan[threads.N_THREADS])
    at_work = [threading.Lock() for _ in range(n_threads)]

    def share(thread: int) -> tuple[Array, Array]:
        with at_work[thread]:
            try:
                found: tuple[Array, Array] = threads.match_share(thread, plan, *given)
            except BaseException:
                cells[threads.STOP] = 1
                raise
            return found

    try:
        begun = [scratch.pool.submit(share, thread) for thread in range(1, n_threads)]
        return [share(0), *(future.result() for future in begun)]
    except BaseException:
        cells[threads.STOP] = 1  # threads that start later end at once
        wait_for_all(at_work)
        raise


def _arrays(table: Table, predicates: Predicates, clusters: Clusters) -> dict[int, tuple[Array, object]]:
    """The engine's read-only arrays, with their dtypes, by the number that `phases` gives each."""
    area_of = np.full(table.n_filters if table.has_areas else 0, phases.NOTHING, np.int32)
    area_of[table.area_filter] = np.arange(len(table.area_filter))
    return {
        phases.AT_FIRST: (predicates.at_first, np.uint64),
        phases.NAME_RUNS: (predicates.name_runs, np.int64),
        phases.RUN_KIND: (predicates.run_kind, np.uint8),
        phases.RUN_OFFSETS: (predicates.run_offsets, np.int64),
        phases.LOWEST: (predicates.lo, np.uint32),
        phases.HIGHEST: (predicates.hi, np.uint32),
        phases.SEGMENT_ENDS: (predicates.segment_ends, np.int64),
        phases.ATOM_PREDICATE: (predicates.atom_predicate, np.int64),
        phases.LISTED_OFFSETS: (predicates.listed_offsets, np.int64),
        phases.LISTED_CODE: (predicates.listed_code, np.uint32),
        phases.LISTED_PREDICATE: (predicates.listed_predicate, PREDICATE),
        phases.ACCESS: (clusters.access, PREDICATE),
        phases.FIRST_OF_WORD: (clusters.first_of_word, np.int64),
        phases.CLUSTER_OFFSETS: (clusters.cluster_offsets, np.int64),
        phases.CLUSTER: (clusters.cluster, np.int64),
        phases.COLUMN_PREDICATES: (clusters.columns, PREDICATE),
        phases.ROW_FILTERS: (clusters.filters, np.uint32),
        phases.INTERFACE: (table.filters.interface, np.uint32),
        phases.AREA_OF: (area_of, np.int32),
        phases.AREA: (np.ascontiguousarray(table.filters.area), np.float64),
    }


class GroupSize:
    """The number of threads, `size`, that match an event of the next batch together, by the technique or a target time.

    Section 4.3 of Farroukh et al. divides threads into groups so that the matching time of an event stays acceptable while
    throughput is high.  Larger groups match an event in less time; smaller ones waste less time on waiting.  So with a
    target, groups start with one thread, are doubled while events take longer than the target, and are halved when events
    take less than half of it: with half the threads, an event takes at most twice as long.
    """

    def __init__(self, variant: TwoPhaseVariant, n_threads: int) -> None:
        self._n_threads = n_threads
        self._target_s = variant.target_us / 1e6 if variant.technique == "me-cp" else 0.0
        of_technique = {"me-ip": 1, "se-cp": n_threads, "me-cp": min(variant.group, n_threads)}
        self.size = 1 if self._target_s else of_technique[variant.technique]

    def took(self, event_s: float) -> None:
        """Adapt to the average time, in seconds, that a group took for an event of a batch in which all groups had
        events."""
        if not self._target_s:
            return
        if event_s > self._target_s:
            self.size = min(2 * self.size, self._n_threads)
        elif 2 * event_s <= self._target_s:
            self.size = max(self.size // 2, 1)
