"""Who gets which batch: the schedule of a run as a state machine.

It knows no MPI, no clock and no buffer: what happened goes in, what to do comes out (`instructions`).  So every order of
events can be tried in a test, and the master is left with doing what it is told.

    start()                   ─► [Send(worker 1, batch 0), Send(worker 2, batch 1), Send(worker 1, batch 2), ...]
    answered(worker 2, 1, 0)  ─► [Send(worker 2, batch 8), ...]
    answered(worker 1, 0, 0)  ─► [Send(worker 1, batch 9), Emit(batch 0), Emit(batch 1)]
    lost(worker 2)            ─► [Send(worker 1, batch 8, attempt 1), ...]

Batches wait in lanes, and groups of workers take them from there (`groups`), each the next when it has answered one.  What
goes wrong with a worker goes wrong with its group:

    lost      it is dead, and its group is out; the batches that it held go to others
    overdue   it is silent; its batches are given to others too, and it gets no new ones until it answers again
    failed    its engine raised: the batch goes to another group; a group that fails twice in a row is out

Of what is left of such groups, new ones are made (`regroup`).

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

from collections.abc import Iterable, Iterator, Sequence

from mpi_match.cluster.scheduling.groups import Batch, BatchQueues, Flight, Group, Trial
from mpi_match.cluster.scheduling.instructions import Drop, Emit, GiveUp, Instruction, Load, Quarantine, Send
from mpi_match.cluster.scheduling.regroup import Room, Spares, any_room

MOST_VICTIMS = 3
"""A batch that so many groups died of is quarantined."""
MOST_FAILURES = 2
"""A group that fails so many times in a row is not asked again: its engine is broken, not the batch."""


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
        self._lanes = BatchQueues(n_batches, len(groups), schedule)
        self._groups = [Group(tuple(members), lane) for members, lane in zip(groups, self._lanes.of_groups, strict=True)]
        self._singles = all(len(members) == 1 for members in groups)
        self._group_of = {worker: group for group in self._groups for worker in group.members}
        self._workers = frozenset(self._group_of)
        self._spares = Spares(groups, room)
        self._open: dict[int, Batch] = {}
        self._again: set[int] = set()

    # What is known

    @property
    def finished(self) -> bool:
        """Has every batch been emitted or quarantined?"""
        return self.n_emitted == self.n_batches

    @property
    def n_kept(self) -> int:
        """Batches that something is kept of: those under way, and those that wait for their turn."""
        return len(self._open) + sum(1 for group in self._groups for batch in group.held if batch not in self._open)

    def flight(self, worker: int, batch: int, attempt: int) -> Flight | None:
        """What is known of an attempt that the worker is expected to answer, wanted or not; None when it is not."""
        trial = self._trial(worker, batch, attempt)
        return None if trial is None else trial.missing.get(worker)

    def wants(self, worker: int, batch: int, attempt: int) -> bool:
        """Would an answer be of use?  Not if it came before, another was first, or the worker is lost."""
        trial = self._trial(worker, batch, attempt)
        return trial is not None and worker in trial.missing and not trial.in_vain

    def flights(self, worker: int, *, wanted: bool = False) -> Iterator[Flight]:
        """What a worker has yet to answer, in the order in which it was sent; only if the answer is wanted."""
        group = self._group_of.get(worker)
        return iter(()) if group is None else group.flights(worker, wanted=wanted)

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
            if group.wanted and not group.overdue:
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
        return self._lanes.upcoming(n)

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
        if group.let_go(worker, batch) and not trial.in_vain:
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
        group.let_go(worker, batch)
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
        self._lend_lanes()
        for batch in group.wanted:
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

    def _trial(self, worker: int, batch: int, attempt: int) -> Trial | None:
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

    def _heard(self, group: Group, worker: int) -> None:
        """A worker speaks.  If its group is not late any more, what it holds need not be sent again."""
        if worker not in group.overdue:
            return
        group.overdue.remove(worker)
        if not group.overdue:
            self._again.difference_update(group.wanted)
            self._lend_lanes()

    def _accept(self, group: Group, batch: int, attempt: int) -> list[Instruction]:
        """The answer to a batch is whole; what other groups have said of it is dropped."""
        state = self._open[batch]
        state.accepted = attempt
        self._again.discard(batch)
        dropped = []
        for other in state.holders:
            if other is not group:
                dropped += self._part_of(other, batch)
                other.held[batch].in_vain = True
        return dropped

    def _in_vain(self, group: Group, batch: int, trial: Trial) -> list[Instruction]:
        """A group's answer to a batch will not become whole."""
        dropped = self._part_of(group, batch)
        trial.in_vain = True
        self._open[batch].holders.remove(group)
        return dropped

    def _part_of(self, group: Group, batch: int) -> list[Instruction]:
        """To drop what members have answered already."""
        return [Drop(batch, group.held[batch].attempt)] if group.has_part_of(batch) else []

    def _blame(self, group: Group, batch: int) -> None:
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
        if self._open[batch].waits:
            self._again.add(batch)

    def _dissolve(self, group: Group, out: int, *, died: bool = True) -> list[Instruction]:
        """A group is out, because a member is.  What that was to answer when it died may be what killed it."""
        self._groups.remove(group)
        for member in group.members:
            del self._group_of[member]
        self._spares.add(member for member in group.members if member != out)
        self._lanes.orphan(group.lane)
        self._lend_lanes()
        dropped = []
        for batch in group.wanted:
            trial = group.held[batch]
            dropped += self._in_vain(group, batch, trial)
            if died and out in trial.missing:
                self._blame(group, batch)
            else:
                self._reconsider(batch)
        group.held.clear()
        return dropped

    def _lend_lanes(self) -> None:
        """Those of groups that are late, besides those of lost ones."""
        self._lanes.lend(group.lane for group in self._groups if group.overdue)

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
            group = Group(tuple(found[0]), self._lanes.empty)
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
                    nearest = self._lanes.nearest(group.lane)
                    if nearest.head < limit and (best is None or len(group.held) < len(best.held)):
                        best, lane = group, nearest
            if best is None or lane is None:
                return sends
            batch = lane.take()
            self._open[batch] = Batch()
            self._give(best, batch, sends)

    def _send_again(self, sends: list[Send]) -> list[Group]:
        """Send what others were lost or are late with; returns the groups that are kept free for what travels alone."""
        reserved: list[Group] = []
        for batch in sorted(self._again):
            state = self._open[batch]
            strikes = state.strikes
            able = [group for group in self._groups if self._may_get(group, state) and group not in reserved]
            if strikes >= MOST_VICTIMS or not able:
                continue
            if self._ascending:
                able = [group for group in able if group.latest < batch] or able
            alone = strikes == MOST_VICTIMS - 1
            group = min(able, key=lambda each: (len(each.wanted) if alone else 0, len(each.held)))
            if alone and group.wanted:
                reserved.append(group)
            elif len(group.held) < self._credits:
                self._again.remove(batch)
                group.alone = batch if alone else None
                self._give(group, batch, sends)
        return reserved

    def _may_get(self, group: Group, state: Batch) -> bool:
        """Has it time, and not had the batch before?  Those that still have it are late."""
        return not (group.overdue or group.alone is not None or group in state.victims)

    def _give(self, group: Group, batch: int, sends: list[Send]) -> None:
        state = self._open[batch]
        group.hold(batch, state.n_attempts)
        sends.extend(Send(worker, batch, state.n_attempts) for worker in group.members)
        state.holders.append(group)
        state.n_attempts += 1
