"""The program of a matching thread, which processes a batch from its first event to its last without leaving compiled code.

Threads form groups, and a group matches an event together.  One program implements the three techniques:

    me-ip    as many groups as threads             se-cp    one group of all threads             me-cp    in between

A group processes one event after another, with two barriers each, which a group of one thread passes at once:

    phase 1      blocks of the event's attributes
    merging      with merge=local: each thread's vector of bits is merged into the group's
    barrier
    phase 2      blocks of access predicates; then the thread's answers join the group's
    barrier      the last thread to arrive takes the next event for the group, and initialises its bits

With merge=atomic all threads of a group set bits of one vector.  With merge=local each has a vector of its own, and these
are merged in one of three ways: `static` after another barrier, each thread a part of the words; `lock` under the group's
mutex, each thread its vector; `retry` word by word, with a retry after a conflict.

Blocks of events, attributes and access predicates are assigned in one of three ways:

    static       thread or group i of k takes the blocks i, i + k, i + 2 k, ... of each phase
    lock         a counter holds the number of the next block; it is read and written under a mutex
    retry        the counter is read, and written if it has not changed since; otherwise both are repeated

Answers are (event, id) pairs, in an array that a thread enlarges when it is full.  With `lock` and `retry` a group's threads
move their answers to an array of the group after each event: `lock` under the group's mutex, `retry` by reserving space.
Answers that do not fit there stay with the thread, as all answers do with `static`, so nothing is lost.
"""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.array_pointers import line, rows, unowned
from mpi_match.compute.clock import monotonic_ns
from mpi_match.compute.compile_cache import inlined, jit
from mpi_match.compute.synchronization import (
    BARRIER_CELLS,
    CELL_BYTES,
    LAST_ARRIVED,
    STOPPED,
    arrive,
    atomic_load,
    atomic_store,
    compare_exchange,
    lock,
    release,
    unlock,
)
from mpi_match.engines.twophase.phases import (
    ACCESS,
    AT_FIRST,
    CHUNK_ROWS,
    LOCAL_VECTORS,
    SEEN_BY_THREAD,
    VECTORS,
    begin_event,
    merge_all,
    merge_words,
    satisfy,
    scan_access_predicates,
)

STATIC, LOCK, RETRY = range(3)

STOP, EVENTS_MUTEX, EVENTS_NEXT, GROUPS = range(4)
"""Cells shared by all threads; the cells of the groups follow."""
MUTEX, BARRIER = range(2)
EVENT, EVENTS_END, ATTRIBUTES_NEXT, ACCESS_NEXT, MERGED, GROUP_CELLS = range(
    BARRIER + BARRIER_CELLS, BARRIER + BARRIER_CELLS + 6
)
"""Cells of a group."""

N_THREADS, GROUP, SYNCHRONIZATION, EVENT_BLOCK, ATTRIBUTE_BLOCK, ACCESS_BLOCK, PACKED_SHIFT, FILTERS_ARE_IDS = range(8)
N_IDS, SERIAL, IS_TIMED, CELLS_AT, MERGES_VECTORS, TWOPHASE_PLAN_WORDS = range(8, 14)
"""Words of a plan: SERIAL is the number of the batch's first event among all that the engine ever matched, CELLS_AT an
address, MERGES_VECTORS 1 with merge=local."""

SPENT_PHASE_1, SPENT_MERGING, SPENT_WAITING, SPENT_PHASE_2, TWOPHASE_STEPS = range(5)
"""Steps of a thread, by their places in the times that it returns."""
FIRST_ROOM = 256
_NO_BLOCK = 2**40
_END = -1


