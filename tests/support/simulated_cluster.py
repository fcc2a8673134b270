"""A simulated cluster without processes: a dispatcher, the state of a master, and workers with every kind of fault.

A discrete-event simulation: time is a heap of events, drawn from a seed.  Workers match in the order in which orders arrive;
the network keeps the order of orders and not that of answers.  The faults, each in some runs and not in others:

    kill     a worker dies; the master is notified soon, or (another MPI) never
    stall    a worker stalls for a while, and goes on
    late     an answer takes longer than the deadline
    double   an answer comes twice
    drop     an order or an answer never arrives
    broken   an engine raises on every batch from now on
    lethal   a batch that kills every worker that matches it
    raising  a batch that every engine raises on

Members of dissolved groups get orders to load shards, and every answer names its shards.  In two runs of three one group is
*spared*: only batches can harm its workers.  After every call a master with a clock checks the dispatcher's invariants
against the events; `AssertionError` names the violated one.
"""

from __future__ import annotations

import copy
import heapq
import random
from collections import defaultdict, deque
from dataclasses import dataclass, field

from mpi_match.cluster.scheduling.dispatcher import MOST_VICTIMS, Dispatcher
from mpi_match.cluster.scheduling.instructions import Drop, Emit, GiveUp, Instruction, Load, Quarantine, Send
from mpi_match.cluster.scheduling.timeouts import Deadlines, RoundTrips

DEADLINE = 20.0
"""The time limit of a batch, which takes at most 2."""
END = 5000.0
"""A run that is not over by then makes no progress."""
FAULTS = ("kill", "stall", "late", "double", "drop", "broken", "lethal", "raising")


@dataclass
class SimulatedWorker:
    """A worker: its queue of batches and shards to load, the shards that it holds, and its faults.

    `home` is its first group, `group` the present one; None: it is a spare.
    """

    home: int
    group: int | None
    parts: set[int]
    inbox: deque[tuple[int, int] | Load] = field(default_factory=deque)
    alive: bool = True
    broken: bool = False
    busy: bool = False
    stalled_until: float = 0.0
    last_arrival: float = 0.0


