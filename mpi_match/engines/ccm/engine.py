r"""CCM: one thread per constraint on the event's names.

Margara & Cugola, "High Performance Content-Based Matching Using GPUs", DEBS 2011.

`counting` tests the constraints on the event's names one run after another.  CCM tests all of them at once:

    event          temp = 25            wind = 3
    grid           y = 0                y = 1
    rows of name   temp                 wind
                   . . . . . . . .      . . . . .        x: the run of the name, one row per thread
                     \    |   \            |             a satisfied row decrements its filter's counter (atomic)
    counters       2   0   3   0   1    ...              a filter whose counter reaches 0 sets the bit of its interface

Each block works on one attribute and keeps its code and run in shared memory.  Counters and interfaces exist twice: while an
event uses one copy, its kernel resets the other for the next event.  So an event takes one copy in, one kernel and one copy
out.  The variants that the paper compares are options (`options`).

**One event at a time**, as published (`--batch 1`): the three steps are captured as CUDA graphs, for each of the two copies
and for several run lengths, and replayed with one driver call per event (`ccm.single`).

**Three phases** (phases=3), the version of CCM that MPI-CUDA is built on: each row stores the bits of all names of its
filter.  A thread that finds a name that the event lacks skips the row before it evaluates the constraint.

**Published evaluation** (sat=published, in `bench` only): rows and events have types, numbers and strings, which a thread
compares itself (`ccm.published`).

**Batches**, our addition: the grid has a third axis, z, for the event, and each event in flight has its own counters.  As
many events are in flight as fit in the GPU's cache; the kernel runs once for each set of them and resets the counters that
the previous set used (`ccm.batch`).

The answer is a bit mask per event if there are few interfaces, otherwise a list of (event, id) pairs.  The kernel counts all
pairs and writes those that fit; a list that was too short is enlarged and filled again.  Differences from the paper: rows
are also grouped by type; operators beyond its `= != < > prefix contains` are reduced to the same interval test; counters are
packed and, if the kernel resets them, count down from the filter's size (see `ccm.layout`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpi_match.engines.ccm.batch import CcmBatches
from mpi_match.engines.ccm.kernel import ANSWER_INTERFACES, ANSWER_MASK, OnDevice
from mpi_match.engines.ccm.layout import ccm_rows
from mpi_match.engines.ccm.one_or_many import OneOrMany
from mpi_match.engines.ccm.options import CcmVariant
from mpi_match.engines.ccm.published import NO_VALUES, EventValues, PublishedBatch, not_evaluated
from mpi_match.engines.ccm.single import CcmSingle
from mpi_match.errors import EngineError
from mpi_match.events.batch import EventBatch
from mpi_match.table.table import Table

MASK_INTERFACES = 64
"""Most interfaces of a table for which the answer is a bit mask, unless the options say otherwise."""
MOST_MASK_INTERFACES = 4096
"""Most interfaces for which a mask is allowed: larger masks of a pass of events would not fit on the host."""


class Ccm(OneOrMany):
    """CCM on one GPU.  The table is uploaded in the background, and the first match waits for it."""

    name = "ccm"

    def __init__(
        self,
        table: Table,
        device: int | None = None,
        threads: int | None = None,
        *,
        live: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        variant = CcmVariant(**(options or {}))
        super().__init__(table, device, variant._asdict())
        if variant.answer == "mask" and table.n_interfaces > MOST_MASK_INTERFACES:
            raise EngineError(
                f"the table has {table.n_interfaces:,} interfaces; ccm.answer=mask serves at most {MOST_MASK_INTERFACES:,}, "
                "ccm.answer=list more"
            )
        by_mask = table.n_interfaces <= MASK_INTERFACES if variant.answer == "auto" else variant.answer == "mask"
        self._answer, self._covers_event = ANSWER_MASK if by_mask else ANSWER_INTERFACES, variant.cover == "event"
        self.reads_published = variant.sat == "published"
        if self.reads_published and (reason := not_evaluated(table)):
            raise EngineError(reason)
        self._rows = ccm_rows(
            table, by_filter=variant.order == "given", with_names=variant.phases == 3, published=self.reads_published
        )
        self._variant, self._published = variant, NO_VALUES
        self._on_device = self._put_on_device(NO_VALUES)

    def _put_on_device(self, events: EventValues) -> OnDevice:
        """Begin to upload the table, with sat=published also the values of events."""
        rows = self._rows.with_values(events) if self.reads_published else self._rows
        return OnDevice(self._gpu, rows, self._table, self._variant)

    def _prepare(self, batch: EventBatch) -> None:
        """Upload the values of a batch's events if they are not those of the batch before it."""
        events = batch.published if isinstance(batch, PublishedBatch) else None
        if events is None:
            raise EngineError(
                "ccm.sat=published matches events as they were published, which only bench keeps; use sat=codes"
            )
        if events is not self._published:
            self.renew()
            self._on_device, self._published = self._put_on_device(events), events

    def _new_many(self, answer: int) -> CcmBatches:
        return CcmBatches(self._gpu, self._stream, self._on_device, answer, self._steps)

    def _new_one(self, answer: int, n_attributes: int) -> CcmSingle:
        return CcmSingle(self._gpu, self._stream, self._on_device, answer, n_attributes, self._covers_event, self._steps)
