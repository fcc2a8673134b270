"""One event at a time, as CLCB was published: one stream, one wait for each event, and one reset for every four events.

    mailbox         header | offsets | location | attributes | 0        a few hundred bytes, by the host
         | fetch
    Loc, Cont       on each segment
    Zip             its last block copies the answer; if filters are requested or steps are timed, a separate kernel does
    mailbox         the number of ids, and the first of them
    [zero]          counters and interfaces, after the last run of a word; no event waits for it

A CUDA graph is captured for each run of a word, and the graphs are replayed in turn: per event, Python only writes the
attributes, launches a graph, waits, and reads the answer (`pinned_mailbox`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mpi_match.engines.ccm.kernel import ANSWER, ANSWER_FILTERS, ATTRIBUTES, CAPACITY, LOCATIONS, OFFSETS
from mpi_match.engines.clcb.kernels import CLCB_HEADER_WORDS, N_FOUND, N_INTERFACES, RUNS_LOG, counter_words, zip_kernel
from mpi_match.engines.clcb.segment import Segment, spread
from mpi_match.events.batch import EventBatch
from mpi_match.gpu.kernels import Gpu, Graph, Stream
from mpi_match.gpu.pinned_mailbox import Mailbox, no_home
from mpi_match.gpu.step_times import StepTimes
from mpi_match.matches.matches import Matches, id_dtype

CLCB_FIRST_IDS = 511
"""Ids that the first copy out of an event brings; if there are more, a second copy fetches all."""


class Runs:
    """Counters and interfaces for one event at a time, and the number of the next run of their words."""

    def __init__(self, gpu: Gpu, segments: Sequence[Segment], n_interfaces: int) -> None:
        self.n_interfaces = n_interfaces
        self.log = min(segment.runs_log for segment in segments)
        self.counters = [gpu.buffer(np.uint32).array(max(counter_words(segment.n_filters), 1)) for segment in segments]
        self.interfaces = gpu.buffer(np.uint32).array(max(n_interfaces, 1))
        self._segments = segments
        self._next = 0

    @property
    def n(self) -> int:
        """Runs in a word."""
        return 1 << self.log

    def zero(self, stream: Stream) -> None:
        """Zero the words, before run 0."""
        for segment, counters in zip(self._segments, self.counters, strict=True):
            segment.zero(counters)
        stream.zero(self.interfaces)

    def start(self) -> None:
        """Make run 0 the next one."""
        self._next = 0

    def take(self) -> int:
        """Return the run of the next event."""
        run = self._next
        self._next = (run + 1) % self.n
        return run


class ClcbSingle:
    """Matches events of at most `n_attributes` attributes one by one, for one kind of answer with ids below `n_ids`."""

    def __init__(
        self,
        gpu: Gpu,
        stream: Stream,
        segments: Sequence[Segment],
        runs: Runs,
        answer: int,
        n_ids: int,
        n_attributes: int,
        steps: StepTimes,
    ) -> None:
        self._stream, self._runs, self._n_ids, self._steps = stream, runs, n_ids, steps
        self._id_dtype, self._n_counts = id_dtype(n_ids), np.arange(CLCB_FIRST_IDS + 1).astype(id_dtype(n_ids + 1))
        self._n_counts.flags.writeable = False
        capacity = sum(segment.n_filters for segment in segments) if answer == ANSWER_FILTERS else n_ids
        offsets = CLCB_HEADER_WORDS
        locations, attributes, found = offsets + 2, offsets + 4, offsets + 4 + n_attributes
        self._mailbox = mailbox = Mailbox(gpu, found, capacity, CLCB_FIRST_IDS)
        events = mailbox.words
        events[[ANSWER, OFFSETS, LOCATIONS, ATTRIBUTES]] = answer, offsets, locations, attributes
        events[[CAPACITY, N_FOUND, N_INTERFACES, RUNS_LOG]] = capacity, found, runs.n_interfaces, runs.log
        events[locations:attributes].view(np.float64)[:] = np.nan
        self._event_at = offsets + 1

        launches = [
            segment.launches(mailbox.on_device, counters, runs.interfaces, n_attributes, 1, steps)
            for segment, counters in zip(segments, runs.counters, strict=True)
        ]
        delivers = steps.on or answer == ANSWER_FILTERS  # otherwise the last block of Zip does
        home = no_home() if delivers else mailbox.home
        zip_ = spread(zip_kernel, gpu, runs.n_interfaces, (mailbox.on_device, runs.interfaces, home, 0, 1, 0))

        def recorder(run: int) -> Callable[[], None]:
            def record() -> None:
                steps.at(stream, "copy in")
                mailbox.fetch(stream)
                for launch in launches:
                    launch(0, 1, run)
                if answer != ANSWER_FILTERS:
                    steps.at(stream, "Zip")
                    zip_.set(5, run)
                    zip_(stream)
                if delivers:
                    steps.at(stream, "copy out")
                    mailbox.deliver(stream)
                if run == runs.n - 1:
                    steps.at(stream, "zero")
                    runs.zero(stream)
                steps.end(stream)

            return record

        # recording executes each graph once, for an event without attributes, which uses up its run; then run 0 is next
        # again
        runs.zero(stream)
        self._records = [recorder(run) for run in range(runs.n)]
        self._graphs = [] if steps.on else [Graph(stream, record) for record in self._records]
        runs.start()

    def match(self, batch: EventBatch) -> Matches:
        """Match a batch of one event."""
        self._mailbox.put_event(self._event_at, batch.packed, batch.place)
        self._mailbox.expect()
        run = self._runs.take()
        if self._graphs:
            self._graphs[run].launch()
        else:
            self._records[run]()
            self._stream.synchronize()
            self._steps.read()
        found = self._mailbox.receive(self._stream)
        ids = found.astype(self._id_dtype)
        if len(ids) > 1:
            ids.sort()
        n = len(ids)
        counts = self._n_counts[n : n + 1] if n <= CLCB_FIRST_IDS else np.array([n], self._n_counts.dtype)
        return Matches(counts, ids, self._n_ids)
