"""New groups of spares: when a group has lost a member, its other members are spare workers.

    group 1    a  b  c†        spares  a b
    group 2    a  b† c         spares  a b a c  ─►  a new group  a b c, and one spare left

A worker holds the shard that it was given, and can load another.  So as soon as there are as many spares as shards, they
form a group in which as few members as possible have to load a shard.  Fewer spares wait: one of them would have to hold
more than one shard, which takes memory that may be missing, and time for every batch.  Only when no group is left, so that
the run could not go on otherwise, the missing shards are distributed among the spares, as far as memory allows.

A worker processes its orders in sequence, so the new group can be used at once: its first batches wait behind the loading.

Pure state: which worker holds which shards, and which shards each has to load.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from mpi_match.cluster.scheduling.instructions import Load

Room = Callable[[Collection[int]], bool]
"""Tells whether a worker may hold the shards of these members at once."""


def any_room(parts: Collection[int]) -> bool:
    """Returns True: there is always room."""
    return True


class Spares:
    """Workers without a group, of `groups` in which member i has part i."""

    def __init__(self, groups: Sequence[Sequence[int]], room: Room) -> None:
        self._n_parts, self._room = len(groups[0]), room
        self._parts = {worker: {part} for members in groups for part, worker in enumerate(members)}
        self._spares: list[int] = []

    def add(self, workers: Iterable[int]) -> None:
        """Make spares of the remaining members of a dissolved group."""
        self._spares.extend(workers)

    def remove(self, worker: int) -> None:
        """Remove a lost worker, if it is a spare."""
        if worker in self._spares:
            self._spares.remove(worker)

    def regroup(self, *, last: bool) -> tuple[list[int], list[Load]] | None:
        """A new group, and the shards that its members have to load; None when there are not enough spares.

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
