"""Gives warps several lanes in the simulator, where a warp has one lane otherwise: lanes meet at each ballot and shuffle.

`install` must be called before kernels are imported.  If lanes meet at different places of a kernel, or one waits too long
for the others, all of them fail.
"""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

import numpy as np
import quick_simulator

from mpi_match.gpu import intrinsics

WAIT_S = 60
"""Longest time that lanes wait for one another."""


class Warp:
    """The running lanes of a warp, and the values of those that wait."""

    def __init__(self, n: int) -> None:
        self._meeting = threading.Condition()
        self._n_running, self._n_meetings = n, 0
        self._brought: dict[int, tuple[Any, tuple[Any, ...]]] = {}
        self._met: dict[int, Any] = {}
        self._failure = ""

    def meet(self, lane: int, value: Any, place: tuple[Any, ...]) -> dict[int, Any]:
        """Wait for all running lanes; returns the value of each."""
        with self._meeting:
            number = self._n_meetings
            self._brought[lane] = value, place
            self._go_on()
            if not self._meeting.wait_for(lambda: self._n_meetings > number or self._failure, WAIT_S):
                self._failure = f"lanes waited at {place} for {self._n_running} and were {sorted(self._brought)}"
            if self._failure:
                raise RuntimeError(self._failure)
            return self._met

    def leave(self, error: BaseException | None) -> None:
        """Take out a lane that has ended."""
        with self._meeting:
            self._n_running -= 1
            if error is not None:
                self._failure = f"another lane failed: {error!r}"
            self._go_on()

    def _go_on(self) -> None:
        if self._brought and len(self._brought) == self._n_running:
            places = {place for _, place in self._brought.values()}
            if len(places) > 1:
                self._failure = f"lanes are at different places: {places}"
            self._met = {lane: value for lane, (value, _) in self._brought.items()}
            self._brought = {}
            self._n_meetings += 1
        self._meeting.notify_all()


def install(width: int) -> None:
    """Replace the functions of warps by those for `width` lanes."""

    def of_thread() -> tuple[Warp, int]:
        thread: Any = threading.current_thread()
        warp, lane = divmod(int(thread.threadIdx.x), width)
        warps: dict[int, Warp] = thread._block.warps
        return warps[warp], lane

    def meet(value: Any) -> tuple[dict[int, Any], int]:
        warp, own = of_thread()
        return warp.meet(own, value, _place(sys._getframe(2))), own

    def lane() -> Any:
        return np.int64(of_thread()[1])

    def ballot(predicate: object) -> int:
        return sum(1 << each for each, holds in meet(bool(predicate))[0].items() if holds)

    def shuffle(value: Any, source: Any) -> Any:
        return meet(value)[0][int(source) % width]

    def shuffle_up(value: Any, apart: int) -> Any:
        brought, own = meet(value)
        return brought[own - apart] if own >= apart else value

    def sync_warp() -> None:
        meet(None)

    for each in (lane, ballot, shuffle, shuffle_up, sync_warp):
        setattr(intrinsics, each.__name__, each)
    vars(intrinsics)["WARP"] = width

    class Block(quick_simulator.Block):
        def __init__(self, n: int) -> None:
            super().__init__(n)
            self.warps = {first // width: Warp(min(width, n - first)) for first in range(0, n, width)}

        def leave(self, error: BaseException | None = None) -> None:
            of_thread()[0].leave(error)
            super().leave(error)

    vars(quick_simulator)["Block"] = Block


def _place(frame: FrameType) -> tuple[Any, ...]:
    """The lines of the kernel, and of the functions that it calls, from which a lane came."""
    lines: list[Any] = []
    at: FrameType | None = frame
    while at is not None and at.f_code.co_filename != quick_simulator.__file__:
        lines.append((at.f_code.co_filename.rsplit("/", 1)[-1], at.f_lineno))
        at = at.f_back
    return tuple(lines)
