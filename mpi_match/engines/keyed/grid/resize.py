"""A larger hash table for the grid, made while the one that is there goes on, so that matching does not wait for it.

    updates     steps ─┬─► the grid in use ◄── every match
                       └─► noted ──────────────────────────────────────┐
    a thread    the slots copied, every filter entered into twice the blocks ─► noted steps made, until there are no more
    an update                                                             the last of them made ─► the new grid is in use

To enter 2.5 million filters takes a core three seconds, and a batch a millisecond.  The copy may catch a slot while a step
is made to it, half old and half new.  That does no harm: what is entered is what the copy has, so it is found and taken out
when the step, which was noted, is made once more; and the last step of a slot that is not a mere move says all there is to
say of it.  A mere move keeps what the copy has of the rest, which no step has changed.
"""

from __future__ import annotations

import threading
from collections import deque

from mpi_match.arrays.csr import Array
from mpi_match.engines.keyed.grid.hash_grid import SLOT_WORDS, Grid, enter_all

EARLY, FULLEST = 0.9, 1.1
"""The next grid is begun when there are so many times as many filters as this one is for, and waited for when there are so
many: even if each of them touched nine cells, their entries would fit."""


class Resize:
    """A grid for at least `n_slots` filters, with more blocks than `grid` has, that is being made of it."""

    def __init__(self, grid: Grid, n_slots: int) -> None:
        self._old, self._new = grid, Grid(n_slots, grid.stripes, 2 * grid.n_blocks)
        self._n_copied = grid.n_slots
        self._noted: deque[tuple[Array, int]] = deque()
        self._thread = threading.Thread(target=self._make, name="grid", daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Is there next to nothing left to do?"""
        return not self._thread.is_alive()

    def note(self, steps: Array, n_slots: int) -> None:
        """These steps have been made to the old grid, which has so many slots since."""
        self._noted.append((steps, n_slots))

    def finish(self) -> Grid:
        """The new grid, in place of the old one; waits for it."""
        self._thread.join()
        self._make_noted()
        return self._new

    def _make(self) -> None:
        old, new, n = self._old, self._new, self._n_copied
        new.hold(n)
        new.slots[: SLOT_WORDS * n] = old.slots[: SLOT_WORDS * n]
        new.keys[:n] = old.keys[:n]
        enter_all(new.blocks, new.slots, new.keys[:n], new.stripes)
        self._make_noted()

    def _make_noted(self) -> None:
        while self._noted:
            steps, n_slots = self._noted.popleft()
            self._new.hold(n_slots)
            self._new.apply(steps)


def ready(grid: Grid) -> None:
    """Have what makes a grid larger compiled, so that no thread has to while others match."""
    enter_all(grid.blocks, grid.slots, grid.keys[:0], grid.stripes)


def roomy(grid: Grid, growth: Resize | None, n_slots: int) -> tuple[Grid, Resize | None]:
    """The grid to use for so many slots, and the one that is being made, if any."""
    if growth is not None and growth.is_done:
        grid, growth = growth.finish(), None
    while n_slots > FULLEST * grid.room:
        growth = growth or Resize(grid, n_slots)
        grid, growth = growth.finish(), None
    if growth is None and n_slots > EARLY * grid.room:
        growth = Resize(grid, n_slots)
    grid.hold(n_slots)
    return grid, growth
