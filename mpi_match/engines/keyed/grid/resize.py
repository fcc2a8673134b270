"""A larger hash table for the grid, made while the current one is in use, so that matching does not wait for it.

    updates     steps ─┬─► the grid in use ◄── every match
                       └─► noted ──────────────────────────────────────┐
    a thread    copies the slots, enters every filter into twice the blocks ─► applies the noted steps until none is left
    an update                                                                  applies the rest ─► the new grid is in use

To enter 2.5 million filters takes a core three seconds, and a batch a millisecond.  The copy may read a slot while a step is
applied to it, half old and half new.  That is harmless: the new grid enters what the copy has, so it finds and removes that
entry when the noted step is applied again, and the last step of a slot that is not a mere move sets all of the slot.  A mere
move keeps the rest of the copied slot, which no step has changed.
"""

from __future__ import annotations

import os
import threading
from collections import deque

from mpi_match.arrays.csr import Array
from mpi_match.engines.keyed.grid.hash_grid import SLOT_WORDS, Grid, enter_all

EARLY, FULLEST = 0.9, 1.1
"""Load at which the next grid is begun, and at which an update waits for it, as multiples of the filters that the grid is
for: even if each of 1.1 times as many touched nine cells, their entries would fit."""


class Resize:
    """A grid for at least `n_slots` filters, with at least twice the blocks of `grid`, made from it by a thread of
    `process`: a child that is forked meanwhile has no such thread."""

    def __init__(self, grid: Grid, n_slots: int) -> None:
        self._old, self._new = grid, Grid(n_slots, grid.sub_buckets, 2 * grid.n_blocks)
        self._n_copied = grid.n_slots
        self.process = os.getpid()
        self._noted: deque[tuple[Array, int]] = deque()
        self._thread = threading.Thread(target=self._make, name="grid", daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Has the thread ended, so that `finish` will not wait?"""
        return not self._thread.is_alive()

    def note(self, steps: Array, n_slots: int) -> None:
        """Note steps that the old grid has applied; it has `n_slots` slots since."""
        self._noted.append((steps, n_slots))

    def finish(self) -> Grid:
        """Wait for the new grid; it replaces the old one."""
        self._thread.join()
        self._make_noted()
        return self._new

    def _make(self) -> None:
        old, new, n = self._old, self._new, self._n_copied
        new.hold(n)
        new.slots[: SLOT_WORDS * n] = old.slots[: SLOT_WORDS * n]
        new.keys[:n] = old.keys[:n]
        enter_all(new.blocks, new.slots, new.keys[:n], new.sub_buckets)
        self._make_noted()

    def _make_noted(self) -> None:
        while self._noted:
            steps, n_slots = self._noted.popleft()
            self._new.hold(n_slots)
            self._new.apply(steps)


def ready(grid: Grid) -> None:
    """Compile what makes a grid larger, so that no thread does so while others match."""
    enter_all(grid.blocks, grid.slots, grid.keys[:0], grid.sub_buckets)


def roomy(grid: Grid, resize: Resize | None, n_slots: int) -> tuple[Grid, Resize | None]:
    """The grid to use for `n_slots` slots, and the resize in progress, if any."""
    if resize is not None and resize.process != os.getpid():
        resize = None  # its thread is the parent's
    if resize is not None and resize.is_done:
        grid, resize = resize.finish(), None
    while n_slots > FULLEST * grid.room:
        resize = resize or Resize(grid, n_slots)
        grid, resize = resize.finish(), None
    if resize is None and n_slots > EARLY * grid.room:
        resize = Resize(grid, n_slots)
    grid.hold(n_slots)
    return grid, resize
