"""One event at a time, as CCM was published: copy in, kernel, copy out, captured as a CUDA graph and replayed.

    mailbox        header | launch 0, launch 1 | offsets | location | attributes | 0     a few hundred bytes, by the host
         | fetch
    kernel         launch 0: counts in copy 0, resets copy 1        launch 1: the reverse
         |         its last block copies the answer; if steps are timed, a separate kernel does, so that it can be timed
    mailbox        the bit mask, or the number of ids and the first of them

Two graphs, one for each launch, take turns.  With reset=memset there is one launch, one copy and one graph, which zeroes the
copy before the kernel.  Per event, Python only writes the attributes, launches a graph, waits, and reads the answer
(`pinned_mailbox`).

A graph's grid is fixed.  With cover=event it covers the longest run of the event's names, with the number of blocks rounded
up to a power of two; the graphs for a number of blocks are captured when an event first needs them.
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
from mpi_match.gpu.kernels import Gpu, Graph, Stream
from mpi_match.gpu.pinned_mailbox import Mailbox, no_home
from mpi_match.gpu.step_times import StepTimes
from mpi_match.matches.matches import Matches, id_dtype

CCM_FIRST_IDS = 127
"""Ids that the first copy out of an event brings; if there are more, a second copy fetches all."""
MASKS_KEPT = 4096
"""Unpacked answers that are cached by their mask."""


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
        self._stream, self._answer, self._steps, self._upload = stream, answer, steps, table.upload
        self._n_ids = table.n_ids(answer)
        self._id_dtype = id_dtype(self._n_ids)
        is_mask = answer == ANSWER_MASK
        answer_words, n_copies = 0 if answer == ANSWER_FILTERS else table.answer_words, table.n_copies
        offsets = EVENTS_HEADER + 2 * PLAN_WORDS
        end = offsets + 4 + n_attributes
        capacity = answer_words if is_mask else self._n_ids
        self._mailbox = mailbox = Mailbox(gpu, end, capacity, capacity if is_mask else CCM_FIRST_IDS)
        events = mailbox.words
        events[[ANSWER, OFFSETS, LOCATIONS, ATTRIBUTES]] = answer, offsets, offsets + 2, offsets + 4
        events[CAPACITY] = 0 if is_mask else capacity
        self._event_at = offsets + 1

        counts = table.copies(gpu, stream, 1)
        answers = gpu.buffer(np.uint32).array(max(n_copies * answer_words, 1))
        stream.zero(answers)
        self._unpacked = lru_cache(MASKS_KEPT)(self._unpack)

        def recorder(n_blocks: int, copy: int) -> Callable[[], None]:
            home = no_home() if steps.on else mailbox.home
            arrays = (table.rows, table.words, mailbox.on_device, counts, answers, mailbox.on_device, home)
            launch = table.kernel.bind(table.grid(n_blocks, n_attributes, 1), kernel.CCM_BLOCK, (*arrays, copy))
            deliver = mailbox.mask_delivery(answers, copy * answer_words, answer_words) if is_mask else mailbox.deliver

            def record() -> None:
                steps.at(stream, "copy in")
                mailbox.fetch(stream)
                if n_copies == 1:
                    steps.at(stream, "reset")
                    for used in (counts, answers):
                        stream.zero(used)
                steps.at(stream, "kernel")
                launch(stream)
                if steps.on:
                    steps.at(stream, "copy out")
                    deliver(stream)
                steps.end(stream)

            return record

        self._recorder, self._n_copies = recorder, n_copies
        self._plan = events[EVENTS_HEADER:offsets].reshape(2, PLAN_WORDS)
        for copy in range(n_copies):
            other = 1 - copy
            resets = (1, other, answer_words > 0, other) if n_copies == 2 else (0, 0, 0, 0)
            self._plan[copy] = (0, 1, copy, copy, end, *resets, NO_RESET)  # fetching sets the count to zero
        self._shift = table.shift
        self._launches: dict[int, list[Callable[[], None]]] = {}
        self._all_blocks = table.blocks(table.longest_run)
        blocks_of = self._rounded_up(table)
        differ = bool((blocks_of != self._all_blocks).any())
        self._blocks_of = blocks_of.data if covers_event and differ else None
        self._copy = 0

    def _rounded_up(self, table: OnDevice) -> Array:
        """i32[n_names + n_atoms]: the number of blocks of the graph that covers the rows of each name."""
        n_blocks = np.clip(-(-table.longest_of // kernel.CCM_BLOCK), 1, None)
        found: Array = np.minimum(1 << np.ceil(np.log2(n_blocks)).astype(np.int32), self._all_blocks).astype(np.int32)
        return found

    def _prepare(self, n_blocks: int) -> list[Callable[[], None]]:
        """Make the launches, one for each copy, with `n_blocks` blocks for a run."""
        records = [self._recorder(n_blocks, copy) for copy in range(self._n_copies)]  # loads the kernel
        self._upload.wait()
        if self._steps.on:
            return records
        plan = self._plan.copy()
        self._plan[:] = 0  # recording runs each launch once: it must have no event and nothing to reset
        self._plan[:, RESET_FOUND] = NO_RESET
        try:
            graphs = [Graph(self._stream, record) for record in records]
        finally:
            self._plan[:] = plan
        return [graph.launch for graph in graphs]

    def _blocks_for(self, packed: tuple[int, ...]) -> int:
        """Number of blocks for the runs of an event."""
        blocks_of, shift = self._blocks_of, self._shift
        if blocks_of is None:
            return self._all_blocks
        return max([blocks_of[attribute >> shift] for attribute in packed], default=1)

    def match(self, batch: EventBatch) -> Matches:
        """Match a batch of one event."""
        mailbox, packed = self._mailbox, batch.packed
        mailbox.put_event(self._event_at, packed, batch.place)
        n_blocks, copy = self._blocks_for(packed), self._copy
        launches = self._launches.get(n_blocks)
        if launches is None:
            launches = self._launches[n_blocks] = self._prepare(n_blocks)
        self._copy = copy + 1 if copy + 1 < self._n_copies else 0
        mailbox.expect()
        launches[copy]()
        if self._steps.on:
            self._stream.synchronize()
            self._steps.read()
        if self._answer != ANSWER_MASK:
            return self._matches(np.sort(mailbox.receive(self._stream)))
        return self._unpacked(mailbox.receive_bytes(self._stream))

    def _unpack(self, words: bytes) -> Matches:
        mask = np.frombuffer(words, np.int64).astype("<u4")
        return self._matches(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")))

    def _matches(self, ids: Array) -> Matches:
        offsets, ids = np.array([0, len(ids)]), ids.astype(self._id_dtype)
        offsets.flags.writeable = ids.flags.writeable = False  # the answer may be returned again
        return Matches.from_offsets(offsets, ids, self._n_ids)
