"""One event at a time, as CCM was published: copy in, kernel, copy out, captured as a CUDA graph and repeated.

    pinned words   header | launch 0, launch 1 | offsets | location | attributes     a few hundred bytes, by the host
         | copy in
    kernel         launch 0: counts in copy 0, resets copy 1        launch 1: the other way round
         | copy out
    pinned answer  the bit mask, or how many ids and the first of them

Two graphs, one for each launch, are used in turn.  With reset=memset there is one launch, one copy and one graph, which sets
the copy to zero before the kernel.  Per event, Python only writes the attributes, launches a graph, waits, and reads the
answer.

A graph's grid is fixed.  With cover=event it covers the longest row of the event's names, rounded up to a power of two of
blocks; graphs are captured for such a number of blocks when an event needs them first.
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
    RESET_FOUND,
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

    def __init__(
        self,
        gpu: Gpu,
        stream: Stream,
        table: OnDevice,
        answer: int,
        n_attributes: int,
        covers_event: bool,
        steps: StepTimes,
    ) -> None:
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
            words = pinned(max(answer_words + answer_words % 2, 2), np.uint32)
            words[:] = 0
            self._mask, self._out = words.view(np.uint64), words[:answer_words]
            sources = [answers.part(copy * answer_words, (copy + 1) * answer_words) for copy in range(n_copies)]
        else:
            self._out = pinned(1 + min(CCM_FIRST_IDS, capacity), np.int64)
            sources = self._found
        self._unpacked = lru_cache(MASKS_KEPT)(self._unpack)

        def recorder(n_blocks: int, copy: int) -> Callable[[], None]:
            arrays = (table.rows, table.words, device_events, counts, answers, found)
            launch = table.kernel.bind(table.grid(n_blocks, n_attributes, 1), kernel.CCM_BLOCK, (*arrays, copy))

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

        self._recorder, self._n_copies = recorder, n_copies
        self._plan = events[EVENTS_HEADER:offsets].reshape(2, PLAN_WORDS)
        for copy in range(n_copies):
            other = 1 - copy
            has_answers = answer_words > 0
            resets = (1, other, has_answers, other, other * (1 + capacity)) if n_copies == 2 else (0, 0, 0, 0, NO_RESET)
            self._plan[copy] = (0, 1, copy, copy, copy * (1 + capacity), *resets)
        self._longest_of, self._shift = table.longest_of if covers_event else None, table.shift
        self._blocks = table.blocks
        self._launches: dict[int, list[Callable[[], None]]] = {}
        self._all_blocks = table.blocks(table.longest_run)
        self._copy = 0

    def _prepare(self, n_blocks: int) -> list[Callable[[], None]]:
        """Launches with so many blocks for a run, one for each copy."""
        records = [self._recorder(n_blocks, copy) for copy in range(self._n_copies)]
        if self._steps.on:
            return records
        plan = self._plan.copy()
        self._plan[:] = 0  # recording runs a launch once: without an event, and without anything to reset
        self._plan[:, RESET_FOUND] = NO_RESET
        try:
            graphs = [Graph(self._stream, record) for record in records]
        finally:
            self._plan[:] = plan
        return [graph.launch for graph in graphs]

    def _blocks_for(self, attributes: Array) -> int:
        """Blocks for the runs of an event."""
        if self._longest_of is None:
            return self._all_blocks
        n_rows = int(self._longest_of[attributes >> self._shift].max(initial=0))
        return min(1 << (self._blocks(n_rows) - 1).bit_length(), self._all_blocks)

    def match(self, batch: EventBatch) -> Matches:
        """The answer for a batch of one event."""
        attributes = batch.attributes
        n_attributes = len(attributes)
        self._events[self._end] = n_attributes
        self._attributes[:n_attributes] = attributes
        if self._location is not None:
            self._location[:] = np.nan if batch.location is None else batch.location[0]
        n_blocks, copy = self._blocks_for(attributes), self._copy
        launches = self._launches.get(n_blocks)
        if launches is None:
            launches = self._launches[n_blocks] = self._prepare(n_blocks)
        self._copy = (copy + 1) % self._n_copies
        launches[copy]()
        self._stream.synchronize()
        if self._steps.on:
            self._steps.read()
        if self._answer == ANSWER_MASK:
            return self._unpacked(int(self._mask[0])) if len(self._mask) == 1 else self._of_bits(self._mask)
        return self._listed(copy)

    def _unpack(self, mask: int) -> Matches:
        return self._of_bits(np.array([mask], np.uint64))

    def _of_bits(self, words: Array) -> Matches:
        bits = np.unpackbits(words.astype("<u8", copy=False).view(np.uint8), bitorder="little")
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
