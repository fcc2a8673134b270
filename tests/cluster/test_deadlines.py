"""The clock of the dispatcher, by tables of times."""

from __future__ import annotations

import pytest

from mpi_match.cluster.scheduling.dispatcher import Dispatcher
from mpi_match.cluster.scheduling.instructions import Instruction, Send
from mpi_match.cluster.scheduling.timeouts import FIRST_S, LEAST_S, LONGEST_STEP_S, Deadlines, RoundTrips


class Run:
    """A dispatcher with a clock whose looks are half a second apart."""

    def __init__(self, n_batches: int = 20, workers: int = 2, credits: int = 1, given_s: float | None = 10.0) -> None:
        self.dispatcher = Dispatcher(n_batches, [[worker] for worker in range(1, workers + 1)], credits=credits)
        self.trips = RoundTrips()
        self.deadlines = Deadlines(self.dispatcher, self.trips, given_s)
        self.now = 1000.0
        self.deadlines.look(self.now)
        self.obey(self.dispatcher.start())

    def obey(self, instructions: list[Instruction]) -> list[Instruction]:
        for each in instructions:
            if isinstance(each, Send):
                self.sent(each.worker, each.batch, each.attempt)
        return instructions

    def sent(self, worker: int, batch: int, attempt: int = 0, more_s: float = 0) -> None:
        flight = self.dispatcher.flight(worker, batch, attempt)
        assert flight is not None
        self.deadlines.sent(worker, flight, more_s)

    def oldest(self, worker: int) -> tuple[int, int] | None:
        flight = next(self.dispatcher.flights(worker, wanted=True), None)
        return None if flight is None else (flight.batch, flight.attempt)

    def answer(self, worker: int, batch: int, attempt: int = 0) -> None:
        self.deadlines.came(worker, self.dispatcher.flight(worker, batch, attempt))
        self.obey(self.dispatcher.answered(worker, batch, attempt))

    def wait(self, seconds: float) -> None:
        for _ in range(int(2 * seconds)):
            self.now += 0.5
            assert self.deadlines.look(self.now)

    def overdue(self) -> list[tuple[int, int]]:
        """The stragglers, which the dispatcher is notified of, as the master does."""
        found = self.deadlines.stragglers()
        for worker, _ in found:
            self.obey(self.dispatcher.timed_out(worker))
        return found


def test_a_batch_that_was_not_answered_in_time_is_overdue_once() -> None:
    run = Run()
    run.wait(6)
    run.answer(1, 0)
    run.wait(4)
    assert run.overdue() == []
    run.wait(1)
    assert run.overdue() == [(2, 1)]
    assert run.overdue() == []


def test_after_an_answer_the_next_batch_has_the_whole_time() -> None:
    run = Run(credits=2)
    for batch in (0, 2, 4):
        run.wait(9)
        assert not [worker for worker, _ in run.overdue() if worker == 1]
        run.answer(1, batch)


def test_a_batch_answered_by_another_worker_has_no_deadline() -> None:
    run = Run()
    run.wait(11)
    assert run.overdue() == [(1, 0), (2, 1)]
    run.answer(2, 1)
    assert run.dispatcher.flight(2, 0, 1)  # what worker 1 had
    run.answer(2, 0, 1)
    run.wait(5)
    assert run.oldest(1) is None
    assert run.overdue() == []


@pytest.mark.parametrize(
    ("given_s", "trips_s", "limit_s"),
    [(None, [], FIRST_S), (None, [0.1] * 10, LEAST_S), (None, [20.0] * 10, 200.0), (7.0, [20.0], 7.0), (7.0, [], 7.0)],
)
def test_the_limit_follows_from_what_batches_took(given_s: float | None, trips_s: list[float], limit_s: float) -> None:
    run = Run(given_s=given_s)
    run.trips.add(trips_s)
    run.wait(1)
    assert run.deadlines.limit_s == pytest.approx(limit_s, rel=0.01)


def test_time_in_which_the_master_was_stopped_does_not_count() -> None:
    run = Run()
    run.now += 3600
    assert run.deadlines.look(run.now)
    assert run.overdue() == []
    run.wait(10 - LONGEST_STEP_S)
    assert run.overdue() == []
    run.wait(1)
    assert run.overdue() == [(1, 0), (2, 1)]


def test_looks_have_a_minimum_interval() -> None:
    run = Run()
    assert not run.deadlines.look(run.now + 0.1)
    assert run.deadlines.look(run.now + 0.3)


def test_other_work_that_ends_early_shortens_the_deadline() -> None:
    run = Run(workers=1, credits=2)
    run.answer(1, 0)
    run.answer(1, 1)
    run.sent(1, 2, more_s=600)
    run.sent(1, 3)
    run.wait(5)
    run.answer(1, 2)
    run.wait(11)
    assert run.overdue() == [(1, 3)]


def test_other_work_before_a_batch_extends_its_deadline() -> None:
    run = Run(workers=1, credits=2)
    run.answer(1, 0)
    run.sent(1, 2, more_s=30)
    run.answer(1, 1)
    assert run.oldest(1) == (2, 0)
    run.wait(35)
    assert run.overdue() == []
    run.wait(6)
    assert run.overdue() == [(1, 2)]


def test_stragglers_are_hopeless_only_when_they_block_the_run() -> None:
    run = Run(n_batches=4, workers=3)
    run.wait(11)
    run.answer(3, 2)
    assert run.overdue() == [(1, 0), (2, 1)]
    for batch, attempt in ((0, 1), (3, 0), (1, 1)):
        run.wait(5)
        assert run.deadlines.hopeless() == []  # worker 3 is at work
        if run.dispatcher.flight(3, batch, attempt):
            run.answer(3, batch, attempt)
    assert run.dispatcher.finished or run.oldest(3) is not None


def test_all_are_hopeless_when_all_are_silent_for_another_limit() -> None:
    run = Run()
    run.wait(11)
    run.overdue()
    assert run.deadlines.hopeless() == []
    run.wait(10)
    assert run.deadlines.hopeless() == []
    run.wait(1)
    assert run.deadlines.hopeless() == [1, 2]


def test_an_answer_ends_the_hopeless_silence() -> None:
    run = Run()
    run.wait(11)
    run.overdue()
    run.deadlines.hopeless()
    run.wait(8)
    run.answer(1, 0)
    assert run.deadlines.hopeless() == []
    run.wait(5)
    assert run.deadlines.hopeless() == []
