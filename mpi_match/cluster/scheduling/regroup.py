"""What becomes of a group that has lost a member: the others are spares, and new groups are made of spares.

    group 1    a  b  c†        spares  a b
    group 2    a  b† c         spares  a b a c  ─►  a new group  a b c, and one to spare

A worker has the part of the table that it was given, and can be told to load another.  So as soon as there are as many
spares as parts, they are a group, of which as few as can be have something to load.  Fewer wait: one would have to have more
than a part, which costs memory that there may not be, and time for every batch.  Only when no group is left, so that the run
could not go on otherwise, the missing parts are dealt out to them, as far as there is room.

A worker does what it is told in order, so the group is one at once: its first batches wait behind the loading.

Pure: who has which parts, and who is to load which.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from mpi_match.cluster.scheduling.instructions import Load

Room = Callable[[Collection[int]], bool]
"""May a worker have these parts at once?"""


def any_room(parts: Collection[int]) -> bool:
    """Room for whatever it is."""
    return True


class Spares:
    """Workers without a group, of `groups` in which member i has part i."""

    def __init__(self, groups: Sequence[Sequence[int]], room: Room) -> None:
        self._n_parts, self._room = len(groups[0]), room
        self._parts = {worker: {part} for members in groups for part, worker in enumerate(members)}
        self._spares: list[int] = []

    def add(self, workers: Iterable[int]) -> None:
        """Their group has lost a member."""
        self._spares.extend(workers)

    def remove(self, worker: int) -> None:
        """A worker is lost, whether it is a spare or not."""
        if worker in self._spares:
            self._spares.remove(worker)

    def regroup(self, *, last: bool) -> tuple[list[int], list[Load]] | None:
        """A new group, and what its members have to load for it; None when spares are not enough for one.

        `last`: the run has no other group.
        """
        if not self._spares or (len(self._spares) < self._n_parts and not last):
            return None
        tasks: dict[int, set[int]] = {worker: set() for worker in self._spares}
        missing = []
        for part in range(self._n_parts):
            owners = [worker for worker in self._spares if part in self._parts[worker]]
            owner = min(owners, key=lambda each: len(tasks[each]), default=None)
            if owner is None or (tasks[owner] and not last):
                missing.append(part)
            else:
                tasks[owner].add(part)
        loads, parts = [], {worker: set(self._parts[worker]) for worker in self._spares}
        for part in missing:
            worker = min(self._spares, key=lambda each: len(tasks[each]))
            keep = bool(tasks[worker])
            parts[worker] = parts[worker] | {part} if keep else {part}
            if keep and not self._room(parts[worker]):
                return None
            tasks[worker].add(part)
            loads.append(Load(worker, part, keep))
        members = [worker for worker in self._spares if tasks[worker]]
        self._parts.update((worker, parts[worker]) for worker in members)
        self._spares = [worker for worker in self._spares if not tasks[worker]]
        return sorted(members), loads
