"""Many events at a time: CCM's kernel with a third grid axis, and separate counters for every event in flight.

A batch is divided into passes, and a pass into launches; a launch takes one event for each copy of the counters, or *slot*:

    launch 0    events 0 .. s-1      counters: copy 0        resets the slots of copy 1 that the previous launch used
    launch 1    events s .. 2s-1     counters: copy 1        resets copy 0
    ...

With reset=memset there is one copy, which is zeroed before every launch.

A pass is one copy in, all its launches, and one copy out.  The bit masks of a pass are contiguous.  Lists hold the (event,
id) pairs of a pass in any order, and the host sorts them.  The kernel also counts the pairs that did not fit; if there are
any, the list is enlarged and the pass repeated.
"""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of
from mpi_match.engines.ccm import kernel
from mpi_match.engines.ccm.kernel import (
    ANSWER,
    ANSWER_INTERFACES,
    ANSWER_MASK,
    ANSWERS_SLOT,
    ATTRIBUTES,
    CAPACITY,
    COUNTS_SLOT,
    EVENTS_HEADER,
    FIRST,
    LOCATIONS,
    N_ANSWERS_RESET,
    N_EVENTS,
    N_RESET,
    NO_RESET,
    OFFSETS,
    PLAN_WORDS,
    RESET_ANSWERS_SLOT,
    RESET_COUNTS_SLOT,
    RESET_FOUND,
    OnDevice,
)
from mpi_match.events.batch import EventBatch
from mpi_match.gpu.kernels import Gpu, Mark, PinnedBuffer, Stream
from mpi_match.gpu.pinned_mailbox import no_home
from mpi_match.gpu.step_times import StepTimes
from mpi_match.matches.matches import Matches, id_dtype

ROWS_PER_THREAD = 8
"""Rows of the longest run that one thread processes."""
IN_FLIGHT_BYTES = 16 << 20
"""Bytes of one of the two copies of the counters: both copies and the table fit in the cache of a large GPU."""
LEAST_IN_FLIGHT = 4
MOST_IN_FLIGHT = 1024
CCM_PASS_EVENTS = 16384
"""Events in a pass."""
CCM_FIRST_PAIRS = 1 << 16
"""Initial capacity of the list of answers, in pairs; later passes adapt it."""


