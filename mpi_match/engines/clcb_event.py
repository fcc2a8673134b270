"""One event at a time, as CLCB was published: one stream, one wait for each event, and a reset for every four of them.

    pinned words    header | offsets | location | attributes | 0        a few hundred bytes, by the host
         | copy in
    [zero]          counters and interfaces, before run 0 only
    Loc, Cont       on each shelf
    Zip
         | copy out
    pinned answer   how many ids, and the first of them

A CUDA graph is captured for each run of a word and they are repeated in turn: what is left for Python per event is to write
the attributes, give a graph to the driver, wait, and read the answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpi_match.arrays import Array
from mpi_match.batch import EventBatch
from mpi_match.engines._cuda import Gpu, Graph, Stream, pinned
from mpi_match.engines.ccm_kernel import ANSWER, ATTRIBUTES, CAPACITY, FILTERS, LOCATIONS, OFFSETS
from mpi_match.engines.clcb_kernel import FOUND, HEADER_WORDS, N_INTERFACES, RUNS_LOG, counter_words, zip_kernel
from mpi_match.engines.clcb_shelf import Shelf, spread
from mpi_match.matches import Matches, id_dtype

FIRST_IDS = 511
"""Ids that the copy out of an event brings; where there are more, a second copy fetches all."""


class Runs:
    """Counters and interfaces for one event at a time, and which run of their words is next."""

    def __init__(self, gpu: Gpu, shelves: Sequence[Shelf], n_interfaces: int) -> None:
        self.n_interfaces = n_interfaces
        self.log = min(shelf.runs_log for shelf in shelves)
        self.counters = [gpu.buffer(np.uint32).array(max(counter_words(shelf.n_filters), 1)) for shelf in shelves]
        self.interfaces = gpu.buffer(np.uint32).array(max(n_interfaces, 1))
        self._next = 0

    def zero(self, stream: Stream) -> None:
        """Make the words ready for run 0."""
        for words in (*self.counters, self.interfaces):
            stream.zero(words)

    def start(self) -> None:
        """Let run 0 be next."""
        self._next = 0

    def take(self) -> int:
        """The run of the next event."""
        run = self._next
        self._next = (run + 1) % (1 << self.log)
        return run


class OneEvent:
    """Matches events of at most `n_attributes` attributes one by one, for one kind of answer with ids below `n_ids`."""

    def __init__(
        self, gpu: Gpu, stream: Stream, shelves: Sequence[Shelf], runs: Runs, answer: int, n_ids: int, n_attributes: int
    ) -> None:
        self._stream, self._runs, self._n_ids = stream, runs, n_ids
        self._id_dtype, self._count_dtype = id_dtype(n_ids), id_dtype(n_ids + 1)
        capacity = sum(shelf.n_filters for shelf in shelves) if answer == FILTERS else n_ids
        offsets = HEADER_WORDS
        locations, attributes, found = offsets + 2, offsets + 4, offsets + 4 + n_attributes
        self._events = events = pinned(found + 1, np.int64)
        events[[ANSWER, OFFSETS, LOCATIONS, ATTRIBUTES]] = answer, offsets, locations, attributes
        events[[CAPACITY, FOUND, N_INTERFACES, RUNS_LOG]] = capacity, found, runs.n_interfaces, runs.log
        self._end = offsets + 1
        self._location = events[locations:attributes].view(np.float64)
        self._location[:] = np.nan
        self._attributes = events[attributes:found]
        self._out = pinned(1 + min(FIRST_IDS, capacity), np.int64)
        on_device = gpu.buffer(np.int64).array(found + 1 + capacity)
        self._found = on_device.part(found, found + 1 + capacity)

        launches = [
            shelf.launches(on_device, counters, runs.interfaces, n_attributes, 1)
            for shelf, counters in zip(shelves, runs.counters, strict=True)
        ]
        zip_ = spread(zip_kernel, gpu, runs.n_interfaces, (on_device, runs.interfaces, 0, 1, 0))

        def graph(run: int) -> Graph:
            def record() -> None:
                stream.copy_in(on_device, events)
                if run == 0:
                    runs.zero(stream)
                for launch in launches:
                    launch(0, 1, run)
                if answer != FILTERS:
                    zip_.set(4, run)
                    zip_(stream)
                stream.copy_out(self._out, self._found)

            return Graph(stream, record)

        # recording runs a graph once, for an event without attributes, which spoils its run: from here on run 0 is next
        self._graphs = [graph(run) for run in range(1 << runs.log)]
        runs.start()

    def match(self, batch: EventBatch) -> Matches:
        """The answer for a batch of one event."""
        attributes = batch.attributes
        self._events[self._end] = len(attributes)
        self._attributes[: len(attributes)] = attributes
        self._location[:] = np.nan if batch.location is None else batch.location[0]
        self._graphs[self._runs.take()].launch()
        self._stream.synchronize()
        n_found = int(self._out[0])
        found = self._out[1:] if n_found < len(self._out) else self._fetch(n_found)
        ids = found[:n_found].astype(self._id_dtype)
        if n_found > 1:
            ids.sort()
        return Matches(np.array([n_found], self._count_dtype), ids, self._n_ids)

    def _fetch(self, n_found: int) -> Array:
        """All ids, where the copy out has not brought them."""
        found = np.empty(n_found, np.int64)
        self._stream.copy_out(found, self._found.part(1, 1 + n_found))
        self._stream.synchronize()
        return found
