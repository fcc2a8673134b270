"""The batches that `keyed_cuda` has begun, cut into slices, and the lanes that take these in turn.

    lane 0   copy in, match 0 ............│ ids out │ copy in, match 3 ...
    lane 1       copy in │ match 1 ............│ ids out │ copy in, match 4 ...
    lane 2            copy in │      match 2 ............│ ids out │ ...
             batch a: 0, 1                batch b: 2, 3         batch c: 4, ...

Slices are started in the order in which their batches were begun, whenever a lane is free, and retired (their answers
fetched) in the order in which they were started, when somebody wants the end of a batch.  Where one batch ends and the next
one begins makes no difference to a lane, so the GPU has something to match while an answer is made of the last slice of one.

There are three lanes: while one slice is matched and the answers of another are fetched, the events of a third lie there
already.  With two, the GPU would wait whenever to fetch a slice and to copy the next one in, with all calls from Python that
this takes, lasts longer than to match one.

What fails, fails for the batch whose slice it was: what is left of it is not started, what was started is waited for, and
the others go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from mpi_match.engines.keyed.cuda_results import Answers
from mpi_match.engines.keyed.cuda_slot import PipelineSlot, SlicePlan
from mpi_match.engines.keyed.kernels.trie_thread import MASKS
from mpi_match.events.batch import EventBatch
from mpi_match.gpu.kernels import Mark
from mpi_match.matches.matches import Matches

N_LANES = 3
SLICE_EVENTS, SLICE_ATTRIBUTES = 2**20, 2**23
"""Most events of a slice and, about, attributes: so many that what Python has to do for a slice, a few tenths of a
millisecond, does not count.  In slices of a quarter of that, batches of a million events took an H200 half as long again."""
FIRST_EVENTS = 2**18
"""Most events of a slice that the GPU has nothing to do besides: it begins sooner."""
CUDA_ANSWER_ROOM = 8
"""Slots for answers of an event, to begin with."""
SLOT_BYTES, LONG_SLICE_BYTES, LONG_SLICE_EVENTS = 2**30, 2**25, 2**14
"""Bytes of slots of a lane: more slots per event make shorter slices, so that ids of one leave while the next is matched.
From the second on, slices are no shorter than the third, which keeps a GPU busy, until the first."""


class Batches:
    """Batches on their way through `lanes`.  `clock` has the time that their kernels ran, of slices that are retired."""

    def __init__(self, lanes: Sequence[PipelineSlot]) -> None:
        self._free = [*lanes]
        self._waiting: deque[Begun] = deque()  # with events that are in no slice yet
        self._started: deque[_Slice] = deque()
        self._room = CUDA_ANSWER_ROOM
        self.clock = Clock(lanes[0].mark())

    def begin(self, batch: EventBatch, plan: SlicePlan, answers: Answers) -> Begun:
        """Have a batch matched behind those that were begun before; what it raises, its end raises."""
        begun = Begun(self, batch, plan, answers)
        self._waiting.append(begun)
        self._start()
        return begun

    def drain(self) -> None:
        """Match all that was begun; the answers wait for the ends."""
        while self._started:
            self.retire()

    def retire(self) -> None:
        """Fetch the answers of the slice that was started first, and start those that there are lanes for then."""
        lane, part, begun = self._started.popleft()
        try:
            if begun.has_failed:
                lane.settle()
            else:
                self._fetch(lane, part, begun)
        except BaseException as error:  # also an interrupt: lanes must not get lost
            begun.fail(error)
            lane.settle()
        finally:
            begun.n_started -= 1
            self._free.append(lane)
        self._start()

    def _start(self) -> None:
        while self._free and self._waiting:
            begun = self._waiting[0]
            if not begun.n_left:
                self._waiting.popleft()
                continue
            lane, part = self._free.pop(), begun.next_slice(self._room, SLICE_EVENTS if self._started else FIRST_EVENTS)
            try:
                lane.start(part, begun.plan, self._room)
            except BaseException as error:
                begun.fail(error)
                self._free.append(lane)
                lane.settle()
            else:
                begun.n_started += 1
                self._started.append(_Slice(lane, part, begun))

    def _fetch(self, lane: PipelineSlot, part: EventBatch, begun: Begun) -> None:
        lane.wait()
        self.clock.add(lane)
        most = lane.most(begun.plan)
        if most <= lane.room:
            lane.finish(begun.plan, begun.answers)
            return
        for each in self._started:  # before what comes now
            each.lane.wait()
            self.clock.add(each.lane)
        room = self._room = max(self._room, 1 << (most - 1).bit_length())
        size = _room_for_events(room)
        for at in range(0, len(part), size):  # once more, in pieces that have the room
            lane.start(part[at : at + size], begun.plan, room)
            lane.wait()
            self.clock.add(lane)
            lane.finish(begun.plan, begun.answers)


class Begun:
    """A batch that was begun: see `engines.Pending`.

    `n_left` events of it are in no slice yet, `n_started` of its slices are on the GPU.
    """

    def __init__(self, batches: Batches, batch: EventBatch, plan: SlicePlan, answers: Answers) -> None:
        self._batches, self._batch, self.plan, self.answers = batches, batch, plan, answers
        self.n_left, self.n_started = len(batch), 0
        self._longest = _slice_events(batch)
        self._error: BaseException | None = None

    def next_slice(self, room: int, most: int) -> EventBatch:
        """Its next events, at most so many, which are in a slice now, with so many slots each.

        What is left is cut evenly: a short rest would cost as much of Python's time as a long slice.
        """
        most = min(self._longest, most) if self.plan.kind == MASKS else min(self._longest, most, _room_for_events(room))
        size = -(-self.n_left // -(-self.n_left // most))
        first = len(self._batch) - self.n_left
        part = self._batch[first : first + size]
        self.n_left -= len(part)
        return part

    @property
    def has_failed(self) -> bool:
        """Will its end raise?"""
        return self._error is not None

    def fail(self, error: BaseException) -> None:
        """Have its end raise this, and no more of it started."""
        self._error, self.n_left = error, 0

    def end(self) -> Matches:
        """See `Pending.end`."""
        while self.n_left or self.n_started:
            self._batches.retire()
        if self._error is not None:
            raise self._error
        return self.answers.matches()


class Clock:
    """Device time `busy_s` in which kernels of one lane or another ran; `latest` is a passed mark.

    A mark knows the time only from one to another, in milliseconds of 32 bits: good between neighbours, not from the
    beginning of a run.  And it is made again when its lane starts the next slice.  So the clock keeps the mark at which the
    latest kernels ended, and gives the lane another one for it.
    """

    def __init__(self, latest: Mark) -> None:
        self._latest, self.busy_s = latest, 0.0

    def add(self, lane: PipelineSlot) -> None:
        """Add a slice that has been waited for; slices are added in the order in which they began.

        Once more adds nothing, because the mark that the lane has then is older than the latest.
        """
        busy_s = min(lane.ended.seconds_since(lane.began), lane.ended.seconds_since(self._latest))
        if busy_s > 0.0:  # else it ended before another one that began before it
            self.busy_s += busy_s
            self._latest, lane.ended = lane.ended, self._latest


class _Slice(NamedTuple):
    """Events of a batch on a lane."""

    lane: PipelineSlot
    part: EventBatch
    begun: Begun


def _slice_events(batch: EventBatch) -> int:
    """Most events of a slice."""
    narrow = SLICE_ATTRIBUTES * len(batch) // max(len(batch.attributes), 1)
    return min(SLICE_EVENTS, max(narrow, SLICE_EVENTS // 16))


def _room_for_events(room: int) -> int:
    """Events of a slice with so many slots each."""
    n_bytes = 4 * room
    return min(max(LONG_SLICE_BYTES // n_bytes, LONG_SLICE_EVENTS), max(SLOT_BYTES // n_bytes, 1))
