"""Which group has which batch, and what became of it: the books that the dispatcher decides by.

Workers form *groups*.  A batch goes to one group, to all of its members, and the group has answered when all of them have.
When something goes wrong, the batch goes to another group too.  A sending is an *attempt*, counted for each batch; what a
group has of it is a *trial*:

    batch 7      attempt 0 ─► group 1, late     a trial: worker 1 has answered, worker 2 has not
                 attempt 1 ─► group 2           a trial: neither has
                 victims: group 3, which died of it

The first attempt that is answered counts.  The trials of the others are then *in vain*: their answers are still to come, and
take a credit until they have, but nobody wants them.

Pure state: who is to get what is not decided here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mpi_match.cluster.lanes import Lane


@dataclass(eq=False)
class Trial:
    """A batch at a group: the members that have yet to answer.  Does nobody want the answer?  Did a member fail?"""

    attempt: int
    missing: set[int]
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
    lane: Lane
    held: dict[int, Trial] = field(default_factory=dict)
    overdue: set[int] = field(default_factory=set)
    failures: int = 0
    alone: int | None = None
    latest: int = -1

    @property
    def wanted(self) -> list[int]:
        """The batches held that nobody else has answered."""
        return [batch for batch, trial in self.held.items() if not trial.in_vain]

    def oldest(self, member: int) -> tuple[int, int] | None:
        """Batch and attempt that a member's answer is wanted to, those that were sent first; None: to nothing."""
        for batch, trial in self.held.items():
            if member in trial.missing and not trial.in_vain:
                return batch, trial.attempt
        return None

    def has_part_of(self, batch: int) -> bool:
        """Have some members answered a batch that is held, but not all?"""
        return len(self.held[batch].missing) < len(self.members)

    def hold(self, batch: int, attempt: int) -> None:
        """A batch is sent to all members."""
        self.held[batch] = Trial(attempt, set(self.members))
        self.latest = batch

    def let_go(self, member: int, batch: int) -> bool:
        """A member is done with a batch; True when all are."""
        missing = self.held[batch].missing
        missing.remove(member)
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
