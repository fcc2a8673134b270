r"""CCM: one thread per constraint on the event's names.

Margara & Cugola, "High Performance Content-Based Matching Using GPUs", DEBS 2011.

`counting` tests the constraints on the event's names one run after the other.  CCM tests all of them at once:

    event          temp = 25            wind = 3
    grid           y = 0                y = 1
    rows of name   temp                 wind
                   . . . . . . . .      . . . . .        x: the run of the name, one row per thread
                     \    |   \            |             a satisfied row counts its filter down (atomic)
    counters       2   0   3   0   1    ...              a filter that comes to 0 sets the bit of its interface

One block works on one attribute, whose code and run are in shared memory.  Counters and interfaces exist twice: while an
event uses one copy, its kernel resets the other for the next event.  So a whole event is one copy in, one kernel, one
copy out.  The variants that the paper compares this with are options (`options`).

**One event at a time**, the published way (`--batch 1`): the three steps are captured as CUDA graphs, for each of the two
copies and for several lengths of rows, and repeated with one driver call per event (`ccm.single`).

**Three phases** (phases=3), the CCM that MPI-CUDA is built on: a row has the bits of all names of its filter, and a thread
that finds one that the event has not goes on to the next row, before it evaluates the constraint and counts.

**Batches**, ours: the grid has a third axis, z, the event, and each event in flight has counters of its own.  How many
are in flight is what fits in the GPU's cache; the kernel runs once for each such group, and resets the counters that the
previous group used (`ccm.batch`).

The answer is a bit mask per event where there are few interfaces, otherwise a list of (event, id) pairs: the kernel
counts all that it finds and writes those for which there is room, and a list that was too short is made longer and filled
again.  Where we differ from the paper: rows are also grouped by type, operators beyond its `= != < > prefix contains`
come down to the same interval test, counters are packed and, where the kernel resets them, count down from the filter's size
(see `ccm.layout`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from mpi_match.engines.base import Engine, in_turn
from mpi_match.engines.ccm.batch import CcmBatches
from mpi_match.engines.ccm.kernel import ANSWER_FILTERS, ANSWER_INTERFACES, ANSWER_MASK, OnDevice
from mpi_match.engines.ccm.layout import ccm_rows, too_large
from mpi_match.engines.ccm.options import CcmVariant
from mpi_match.engines.ccm.single import CcmSingle
from mpi_match.engines.sharing import Turns
from mpi_match.errors import EngineError
from mpi_match.events.batch import EventBatch
from mpi_match.gpu.kernels import open_gpu
from mpi_match.gpu.step_times import StepTimes
from mpi_match.matches.matches import Matches
from mpi_match.table.table import Table

CCM_SINGLE_EVENTS = 4
"""Batches up to this size go event by event, in the published way."""
MASK_INTERFACES = 64
"""Up to so many interfaces the answer is a bit mask, unless the options say otherwise."""
MOST_MASK_INTERFACES = 4096
"""More are never a mask: those of a pass of events would be too large for the host."""
CCM_LEAST_ATTRIBUTES = 4
"""Graphs are captured for events of up to 4, 8, 16, ... attributes."""


class Ccm(Engine):
    """CCM on one GPU, to which the table is copied until the first match; `kernel_s` is the device time of all batches'
    kernels so far (single events are not timed: that would take longer than they do)."""

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
        self.options = variant._asdict()
        self._gpu = open_gpu(device)
        self.device, self.gpu = self._gpu.info.name, self._gpu.info.uuid
        self._table = table
        if variant.answer == "mask" and table.n_interfaces > MOST_MASK_INTERFACES:
            raise EngineError(
                f"the table has {table.n_interfaces:,} interfaces; ccm.answer=mask serves at most {MOST_MASK_INTERFACES:,}, "
                "ccm.answer=list more"
            )
        by_mask = table.n_interfaces <= MASK_INTERFACES if variant.answer == "auto" else variant.answer == "mask"
        self._answer, self._covers_event = ANSWER_MASK if by_mask else ANSWER_INTERFACES, variant.cover == "event"
        rows = ccm_rows(table, by_filter=variant.order == "given", with_names=variant.phases == 3)
        self._on_device = OnDevice(self._gpu, rows, table, variant)
        self._stream, self._steps = self._gpu.stream(), StepTimes()
        self._one: dict[tuple[int, int], CcmSingle] = {}
        self._many: dict[int, CcmBatches] = {}
        self._kernel_s = 0.0  # of those that are dropped
        self._sharing = Turns(self, on_gpu=True)

    def renew(self) -> None:
        """See `Engine.renew`: drop what a match works in."""
        self._gpu.make_current()
        with suppress(RuntimeError):
            self._stream.synchronize()
        self._kernel_s = self.kernel_s
        self._one.clear()
        self._many.clear()

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
        """Seconds of device time, see the class."""
        return self._kernel_s + sum(many.kernel_s for many in self._many.values())

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
        answer = ANSWER_FILTERS if filters else self._answer
        if batch.n_events == 1:
            return self._match_one(batch, answer)
        if 0 < batch.n_events <= CCM_SINGLE_EVENTS:
            return Matches.concat([self._match_one(batch[i : i + 1], answer) for i in range(batch.n_events)])
        if answer not in self._many:
            self._many[answer] = CcmBatches(self._gpu, self._stream, self._on_device, answer, self._steps)
        return self._many[answer].match(batch)

    def _match_one(self, batch: EventBatch, answer: int) -> Matches:
        one = self._one.get((answer, batch.n_attributes))
        return (self._one_for(answer, batch.n_attributes) if one is None else one).match(batch)

    def _one_for(self, answer: int, n_attributes: int) -> CcmSingle:
        """What matches events of so many attributes, from now on `_one` of these."""
        most = max(CCM_LEAST_ATTRIBUTES, 1 << (n_attributes - 1).bit_length())
        one = self._one.get((answer, most))
        if one is None:
            one = CcmSingle(self._gpu, self._stream, self._on_device, answer, most, self._covers_event, self._steps)
        self._one[answer, n_attributes] = self._one[answer, most] = one
        return one
