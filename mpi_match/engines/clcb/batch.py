"""Many events at a time, our addition: CLCB's kernels with a third grid axis, and several words of counters for each filter.

A batch is divided into passes, and a pass into launches; a launch takes as many events as there is memory for counters:

    copy in    | zero, Loc, Cont, Zip | zero, Loc, Cont, Zip | ...     copy out
                 events 0 .. s-1        events s .. 2s-1

With four runs in a word, s events need s / 4 words for each filter.  Loc reads a filter once for all s events; Cont reads
its rows for each event.  The list holds the (event, id) pairs of the whole pass; if it was too short, it is enlarged and the
pass is repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpi_match.engines.ccm.kernel import ANSWER, ANSWER_FILTERS, ATTRIBUTES, CAPACITY, LOCATIONS, OFFSETS
from mpi_match.engines.clcb.kernels import (
    CLCB_HEADER_WORDS,
    MOST_AT_ONCE,
    N_FOUND,
    N_INTERFACES,
    RUNS_LOG,
    counter_words,
    zip_kernel,
)
from mpi_match.engines.clcb.segment import Segment, spread
from mpi_match.events.batch import EventBatch
from mpi_match.gpu.kernels import Gpu, Mark, PinnedBuffer, Stream
from mpi_match.gpu.pinned_mailbox import no_home
from mpi_match.gpu.step_times import StepTimes
from mpi_match.matches.matches import Matches, id_dtype

COUNTER_BYTES = 1 << 28
"""Most bytes of counters (except that each filter has at least one word): with 10 M filters, 24 events at a time."""
CLCB_PASS_EVENTS = 4096
"""Events in a pass."""
CLCB_FIRST_PAIRS = 1 << 16
"""Initial capacity of the list of answers, in pairs; later passes adapt it."""


class ClcbBatches:
    """Matches batches for one kind of answer with ids below `n_ids`.  `kernel_s` is the device time so far, in seconds."""

    def __init__(
        self,
        gpu: Gpu,
        stream: Stream,
        segments: Sequence[Segment],
        answer: int,
        n_ids: int,
        n_interfaces: int,
        steps: StepTimes,
    ) -> None:
        self._gpu, self._stream, self._segments, self._answer, self._n_ids = gpu, stream, segments, answer, n_ids
        self._n_interfaces, self._steps = n_interfaces, steps
        self._log = min(segment.runs_log for segment in segments)
        n_filters = sum(segment.n_filters for segment in segments)
        n_words = max(min(COUNTER_BYTES // (4 * max(n_filters, 1)), MOST_AT_ONCE >> self._log), 1)
        self._at_once = n_words << self._log
        self._counters = [
            gpu.buffer(np.uint32).array(max(n_words * counter_words(segment.n_filters), 1)) for segment in segments
        ]
        self._interfaces = gpu.buffer(np.uint32).array(max(n_words * n_interfaces, 1))
        self._events, self._host = gpu.buffer(np.int64), PinnedBuffer(np.int64)
        self._host_found, self._capacity = PinnedBuffer(np.int64), CLCB_FIRST_PAIRS
        self._before, self._after = Mark(), Mark()
        self.kernel_s = 0.0

    def match(self, batch: EventBatch) -> Matches:
        """Match a batch of any size."""
        if batch.n_events == 0:
            return Matches.from_offsets(np.zeros(1, np.int64), np.zeros(0, id_dtype(self._n_ids)), self._n_ids)
        starts = range(0, batch.n_events, CLCB_PASS_EVENTS)
        return Matches.concat([self._pass(batch[start : start + CLCB_PASS_EVENTS]) for start in starts])

    def _pass(self, batch: EventBatch) -> Matches:
        while True:
            with self._steps.on_host("pack"):
                found = self._pack(batch)
            n_found = self._launch(batch, found)
            if n_found <= self._capacity:
                break
            self._capacity = n_found * 5 // 4
        pairs, steps = self._host_found.array(n_found), self._steps
        steps.at(self._stream, "copy out")
        self._stream.copy_out(pairs, self._events.array(found + 1 + self._capacity).part(found + 1, found + 1 + n_found))
        steps.end(self._stream)
        self._stream.synchronize()
        steps.read()
        with steps.on_host("unpack"):
            return Matches.from_pairs(pairs >> 32, pairs & 0xFFFFFFFF, batch.n_events, self._n_ids)

    def _pack(self, batch: EventBatch) -> int:
        """Write the input of a pass; returns the index of the count."""
        n_events = batch.n_events
        offsets = CLCB_HEADER_WORDS
        locations = offsets + n_events + 1
        attributes = locations + 2 * n_events
        found = attributes + len(batch.attributes)
        host = self._host.array(found + 1)
        host[[ANSWER, OFFSETS, LOCATIONS, ATTRIBUTES]] = self._answer, offsets, locations, attributes
        host[[CAPACITY, N_FOUND, N_INTERFACES, RUNS_LOG]] = self._capacity, found, self._n_interfaces, self._log
        host[offsets:locations] = batch.bounds
        host[locations:attributes].view(np.float64)[:] = np.nan if batch.location is None else batch.location.reshape(-1)
        host[attributes:found] = batch.attributes
        host[found] = 0
        return found

    def _launch(self, batch: EventBatch, found: int) -> int:
        """Copy a batch in and run its launches; returns the number of pairs found."""
        stream, steps, widest = self._stream, self._steps, int(np.diff(batch.bounds).max())
        events = self._events.array(found + 1 + self._capacity)
        launches = [
            segment.launches(events, counters, self._interfaces, widest, min(self._at_once, batch.n_events), steps)
            for segment, counters in zip(self._segments, self._counters, strict=True)
        ]
        zip_ = spread(zip_kernel, self._gpu, self._interfaces.size, (events, self._interfaces, no_home(), 0, 0, 0))
        steps.at(stream, "copy in")
        stream.copy_in(events, self._host.array(found + 1))
        self._before.record(stream)
        for first in range(0, batch.n_events, self._at_once):
            n_events = min(self._at_once, batch.n_events - first)
            steps.at(stream, "zero")
            for segment, counters in zip(self._segments, self._counters, strict=True):
                segment.zero(counters)
            stream.zero(self._interfaces)
            for launch in launches:
                launch(first, n_events, 0)
            if self._answer != ANSWER_FILTERS:
                steps.at(stream, "Zip")
                zip_.set(3, first)
                zip_.set(4, n_events)
                zip_(stream)
        self._after.record(stream)
        counter = self._host_found.array(1)
        steps.at(stream, "copy out")
        stream.copy_out(counter, events.part(found, found + 1))
        steps.end(stream)
        stream.synchronize()
        steps.read()
        self.kernel_s += self._after.seconds_since(self._before)
        return int(counter[0])
