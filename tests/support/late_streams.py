"""Streams that work asynchronously, as a GPU's do; the simulator's have finished when a call returns.

Work given to a stream is queued, and is done when the stream is waited for, or at a random moment before: then another
stream may be ahead or behind.  So a buffer that is filled again too early, or read before another stream has written it,
gives wrong answers here too.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

import numpy as np
import pytest

from mpi_match.gpu.kernels import KernelLaunch, Mark, Stream

Work = Callable[[], None]
AT_ONCE = 0.3
"""How likely some work is done when some is given."""


class LateStreams:
    """All streams are late from now on, until `monkeypatch` undoes it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
        self._lines: dict[Stream, deque[Work]] = {}
        self._recorded: dict[Mark, tuple[Stream, Work]] = {}
        self._rng = np.random.default_rng(seed)
        for of, name in ((Stream, "copy_in"), (Stream, "copy_out"), (Stream, "copy_within"), (Stream, "zero")):
            monkeypatch.setattr(of, name, self._later(getattr(of, name)))
        launch = KernelLaunch.__call__
        monkeypatch.setattr(
            KernelLaunch, "__call__", lambda bound, stream: self._give(stream, lambda: launch(bound, stream))
        )
        monkeypatch.setattr(Stream, "synchronize", lambda stream: self._finish(stream))
        monkeypatch.setattr(Stream, "wait", lambda stream, mark: self._wait(stream, mark))
        monkeypatch.setattr(Mark, "record", lambda mark, stream: self._record(mark, stream))
        monkeypatch.setattr(Mark, "synchronize", lambda mark: self._finish(*self._recorded[mark]))
        monkeypatch.setattr(Mark, "seconds_since", lambda mark, start: self._seconds(mark, start))

    def _later(self, method: Callable[..., None]) -> Callable[..., None]:
        return lambda stream, *what: self._give(stream, lambda: method(stream, *what))

    def _give(self, stream: Stream, work: Work) -> None:
        self._lines.setdefault(stream, deque()).append(work)
        while self._rng.random() < AT_ONCE:
            self._do_one(list(self._lines)[self._rng.integers(len(self._lines))])

    def _do_one(self, stream: Stream) -> None:
        if self._lines[stream]:
            self._lines[stream].popleft()()

    def _finish(self, stream: Stream, until: Work | None = None) -> None:
        """Do what a stream was given, up to some of its work."""
        line = self._lines.get(stream, deque())
        while until in line if until is not None else line:
            self._do_one(stream)

    def _record(self, mark: Mark, stream: Stream) -> Mark:
        def come() -> None:
            mark._at_s = time.perf_counter()

        self._recorded[mark] = stream, come
        self._give(stream, come)
        return mark

    def _wait(self, stream: Stream, mark: Mark) -> None:
        recorded = self._recorded[mark]
        self._give(stream, lambda: self._finish(*recorded))

    def _seconds(self, mark: Mark, start: Mark) -> float:
        for each in (mark, start):
            stream, come = self._recorded[each]
            assert come not in self._lines[stream], "the GPU has not come there"
        return mark._at_s - start._at_s