@jit
def match_share(thread: int, plan: Array, batch: tuple, merged: Array, bound: Array) -> tuple:
    """Run one thread's share of a batch; each of the `plan[N_THREADS]` threads must call it, with its own number.

    plan      i64[TWOPHASE_PLAN_WORDS]
    batch     offsets, attributes, location (`EventBatch`); one location, NaN, if no filter has an area
    merged    i64[n_groups, capacity]: answers of each group, as many as its cell MERGED says
    bound     see `phases`

    Returns the answers that are not in `merged`, i64, and the nanoseconds of phase 1, merging, waiting and phase 2, i64[4].
    """
    offsets, attributes, location = batch[0], unowned(batch[1]), batch[2]
    synchronization, filters, is_timed = plan[SYNCHRONIZATION], plan[FILTERS_ARE_IDS] != 0, plan[IS_TIMED] != 0
    group, member, n_members, n_groups = _place(thread, plan)
    stop = plan[CELLS_AT]
    cells = plan[CELLS_AT] + (GROUPS + group * GROUP_CELLS) * CELL_BYTES
    mutex, barrier, event_cell = cells + MUTEX * CELL_BYTES, cells + BARRIER * CELL_BYTES, cells + EVENT * CELL_BYTES
    bits, seen = rows(bound, VECTORS, np.uint64)[group], rows(bound, SEEN_BY_THREAD, np.int64)[thread]
    has_local = plan[MERGES_VECTORS] != 0 and n_members > 1
    own = rows(bound, LOCAL_VECTORS, np.uint64)[thread if has_local else 0]
    target = (own if has_local else bits, has_local or n_members == 1)
    n_access = len(line(bound, ACCESS, np.uint32))
    spent, alive = np.zeros(TWOPHASE_STEPS, np.int64), np.empty(CHUNK_ROWS, np.int64)
    found, n = np.empty(FIRST_ROOM, np.int64), 0
    now = monotonic_ns() if is_timed else 0
    while True:
        arrived = arrive(barrier, n_members, stop)
        if arrived == LAST_ARRIVED:
            event = _next_event(group, n_groups, cells, plan, len(offsets) - 1)
            if event != _END:
                begin_event(bits, bound)
            atomic_store(cells + ATTRIBUTES_NEXT * CELL_BYTES, 0)
            atomic_store(cells + ACCESS_NEXT * CELL_BYTES, 0)
            atomic_store(event_cell, event)
            release(barrier)
        event = atomic_load(event_cell)
        if arrived == STOPPED or event == _END:
            break
        now = _add_time(spent, SPENT_WAITING, now, is_timed)

        if has_local:
            begin_event(own, bound)
        first = np.int64(np.uint32(offsets[event] - offsets[0]))
        n_attributes = np.int64(np.uint32(offsets[event + 1] - offsets[event]))
        counter, size = cells + ATTRIBUTES_NEXT * CELL_BYTES, plan[ATTRIBUTE_BLOCK]
        block = _next_block(synchronization, counter, mutex, stop, member - n_members, n_members)
        while block * size < n_attributes:
            for i in range(block * size, min((block + 1) * size, n_attributes)):
                satisfy(np.int64(attributes[first + i]), plan[PACKED_SHIFT], target, bound)
            block = _next_block(synchronization, counter, mutex, stop, block, n_members)
        now = _add_time(spent, SPENT_PHASE_1, now, is_timed)

        if has_local:
            if synchronization == STATIC and not _meet(barrier, n_members, stop):
                break
            now = _add_time(spent, SPENT_WAITING, now, is_timed)
            _merge_vectors(synchronization, (thread, member, n_members), own, bits, (mutex, stop), bound)
            now = _add_time(spent, SPENT_MERGING, now, is_timed)

        if not _meet(barrier, n_members, stop):
            break
        now = _add_time(spent, SPENT_WAITING, now, is_timed)

        where = event if len(location) == len(offsets) - 1 else 0
        about = (location[where, 0], location[where, 1], plan[SERIAL] + event, event * plan[N_IDS])
        before = n
        counter, size = cells + ACCESS_NEXT * CELL_BYTES, plan[ACCESS_BLOCK]
        block = _next_block(synchronization, counter, mutex, stop, member - n_members, n_members)
        while block * size < n_access:
            last = min((block + 1) * size, n_access)
            found, n = scan_access_predicates(block * size, last, bits, about, (filters, seen, alive), found, n, bound)
            block = _next_block(synchronization, counter, mutex, stop, block, n_members)
        if n > before and n_members > 1 and synchronization != STATIC:
            n = _merge(synchronization, cells, stop, found, before, n, merged[group])
        now = _add_time(spent, SPENT_PHASE_2, now, is_timed)
    return found[:n], spent


