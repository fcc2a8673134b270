"""Where batches wait until a group takes them.

    dynamic   ── 0 1 2 3 4 5 ...   one lane that all groups take from: the group that answers gets the next batch
    static    ── 0 3 6 ...         one for each group: batch k is in lane k modulo their number
              ── 1 4 7 ...
              ── 2 5 8 ...

From the lane of a group that is lost or late the others take too, as long as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(eq=False)
class Lane:
    """Batches `head`, `head + stride`, ... that no group has yet."""

    head: int
    stride: int

    def take(self) -> int:
        """The first of them, which leaves."""
        batch = self.head
        self.head += self.stride
        return batch


class Lanes:
    """The lanes of `n_groups` groups, with `n_batches` in them.

    of_groups   the lane that each group begins with
    empty       the lane of a group that is made later
    """

    def __init__(self, n_batches: int, n_groups: int, schedule: str) -> None:
        self._n_batches = n_batches
        self._all = [Lane(i, n_groups) for i in range(n_groups)] if schedule == "static" else [Lane(0, 1)]
        self._orphans: list[Lane] = []
        self._strays: list[Lane] = []
        self.of_groups = self._all if schedule == "static" else self._all * n_groups
        self.empty = Lane(n_batches, 1)

    def orphan(self, lane: Lane) -> None:
        """Its group is lost: from the next `lend` on everybody may take from it, for good."""
        self._orphans = [each for each in (*self._orphans, lane) if each.head < self._n_batches]

    def lend(self, lanes: Iterable[Lane]) -> None:
        """Everybody may take from these, until the next call, because their groups are late."""
        self._strays = [*self._orphans, *lanes]

    def nearest(self, own: Lane) -> Lane:
        """Of a group's own lane and those that are everybody's, the one whose batch comes first."""
        for stray in self._strays:
            if stray.head < own.head:
                own = stray
        return own

    def upcoming(self, n: int) -> list[int]:
        """At most `n` batches that will be taken next, ascending."""
        ahead = [batch for lane in self._all for batch in range(lane.head, self._n_batches, lane.stride)[:n]]
        return sorted(ahead)[:n]
