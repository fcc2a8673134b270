r"""CLCB: a thread per filter tests the event's location, before CCM counts constraints.

Cugola & Margara, "High-Performance Location-Aware Publish-Subscribe on GPUs", Middleware 2012.

`ccm` counts the constraints of every filter that shares a name with the event, and tests areas last.  In location-aware
workloads the event is outside nearly all areas, so they are tested first:

    Loc     filter     . . . . . . . . . . . .     a thread per filter: may the event have all its names (a Bloom filter of
              |            |       |               32 bits), and is the event in its circle?
    Cont    row        . . . . . . . . . . . .     a thread per constraint on the event's names, as in CCM, but only where
              |            |       |               Loc left something to count
    Zip     interface  . . . . . . . .             a thread per interface: those that were marked become a list
              |          |       |
    ids                  1       5

**One event at a time**, the published way (`--batch 1`): one stream, one wait, and counters reset once in four events
(`clcb.single`).  **Batches**, ours: many events in flight (`clcb.batch`).

**Changes**: an area moves with one small copy, in constant time, as in the paper.  Filters are removed the same way; added
ones get segments of their own, merged now and then (`clcb.updates`), and matching waits meanwhile: a second or two where
millions of filters are merged.  A warning is logged when the engine is opened for a table that changes.

Where we differ from the paper: operators beyond its own come down to CCM's interval test (`ccm.layout`), and names that must
be absent are tested last; rows of a name ascend by filter; counts go down from a filter's size, so that Loc's mark is the
count; circles are in double precision, rounded at every step like the model's.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from mpi_match.arrays.csr import Array
from mpi_match.changes.changes import Changes
from mpi_match.engines.base import Engine, in_turn, updating
from mpi_match.engines.ccm.kernel import ANSWER_FILTERS, ANSWER_INTERFACES
from mpi_match.engines.ccm.layout import too_large
from mpi_match.engines.clcb import updates
from mpi_match.engines.clcb.batch import ClcbBatches
from mpi_match.engines.clcb.options import ClcbVariant
from mpi_match.engines.clcb.segment import Segment
from mpi_match.engines.clcb.single import ClcbSingle, Runs
from mpi_match.engines.clcb.updates import SegmentSlots
from mpi_match.engines.sharing import Turns
from mpi_match.events.batch import EventBatch
from mpi_match.gpu.kernels import open_gpu
from mpi_match.gpu.step_times import StepTimes
from mpi_match.matches.matches import Matches
from mpi_match.table.table import Table

log = logging.getLogger(__name__)

CLCB_SINGLE_EVENTS = 4
"""Batches up to this size go event by event, in the published way."""
CLCB_LEAST_ATTRIBUTES = 4
"""Graphs are captured for events of up to 4, 8, 16, ... attributes."""


class Clcb(Engine):
    """CLCB on one GPU, to which what does not change of the table is copied until the first match; `kernel_s` is the device
    time of all batches so far (single events are not timed: timing takes longer than matching one)."""

    name = "clcb"
    takes_changes = compiles = True

    def __init__(
        self,
        table: Table,
        device: int | None = None,
        threads: int | None = None,
        *,
        live: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._variant = ClcbVariant(**(options or {}))
        self.options = self._variant._asdict()
        self._gpu = open_gpu(device)
        self.device, self.gpu = self._gpu.info.name, self._gpu.info.uuid
        self._table, self._live = table, live
        if live and table.n_filters > updates.JOINED_AT_ONCE:
            log.warning(
                "clcb makes tables of the filters that are added, and matching waits: for a second or two when millions are "
                "joined; keyed_cuda takes them in without"
            )
        self._stream, self._steps = self._gpu.stream(), StepTimes()
        self._kernel_s = 0.0
        self._slots = SegmentSlots(table, self._new_segment)
        self._forget()
        self._sharing = Turns(self, on_gpu=True)

    def renew(self) -> None:
        """See `Engine.renew`: drop what a match works in."""
        self._gpu.make_current()
        with suppress(RuntimeError):
            self._stream.synchronize()
        self._forget()

    def _new_segment(self, table: Table, ids: Array) -> Segment:
        return Segment(self._gpu, self._stream, table, ids, self._variant)

    def _forget(self) -> None:
        """Drop everything that was made for the present segments and ids."""
        self._runs: Runs | None = None
        self._one: dict[tuple[int, int], ClcbSingle] = {}
        self._many: dict[int, ClcbBatches] = {}

    @updating
    def update(self, changes: Changes) -> None:
        """See `Engine.update`."""
        self._gpu.make_current()
        if self._slots.update(changes):
            self._forget()

    @classmethod
    def serves(cls, table: Table) -> str | None:
        """See `Engine.serves`."""
        return too_large(table, cls.name)

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return self._gpu.n_bytes

    @property
    def kernel_s(self) -> float:
        """See the class."""
        return self._kernel_s

    def time_steps(self) -> None:
        """See `Engine.time_steps`: single events are then no captured graphs."""
        self._steps.on = True
        self._one.clear()

    @property
    def steps_s(self) -> Mapping[str, float]:
        """See `Engine.steps_s`."""
        return self._steps.seconds

    @in_turn
    def match(self, batch: EventBatch, filters: bool) -> Matches:
        """See `Engine.match`."""
        self._gpu.make_current()
        answer = ANSWER_FILTERS if filters else ANSWER_INTERFACES
        if batch.n_events == 1:
            return self._match_one(batch, answer)
        if 0 < batch.n_events <= CLCB_SINGLE_EVENTS:
            return Matches.concat([self._match_one(batch[i : i + 1], answer) for i in range(batch.n_events)])
        many = self._many.get(answer)
        if many is None:
            slots = self._slots
            ids = self._n_ids(answer), slots.n_interfaces
            many = ClcbBatches(self._gpu, self._stream, slots.segments, answer, *ids, self._steps)
            self._many[answer] = many
        before = many.kernel_s
        matches = many.match(batch)
        self._kernel_s += many.kernel_s - before
        return matches

    def _n_ids(self, answer: int) -> int:
        return self._slots.n_filters if answer == ANSWER_FILTERS else self._slots.n_interfaces

    def _match_one(self, batch: EventBatch, answer: int) -> Matches:
        one = self._one.get((answer, batch.n_attributes))
        return (self._one_for(answer, batch.n_attributes) if one is None else one).match(batch)

    def _one_for(self, answer: int, n_attributes: int) -> ClcbSingle:
        """What matches events of so many attributes, from now on `_one` of these."""
        most = max(CLCB_LEAST_ATTRIBUTES, 1 << (n_attributes - 1).bit_length())
        one = self._one.get((answer, most))
        if one is None:
            if self._runs is None:
                self._runs = Runs(self._gpu, self._slots.segments, self._slots.n_interfaces)
            what = self._slots.segments, self._runs, answer, self._n_ids(answer), most
            one = ClcbSingle(self._gpu, self._stream, *what, self._steps)
        self._one[answer, n_attributes] = self._one[answer, most] = one
        return one
