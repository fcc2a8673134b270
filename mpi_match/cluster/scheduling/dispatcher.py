"""The schedule of a run as a state machine: which worker gets which batch.

It has no MPI, no clock and no buffers: events go in, instructions come out (`instructions`).  So tests can try every order
of events, and the master only carries out instructions.

    start()                   ─► [Send(worker 1, batch 0), Send(worker 2, batch 1), Send(worker 1, batch 2), ...]
    answered(worker 2, 1, 0)  ─► [Send(worker 2, batch 8), ...]
    answered(worker 1, 0, 0)  ─► [Send(worker 1, batch 9), Emit(batch 0), Emit(batch 1)]
    lost(worker 2)            ─► [Send(worker 1, batch 8, attempt 1), ...]

Batches wait in queues, and groups of workers take them from there (`groups`), each the next when it has answered one.  A
failure of a worker is a failure of its group:

    lost        it is dead, and its group is dissolved; the batches that it held go to others
    timed out   it is a straggler: its batches are executed speculatively by others, and it gets no new ones until it answers
    failed      its engine raised: the batch goes to another group; a group that fails twice in a row is dissolved

New groups are made of the remaining members of dissolved ones (`groups.Spares`).

A batch may itself be the cause.  The groups that died of a batch or failed on it are its *victims*; with three victims it is
quarantined, and the run ends without its answers.  Other batches that the same workers held must not be quarantined with it,
so a batch that two groups were lost or are late with is sent *alone*: to a group that holds no other batch, and gets none
before the answer.

Invariants
    a group never holds more than `credits` batches that a member has yet to answer
    every batch is accepted at most once, and emitted or quarantined once, in order
    a batch is never sent to a group twice, and at most three groups have it or are its victims
    a batch is sent only within `window` of the first one not emitted, so the answers behind a slow one do not pile up;
    state is kept of at most that many batches and the credits
    until all is emitted, the run makes progress: the first batch not emitted is always sent or sendable, or its holders are
    stragglers; when no other batch is in flight either, `silent` names them, and the master's clock decides
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from mpi_match.cluster.scheduling.groups import Batch, BatchQueues, Flight, Group, Room, Spares, Trial, any_room
from mpi_match.cluster.scheduling.instructions import Drop, Emit, GiveUp, Instruction, Load, Quarantine, Send

MOST_VICTIMS = 3
"""Number of groups that a batch kills before it is quarantined."""
MOST_FAILURES = 2
"""Number of consecutive failures after which a group gets no more batches: its engine is broken, not the batch."""


def usual_window(credits: int, n_groups: int) -> int:
    """Twice the credits of all groups: enough for the others to go on while one batch takes twice as long."""
    return 2 * credits * n_groups


class Dispatcher:
    """The state of a run of `n_batches` over `groups` of workers (any distinct numbers).

    `window` is the `usual_window` unless given.  With `ascending` a batch that is sent again goes to a group that has had no
    later one, if there is such a group.  `room` says whether a worker may have several parts of the table at once.  With
    `grows` the run gets more batches (`grow`) until `close`.

    n_emitted    batches emitted or quarantined
    n_dropped    answers that came too late to be used
    quarantined  batches without answers
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
        grows: bool = False,
    ) -> None:
        self.n_batches = n_batches
        self._grows = grows
        self.n_emitted = 0
        self.n_dropped = 0
        self.quarantined: list[int] = []
        self.window = window or usual_window(credits, len(groups))
        self._credits, self._ascending = credits, ascending
        self._queues = BatchQueues(n_batches, len(groups), schedule)
        self._groups = [Group(tuple(members), queue) for members, queue in zip(groups, self._queues.of_groups, strict=True)]
        self._singles = all(len(members) == 1 for members in groups)
        self._group_of = {worker: group for group in self._groups for worker in group.members}
        self._workers = frozenset(self._group_of)
        self._spares = Spares(groups, room)
        self._open: dict[int, Batch] = {}  # sent, without an answer
        self._ended: dict[int, int | None] = {}  # answered by an attempt, or quarantined, and not emitted yet
        self._again: set[int] = set()
        self._has_room = True  # does a group hold fewer batches than it may, after the last sends?

    # State

    @property
    def finished(self) -> bool:
        """Tells whether every batch has been emitted or quarantined, and no more will come."""
        return self.n_emitted == self.n_batches and not self._grows

    @property
    def n_kept(self) -> int:
        """Batches with state: in flight, or waiting for an earlier one to be emitted."""
        return len({*self._open, *self._ended, *(batch for group in self._groups for batch in group.held)})

    def flight(self, worker: int, batch: int, attempt: int) -> Flight | None:
        """The record of an attempt that the worker has yet to answer, superseded or not; None without one."""
        trial = self._trial(worker, batch, attempt)
        return None if trial is None else trial.missing.get(worker)

    def wants(self, worker: int, batch: int, attempt: int) -> bool:
        """Tells whether an answer would be used: it has not come before, no other attempt was first, and the worker is not
        lost."""
        trial = self._trial(worker, batch, attempt)
        return trial is not None and worker in trial.missing and not trial.superseded

    def flights(self, worker: int, *, wanted: bool = False) -> Iterator[Flight]:
        """The batches that a worker has yet to answer, in sending order; with `wanted` only those not superseded."""
        group = self._group_of.get(worker)
        return iter(()) if group is None else group.flights(worker, wanted=wanted)

    def is_straggler(self, worker: int) -> bool:
        """Tells whether the worker is past a deadline, so that it gets no new batch until it answers."""
        group = self._group_of.get(worker)
        return group is not None and worker in group.stragglers

    @property
    def silent(self) -> list[int]:
        """The workers that have a batch to answer, if the run cannot go on before one of them answers or is lost.

        Empty while a group without stragglers holds a batch.  A group with stragglers contributes only these, because its
        other members are matching or loading a shard, and can load the stragglers' shards.
        """
        if self.finished:
            return []
        for group in self._groups:
            if group.wanted and not group.stragglers:
                return []
        owing = {
            worker
            for group in self._groups
            for trial in group.held.values()
            for worker in trial.missing
            if not group.stragglers or worker in group.stragglers
        }
        return sorted(owing)

    def upcoming(self, n: int) -> list[int]:
        """At most `n` batches that will be sent next, for reading ahead."""
        return self._queues.upcoming(n)

    # Events

    def start(self) -> list[Instruction]:
        """The first instructions."""
        return self._proceed()

    def grow(self, n: int) -> list[Instruction]:
        """Add `n` batches to the run."""
        self.n_batches += n
        self._queues.n_batches = self.n_batches
        return self._proceed()

    def close(self) -> None:
        """Tell the dispatcher that no more batches will come."""
        self._grows = False

    def answered(self, worker: int, batch: int, attempt: int) -> list[Instruction]:
        """`worker` has answered an attempt at `batch`.

        An answer that is not used is counted and frees the worker's credit.  Raises ValueError for a batch never sent.
        """
        trial = self._trial(worker, batch, attempt)
        if trial is None or worker not in trial.missing:
            self._check(worker, batch)
            self.n_dropped += 1
            return []
        group = self._group_of[worker]
        group.failures = group.failures if trial.failed else 0
        self._heard(group, worker)
        self.n_dropped += trial.superseded
        dropped: list[Instruction] = []
        if group.let_go(worker, batch) and not trial.superseded:
            dropped = self._accept(group, batch, attempt)
        return self._proceed(dropped)

    def exchange(
        self, send: Callable[[int, int], int | None], worker: int, batch: int, attempt: int
    ) -> tuple[Flight, int] | None:
        """`worker` has answered an attempt at `batch`: `send(worker, following)` it the next, where nothing has gone wrong.

        So it has that before anything else is done.  With `proceed`, after one or more exchanges, this does what `answered`
        does.  Returns the flight of the answered batch, which is now that of the next, and what `send` returned; None when
        there is more to decide, or when `send` returned None: then nothing was done.
        """
        group = self._group_of.get(worker)
        if group is None or group.stragglers or group.alone is not None or self._again or self._queues.are_shared:
            return None
        held, open_, following = group.held, self._open, group.queue.head
        trial, state = held.get(batch), open_.get(batch)
        if trial is None or state is None or attempt or state.n_attempts > 1 or len(group.members) > 1:
            return None
        if following >= self.n_batches or following >= self.n_emitted + self.window:
            return None
        sent = send(worker, following)
        if sent is None:
            return None
        del held[batch], open_[batch]
        group.queue.take()
        held[following], open_[following], self._ended[batch] = trial, state, 0  # nothing is made anew
        group.failures, group.latest = 0, following
        flight = trial.missing[worker]
        flight.batch = following
        return flight, sent

    def proceed(self) -> Sequence[Instruction]:
        """The other consequences of exchanges, which make no new group and send no batch again."""
        emits = self._emits()
        return [*self._sends(), *emits] if self._has_room else emits

    def failed(self, worker: int, batch: int, attempt: int) -> list[Instruction]:
        """The engine of `worker` raised on an attempt at `batch`.  Raises ValueError for a batch never sent."""
        trial = self._trial(worker, batch, attempt)
        if trial is None or worker not in trial.missing:
            self._check(worker, batch)
            return []
        group = self._group_of[worker]
        self._heard(group, worker)
        dropped: list[Instruction] = []
        if not trial.superseded:
            dropped = self._supersede(group, batch, trial)
            self._blame(group, batch)
        group.let_go(worker, batch)
        group.failures += not trial.failed
        trial.failed = True
        if group.failures == MOST_FAILURES:
            dropped += self._dissolve(group, worker, died=False)
        return self._proceed(dropped)

    def timed_out(self, worker: int) -> list[Instruction]:
        """Mark `worker`, which is past the deadline of a batch, as a straggler."""
        group = self._group_of.get(worker)
        if group is None or worker in group.stragglers:
            self._check(worker)
            return []
        group.stragglers.add(worker)
        self._lend_queues()
        for batch in group.wanted:
            self._reconsider(batch)
        return self._proceed()

    def lost(self, worker: int) -> list[Instruction]:
        """Remove `worker`, which is dead; answers that still arrive from it are not used."""
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
        """Raise ValueError for an unknown worker or a batch never sent, which are bugs of the caller; late and repeated
        events are normal."""
        if worker not in self._workers:
            raise ValueError(f"there is no worker {worker}")
        if batch is None or batch in self._open or batch in self._ended or 0 <= batch < self.n_emitted:
            return
        raise ValueError(f"worker {worker} answered batch {batch}, which was never sent")

    def _heard(self, group: Group, worker: int) -> None:
        """Note that a worker has answered.  If its group has no straggler left, its batches need not be sent again."""
        if worker not in group.stragglers:
            return
        group.stragglers.remove(worker)
        if not group.stragglers:
            self._again.difference_update(group.wanted)
            self._lend_queues()

    def _accept(self, group: Group, batch: int, attempt: int) -> list[Instruction]:
        """Complete the answer to a batch, and drop partial answers of other groups."""
        state = self._open.pop(batch)
        self._ended[batch] = attempt
        self._again.discard(batch)
        dropped = []
        for other in state.holders:
            if other is not group:
                dropped += self._part_of(other, batch)
                other.held[batch].superseded = True
        return dropped

    def _supersede(self, group: Group, batch: int, trial: Trial) -> list[Instruction]:
        """Give up a group's answer to a batch."""
        dropped = self._part_of(group, batch)
        trial.superseded = True
        self._open[batch].holders.remove(group)
        return dropped

    def _part_of(self, group: Group, batch: int) -> list[Instruction]:
        """The instruction to drop the answers of members that have answered already."""
        return [Drop(batch, group.held[batch].attempt)] if group.has_part_of(batch) else []

    def _blame(self, group: Group, batch: int) -> None:
        state = self._open[batch]
        state.victims.append(group)
        if len(state.victims) == MOST_VICTIMS:
            self._quarantine(batch)
        else:
            self._reconsider(batch)

    def _quarantine(self, batch: int) -> None:
        del self._open[batch]
        self._ended[batch] = None
        self.quarantined.append(batch)
        self._again.discard(batch)

    def _reconsider(self, batch: int) -> None:
        """Mark a batch for sending again, if only groups with stragglers hold it."""
        if self._open[batch].waits:
            self._again.add(batch)

    def _dissolve(self, group: Group, out: int, *, died: bool = True) -> list[Instruction]:
        """Remove a group, because its member `out` is dead or broken.  The batches that a dead member held are suspects."""
        self._groups.remove(group)
        for member in group.members:
            del self._group_of[member]
        self._spares.add(member for member in group.members if member != out)
        self._queues.orphan(group.queue)
        self._lend_queues()
        dropped = []
        for batch in group.wanted:
            trial = group.held[batch]
            dropped += self._supersede(group, batch, trial)
            if died and out in trial.missing:
                self._blame(group, batch)
            else:
                self._reconsider(batch)
        group.held.clear()
        return dropped

    def _lend_queues(self) -> None:
        """Share the queues of groups with stragglers, besides those of dissolved groups."""
        self._queues.lend(group.queue for group in self._groups if group.stragglers)

    # Instructions

    def _proceed(self, dropped: Iterable[Instruction] = ()) -> list[Instruction]:
        """Every load, send, drop and emission that is possible now."""
        loads = self._regroup()
        self._set_aside_hopeless()
        emits = self._emits()
        found: list[Instruction] = [*loads, *self._sends(), *dropped, *emits]  # no worker waits for the last two
        if not self._groups and not self.finished:
            found.append(GiveUp("no worker is left" if self._singles else "too few workers are left to have all filters"))
        return found

    def _regroup(self) -> list[Load]:
        """Make groups of spare workers; returns the shards that their members have to load."""
        loads: list[Load] = []
        while not self.finished and (found := self._spares.regroup(last=not self._groups)) is not None:
            group = Group(tuple(found[0]), self._queues.empty)
            self._groups.append(group)
            self._group_of.update(dict.fromkeys(group.members, group))
            loads += found[1]
        return loads

    def _set_aside_hopeless(self) -> None:
        """Quarantine the batches that every remaining group has failed on."""
        for batch in sorted(self._again) if self._again else ():
            state = self._open[batch]
            if self._groups and not state.holders and all(group in state.victims for group in self._groups):
                self._quarantine(batch)

    def _emits(self) -> list[Emit | Quarantine]:
        found: list[Emit | Quarantine] = []
        ended, batch = self._ended, self.n_emitted
        while batch in ended:
            attempt = ended.pop(batch)
            found.append(Quarantine(batch) if attempt is None else Emit(batch, attempt))
            batch += 1
        self.n_emitted = batch
        return found

    def _sends(self) -> list[Send]:
        sends: list[Send] = []
        reserved = self._send_again(sends) if self._again else ()
        limit = min(self.n_batches, self.n_emitted + self.window)
        while True:
            best, queue = None, None
            for group in self._groups:
                if (
                    len(group.held) < self._credits
                    and not group.stragglers
                    and group.alone is None
                    and group not in reserved
                ):
                    nearest = self._queues.nearest(group.queue)
                    if nearest.head < limit and (best is None or len(group.held) < len(best.held)):
                        best, queue = group, nearest
            if best is None or queue is None:
                self._has_room = any(len(group.held) < self._credits for group in self._groups)
                return sends
            batch = queue.take()
            self._open[batch] = Batch()
            self._give(best, batch, sends)

    def _send_again(self, sends: list[Send]) -> list[Group]:
        """Send batches again; returns the groups that are reserved for a batch to be sent alone."""
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
        """Tells whether a group may get a batch: it has no straggler and nothing sent alone, and is not a victim of the
        batch."""
        return not (group.stragglers or group.alone is not None or group in state.victims)

    def _give(self, group: Group, batch: int, sends: list[Send]) -> None:
        state = self._open[batch]
        group.hold(batch, state.n_attempts)
        sends.extend(Send(worker, batch, state.n_attempts) for worker in group.members)
        state.holders.append(group)
        state.n_attempts += 1
