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
from typing import Any

from mpi_match.arrays.csr import Array
from mpi_match.changes.changes import Changes
from mpi_match.engines.base import updating
from mpi_match.engines.ccm.kernel import ANSWER_FILTERS
from mpi_match.engines.ccm.one_or_many import OneOrMany
from mpi_match.engines.clcb import updates
from mpi_match.engines.clcb.batch import ClcbBatches
from mpi_match.engines.clcb.options import ClcbVariant
from mpi_match.engines.clcb.segment import Segment
from mpi_match.engines.clcb.single import ClcbSingle, Runs
from mpi_match.engines.clcb.updates import SegmentSlots
from mpi_match.engines.entries import AUTO
from mpi_match.table.table import Table

log = logging.getLogger(__name__)


class Clcb(OneOrMany):
    """CLCB on one GPU.  The immutable part of the table is uploaded in the background, and the first match waits for it."""

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
        super().__init__(table, device, self._variant._asdict())
        self._live = live
        if live and table.n_filters > updates.JOINED_AT_ONCE:
            log.warning(
                "clcb rebuilds a table when filters are added, and matching waits: for a second or two when millions are "
                "merged; %s adds filters without such pauses",
                AUTO[0],
            )
        self._slots = SegmentSlots(table, self._new_segment)
        self._runs: Runs | None = None

    def _new_segment(self, table: Table, ids: Array) -> Segment:
        return Segment(self._gpu, self._stream, table, ids, self._variant)

    def _forget(self) -> None:
        """Drop everything that depends on the present segments and ids."""
        super()._forget()
        self._runs = None

    @updating
    def update(self, changes: Changes) -> None:
        self._gpu.make_current()
        if self._slots.update(changes):
            self._forget()

    def _n_ids(self, answer: int) -> int:
        return self._slots.n_filters if answer == ANSWER_FILTERS else self._slots.n_interfaces

    def _new_many(self, answer: int) -> ClcbBatches:
        slots = self._slots
        ids = self._n_ids(answer), slots.n_interfaces
        return ClcbBatches(self._gpu, self._stream, slots.segments, answer, *ids, self._steps)

    def _new_one(self, answer: int, n_attributes: int) -> ClcbSingle:
        if self._runs is None:
            self._runs = Runs(self._gpu, self._slots.segments, self._slots.n_interfaces)
        what = self._slots.segments, self._runs, answer, self._n_ids(answer), n_attributes
        return ClcbSingle(self._gpu, self._stream, *what, self._steps)
