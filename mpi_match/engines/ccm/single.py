"""One event at a time, as CCM was published: copy in, kernel, copy out, captured as a CUDA graph and repeated.

    pinned words   header | launch 0, launch 1 | offsets | location | attributes     a few hundred bytes, by the host
         | copy in
    kernel         launch 0: counts in copy 0, resets copy 1        launch 1: the other way round
         | copy out
    pinned answer  the bit mask, or how many ids and the first of them

Two graphs, one for each launch, are used in turn.  With reset=memset there is one launch, one copy and one graph, which sets
the copy to zero before the kernel.  Per event, Python only writes the attributes, launches a graph, waits, and reads the
answer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.engines.ccm import kernel
from mpi_match.engines.ccm.kernel import (
    ANSWER,
    ANSWER_FILTERS,
    ANSWER_MASK,
    ATTRIBUTES,
    CAPACITY,
    EVENTS_HEADER,
    LOCATIONS,
    NO_RESET,
    OFFSETS,
    PLAN_WORDS,
    OnDevice,
)
from mpi_match.events.batch import EventBatch
from mpi_match.gpu.kernels import Gpu, Graph, Stream, pinned
from mpi_match.gpu.step_times import StepTimes
from mpi_match.matches.matches import Matches, id_dtype

CCM_FIRST_IDS = 127
"""Ids that the copy out of an event brings; where there are more, a second copy fetches all."""
MASKS_KEPT = 4096
"""Answers that are kept by their mask, instead of being unpacked again."""


class CcmSingle:
    """Matches events of at most `n_attributes` attributes one by one, for one kind of answer."""

    def __init__(self, gpu: Gpu, stream: Stream, table: OnDevice, answer: int, n_attributes: int, steps: StepTimes) -> None:
        self._stream, self._answer, self._steps = stream, answer, steps
        self._n_ids = table.n_ids(answer)
        self._id_dtype = id_dtype(self._n_ids)
        capacity = 0 if answer == ANSWER_MASK else self._n_ids
        offsets = EVENTS_HEADER + 2 * PLAN_WORDS
        self._events = events = pinned(offsets + 4 + n_attributes, np.int64)
        events[[ANSWER, OFFSETS, LOCATIONS, ATTRIBUTES, CAPACITY]] = answer, offsets, offsets + 2, offsets + 4, capacity
        self._end = offsets + 1
        self._location = events[offsets + 2 : offsets + 4].view(np.float64) if table.has_areas else None
        self._attributes = events[offsets + 4 :]

        answer_words, n_copies = 0 if answer == ANSWER_FILTERS else table.answer_words, table.n_copies
        device_events = gpu.buffer(np.int64).array(len(events))
        counts = table.copies(gpu, stream, 1)
        answers = gpu.buffer(np.uint32).array(max(n_copies * answer_words, 1))
        found = gpu.buffer(np.int64).array(n_copies * (1 + capacity))
        stream.zero(answers)
        stream.zero(found)
        self._found = [found.part(copy * (1 + capacity), (copy + 1) * (1 + capacity)) for copy in range(n_copies)]
        if answer == ANSWER_MASK:
            words = pinned(2, np.uint32)
            self._mask, self._out = words.view(np.uint64), words[:answer_words]
            sources = [answers.part(copy * answer_words, (copy + 1) * answer_words) for copy in range(n_copies)]
        else:
            self._out = pinned(1 + min(CCM_FIRST_IDS, capacity), np.int64)
            sources = self._found
        self._unpacked = lru_cache(MASKS_KEPT)(self._unpack)

        def recorder(copy: int) -> Callable[[], None]:
            arrays = (table.rows, table.words, device_events, counts, answers, found)
            launch = table.kernel.bind(table.grid(n_attributes, 1, rows_per_thread=1), kernel.CCM_BLOCK, (*arrays, copy))

            def record() -> None:
                steps.at(stream, "copy in")
                stream.copy_in(device_events, events)
                if n_copies == 1:
                    steps.at(stream, "reset")
                    for used in (counts, answers, found.part(0, 1)):
                        stream.zero(used)
                steps.at(stream, "kernel")
                launch(stream)
                steps.at(stream, "copy out")
                stream.copy_out(self._out, sources[copy])
                steps.end(stream)

            return record

        self._records = [recorder(copy) for copy in range(n_copies)]
        # made while the launches have no event: recording runs them once
        self._graphs = [] if steps.on else [Graph(stream, record) for record in self._records]
        for copy in range(n_copies):
            at = EVENTS_HEADER + copy * PLAN_WORDS
            other = 1 - copy
            has_answers = answer_words > 0
            resets = (1, other, has_answers, other, other * (1 + capacity)) if n_copies == 2 else (0, 0, 0, 0, NO_RESET)
            events[at : at + PLAN_WORDS] = (0, 1, copy, copy, copy * (1 + capacity), *resets)
        self._copy = 0

    def match(self, batch: EventBatch) -> Matches:
        """The answer for a batch of one event."""
        attributes = batch.attributes
        n_attributes = len(attributes)
        self._events[self._end] = n_attributes
        self._attributes[:n_attributes] = attributes
        if self._location is not None:
            self._location[:] = np.nan if batch.location is None else batch.location[0]
        copy = self._copy
        self._copy = (copy + 1) % len(self._records)
        if self._graphs:
            self._graphs[copy].launch()
            self._stream.synchronize()
        else:
            self._records[copy]()
            self._stream.synchronize()
            self._steps.read()
        if self._answer == ANSWER_MASK:
            return self._unpacked(int(self._mask[0]))
        return self._listed(copy)

    def _unpack(self, mask: int) -> Matches:
        bits = np.unpackbits(np.array([mask], "<u8").view(np.uint8), bitorder="little")
        return self._matches(np.flatnonzero(bits))

    def _listed(self, copy: int) -> Matches:
        n_found = int(self._out[0])
        ids = self._out[1 : 1 + n_found]
        if len(ids) < n_found:
            ids = np.empty(n_found, np.int64)
            self._stream.copy_out(ids, self._found[copy].part(1, 1 + n_found))
            self._stream.synchronize()
        return self._matches(np.sort(ids))

    def _matches(self, ids: Array) -> Matches:
        offsets, ids = np.array([0, len(ids)]), ids.astype(self._id_dtype)
        offsets.flags.writeable = ids.flags.writeable = False  # an answer may be returned again
        return Matches.from_offsets(offsets, ids, self._n_ids)