@inlined
def _place(thread: int, plan: Array) -> tuple:
    """A thread's group, its number within the group, the number of threads in the group, and the number of groups."""
    size, n_threads = plan[GROUP], plan[N_THREADS]
    group = thread // size
    return group, thread % size, min(size, n_threads - group * size), -(-n_threads // size)


@inlined
def _meet(barrier: int, n: int, stop: int) -> bool:
    """Wait for n threads at a barrier.  Returns False once `stop` is set."""
    arrived = arrive(barrier, n, stop)
    if arrived == LAST_ARRIVED:
        release(barrier)
    return bool(arrived != STOPPED)


@inlined
def _merge_vectors(synchronization: int, place: tuple, own: Array, bits: Array, mutex: tuple, bound: Array) -> None:
    """Merge the vectors of a group's threads into its bits: this thread's part of the words, or its own vector.

    place   the thread, its number within the group, the number of threads in the group
    mutex   the group's mutex, and the cell `stop`
    """
    thread, member, n_members = place
    if synchronization == STATIC:
        n_words = len(line(bound, AT_FIRST, np.uint64))
        share = (member * n_words // n_members, (member + 1) * n_words // n_members)
        merge_words(thread - member, n_members, share, bits, bound)
    else:
        merge_all(own, bits, mutex[0] if synchronization == LOCK else 0, mutex[1], bound)


@inlined
def _add_time(spent: Array, phase: int, before: int, is_timed: bool) -> int:
    """Add the time since `before` to a phase; returns the present time."""
    now = before
    if is_timed:
        now = monotonic_ns()
        spent[phase] += now - before
    return now


@inlined
def _next_block(synchronization: int, counter: int, mutex: int, stop: int, mine: int, n: int) -> int:
    """The block that follows block `mine` for one of n threads; a block beyond the last once `stop` is set."""
    block = mine + n
    if atomic_load(stop) != 0:
        block = _NO_BLOCK
    elif synchronization == LOCK:
        block = _NO_BLOCK
        if lock(mutex, stop):
            block = atomic_load(counter)
            atomic_store(counter, block + 1)
            unlock(mutex)
    elif synchronization == RETRY:
        block = atomic_load(counter)
        while not compare_exchange(counter, block, block + 1):
            block = atomic_load(counter)
    return block


@inlined
def _next_event(group: int, n_groups: int, cells: int, plan: Array, n_events: int) -> int:
    """The next event of a group, from its present block or a new one; `_END` when there is none."""
    at, event, size = cells + EVENTS_END * CELL_BYTES, atomic_load(cells + EVENT * CELL_BYTES) + 1, plan[EVENT_BLOCK]
    end, shared = atomic_load(at), plan[CELLS_AT]
    if event >= end:
        mine = end // size - 1 if end > 0 else group - n_groups
        counter, mutex = shared + EVENTS_NEXT * CELL_BYTES, shared + EVENTS_MUTEX * CELL_BYTES
        block = _next_block(plan[SYNCHRONIZATION], counter, mutex, shared, mine, n_groups)
        event = min(block, n_events) * size
        end = event + size
        atomic_store(at, end)
    return event if event < n_events else _END


@inlined
def _merge(synchronization: int, cells: int, stop: int, found: Array, first: int, last: int, merged: Array) -> int:
    """Move found[first:last] to the group's answers if they fit; returns the number of answers that the thread has left."""
    mutex, counter, n = cells + MUTEX * CELL_BYTES, cells + MERGED * CELL_BYTES, last - first
    left = last
    if synchronization == LOCK:
        if lock(mutex, stop):
            at = atomic_load(counter)
            if at + n <= len(merged):
                merged[at : at + n] = found[first:last]
                atomic_store(counter, at + n)
                left = first
            unlock(mutex)
        return left
    at = atomic_load(counter)
    while at + n <= len(merged):
        if compare_exchange(counter, at, at + n):
            merged[at : at + n] = found[first:last]
            return first
        at = atomic_load(counter)
    return left
