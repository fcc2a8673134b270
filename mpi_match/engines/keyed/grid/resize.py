"""Resizes the grid's hash table while the current one is in use, so that matching does not wait.

    updates     steps ─┬─► the grid in use ◄── every match
                       └─► noted ──────────────────────────────────────┐
    a thread    copies the slots, enters every filter into twice the blocks ─► applies the noted steps until none is left
    an update                                                                  applies the rest ─► the new grid is in use

Entering 2.5 million filters takes a core three seconds, whereas a batch takes a millisecond.  The copy may read a slot while
a step is applied to it, and get half of the old and half of the new state.  This is harmless: the new grid enters what the
copy has, so it finds and removes that entry when the noted step is applied again, and the last step of a slot that is not a
mere move sets the whole slot.  A mere move keeps the rest of the copied slot, which no step has changed.
"""

from __future__ import annotations

import os
import threading
from collections import deque

from mpi_match.arrays.csr import Array
from mpi_match.engines.keyed.grid.hash_grid import SLOT_WORDS, Grid, enter_all

EARLY, FULLEST = 0.9, 1.1
"""Loads at which the next grid is begun, and at which an update waits for it, as multiples of the filters that the grid is
made for.  Even if each of 1.1 times as many filters touched nine cells, their entries would fit."""


class Resize:
    """A grid for at least `n_slots` filters with at least twice the blocks of `grid`, built from it by a thread of
    `process`; a child forked meanwhile has no such thread."""

    def __init__(self, grid: Grid, n_slots: int) -> None:
        self._old, self._new = grid, Grid(n_slots, grid.sub_buckets, 2 * grid.n_blocks)
        self._n_copied = grid.n_slots
        self.process = os.getpid()
        self._noted: deque[tuple[Array, int]] = deque()
        self._thread = threading.Thread(target=self._make, name="grid", daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Tells whether the thread has ended, so that `finish` does not wait."""
        return not self._thread.is_alive()

    def note(self, steps: Array, n_slots: int) -> None:
        """Record steps that the old grid has applied, after which it has `n_slots` slots."""
        self._noted.append((steps, n_slots))

    def finish(self) -> Grid:
        """Wait for the new grid, which replaces the old one."""
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
    """Compile the code of a resize, so that no thread compiles while others match."""
    enter_all(grid.blocks, grid.slots, grid.keys[:0], grid.sub_buckets)


def roomy(grid: Grid, resize: Resize | None, n_slots: int) -> tuple[Grid, Resize | None]:
    """The grid to use for `n_slots` slots, and the resize in progress, if any."""
    if resize is not None and resize.process != os.getpid():
        resize = None  # its thread belongs to the parent
    if resize is not None and resize.is_done:
        grid, resize = resize.finish(), None
    while n_slots > FULLEST * grid.room:
        resize = resize or Resize(grid, n_slots)
        grid, resize = resize.finish(), None
    if resize is None and n_slots > EARLY * grid.room:
        resize = Resize(grid, n_slots)
    grid.hold(n_slots)
    return grid, resize
