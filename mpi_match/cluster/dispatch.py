"""Who gets which batch: the schedule of a run as a state machine.

It knows no MPI, no clock and no buffer: what happened goes in, what to do comes out.  So every order of events can be
tried in a test, and the master is left with doing what it is told.

    start()                   ─► [Send(worker 1, batch 0), Send(worker 2, batch 1), Send(worker 1, batch 2), ...]
    answered(worker 2, 1, 0)  ─► [Send(worker 2, batch 8), ...]
    answered(worker 1, 0, 0)  ─► [Send(worker 1, batch 9), Emit(batch 0), Emit(batch 1)]
    lost(worker 2)            ─► [Send(worker 1, batch 8, attempt 1), ...]

Workers form *groups*.  A batch goes to one group, to all of its members, and the group has answered when all of them have.
Batches wait in *lanes*.  With the dynamic schedule there is one lane that all groups take from, so the group that answers
gets the next batch; with the static one each group has its own, and batch k is in lane k modulo their number.  From the lane
of a group that is lost or late the others take.

What goes wrong with a worker goes wrong with its group:

    lost      it is dead, and its group is out; the batches that it held go to others
    overdue   it is silent; its batches are given to others too, and it gets no new ones until it answers again
    failed    its engine raised: the batch goes to another group; a group that fails twice in a row is out

Of what is left of such groups, new ones are made (`regrouping`).

So a batch may be sent several times, and a sending is an *attempt*, counted for each batch.  The first attempt that is
answered counts, and what comes of the others is not wanted.

A batch may itself be what kills.  The groups that died of a batch or failed on it are its *victims*; with three it is
set aside, quarantined, and the run ends without its answers.  Bystanders that were held by the same workers must not share
that fate, so a batch that two groups were lost or are late with travels *alone*: it goes to a group that holds nothing else
and gets nothing else before the answer.

Invariants
    a group never holds more than `credits` batches that a member has yet to answer
    every batch is accepted at most once, and emitted or quarantined once, in order
    a batch is never sent to a group twice, and at most three groups have it or are its victims
    a batch is sent only within `window` of the first one not emitted, so the answers behind a slow one do not pile up;
    what is kept is at most that many batches and the credits
    unless all is emitted, something is under way: the first batch not emitted is always sent or sendable, or those that hold
    it are silent; when nothing else is under way either, `silent` names them, and the master's clock has to decide
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mpi_match.cluster.regrouping import Load, Room, Spares, any_room

MOST_VICTIMS = 3
"""A batch that so many groups died of is quarantined."""
MOST_FAILURES = 2
"""A group that fails so many times in a row is not asked again: its engine is broken, not the batch."""


class Send(NamedTuple):
    """Send a batch to a worker; sends of one attempt, to all members of a group, follow each other."""

    worker: int
    batch: int
    attempt: int = 0


class Emit(NamedTuple):
    """Write the answers of a batch, which that attempt brought; all earlier batches have been emitted or quarantined."""

    batch: int
    attempt: int = 0


class Quarantine(NamedTuple):
    """A batch will have no answer, and takes its turn among those that are emitted: it killed too many groups."""

    batch: int


class Drop(NamedTuple):
    """Forget what members have answered to this attempt: the rest will not come, or another attempt was first."""

    batch: int
    attempt: int


class GiveUp(NamedTuple):
    """The run cannot go on."""

    why: str


Instruction = Send | Load | Emit | Quarantine | Drop | GiveUp


@dataclass
class _Lane:
    """Batches `head`, `head + stride`, ... that no group has yet."""

    head: int
    stride: int


@dataclass(eq=False)
class _Trial:
    """A batch at a group: the members that have yet to answer.  Does nobody want the answer?  Did a member fail?"""

    attempt: int
    missing: set[int]
    in_vain: bool = False
    failed: bool = False


@dataclass(eq=False)
class _Group:
    """Workers that answer a batch together.

    held      the batches that a member has yet to answer, in the order in which they were sent
    overdue   members that are silent
    failures  in a row
    alone     the batch that nothing else may be sent beside
    latest    the batch that was sent last
    """

    members: tuple[int, ...]
    lane: _Lane
    held: dict[int, _Trial] = field(default_factory=dict)
    overdue: set[int] = field(default_factory=set)
    failures: int = 0
    alone: int | None = None
    latest: int = -1

    @property
    def n_wanted(self) -> int:
        """Batches held that nobody else has answered."""
        return sum(1 for trial in self.held.values() if not trial.in_vain)


@dataclass(eq=False)
class _Batch:
    """A batch that was sent and is not emitted yet: who has it, and who died of it or failed on it."""

    n_attempts: int = 0
    holders: list[_Group] = field(default_factory=list)
    victims: list[_Group] = field(default_factory=list)
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


class Dispatcher:
    """The state of a run of `n_batches` over `groups` of workers (any distinct numbers).

    `window` defaults to twice the credits of all groups together: enough for the others to go on while one batch
    takes twice as long.  With `ascending` a batch that is sent again goes to a group that has got no later one, if there is
    one, rather than to any.  `room` says whether a worker may have several parts of the table at once.

    n_emitted    batches that have had their turn, the quarantined ones too
    n_dropped    answers that nobody wanted any more
    quarantined  batches that are set aside
    """

    def __init__(
        self,
        n_batches: int,
        groups: Sequence[Sequence[int]],
        *,
        credits: int = 4,
        schedule: str = "dynamic",
        window: int | None = None,
        ascending: bool = False,
        room: Room = any_room,
    ) -> None:
        self.n_batches = n_batches
        self.n_emitted = 0
        self.n_dropped = 0
        self.quarantined: list[int] = []
        self.window = window or 2 * credits * len(groups)
        self._credits, self._ascending = credits, ascending
        shared = _Lane(0, 1)
        self._groups = [
            _Group(tuple(members), _Lane(i, len(groups)) if schedule == "static" else shared)
            for i, members in enumerate(groups)
        ]
        self._singles = all(len(members) == 1 for members in groups)
        self._group_of = {worker: group for group in self._groups for worker in group.members}
        self._workers = frozenset(self._group_of)
        self._spares = Spares(groups, room)
        self._open: dict[int, _Batch] = {}
        self._again: set[int] = set()
        self._orphans: list[_Lane] = []
        self._strays: list[_Lane] = []

    # What is known

    @property
    def finished(self) -> bool:
        """Has every batch been emitted or quarantined?"""
        return self.n_emitted == self.n_batches

    @property
    def n_kept(self) -> int:
        """Batches that something is kept of: those under way, and those that wait for their turn."""
        return len(self._open) + sum(1 for group in self._groups for batch in group.held if batch not in self._open)

    def holds(self, worker: int, batch: int, attempt: int) -> bool:
        """Is the worker expected to answer that attempt, wanted or not?"""
        trial = self._trial(worker, batch, attempt)
        return trial is not None and worker in trial.missing

    def wants(self, worker: int, batch: int, attempt: int) -> bool:
        """Would an answer be of use?  Not if it came before, another was first, or the worker is lost."""
        trial = self._trial(worker, batch, attempt)
        return trial is not None and worker in trial.missing and not trial.in_vain

    def oldest(self, worker: int) -> tuple[int, int] | None:
        """Batch and attempt that were sent to a worker first, among those that its answer is wanted to; None: to nothing."""
        group = self._group_of.get(worker)
        if group is not None:
            for batch, trial in group.held.items():
                if worker in trial.missing and not trial.in_vain:
                    return batch, trial.attempt
        return None

    def is_overdue(self, worker: int) -> bool:
        """Does it get nothing new until it answers?"""
        group = self._group_of.get(worker)
        return group is not None and worker in group.overdue

    @property
    def silent(self) -> list[int]:
        """The workers that owe an answer, if the run cannot go on before one of them answers or is lost.

        Empty while a batch is with a group that is not late.  In a group that is, only members that are late themselves: the
        others are at work, or load a part, and are those who can take the part of the late ones.
        """
        if self.finished:
            return []
        for group in self._groups:
            if not group.overdue and any(not trial.in_vain for trial in group.held.values()):
                return []
        owing = {
            worker
            for group in self._groups
            for trial in group.held.values()
            for worker in trial.missing
            if not group.overdue or worker in group.overdue
        }
        return sorted(owing)

    def upcoming(self, n: int) -> list[int]:
        """At most `n` batches that will be sent next, so that their bytes can be made ready."""
        lanes = {id(lane): lane for lane in (*(group.lane for group in self._groups), *self._orphans)}.values()
        ahead = [batch for lane in lanes for batch in range(lane.head, self.n_batches, lane.stride)[:n]]
        return sorted(ahead)[:n]

    # What happens

    def start(self) -> list[Instruction]:
        """The first instructions."""
        return self._proceed()

    def answered(self, worker: int, batch: int, attempt: int) -> list[Instruction]:
        """`worker` has answered an attempt at `batch`.

        An answer that is not wanted is counted, and frees what the worker held.  Raises ValueError for what was never sent.
        """
        trial = self._trial(worker, batch, attempt)
        if trial is None or worker not in trial.missing:
            self._check(worker, batch)
            self.n_dropped += 1
            return []
        group = self._group_of[worker]
        group.failures = group.failures if trial.failed else 0
        self._heard(group, worker)
        self.n_dropped += trial.in_vain
        dropped: list[Instruction] = []
        if self._let_go(group, worker, batch, trial) and not trial.in_vain:
            dropped = self._accept(group, batch, attempt)
        return self._proceed(dropped)

    def failed(self, worker: int, batch: int, attempt: int) -> list[Instruction]:
        """The engine of `worker` raised on an attempt at `batch`.  Raises ValueError for what was never sent."""
        trial = self._trial(worker, batch, attempt)
        if trial is None or worker not in trial.missing:
            self._check(worker, batch)
            return []
        group = self._group_of[worker]
        self._heard(group, worker)
        dropped: list[Instruction] = []
        if not trial.in_vain:
            dropped = self._in_vain(group, batch, trial)
            self._blame(group, batch)
        self._let_go(group, worker, batch, trial)
        group.failures += not trial.failed
        trial.failed = True
        if group.failures == MOST_FAILURES:
            dropped += self._dissolve(group, worker, died=False)
        return self._proceed(dropped)

    def overdue(self, worker: int) -> list[Instruction]:
        """`worker` should have answered long ago."""
        group = self._group_of.get(worker)
        if group is None or worker in group.overdue:
            self._check(worker)
            return []
        group.overdue.add(worker)
        self._find_strays()
        for batch, trial in group.held.items():
            if not trial.in_vain:
                self._reconsider(batch)
        return self._proceed()

    def lost(self, worker: int) -> list[Instruction]:
        """`worker` is dead: nothing that it still says counts."""
        group = self._group_of.get(worker)
        if group is None:
            self._check(worker)
            self._spares.remove(worker)
            return []
        return self._proceed(self._dissolve(group, worker))

    # Groups and their batches

    def _trial(self, worker: int, batch: int, attempt: int) -> _Trial | None:
        group = self._group_of.get(worker)
        trial = group.held.get(batch) if group is not None else None
        return trial if trial is not None and trial.attempt == attempt else None

    def _check(self, worker: int, batch: int | None = None) -> None:
        """Late and repeated words are part of life; words of nobody or about nothing are mistakes."""
        if worker not in self._workers:
            raise ValueError(f"there is no worker {worker}")
        if batch is None or batch in self._open or 0 <= batch < self.n_emitted:
            return
        raise ValueError(f"worker {worker} answered batch {batch}, which was never sent")

    def _heard(self, group: _Group, worker: int) -> None:
        """A worker speaks.  If its group is not late any more, what it holds need not be sent again."""
        if worker not in group.overdue:
            return
        group.overdue.remove(worker)
        if not group.overdue:
            self._again.difference_update(batch for batch, trial in group.held.items() if not trial.in_vain)
            self._find_strays()

    def _let_go(self, group: _Group, worker: int, batch: int, trial: _Trial) -> bool:
        """A member is done with a batch; True when all are."""
        trial.missing.remove(worker)
        if trial.missing:
            return False
        del group.held[batch]
        if group.alone == batch:
            group.alone = None
        return True

    def _accept(self, group: _Group, batch: int, attempt: int) -> list[Instruction]:
        """The answer to a batch is whole; what other groups have said of it is dropped."""
        state = self._open[batch]
        state.accepted = attempt
        self._again.discard(batch)
        dropped = []
        for other in state.holders:
            if other is not group:
                dropped += self._parts(other, batch)
                other.held[batch].in_vain = True
        return dropped

    def _in_vain(self, group: _Group, batch: int, trial: _Trial) -> list[Instruction]:
        """A group's answer to a batch will not become whole."""
        dropped = self._parts(group, batch)
        trial.in_vain = True
        self._open[batch].holders.remove(group)
        return dropped

    def _parts(self, group: _Group, batch: int) -> list[Instruction]:
        """To drop what members have answered already."""
        trial = group.held[batch]
        return [Drop(batch, trial.attempt)] if len(trial.missing) < len(group.members) else []

    def _blame(self, group: _Group, batch: int) -> None:
        state = self._open[batch]
        state.victims.append(group)
        if len(state.victims) == MOST_VICTIMS:
            self._quarantine(batch)
        else:
            self._reconsider(batch)

    def _quarantine(self, batch: int) -> None:
        self._open[batch].quarantined = True
        self.quarantined.append(batch)
        self._again.discard(batch)

    def _reconsider(self, batch: int) -> None:
        """Send it again, if nobody who is not late has it."""
        state = self._open[batch]
        if all(group.overdue for group in state.holders):
            self._again.add(batch)

    def _dissolve(self, group: _Group, out: int, *, died: bool = True) -> list[Instruction]:
        """A group is out, because a member is.  What that was to answer when it died may be what killed it."""
        self._groups.remove(group)
        for member in group.members:
            del self._group_of[member]
        self._spares.add(member for member in group.members if member != out)
        self._orphans = [lane for lane in (*self._orphans, group.lane) if lane.head < self.n_batches]
        self._find_strays()
        dropped = []
        for batch, trial in group.held.items():
            if not trial.in_vain:
                dropped += self._in_vain(group, batch, trial)
                if died and out in trial.missing:
                    self._blame(group, batch)
                else:
                    self._reconsider(batch)
        group.held.clear()
        return dropped

    def _find_strays(self) -> None:
        """The lanes that everybody may take from."""
        self._strays = [*self._orphans, *(group.lane for group in self._groups if group.overdue)]

    # What to do

    def _proceed(self, dropped: Iterable[Instruction] = ()) -> list[Instruction]:
        """All that can be sent and emitted now."""
        loads = self._regroup()
        self._set_aside_hopeless()
        emits = self._emits()
        found: list[Instruction] = [*loads, *self._sends(), *dropped, *emits]  # nobody waits for the last two
        if not self._groups and not self.finished:
            found.append(GiveUp("no worker is left" if self._singles else "too few workers are left to have all filters"))
        return found

    def _regroup(self) -> list[Load]:
        """Groups of what is left of others, which take from their lanes; what members have to load."""
        loads: list[Load] = []
        while not self.finished and (found := self._spares.regroup(last=not self._groups)) is not None:
            group = _Group(tuple(found[0]), _Lane(self.n_batches, 1))
            self._groups.append(group)
            self._group_of.update(dict.fromkeys(group.members, group))
            loads += found[1]
        return loads

    def _set_aside_hopeless(self) -> None:
        """Quarantine what every group that is left has failed on."""
        for batch in sorted(self._again):
            state = self._open[batch]
            if self._groups and not state.holders and all(group in state.victims for group in self._groups):
                self._quarantine(batch)

    def _emits(self) -> list[Emit | Quarantine]:
        found: list[Emit | Quarantine] = []
        while (state := self._open.get(self.n_emitted)) is not None and state.settled:
            del self._open[self.n_emitted]
            attempt = state.accepted
            found.append(Quarantine(self.n_emitted) if attempt is None else Emit(self.n_emitted, attempt))
            self.n_emitted += 1
        return found

    def _sends(self) -> list[Send]:
        sends: list[Send] = []
        reserved = self._send_again(sends) if self._again else ()
        limit = min(self.n_batches, self.n_emitted + self.window)
        while True:
            best, lane = None, None
            for group in self._groups:
                if len(group.held) < self._credits and not group.overdue and group.alone is None and group not in reserved:
                    nearest = group.lane
                    for stray in self._strays:
                        if stray.head < nearest.head:
                            nearest = stray
                    if nearest.head < limit and (best is None or len(group.held) < len(best.held)):
                        best, lane = group, nearest
            if best is None or lane is None:
                return sends
            batch = lane.head
            lane.head += lane.stride
            self._open[batch] = _Batch()
            self._give(best, batch, sends)

    def _send_again(self, sends: list[Send]) -> list[_Group]:
        """Send what others were lost or are late with; returns the groups that are kept free for what travels alone."""
        reserved: list[_Group] = []
        for batch in sorted(self._again):
            state = self._open[batch]
            strikes = state.strikes
            able = [group for group in self._groups if self._may_get(group, state) and group not in reserved]
            if strikes >= MOST_VICTIMS or not able:
                continue
            if self._ascending:
                able = [group for group in able if group.latest < batch] or able
            alone = strikes == MOST_VICTIMS - 1
            group = min(able, key=lambda each: (each.n_wanted if alone else 0, len(each.held)))
            if alone and group.n_wanted:
                reserved.append(group)
            elif len(group.held) < self._credits:
                self._again.remove(batch)
                group.alone = batch if alone else None
                self._give(group, batch, sends)
        return reserved

    def _may_get(self, group: _Group, state: _Batch) -> bool:
        """Has it time, and not had the batch before?  Those that still have it are late."""
        return not (group.overdue or group.alone is not None or group in state.victims)

    def _give(self, group: _Group, batch: int, sends: list[Send]) -> None:
        state = self._open[batch]
        group.held[batch] = _Trial(state.n_attempts, set(group.members))
        group.latest = batch
        sends.extend(Send(worker, batch, state.n_attempts) for worker in group.members)
        state.holders.append(group)
        state.n_attempts += 1
