"""Times of the steps of a batch, on the device and on the host, measured on request.

    steps.at(stream, "copy in")     work submitted to the stream from here on belongs to this step ...
    steps.at(stream, "kernel")      ... and from here on to the next one
    steps.end(stream)
    steps.read()                    after the stream was waited for: adds up the times between, by name

Unless `on` is set, these calls record no times and do not wait.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

from mpi_match.gpu.kernels import Mark, Stream


class StepTimes:
    """`seconds` of each step so far, in the order in which the steps first occurred."""

    def __init__(self) -> None:
        self.on = False
        self.seconds: dict[str, float] = {}
        self._free: list[Mark] = []
        self._passed: list[tuple[str, Mark]] = []

    def at(self, stream: Stream, name: str) -> None:
        """Begin a step, which ends the previous one."""
        if self.on:
            mark = self._free.pop() if self._free else Mark()
            self._passed.append((name, mark.record(stream)))

    def end(self, stream: Stream) -> None:
        """End the last step."""
        self.at(stream, "")

    def read(self) -> None:
        """Add up the recorded times; the stream must have been waited for."""
        for (name, mark), (_, after) in pairwise(self._passed):
            if name:
                self._add(name, after.seconds_since(mark))
        self._free += [mark for _, mark in self._passed]
        self._passed.clear()

    @contextmanager
    def on_host(self, name: str) -> Iterator[None]:
        """Time the body as a step of the host."""
        started = time.perf_counter()
        yield
        if self.on:
            self._add(name, time.perf_counter() - started)

    def _add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