class SimulatedCluster:
    """One run; `faults` are those that may happen in it (None: the seed decides).

    With `exchanges`, answers where nothing has gone wrong are exchanged for the following batch (`Dispatcher.exchange`);
    `compares`: what that decides is compared with what `Dispatcher.answered` does.
    """

    def __init__(self, seed: int, faults: frozenset[str] | None = None) -> None:
        self.rng = rng = random.Random(seed)
        self.faults = frozenset(each for each in FAULTS if rng.random() < 0.4) if faults is None else faults
        self.n_batches, self.credits = rng.randrange(4, 40), rng.randrange(1, 5)
        size, n_groups = rng.choice((1, 1, 1, 2, 3)), rng.randrange(1, 7)
        self.groups = [tuple(range(1 + i * size, 1 + (i + 1) * size)) for i in range(n_groups)]
        self._n_queues = n_groups
        self.spared = rng.choice((-1, 0, n_groups - 1))
        self.window = rng.choice((None, None, rng.randrange(1, 30)))
        self.n_parts, self.most_parts = size, rng.randrange(1, size + 1)
        self.notifies = rng.random() < 0.5
        ranks = rng.sample(range(self.n_batches), 2)
        self.lethal = {ranks[0]} if "lethal" in self.faults else set()
        self.raising = {ranks[1]} if "raising" in self.faults else set()
        self.schedule, self.ascending = rng.choice(("dynamic", "static")), rng.random() < 0.3
        self.dispatcher = Dispatcher(
            self.n_batches,
            self.groups,
            credits=self.credits,
            schedule=self.schedule,
            window=self.window,
            ascending=self.ascending,
            room=lambda parts: len(parts) <= self.most_parts,
        )
        self.deadlines = Deadlines(self.dispatcher, RoundTrips(), DEADLINE)
        self.workers = {
            w: SimulatedWorker(i, i, {part}) for i, members in enumerate(self.groups) for part, w in enumerate(members)
        }
        self.now = 0.0
        self._agenda: list[tuple[float, int, str, tuple[int, ...]]] = []
        self._n_planned = 0
        # The state of the master
        self.emitted: list[int] = []
        self.quarantined: list[int] = []
        self.given_up = False
        self.lost: set[int] = set()  # groups
        self.gone: set[int] = set()  # workers
        self._owed: dict[int, dict[int, set[int]]] = {i: {} for i in range(n_groups)}  # group, batch, members
        self._parts: dict[tuple[int, int], dict[int, set[int]]] = {}  # batch and attempt, worker, parts of the table
        self.tried: dict[int, list[int]] = defaultdict(list)
        self._blamed: dict[int, set[int]] = defaultdict(set)
        self._failures: dict[int, int] = defaultdict(int)
        self._failed_on: set[tuple[int, int]] = set()
        self._n_set_aside = 0
        self._alone: dict[int, int] = {}  # group, batch
        self.n_unwanted = self.n_exchanged = 0
        self.exchanges, self.compares = seed % 2 == 1, False

    def run(self) -> None:
        """Run until all is emitted or given up."""
        self._plan_faults()
        self._plan(1.0, "tick")
        self._obey(self.dispatcher.start())
        while not (self.dispatcher.finished or self.given_up):
            self.now, _, what, about = heapq.heappop(self._agenda)
            assert self.now < END, f"nothing happens any more; silent are {self.dispatcher.silent}"
            getattr(self, f"_{what}")(*about)
        self._check_end()

    # Events of workers

    def _plan(self, after: float, what: str, *about: int) -> None:
        self._n_planned += 1
        heapq.heappush(self._agenda, (self.now + after, self._n_planned, what, about))

    def _plan_faults(self) -> None:
        for fault in ("kill", "stall", "broken"):
            if fault in self.faults:
                for worker, state in self.workers.items():
                    if state.home != self.spared and self.rng.random() < 0.5:
                        self._plan(self.rng.uniform(0, 1.5 * self.n_batches / len(self.groups)), fault, worker)

    def _happens(self, fault: str, worker: int, probability: float) -> bool:
        spared = self.workers[worker].home == self.spared
        return fault in self.faults and not spared and self.rng.random() < probability

    def _kill(self, worker: int) -> None:
        self.workers[worker].alive = False
        if self.notifies:
            self._plan(self.rng.uniform(0.01, 3), "notice", worker)

    def _broken(self, worker: int) -> None:
        self.workers[worker].broken = True

    def _stall(self, worker: int) -> None:
        self.workers[worker].stalled_until = self.now + self.rng.uniform(1, 4 * DEADLINE)

    def _order(self, worker: int, batch: int, attempt: int) -> None:
        self.workers[worker].inbox.append((batch, attempt))
        self._begin(worker)

    def _load(self, worker: int, part: int, keep: int) -> None:
        self.workers[worker].inbox.append(Load(worker, part, bool(keep)))
        self._begin(worker)

    def _begin(self, worker: int) -> None:
        state = self.workers[worker]
        if state.alive and state.inbox and not state.busy:
            state.busy = True
            self._plan(self.rng.uniform(0.1, 2), "done", worker)

    def _done(self, worker: int) -> None:
        state = self.workers[worker]
        if state.stalled_until > self.now:
            self._plan(state.stalled_until - self.now, "done", worker)
            return
        if not state.alive:
            return
        order = state.inbox.popleft()
        if isinstance(order, Load):
            state.parts = {order.part, *(state.parts if order.keep else ())}
            assert len(state.parts) <= max(self.most_parts, 1), f"worker {worker} has no room for {state.parts}"
            state.busy = False
            self._begin(worker)
            return
        batch, attempt = order
        if batch in self.lethal:
            self._kill(worker)
            return
        what = "failed" if state.broken or batch in self.raising else "answered"
        for _ in range(2 if self._happens("double", worker, 0.1) else 1):
            if not self._happens("drop", worker, 0.02):
                delay = self.rng.uniform(2, 5) * DEADLINE if self._happens("late", worker, 0.05) else self.rng.uniform(0, 1)
                self._plan(delay, what, worker, batch, attempt, *state.parts)
        state.busy = False
        self._begin(worker)

    # Events of the master

    def _answered(self, worker: int, batch: int, attempt: int, *parts: int) -> None:
        beside = copy.deepcopy(self.dispatcher) if self.compares else None
        following = self._exchanged(worker, batch, attempt, *parts)
        if following is None:
            self._obey(self.dispatcher.answered(worker, batch, attempt))
            return
        sent: list[Instruction] = [following]
        answered = [(worker, batch, attempt)]
        while self._agenda[0][2] == "answered" and self.rng.random() < 0.5:
            self.now, _, _, about = heapq.heappop(self._agenda)
            answered.append((about[0], about[1], about[2]))
            following = self._exchanged(*about)
            if following is None:
                break
            sent.append(following)
        found = [*sent, *self.dispatcher.proceed()]
        if following is None:
            found += self.dispatcher.answered(*answered[-1])
        if beside is not None:
            one_by_one = [each for answer in answered for each in beside.answered(*answer)]
            assert sorted(found, key=repr) == sorted(one_by_one, key=repr), "an exchange decides otherwise"
        self._obey(found)

    def _exchanged(self, worker: int, batch: int, attempt: int, *parts: int) -> Send | None:
        """An answer arrives: the send that it is exchanged for, or None."""
        if self.dispatcher.wants(worker, batch, attempt):
            answers = self._parts.setdefault((batch, attempt), {})
            assert worker not in answers, "an answer is wanted that is here"
            assert batch not in self.emitted, "an answer is wanted that was written"
            answers[worker] = set(parts)
        else:
            self.n_unwanted += 1
        self._forget(worker, batch, attempt)
        group = self.tried[batch][attempt]
        if self.dispatcher.flight(worker, batch, attempt) and (group, batch) not in self._failed_on:
            self._failures[group] = 0
        if not self.exchanges:
            return None
        sends: list[Send] = []

        def send(worker: int, following: int) -> int:
            sends.append(Send(worker, following))
            return 0

        if self.dispatcher.exchange(send, worker, batch, attempt) is None:
            return None
        self.n_exchanged += 1
        return sends[0]

    def _failed(self, worker: int, batch: int, attempt: int, *_: int) -> None:
        group = self.tried[batch][attempt]
        if self.dispatcher.flight(worker, batch, attempt):
            self._blamed[batch].add(group)
            self._failures[group] += (group, batch) not in self._failed_on
            self._failed_on.add((group, batch))
        self._forget(worker, batch, attempt)
        if self._failures[group] == 2 and group not in self.lost:
            self._lose(group, worker)
        self._obey(self.dispatcher.failed(worker, batch, attempt))

    def _notice(self, worker: int) -> None:
        group = self.workers[worker].group
        if group is not None:
            for batch, members in self._owed[group].items():
                if worker in members:
                    self._blamed[batch].add(group)
        self._lose(group, worker)
        self._obey(self.dispatcher.lost(worker))

    def _tick(self) -> None:
        self.deadlines.look(self.now)
        for worker, _ in self.deadlines.stragglers():
            self._obey(self.dispatcher.timed_out(worker))
        for worker in self.deadlines.hopeless():
            self._notice(worker)
        self._plan(1.0, "tick")

    def _forget(self, worker: int, batch: int, attempt: int) -> None:
        self.deadlines.came(worker, self.dispatcher.flight(worker, batch, attempt))
        owed = self._owed[self.tried[batch][attempt]]
        if batch in owed:
            owed[batch].discard(worker)
            if not owed[batch]:
                del owed[batch]

    def _lose(self, group: int | None, out: int) -> None:
        """A worker is out, and its group is broken."""
        self.gone.add(out)
        if group is None or group in self.lost:
            return
        self.lost.add(group)
        self._owed[group].clear()
        for member in self.groups[group]:
            self.workers[member].group = None

    # What the dispatcher says

    def _obey(self, instructions: list[Instruction]) -> None:
        sends: dict[tuple[int, int], list[int]] = {}
        for instruction in instructions:
            match instruction:
                case Send(worker, batch, attempt):
                    sends.setdefault((batch, attempt), []).append(worker)
                case Load(worker, part, keep):
                    assert self.workers[worker].group is None, f"worker {worker} is to load beside its work"
                    assert worker not in self.gone, f"worker {worker} is to load, and is lost"
                    self._arrive(worker, "load", part, keep)
                case Emit(batch, attempt):
                    self._next(batch)
                    self.emitted.append(batch)
                    answers = self._parts.pop((batch, attempt))
                    assert answers.keys() == set(self.groups[self.tried[batch][attempt]])
                    there = set().union(*answers.values())
                    assert there == set(range(self.n_parts)), f"batch {batch} is answered by the parts {there} only"
                case Quarantine(batch):
                    self._next(batch)
                    self.quarantined.append(batch)
                case Drop(batch, attempt):
                    assert self._parts.pop((batch, attempt)), "nothing to drop"
                case GiveUp():
                    self.given_up = True
        for (batch, attempt), workers in sends.items():
            self._send(batch, attempt, workers)
        self._check_quarantine()
        self._check_bounds()
        self._check_diligence()

    def _next(self, batch: int) -> None:
        assert batch == self._n_done, f"batch {batch} is out of order"

    def _arrive(self, worker: int, what: str, *about: int) -> None:
        """Have an order arrive, behind earlier ones."""
        state = self.workers[worker]
        state.last_arrival = max(state.last_arrival, self.now + self.rng.uniform(0, 0.5))
        self._plan(state.last_arrival - self.now, what, worker, *about)

    def _found(self, workers: list[int]) -> int:
        """The group that these are, which may be one that has just been made."""
        group = self.workers[workers[0]].group
        if group is None:
            group = len(self.groups)
            for worker in workers:
                assert self.workers[worker].group is None, f"worker {worker} is in two groups"
                assert worker not in self.gone, f"worker {worker} is in a group, and is lost"
                self.workers[worker].group = group
            self.groups.append(tuple(workers))
            self._owed[group] = {}
        return group

    def _send(self, batch: int, attempt: int, workers: list[int]) -> None:
        group = self._found(workers)
        assert tuple(workers) == self.groups[group], f"an attempt at batch {batch} is not for a whole group"
        assert group not in self.lost, f"batch {batch} is sent to a lost group"
        assert group not in self.tried[batch], f"batch {batch} is sent to a group twice"
        assert attempt == len(self.tried[batch]), f"attempt {attempt} at batch {batch} is not the next"
        assert not self._is_late(group), f"batch {batch} is sent to a group that is late"
        strikes = self._strikes(batch)
        assert strikes < MOST_VICTIMS, f"batch {batch} is sent too often"
        held = [each for each in self._owed[group] if not self._is_answered(each) and group not in self._blamed[each]]
        assert not (held and strikes == MOST_VICTIMS - 1), f"batch {batch} has to travel alone, and {held} are there"
        assert self._alone.get(group) not in held, f"batch {batch} is sent beside one that travels alone"
        if strikes == MOST_VICTIMS - 1:
            self._alone[group] = batch
        assert batch not in self.emitted, f"batch {batch} is sent though it was emitted"
        assert batch < self._n_done + self.dispatcher.window, f"batch {batch} is too early"
        self.tried[batch].append(group)
        self._owed[group][batch] = set(workers)
        assert len(self._owed[group]) <= self.credits, f"group {group} holds too much"
        for worker in workers:
            flight = self.dispatcher.flight(worker, batch, attempt)
            assert flight is not None, f"batch {batch} is sent to worker {worker} without a record of it"
            self.deadlines.sent(worker, flight)
            if not self._happens("drop", worker, 0.02):
                self._arrive(worker, "order", batch, attempt)

    def _is_late(self, group: int) -> bool:
        return any(self.dispatcher.is_straggler(worker) for worker in self.groups[group])

    def _is_answered(self, batch: int) -> bool:
        whole = (
            self._parts.get((batch, i), {}).keys() == set(self.groups[group]) for i, group in enumerate(self.tried[batch])
        )
        return batch < self._n_done or any(whole)

    def _holders(self, batch: int) -> set[int]:
        return {group for group in self.tried[batch] if batch in self._owed[group]} - self._blamed[batch]

    def _strikes(self, batch: int) -> int:
        return len(self._holders(batch) | self._blamed[batch])

    @property
    def _n_done(self) -> int:
        return len(self.emitted) + len(self.quarantined)

    def _check_diligence(self) -> None:
        """No group is idle while there is a batch for it."""
        if self.dispatcher.finished or self.given_up:
            return
        idle = {g for g in range(len(self.groups)) if not (g in self.lost or self._owed[g] or self._is_late(g))}
        for batch in range(self._n_done, min(self._n_done + self.dispatcher.window, self.n_batches)) if idle else ():
            if not self.tried[batch]:
                queue = batch % self._n_queues
                owned = self.schedule == "static" and not (queue in self.lost or queue in idle or self._is_late(queue))
                assert owned, f"batch {batch} is not sent, and {idle} are idle"
            elif not (self.ascending or self._is_answered(batch) or batch in self.dispatcher.quarantined):
                left = idle - self._blamed[batch] - set(self.tried[batch])
                given = self._strikes(batch) >= MOST_VICTIMS or any(not self._is_late(g) for g in self._holders(batch))
                assert given or not left, f"batch {batch} is not sent again, and {left} are idle"

    def _check_quarantine(self) -> None:
        left = set(range(len(self.groups))) - self.lost
        for batch in self.dispatcher.quarantined[self._n_set_aside :]:
            blamed = self._blamed[batch]
            assert len(blamed) == MOST_VICTIMS or (left and left <= blamed), f"batch {batch} killed only {blamed}"
        self._n_set_aside = len(self.dispatcher.quarantined)

    def _check_bounds(self) -> None:
        bound = self.dispatcher.window + self.credits * self._n_queues
        assert self.dispatcher.n_kept <= bound, f"{self.dispatcher.n_kept} batches are kept"
        assert len(self._parts) <= bound, f"{len(self._parts)} answers wait"

    def _check_end(self) -> None:
        assert self.dispatcher.n_dropped == self.n_unwanted, "dropped answers are not counted"
        done = sorted(self.emitted + self.quarantined)
        assert done == list(range(len(done)))
        if self.given_up:
            assert self.lost == set(range(len(self.groups))), "given up although a group is left"
            left = len(self.workers) - len(self.gone)
            assert left * self.most_parts < self.n_parts or left == 0, f"given up although {left} workers are left"
            assert self.spared == -1 or self.lethal | self.raising, "given up although a group was spared"
        else:
            assert len(done) == self.n_batches
            assert not self._parts, "answers are left over"
        if not self.faults - {"lethal", "raising", "double"} and len(self.groups) == self._n_queues:
            assert set(self.quarantined) <= self.lethal | self.raising, f"bystanders in {self.quarantined}"
            if len(self.groups) > MOST_VICTIMS:
                assert not self.given_up
                assert set(self.quarantined) == self.lethal | self.raising
