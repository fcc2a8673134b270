"""The state that the dispatcher decides by: groups, the batches that each holds, and the queues of batches not yet sent.

Workers form *groups*.  A batch goes to all members of one group, and the group has answered when all of them have.  After a
failure or a timeout the batch goes to another group too.  A sending is an *attempt*, counted for each batch; the state of an
attempt at its group is a *trial*:

    batch 7      attempt 0 ─► group 1, late     a trial: worker 1 has answered, worker 2 has not
                 attempt 1 ─► group 2           a trial: neither has
                 victims: group 3, which died of it

The first attempt that is answered counts.  The trials of the others are then *superseded*: their answers are still expected,
and take a credit until they arrive, but are not used.

Batches wait in queues until a group takes them:

    dynamic   ── 0 1 2 3 4 5 ...   one queue that all groups take from: the group that answers gets the next batch
    static    ── 0 3 6 ...         one for each group: batch k is in queue k modulo their number
              ── 1 4 7 ...
              ── 2 5 8 ...

Groups also take from the queues of dissolved groups, and from those of groups with stragglers as long as these last.

When a group has lost a member, its other members are *spares* (`Spares`):

    group 1    a  b  c†        spares  a b
    group 2    a  b† c         spares  a b a c  ─►  a new group  a b c, and one spare left

A worker holds the shard that it was given, and can load another.  So as soon as there are as many spares as shards, they
form a group in which as few members as possible have to load a shard.  Fewer spares wait: one of them would have to hold
more than one shard, which takes memory that may be missing, and time for every batch.  Only when no group is left, so that
the run could not go on otherwise, the missing shards are distributed among the spares, as far as memory allows.  A worker
processes its orders in sequence, so the new group can be used at once: its first batches wait behind the loading.

Pure state: the decisions are the dispatcher's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from mpi_match.cluster.scheduling.instructions import Load

NO_HEAD = 2**62
"""The head of a queue that no batch is in."""


@dataclass(eq=False, slots=True)
class BatchQueue:
    """Batches `head`, `head + stride`, ... that no group has yet."""

    head: int
    stride: int

    def take(self) -> int:
        """Remove and return the first of them."""
        batch = self.head
        self.head += self.stride
        return batch


class BatchQueues:
    """The queues of `n_groups` groups, with `n_batches` in them.

    of_groups   the queue that each group begins with
    empty       the queue of a group that is made later

    `n_batches` may grow.
    """

    def __init__(self, n_batches: int, n_groups: int, schedule: str) -> None:
        self.n_batches = n_batches
        self._all = [BatchQueue(i, n_groups) for i in range(n_groups)] if schedule == "static" else [BatchQueue(0, 1)]
        self._orphans: list[BatchQueue] = []
        self._shared: list[BatchQueue] = []
        self.of_groups = self._all if schedule == "static" else self._all * n_groups
        self.empty = BatchQueue(NO_HEAD, 1)

    def orphan(self, queue: BatchQueue) -> None:
        """Open the queue of a dissolved group: from the next `lend` on all groups take from it."""
        if queue is not self.empty and queue not in self._orphans:
            self._orphans.append(queue)

    def lend(self, queues: Iterable[BatchQueue]) -> None:
        """Share the queues of groups with stragglers, until the next call."""
        self._shared = [*self._orphans, *queues]

    @property
    def are_shared(self) -> bool:
        """Tells whether groups take from other queues than their own."""
        return bool(self._shared)

    def nearest(self, own: BatchQueue) -> BatchQueue:
        """The queue with the lowest batch, among a group's own and the shared ones."""
        for shared in self._shared:
            if shared.head < own.head:
                own = shared
        return own

    def upcoming(self, n: int) -> list[int]:
        """At most `n` batches that will be taken next, ascending."""
        if len(self._all) == 1:
            head = self._all[0].head
            return list(range(head, min(head + n, self.n_batches)))
        ahead = [batch for queue in self._all for batch in range(queue.head, self.n_batches, queue.stride)[:n]]
        return sorted(ahead)[:n]


@dataclass(eq=False, slots=True)
class Flight:
    """A batch at one worker, from the decision to send it until its answer, with its times.

    sent_at        on the clock of `time.perf_counter`
    waited_since   on that of `timeouts.Deadlines`; None until it is sent
    """

    batch: int
    attempt: int
    sent_at: float = 0.0
    waited_since: float | None = None


@dataclass(eq=False, slots=True)
class Trial:
    """An attempt at a group: the flights of the members that have yet to answer.

    superseded   another attempt was first, or the answer will not be completed
    failed       a member's engine raised
    """

    attempt: int
    missing: dict[int, Flight]
    superseded: bool = False
    failed: bool = False


@dataclass(eq=False)
class Group:
    """Workers that answer a batch together.

    queue       where the group takes batches from
    held        the batches that a member has yet to answer, in sending order
    stragglers  members past the deadline of a batch
    failures    consecutive failures
    alone       the batch beside which no other may be sent
    latest      the batch that was sent last
    """

    members: tuple[int, ...]
    queue: BatchQueue
    held: dict[int, Trial] = field(default_factory=dict)
    stragglers: set[int] = field(default_factory=set)
    failures: int = 0
    alone: int | None = None
    latest: int = -1

    @property
    def wanted(self) -> list[int]:
        """The batches held that are not superseded."""
        return [batch for batch, trial in self.held.items() if not trial.superseded]

    def flights(self, member: int, *, wanted: bool = False) -> Iterator[Flight]:
        """The batches that a member has yet to answer, in sending order; with `wanted` only those not superseded."""
        for trial in self.held.values():
            if member in trial.missing and not (wanted and trial.superseded):
                yield trial.missing[member]

    def has_part_of(self, batch: int) -> bool:
        """Tells whether some members, but not all, have answered a batch that the group holds."""
        return len(self.held[batch].missing) < len(self.members)

    def hold(self, batch: int, attempt: int) -> Trial:
        """Record that a batch is sent to all members; returns its trial."""
        trial = self.held[batch] = Trial(attempt, {member: Flight(batch, attempt) for member in self.members})
        self.latest = batch
        return trial

    def let_go(self, member: int, batch: int) -> bool:
        """Record that a member is done with a batch.  Returns True after the last member."""
        missing = self.held[batch].missing
        del missing[member]
        if missing:
            return False
        del self.held[batch]
        if self.alone == batch:
            self.alone = None
        return True


@dataclass(eq=False, slots=True)
class Batch:
    """A batch that was sent and has no answer yet: the groups that hold it, and those that died of it or failed on it."""

    n_attempts: int = 0
    holders: list[Group] = field(default_factory=list)
    victims: list[Group] = field(default_factory=list)

    @property
    def strikes(self) -> int:
        """Groups that were lost with the batch, or are late with it."""
        return len(self.victims) + sum(1 for group in self.holders if group.stragglers)

    @property
    def waits(self) -> bool:
        """Tells whether only groups with stragglers hold the batch."""
        return all(group.stragglers for group in self.holders)


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
