"""Which group has which batch, what became of it, and where the others wait: the books that the dispatcher decides by.

Workers form *groups*.  A batch goes to one group, to all of its members, and the group has answered when all of them have.
When something goes wrong, the batch goes to another group too.  A sending is an *attempt*, counted for each batch; what a
group has of it is a *trial*:

    batch 7      attempt 0 ─► group 1, late     a trial: worker 1 has answered, worker 2 has not
                 attempt 1 ─► group 2           a trial: neither has
                 victims: group 3, which died of it

The first attempt that is answered counts.  The trials of the others are then *in vain*: their answers are still to come, and
take a credit until they have, but are not wanted.

Batches wait in lanes until a group takes them:

    dynamic   ── 0 1 2 3 4 5 ...   one lane that all groups take from: the group that answers gets the next batch
    static    ── 0 3 6 ...         one for each group: batch k is in lane k modulo their number
              ── 1 4 7 ...
              ── 2 5 8 ...

From the lane of a group that is lost or late the others take too, as long as it is.

Pure state: who is to get what is not decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field


@dataclass(eq=False)
class BatchQueue:
    """Batches `head`, `head + stride`, ... that no group has yet."""

    head: int
    stride: int

    def take(self) -> int:
        """The first of them, which leaves."""
        batch = self.head
        self.head += self.stride
        return batch


class BatchQueues:
    """The lanes of `n_groups` groups, with `n_batches` in them.

    of_groups   the lane that each group begins with
    empty       the lane of a group that is made later
    """

    def __init__(self, n_batches: int, n_groups: int, schedule: str) -> None:
        self._n_batches = n_batches
        self._all = [BatchQueue(i, n_groups) for i in range(n_groups)] if schedule == "static" else [BatchQueue(0, 1)]
        self._orphans: list[BatchQueue] = []
        self._strays: list[BatchQueue] = []
        self.of_groups = self._all if schedule == "static" else self._all * n_groups
        self.empty = BatchQueue(n_batches, 1)

    def orphan(self, lane: BatchQueue) -> None:
        """Its group is lost: from the next `lend` on everybody may take from it, for good."""
        self._orphans = [each for each in (*self._orphans, lane) if each.head < self._n_batches]

    def lend(self, lanes: Iterable[BatchQueue]) -> None:
        """Everybody may take from these, until the next call, because their groups are late."""
        self._strays = [*self._orphans, *lanes]

    def nearest(self, own: BatchQueue) -> BatchQueue:
        """Of a group's own lane and those that are everybody's, the one whose batch comes first."""
        for stray in self._strays:
            if stray.head < own.head:
                own = stray
        return own

    def upcoming(self, n: int) -> list[int]:
        """At most `n` batches that will be taken next, ascending."""
        ahead = [batch for lane in self._all for batch in range(lane.head, self._n_batches, lane.stride)[:n]]
        return sorted(ahead)[:n]


@dataclass(eq=False)
class Flight:
    """A batch at one worker, from the decision to send it until its answer: the one record of when that was.

    sent_at        on the clock of `time.perf_counter`
    waited_since   on that of `timeouts.Deadlines`; None until it is sent
    """

    batch: int
    attempt: int
    sent_at: float = 0.0
    waited_since: float | None = None


@dataclass(eq=False)
class Trial:
    """A batch at a group: what is under way to the members that have yet to answer.  Is the answer unwanted?  Did a member
    fail?
    """

    attempt: int
    missing: dict[int, Flight]
    in_vain: bool = False
    failed: bool = False


@dataclass(eq=False)
class Group:
    """Workers that answer a batch together.

    held      the batches that a member has yet to answer, in the order in which they were sent
    overdue   members that are silent
    failures  in a row
    alone     the batch that nothing else may be sent beside
    latest    the batch that was sent last
    """

    members: tuple[int, ...]
    lane: BatchQueue
    held: dict[int, Trial] = field(default_factory=dict)
    overdue: set[int] = field(default_factory=set)
    failures: int = 0
    alone: int | None = None
    latest: int = -1

    @property
    def wanted(self) -> list[int]:
        """The batches held that nobody else has answered."""
        return [batch for batch, trial in self.held.items() if not trial.in_vain]

    def flights(self, member: int, *, wanted: bool = False) -> Iterator[Flight]:
        """What a member has yet to answer, in the order in which it was sent; only if the answer is wanted."""
        for trial in self.held.values():
            if member in trial.missing and not (wanted and trial.in_vain):
                yield trial.missing[member]

    def has_part_of(self, batch: int) -> bool:
        """Have some members answered a batch that is held, but not all?"""
        return len(self.held[batch].missing) < len(self.members)

    def hold(self, batch: int, attempt: int) -> None:
        """A batch is sent to all members."""
        self.held[batch] = Trial(attempt, {member: Flight(batch, attempt) for member in self.members})
        self.latest = batch

    def let_go(self, member: int, batch: int) -> bool:
        """A member is done with a batch; True when all are."""
        missing = self.held[batch].missing
        del missing[member]
        if missing:
            return False
        del self.held[batch]
        if self.alone == batch:
            self.alone = None
        return True


@dataclass(eq=False)
class Batch:
    """A batch that was sent and has not had its turn yet: who has it, and who died of it or failed on it."""

    n_attempts: int = 0
    holders: list[Group] = field(default_factory=list)
    victims: list[Group] = field(default_factory=list)
    accepted: int | None = None
    quarantined: bool = False

    @property
    def strikes(self) -> int:
        """Groups that were lost with it, or are late with it."""
        return len(self.victims) + sum(1 for group in self.holders if group.overdue)

    @property
    def settled(self) -> bool:
        """Is it known what becomes of it?"""
        return self.accepted is not None or self.quarantined

    @property
    def waits(self) -> bool:
        """Has nobody it who is not late?"""
        return all(group.overdue for group in self.holders)
