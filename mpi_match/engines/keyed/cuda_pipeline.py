"""The begun batches of `keyed_cuda`, cut into slices, and the pipeline slots that match the slices in turn.

    slot 0   copy in, match 0 ............│ ids out │ copy in, match 3 ...
    slot 1       copy in │ match 1 ............│ ids out │ copy in, match 4 ...
    slot 2            copy in │      match 2 ............│ ids out │ ...
             batch a: 0, 1                batch b: 2, 3         batch c: 4, ...

Slices are started in the order in which their batches were begun, whenever a slot is free.  When a caller ends a batch,
slices are retired (their answers fetched) in the order in which they were started.  Slots ignore batch boundaries, so the
GPU has a slice to match while the answer of a batch's last slice is assembled.

There are three slots: while one slice is matched and the answers of another are fetched, the events of a third are already
on the GPU.  With two slots, the GPU would wait whenever fetching a slice and copying in the next, including the Python
overhead, takes longer than matching one.

All events of a slice have room for equally many answers.  Events with more answers are matched again, together with others
of about as many.  The room is that with which both together take the least time (`_room_of`), for batches of about as many
events.  A slice with too little room is matched again, and a room that makes slices shorter and stays nearly empty is given
up.

An error belongs to the batch of the slice that raised it: the rest of this batch is not started, its started slices are
waited for, and other batches continue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of
from mpi_match.engines.keyed.cuda_results import Answers
from mpi_match.engines.keyed.cuda_slot import PipelineSlot, SlicePlan
from mpi_match.engines.keyed.kernels.trie_thread import MASKS
from mpi_match.events.batch import EventBatch
from mpi_match.gpu.event_batch import GpuBatch
from mpi_match.gpu.kernels import Mark
from mpi_match.matches.matches import Matches

PIPELINE_SLOTS = 3
SLICE_EVENTS, SLICE_ATTRIBUTES = 2**20, 2**23
"""Most events of a slice, and approximately its most attributes: enough to make the few tenths of a millisecond of Python
overhead per slice negligible.  On an H200, batches of a million events took half as long again with a quarter of these."""
FIRST_EVENTS = 2**18
"""Most events of a slice when the GPU is idle, so that it starts sooner."""
CUDA_ANSWER_ROOM = 8
"""Initial capacity, in answers per event."""
SLICE_S = 3e-4
"""Approximate seconds of Python for a slice."""
GROUP_S, EVENT_S, ANSWER_S, MERGED_S = 1e-3, 3e-6, 1e-8, 5e-9
"""Approximate seconds of matching some events again by themselves: for all of them, for each, for each answer of the
longest, and for each answer of the slice, whose answers are put together on the host."""
SPARSE = 64
"""A room of which answers fill less than one part in this many is chosen again."""
SLOT_BYTES, LONG_GROUP_BYTES, LONG_SLICE_BYTES, LONG_SLICE_EVENTS = 2**30, 2**27, 2**25, 2**14
"""Limits of the room for answers of a pipeline slot in bytes, of that of events that are matched again together, and of the
answers of a slice in bytes and its events.  More answers per event make slices shorter, so that the ids of one are copied
out while the next is matched.  A slice has at most about LONG_SLICE_BYTES of answers or LONG_SLICE_EVENTS events, whichever
is larger (the latter keeps a GPU busy), and never more room than SLOT_BYTES."""


class Batches:
    """Batches in the pipeline `slots`.  `clock` measures the kernel time of retired slices."""

    def __init__(self, slots: Sequence[PipelineSlot]) -> None:
        self._free = [*slots]
        self._waiting: deque[Begun] = deque()  # batches with events that are in no slice yet
        self._started: deque[_Slice] = deque()
        self._rooms = _Rooms()
        self.clock = Clock(slots[0].mark())

    def begin(self, batch: EventBatch, plan: SlicePlan, answers: Answers) -> Begun:
        """Match a batch after those begun earlier; its `end` raises its errors."""
        begun = Begun(self, batch, plan, answers)
        self._waiting.append(begun)
        self._start()
        return begun

    def drain(self) -> None:
        """Match all started slices; their answers are kept until `end`."""
        while self._started:
            self.retire()

    def retire(self) -> None:
        """Fetch the answers of the slice that was started first, then start as many slices as there are free slots."""
        slot, part, begun = self._started.popleft()
        try:
            if begun.has_failed:
                slot.settle()
            else:
                self._fetch(slot, part, begun)
        except BaseException as error:  # also an interrupt: no slot may be lost
            begun.fail(error)
            slot.settle()
        finally:
            begun.n_started -= 1
            self._free.append(slot)
        self._start()

    def _start(self) -> None:
        while self._free and self._waiting:
            begun = self._waiting[0]
            if not begun.n_left:
                self._waiting.popleft()
                continue
            slot, room = self._free.pop(), self._rooms.of(begun)
            part = begun.next_slice(room, SLICE_EVENTS if self._started else FIRST_EVENTS)
            try:
                slot.start(part, begun.plan, room.of_event)
            except BaseException as error:
                begun.fail(error)
                self._free.append(slot)
                slot.settle()
            else:
                begun.n_started += 1
                self._started.append(_Slice(slot, part, begun))

    def _fetch(self, slot: PipelineSlot, part: EventBatch, begun: Begun) -> None:
        slot.wait()
        self.clock.add(slot)
        if slot.most <= slot.room:
            slot.finish(begun.plan, begun.answers)
            if begun.is_last_slice and begun.has_sparse_room(self._rooms.of(begun)):
                self._rooms.choose(begun, begun.answers.counts, CUDA_ANSWER_ROOM)
            return
        for each in self._started:  # their kernels began before those that follow
            each.slot.wait()
            self.clock.add(each.slot)
        found = slot.found()
        room = self._rooms.choose(begun, found, slot.room)
        if room.of_event == slot.room:
            self._finish_long(slot, part, begun, found)
            return
        size = room.events
        for at in range(0, len(part), size):  # again, with enough room for nearly all events
            piece = part[at : at + size]
            self._match_now(slot, piece, begun, room.of_event)
            if slot.most <= room.of_event:
                slot.finish(begun.plan, begun.answers)
            else:
                self._finish_long(slot, piece, begun, found[at : at + size])

    def _match_now(self, slot: PipelineSlot, part: EventBatch, begun: Begun, room: int) -> None:
        slot.start(part, begun.plan, room)
        slot.wait()
        self.clock.add(slot)

    def _finish_long(self, slot: PipelineSlot, part: EventBatch, begun: Begun, found: Array) -> None:
        """Add the answers of a slice that has a few events with more answers than `room`: they are matched again, those with
        about as many answers together.

        found   u64: the number of answers of each event of the part
        """
        others = slot.fetch(begun.plan, begun.answers)
        long = np.flatnonzero(found > slot.room)
        long = long[np.argsort(found[long], kind="stable")]
        answers: list[tuple[Array, Array]] = []
        for group in _groups(found[long]):
            self._match_now(slot, part.picked(long[group]), begun, int(found[long[group]].max()))
            answers.append(slot.fetch(begun.plan, begun.answers))
        begun.answers.put(*_with_long(others, long, answers))


class Room(NamedTuple):
    """The room of each event of a slice, in answers, and the answers that an event is expected to have."""

    of_event: int
    mean: float

    @property
    def events(self) -> int:
        """Most events of a slice."""
        n_short = LONG_SLICE_BYTES // (4 * min(max(int(self.mean + 1), CUDA_ANSWER_ROOM), self.of_event))
        return min(max(n_short, LONG_SLICE_EVENTS), max(SLOT_BYTES // (4 * self.of_event), 1))


class _Rooms:
    """The room for answers of the next slices, by the kind of answer and the size of the batch, as a power of two: some
    events of many answers have room for theirs in a small batch, and do not take the room of others in a large one."""

    def __init__(self) -> None:
        self._room: dict[tuple[int, int], Room] = {}

    def of(self, begun: Begun) -> Room:
        """The room for a batch."""
        return self._room.get((begun.plan.kind, begun.n_events.bit_length()), Room(CUDA_ANSWER_ROOM, CUDA_ANSWER_ROOM))

    def choose(self, begun: Begun, found: Array, least: int) -> Room:
        """Choose the room, at least `least`, for batches like this one, whose events have `found` answers; returns it."""
        room = _room_of(found, least, begun.n_events)
        self._room[begun.plan.kind, begun.n_events.bit_length()] = room
        return room


class Begun:
    """A begun batch: see `engines.Pending`.

    `n_left` of its `n_events` are in no slice yet; `n_started` of its slices are on the GPU.
    """

    def __init__(self, batches: Batches, batch: EventBatch, plan: SlicePlan, answers: Answers) -> None:
        self._batches, self._batch, self.plan, self.answers = batches, batch, plan, answers
        self.n_events = self.n_left = len(batch)
        self.n_started = 0
        self._longest = _slice_events(batch)
        self._is_on_gpu = isinstance(batch, GpuBatch)
        self._error: BaseException | None = None

    def next_slice(self, room: Room, most: int) -> EventBatch:
        """The events of its next slice, at most `most`, with this room.

        The rest is divided evenly, because a short last slice would cost as much Python overhead as a long one.
        """
        if self._is_on_gpu:  # nothing to copy in meanwhile, and cutting would copy the offsets
            most = SLICE_EVENTS
        most = min(self._longest, most) if self.plan.kind == MASKS else min(self._longest, most, room.events)
        size = -(-self.n_left // -(-self.n_left // most))
        first = len(self._batch) - self.n_left
        part = self._batch[first : first + size]
        self.n_left -= len(part)
        return part

    @property
    def is_last_slice(self) -> bool:
        """Tells whether all other slices have been retired."""
        return not self.n_left and self.n_started == 1

    def has_sparse_room(self, room: Room) -> bool:
        """Tells whether the room makes slices short, and the answers to all events fill little of it."""
        is_short = room.of_event > CUDA_ANSWER_ROOM and room.events < min(self.n_events, self._longest)
        return is_short and SPARSE * self.answers.n_found < room.of_event * self.n_events

    @property
    def has_failed(self) -> bool:
        """Tells whether `end` will raise."""
        return self._error is not None

    def fail(self, error: BaseException) -> None:
        """Make `end` raise this error, and start no more slices."""
        self._error, self.n_left = error, 0

    def end(self) -> Matches:
        while self.n_left or self.n_started:
            self._batches.retire()
        if self._error is not None:
            raise self._error
        return self.answers.matches()


class Clock:
    """Measures `busy_s`, the device time in seconds in which kernels of at least one slot ran; `latest` is a mark that has
    passed.

    CUDA events measure only the time between two of them, in milliseconds as a 32-bit float: precise between neighbours, but
    not since the start of a run.  A slot records its marks again for the next slice.  So the clock keeps the mark at which
    the latest kernels ended, and gives the slot another one in exchange.
    """

    def __init__(self, latest: Mark) -> None:
        self._latest, self.busy_s = latest, 0.0

    def add(self, slot: PipelineSlot) -> None:
        """Add a slice that has been waited for; slices must be added in the order in which they began.

        Adding a slice twice has no effect, because the mark that the slot received in exchange is older than the latest.
        """
        busy_s = min(slot.ended.seconds_since(slot.began), slot.ended.seconds_since(self._latest))
        if busy_s > 0.0:  # otherwise it ended before an earlier one
            self.busy_s += busy_s
            self._latest, slot.ended = slot.ended, self._latest


class _Slice(NamedTuple):
    """Events of a batch in a slot."""

    slot: PipelineSlot
    part: EventBatch
    begun: Begun


def _slice_events(batch: EventBatch) -> int:
    """Most events of a slice."""
    narrow = SLICE_ATTRIBUTES * len(batch) // max(batch.n_attributes, 1)
    return min(SLICE_EVENTS, max(narrow, SLICE_EVENTS // 16))


def _room_of(found: Array, room: int, n_events: int) -> Room:
    """The room, at least `room`, with which slices of a batch of `n_events` take the least time per event if its events have
    as many answers as these with `found`."""
    long, mean = found[found > room], float(found.mean())
    n_by_size = np.bincount(np.frexp(long - 0.5)[1])  # at k: events of more than 2^(k - 1) answers and at most 2^k

    def seconds(room: int) -> float:
        n_slice = min(n_events, Room(room, mean).events)
        total_s = SLICE_S + (MERGED_S * mean * n_slice if len(long) and room < long.max() else 0.0)
        for k in range(len(n_by_size)):
            if n_by_size[k] and 1 << k > room:
                n_long = n_by_size[k] / len(found) * n_slice
                n_groups = min(max(n_long * (4 << k) / LONG_GROUP_BYTES, 1.0), n_long)
                total_s += n_groups * (GROUP_S + ANSWER_S * (1 << k)) + n_long * EVENT_S
        return total_s / n_slice

    return Room(min([room, *(1 << k for k in range(len(n_by_size)) if 1 << k > room)], key=seconds), mean)


def _groups(found: Array) -> Iterator[slice]:
    """Runs of events with `found` answers, ascending, that are matched together: with room for as many answers as the last
    has, they take at most LONG_GROUP_BYTES, and no event takes more than twice what it needs."""
    start, n_bytes = 0, 4 * found.astype(np.int64)
    for stop in range(1, len(found) + 1):
        is_last = stop == len(found)
        if is_last or n_bytes[stop] > 2 * n_bytes[start] or (stop + 1 - start) * n_bytes[stop] > LONG_GROUP_BYTES:
            yield slice(start, stop)
            start = stop


def _with_long(others: tuple[Array, Array], long: Array, answers: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """The counts and ids of all events of a slice, given those of `others`, with counts of 0 for the events `long`, and the
    `answers` of the latter, in that order."""
    counts, ids = others
    begins = offsets_of(counts)[long]
    long_counts = np.concatenate([each for each, _ in answers])
    long_ids = np.split(np.concatenate([each for _, each in answers]), offsets_of(long_counts)[1:-1])
    counts[long] = long_counts
    pieces, at = list[Array](), 0
    for k in np.argsort(long).tolist():
        pieces += [ids[at : begins[k]], long_ids[k]]
        at = begins[k]
    return counts, np.concatenate([*pieces, ids[at:]])
