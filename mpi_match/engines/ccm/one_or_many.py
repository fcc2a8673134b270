"""An engine on one GPU that has two ways to match: one event at a time, as it was published, and many events together.

`ccm` and `clcb` are such engines.  Each has its matcher for one event, with a mailbox and captured graphs for events up to a
number of attributes, and its matcher for batches; here is what they share: which matcher takes a batch, and when matchers
are made, kept and dropped.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

from mpi_match.engines.base import Engine, in_turn
from mpi_match.engines.ccm.kernel import ANSWER_FILTERS, ANSWER_INTERFACES
from mpi_match.engines.ccm.layout import too_large
from mpi_match.engines.sharing import Turns
from mpi_match.events.batch import EventBatch
from mpi_match.gpu.kernels import open_gpu
from mpi_match.gpu.step_times import StepTimes
from mpi_match.matches.matches import Matches
from mpi_match.table.table import Table

SINGLE_EVENTS = 4
"""Events in the largest batch that is matched one event at a time, as published."""
LEAST_ATTRIBUTES = 4
"""Graphs are captured for events of up to 4, 8, 16, ... attributes; this is the first number."""


class OneMatcher(Protocol):
    """A matcher of single events, for one kind of answer and events up to a number of attributes."""

    def match(self, batch: EventBatch) -> Matches:
        """Match a batch of one event."""
        ...


class ManyMatcher(Protocol):
    """A matcher of batches for one kind of answer.  `kernel_s` is the kernels' device time so far, in seconds."""

    kernel_s: float

    def match(self, batch: EventBatch) -> Matches:
        """Match a batch."""
        ...


class OneOrMany(Engine):
    """An engine on one GPU.  `variant` has the values of its options; `answer` is the kind of answer in interfaces.

    `kernel_s` is the device time of the kernels of all batches so far, in seconds (single events are not timed, because
    timing takes longer than matching).
    """

    def __init__(self, table: Table, device: int | None, options: Mapping[str, Any]) -> None:
        self.options = options
        self._table, self._gpu = table, open_gpu(device)
        self.device, self.gpu = self._gpu.info.name, self._gpu.info.uuid
        self._answer = ANSWER_INTERFACES
        self._stream, self._steps = self._gpu.stream(), StepTimes()
        self._one: dict[tuple[int, int], OneMatcher] = {}
        self._many: dict[int, ManyMatcher] = {}
        self._kernel_s = 0.0  # of dropped matchers
        self._sharing = Turns(self, on_gpu=True)

    @abstractmethod
    def _new_one(self, answer: int, n_attributes: int) -> OneMatcher:
        """Make the matcher of single events of up to `n_attributes` attributes for a kind of answer."""

    @abstractmethod
    def _new_many(self, answer: int) -> ManyMatcher:
        """Make the matcher of batches for a kind of answer."""

    def _prepare(self, batch: EventBatch) -> None:
        """Upload the values of events, in an engine that reads them as published."""

    def _forget(self) -> None:
        """Drop all matchers."""
        self._kernel_s = self.kernel_s
        self._one.clear()
        self._many.clear()

    def renew(self) -> None:
        """Drop the working memory of matches."""
        self._gpu.make_current()
        with suppress(RuntimeError):
            self._stream.synchronize()
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
        """Seconds of device time of batches."""
        return self._kernel_s + sum(many.kernel_s for many in self._many.values())

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
        if self.reads_published:
            self._prepare(batch)
        answer = ANSWER_FILTERS if filters else self._answer
        if batch.n_events == 1:
            return self._match_one(batch, answer)
        if 0 < batch.n_events <= SINGLE_EVENTS:
            return Matches.concat([self._match_one(batch[i : i + 1], answer) for i in range(batch.n_events)])
        many = self._many.get(answer)
        if many is None:
            many = self._many[answer] = self._new_many(answer)
        return many.match(batch)

    def _match_one(self, batch: EventBatch, answer: int) -> Matches:
        one = self._one.get((answer, batch.n_attributes))
        return (self._one_for(answer, batch.n_attributes) if one is None else one).match(batch)

    def _one_for(self, answer: int, n_attributes: int) -> OneMatcher:
        """The matcher for events of up to `n_attributes` attributes, made when there is none, and kept in `_one`."""
        most = max(LEAST_ATTRIBUTES, 1 << (n_attributes - 1).bit_length())
        one = self._one.get((answer, most)) or self._new_one(answer, most)
        self._one[answer, n_attributes] = self._one[answer, most] = one
        return one