class CcmBatches:
    """Matches batches for one kind of answer.  `kernel_s` is the kernels' device time so far, in seconds."""

    def __init__(self, gpu: Gpu, stream: Stream, table: OnDevice, answer: int, steps: StepTimes) -> None:
        self._stream, self._table, self._answer, self._steps = stream, table, answer, steps
        self._n_ids = table.n_ids(answer)
        slot_bytes = 4 * (len(table.counters) + (table.answer_words if answer == ANSWER_INTERFACES else 0))
        self._slots = min(max(IN_FLIGHT_BYTES // max(slot_bytes, 1), LEAST_IN_FLIGHT), MOST_IN_FLIGHT)
        self._counts = table.copies(gpu, stream, self._slots)
        self._copy = 0
        """The copy that the next launch uses; it has been reset."""
        self._used = 0
        """Slots of the other copy that the next launch must reset."""
        self._answers = gpu.buffer(np.uint32)
        if answer == ANSWER_INTERFACES:
            stream.zero(self._answers.array(max(table.n_copies * self._slots * table.answer_words, 1)))
        self._found, self._capacity = gpu.buffer(np.int64), CCM_FIRST_PAIRS
        self._events, self._host_events = gpu.buffer(np.int64), PinnedBuffer(np.int64)
        self._host_masks, self._host_found = PinnedBuffer(np.uint32), PinnedBuffer(np.int64)
        self._before, self._after = Mark(), Mark()
        self.kernel_s = 0.0

    def match(self, batch: EventBatch) -> Matches:
        """Match a batch of any size."""
        if batch.n_events == 0:
            return Matches.from_offsets(np.zeros(1, np.int64), np.zeros(0, id_dtype(self._n_ids)), self._n_ids)
        starts = range(0, batch.n_events, CCM_PASS_EVENTS)
        parts = [self._pass(batch[start : start + CCM_PASS_EVENTS]) for start in starts]
        return parts[0] if len(parts) == 1 else Matches.concat(parts)

    def _pass(self, batch: EventBatch) -> Matches:
        if self._answer == ANSWER_MASK:
            return self._masked(batch)
        while True:
            n_found = self._launch(batch, self._found.array(1 + self._capacity).size)
            if n_found <= self._capacity:
                return self._listed(batch.n_events, n_found)
            self._capacity = n_found * 5 // 4

    def _launch(self, batch: EventBatch, n_words_found: int) -> int:
        """Copy a batch in and run its launches; returns the number of pairs found (0 for masks)."""
        table, stream, steps = self._table, self._stream, self._steps
        with steps.on_host("pack"):
            bounds = batch.bounds
            host = self._pack(batch, bounds)
        events, found = self._events.array(len(host)), self._found.array(n_words_found)
        answers = self._answers.array(max(self._answer_slots(batch.n_events) * table.answer_words, 1))
        n_launches = -(-batch.n_events // self._slots)
        in_flight = max(min(self._slots, batch.n_events), self._used)
        grid = table.grid(table.blocks(table.longest_run, ROWS_PER_THREAD), int(np.diff(bounds).max()), in_flight)
        arrays = (table.rows, table.words, events, self._counts, answers, found, no_home())
        launch = table.kernel.bind(grid, kernel.CCM_BLOCK, (*arrays, 0))
        table.upload.wait()
        steps.at(stream, "copy in")
        stream.copy_in(events, host)
        steps.at(stream, "reset")
        stream.zero(found.part(0, 1))
        if self._answer == ANSWER_MASK:
            stream.zero(answers)
        self._before.record(stream)
        for number in range(n_launches):
            if table.n_copies == 1:
                steps.at(stream, "reset")
                stream.zero(self._counts)
                if self._answer == ANSWER_INTERFACES:
                    stream.zero(answers)
            steps.at(stream, "kernel")
            launch.set(7, number)
            launch(stream)
        self._after.record(stream)
        if table.n_copies == 2:
            self._copy = (self._copy + n_launches) % 2
            self._used = batch.n_events - (n_launches - 1) * self._slots
        counter = self._host_found.array(1)
        steps.at(stream, "copy out")
        stream.copy_out(counter, found.part(0, 1))
        steps.end(stream)
        stream.synchronize()
        steps.read()
        self.kernel_s += self._after.seconds_since(self._before)
        return int(counter[0])

    def _answer_slots(self, n_events: int) -> int:
        return {ANSWER_MASK: n_events, ANSWER_INTERFACES: self._table.n_copies * self._slots}.get(self._answer, 0)

    def _pack(self, batch: EventBatch, bounds: Array) -> Array:
        """The words of `events`, in the layout of `ccm.kernel`."""
        n_events = batch.n_events
        first = np.arange(0, n_events, self._slots)
        offsets = EVENTS_HEADER + len(first) * PLAN_WORDS
        locations = offsets + n_events + 1
        attributes = locations + 2 * n_events * self._table.has_areas
        host = self._host_events.array(attributes + len(batch.attributes))
        host[[ANSWER, OFFSETS, LOCATIONS, ATTRIBUTES, CAPACITY]] = (
            self._answer,
            offsets,
            locations,
            attributes,
            self._capacity,
        )

        plan = host[EVENTS_HEADER:offsets].reshape(-1, PLAN_WORDS)
        plan[:] = 0
        copy = (self._copy + np.arange(len(first))) % self._table.n_copies
        n_of_launch = np.minimum(self._slots, n_events - first)
        plan[:, FIRST], plan[:, N_EVENTS] = first, n_of_launch
        plan[:, COUNTS_SLOT], plan[:, RESET_FOUND] = copy * self._slots, NO_RESET
        if self._table.n_copies == 2:
            plan[:, RESET_COUNTS_SLOT] = (1 - copy) * self._slots
            plan[0, N_RESET], plan[1:, N_RESET] = self._used, n_of_launch[:-1]
        if self._answer == ANSWER_MASK:
            plan[:, ANSWERS_SLOT] = first
        elif self._answer == ANSWER_INTERFACES:
            plan[:, ANSWERS_SLOT], plan[:, RESET_ANSWERS_SLOT] = plan[:, COUNTS_SLOT], plan[:, RESET_COUNTS_SLOT]
            plan[:, N_ANSWERS_RESET] = plan[:, N_RESET]

        host[offsets:locations] = bounds
        if self._table.has_areas:
            host[locations:attributes].view(np.float64)[:] = np.nan if batch.location is None else batch.location.reshape(-1)
        host[attributes:] = batch.attributes
        return host

    def _masked(self, batch: EventBatch) -> Matches:
        self._launch(batch, 1)
        n_words, steps = self._table.answer_words, self._steps
        masks = self._host_masks.array(batch.n_events * n_words)
        steps.at(self._stream, "copy out")
        self._stream.copy_out(masks, self._answers.array(max(len(masks), 1)))
        steps.end(self._stream)
        self._stream.synchronize()
        steps.read()
        with steps.on_host("unpack"):
            bytes_ = masks.astype("<u4", copy=False).view(np.uint8).reshape(batch.n_events, 4 * n_words)
            event, id_ = np.nonzero(np.unpackbits(bytes_, axis=1, bitorder="little"))
            return self._matches(event, id_, batch.n_events)

    def _listed(self, n_events: int, n_found: int) -> Matches:
        pairs, steps = self._host_found.array(1 + n_found), self._steps
        steps.at(self._stream, "copy out")
        self._stream.copy_out(pairs, self._found.array(1 + n_found))
        steps.end(self._stream)
        self._stream.synchronize()
        steps.read()
        with steps.on_host("unpack"):
            ordered = np.sort(pairs[1:])
            return self._matches(ordered >> 32, ordered & 0xFFFFFFFF, n_events)

    def _matches(self, event: Array, id_: Array, n_events: int) -> Matches:
        offsets = offsets_of(np.bincount(event, minlength=n_events))
        return Matches.from_offsets(offsets, id_.astype(id_dtype(self._n_ids)), self._n_ids)
