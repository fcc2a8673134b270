"""A batch of events whose arrays are on a GPU: an engine there reads them in place, other engines use it like any batch."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.events.batch import EventBatch
from mpi_match.gpu.kernels import DeviceArray, Stream


class EventsOnGpu(NamedTuple):
    """The arrays of an `EventBatch`, flat.  `kept` prevents their memory from being reused."""

    n_events: int
    offsets: DeviceArray
    attributes: DeviceArray
    location: DeviceArray | None
    kept: object


class GpuBatch(EventBatch):
    """A batch on a GPU.  Its arrays are copied to the host, on `stream`, when they are first accessed there."""

    is_on_gpu = True

    def __init__(self, events: EventsOnGpu, widest: int, stream: Stream, fingerprint: int) -> None:
        self.events, self.fingerprint, self.rejected = events, fingerprint, None
        self._stream = stream
        vars(self)["widest"] = widest

    @property
    def n_events(self) -> int:
        return self.events.n_events

    @property
    def n_attributes(self) -> int:
        return self.events.attributes.size

    @cached_property
    def offsets(self) -> Array:  # type: ignore[override]  # a field there
        return self._copied(self.events.offsets)

    @cached_property
    def attributes(self) -> Array:  # type: ignore[override]
        return self._copied(self.events.attributes)

    @cached_property
    def location(self) -> Array | None:  # type: ignore[override]
        location = self.events.location
        return None if location is None else self._copied(location).reshape(-1, 2)

    @property
    def has_location(self) -> bool:
        return self.events.location is not None

    def __getitem__(self, events: slice) -> EventBatch:
        """Select consecutive events.  They stay on the GPU; only the offsets at the ends are copied to the host."""
        start, stop, step = events.indices(self.n_events)
        if step != 1:
            raise ValueError("a batch can only be sliced into consecutive events")
        if (start, stop) == (0, self.n_events):
            return self
        stop = max(start, stop)
        ends = np.empty(3, np.uint32)
        for place, event in enumerate((0, start, stop)):
            self._stream.copy_out(ends[place : place + 1], self.events.offsets.part(event, event + 1))
        self._stream.synchronize()
        zero, first, last = ends.tolist()
        first, last = (first - zero) % 2**32, (last - zero) % 2**32
        location = self.events.location
        part = EventsOnGpu(
            stop - start,
            self.events.offsets.part(start, stop + 1),
            self.events.attributes.part(first, last),
            None if location is None else location.part(2 * start, 2 * stop),
            self.events.kept,
        )
        return GpuBatch(part, self.widest, self._stream, self.fingerprint)

    def _copied(self, array: DeviceArray) -> Array:
        found = np.empty(array.size, array.dtype)
        self._stream.copy_out(found, array)
        self._stream.synchronize()
        return found
