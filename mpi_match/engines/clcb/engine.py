r"""CLCB: a thread per filter tests the event's location before CCM counts constraints.

Cugola & Margara, "High-Performance Location-Aware Publish-Subscribe on GPUs", Middleware 2012.

`ccm` counts the constraints of every filter that shares a name with the event, and tests areas last.  In location-aware
workloads the event lies outside nearly all areas, so CLCB tests them first:

    Loc     filter     . . . . . . . . . . . .     a thread per filter: may the event have all its names (a Bloom filter of
              |            |       |               32 bits), and is the event in its circle?
    Cont    row        . . . . . . . . . . . .     a thread per constraint on the event's names, as in CCM, but only where
              |            |       |               Loc left something to count
    Zip     interface  . . . . . . . .             a thread per interface: the marked ones become a list
              |          |       |
    ids                  1       5

**One event at a time**, as published (`--batch 1`): one stream, one wait per event, and one reset of the counters every four
events (`clcb.single`).  **Batches**, our addition: many events in flight (`clcb.batch`).

**Changes**: an area moves with one small copy, in constant time, as in the paper.  Filters are removed the same way.  Added
filters form segments, which are merged from time to time (`clcb.updates`); matching waits meanwhile, for a second or two if
millions of filters are merged.  A warning says so when the engine is opened for a changing table.

Differences from the paper: operators beyond its own are reduced to CCM's interval test (`ccm.layout`); names that must be
absent are tested last; rows of a name ascend by filter; counters count down from a filter's size, so that the count doubles
as Loc's mark; circles are in double precision, rounded at every step like the model's.
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
from mpi_match.engines.entries import AUTO
from mpi_match.engines.sharing import Turns
from mpi_match.events.batch import EventBatch
from mpi_match.gpu.kernels import open_gpu
from mpi_match.gpu.step_times import StepTimes
from mpi_match.matches.matches import Matches
from mpi_match.table.table import Table

log = logging.getLogger(__name__)

CLCB_SINGLE_EVENTS = 4
"""Events in the largest batch that is matched one event at a time, as published."""
CLCB_LEAST_ATTRIBUTES = 4
"""Graphs are captured for events of up to 4, 8, 16, ... attributes; this is the first number."""


class Clcb(Engine):
    """CLCB on one GPU.  The immutable part of the table is uploaded in the background, and the first match waits for it.
    `kernel_s` is the device time of all batches so far, in seconds (single events are not timed, because timing takes longer
    than matching)."""

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
                "clcb rebuilds a table when filters are added, and matching waits: for a second or two when millions are "
                "merged; %s adds filters without such pauses",
                AUTO[0],
            )
        self._stream, self._steps = self._gpu.stream(), StepTimes()
        self._kernel_s = 0.0
        self._slots = SegmentSlots(table, self._new_segment)
        self._forget()
        self._sharing = Turns(self, on_gpu=True)

    def renew(self) -> None:
        """Drop the working memory of matches."""
        self._gpu.make_current()
        with suppress(RuntimeError):
            self._stream.synchronize()
        self._forget()

    def _new_segment(self, table: Table, ids: Array) -> Segment:
        return Segment(self._gpu, self._stream, table, ids, self._variant)

    def _forget(self) -> None:
        """Drop everything that depends on the present segments and ids."""
        self._runs: Runs | None = None
        self._one: dict[tuple[int, int], ClcbSingle] = {}
        self._many: dict[int, ClcbBatches] = {}

    @updating
    def update(self, changes: Changes) -> None:
        self._gpu.make_current()
        if self._slots.update(changes):
            self._forget()

    @classmethod
    def serves(cls, table: Table) -> str | None:
        return too_large(table, cls.name)

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return self._gpu.n_bytes

    @property
    def kernel_s(self) -> float:
        return self._kernel_s

    def time_steps(self) -> None:
        """Single events then run without captured graphs."""
        self._steps.on = True
        self._one.clear()

    @property
    def steps_s(self) -> Mapping[str, float]:
        return self._steps.seconds

    @in_turn
    def match(self, batch: EventBatch, filters: bool) -> Matches:
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
        """Make the matcher for events of up to `n_attributes` attributes and keep it in `_one`."""
        most = max(CLCB_LEAST_ATTRIBUTES, 1 << (n_attributes - 1).bit_length())
        one = self._one.get((answer, most))
        if one is None:
            if self._runs is None:
                self._runs = Runs(self._gpu, self._slots.segments, self._slots.n_interfaces)
            what = self._slots.segments, self._runs, answer, self._n_ids(answer), most
            one = ClcbSingle(self._gpu, self._stream, *what, self._steps)
        self._one[answer, n_attributes] = self._one[answer, most] = one
        return one
