"""The status of a run: gauges of batches in flight, and incidents, kept up to a limit and counted without one."""

from __future__ import annotations

import pytest
from clock import Clock

from mpi_match.monitor.status import INCIDENTS, KEPT, Incident, RunStatus, Share


@pytest.fixture
def status(clock: Clock) -> RunStatus:
    """A run of a thousand events on two workers that has begun."""
    made = RunStatus(1000, clock)
    made.shares = {worker: Share("keyed", "cpu", "here") for worker in (1, 2)}
    made.begin()
    return made


def test_seconds_count_from_the_beginning_to_the_end(clock: Clock) -> None:
    status = RunStatus(0, clock)
    assert status.at_s == 0
    status.begin()
    clock.now += 3
    assert status.at_s == 3
    status.end()
    clock.now += 5
    assert status.at_s == 3


def test_a_worker_holds_what_it_has_not_answered(status: RunStatus) -> None:
    status.sent(1, 0, 700)
    status.sent(1, 1, 300)
    status.sent(2, 2, 500)
    assert [(s.held, s.held_bytes) for s in status.shares.values()] == [(2, 1000), (1, 500)]
    status.answered(1, 0, 70)
    status.wrote(70, 9)
    share = status.shares[1]
    assert (share.held, share.held_bytes, share.batches, share.events) == (1, 300, 1, 70)
    assert (status.written, status.matches) == (70, 9)


def test_a_lost_worker_holds_nothing(status: RunStatus, clock: Clock) -> None:
    status.sent(1, 0, 700)
    status.sent(2, 1, 300)
    clock.now += 2
    status.happened("lost", 1)
    assert (status.shares[1].held, status.shares[1].held_bytes, status.shares[1].lost) == (0, 0, True)
    assert (status.shares[2].held, status.shares[2].lost) == (1, False)
    assert list(status.incidents) == [Incident(0, 2.0, "lost", 1)]


def test_a_straggler_is_one_until_it_answers(status: RunStatus) -> None:
    for late in ("answered", "dropped"):
        status.sent(1, 0, 700)
        status.happened("overdue", 1, 0)
        assert status.shares[1].straggling
        if late == "answered":
            status.answered(1, 0, 10)
        else:
            status.happened("dropped", 1, 0)
        assert (status.shares[1].straggling, status.shares[1].held, status.shares[1].held_bytes) == (False, 0, 0)
    assert status.shares[1].events == 10, "a dropped answer is no share of the work"


def test_an_exchange_is_an_answer_and_a_batch_sent(status: RunStatus) -> None:
    status.sent(1, 0, 700)
    status.happened("overdue", 1, 0)
    status.exchanged(1, 0, 70, 1, 300)
    share = status.shares[1]
    assert (share.held, share.held_bytes, share.batches, share.events, share.straggling) == (1, 300, 1, 70, False)
    status.answered(1, 1, 30)
    assert (share.held, share.held_bytes, share.batches, share.events) == (0, 0, 2, 100)


def test_a_batch_may_be_held_by_two_workers(status: RunStatus) -> None:
    status.sent(1, 0, 700)
    status.happened("resent", 2, 0)
    status.sent(2, 0, 700)
    status.answered(2, 0, 10)
    assert [status.shares[worker].held for worker in (1, 2)] == [1, 0]


def test_memory_of_incidents_is_bounded(status: RunStatus) -> None:
    for batch in range(3 * KEPT):
        status.happened("dropped", 2, batch)
    assert len(status.incidents) == KEPT
    assert (status.incidents[-1].number, status.incidents[-1].batch) == (3 * KEPT - 1, 3 * KEPT - 1)
    assert status.happened_so_far == {"dropped": 3 * KEPT}


@pytest.mark.parametrize("kind", INCIDENTS)
def test_an_incident_is_a_line(kind: str) -> None:
    text = str(Incident(0, 0.5, kind, 3, 17))
    assert "{" not in text
    assert all(number in text for name, number in (("{worker}", "3"), ("{batch}", "17")) if name in INCIDENTS[kind])
