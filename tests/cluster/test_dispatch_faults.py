"""The dispatcher in a simulated cluster, thousands of times, and once for two hundred thousand batches.

A seed that fails is in the name of what failed: `SimulatedCluster(SEED).run()` shows it again.
"""

from __future__ import annotations

import pickle
import random
from collections import deque

import pytest
from lasting import lasting
from simulated_cluster import FAULTS, SimulatedCluster

from mpi_match.cluster.scheduling.dispatcher import Dispatcher
from mpi_match.cluster.scheduling.instructions import Emit, Instruction, Send

CHUNK = 500


def _run(seed: int, faults: frozenset[str] | None = None) -> SimulatedCluster:
    cluster = SimulatedCluster(seed, faults)
    try:
        cluster.run()
    except Exception as error:
        raise AssertionError(f"seed {seed}, faults {sorted(cluster.faults)}: {error}") from error
    return cluster


@pytest.mark.parametrize("first", [*range(0, 1_000, CHUNK), *lasting(*range(1_000, 5_000, CHUNK))])
def test_with_any_faults_every_batch_is_emitted_or_quarantined_once(first: int) -> None:
    for seed in range(first, first + CHUNK):
        _run(seed)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_alone_is_survived_while_a_group_is_spared(fault: str) -> None:
    """The faults have effects: batches are sent again, dropped, lost or quarantined."""
    happened = 0
    for seed in range(200):
        cluster = _run(seed, frozenset([fault]))
        if cluster.spared != -1 and fault not in ("lethal", "raising"):
            assert not cluster.given_up
        again = any(len(groups) > 1 for groups in cluster.tried.values())
        happened += bool(again or cluster.dispatcher.n_dropped or cluster.lost or cluster.quarantined)
    assert happened > 20


def test_without_faults_every_batch_is_sent_once() -> None:
    for seed in range(200):
        cluster = _run(seed, frozenset())
        assert cluster.emitted == list(range(cluster.n_batches))
        assert all(len(groups) == 1 for groups in cluster.tried.values())
        assert cluster.dispatcher.n_dropped == 0


def test_an_exchange_decides_what_an_answer_does() -> None:
    n_exchanged = 0
    for seed in range(1, 400, 2):
        cluster = SimulatedCluster(seed)
        cluster.compares = True
        cluster.run()
        n_exchanged += cluster.n_exchanged
    assert n_exchanged > 500


def test_state_of_many_batches_is_freed() -> None:
    """Answers in any order, one in a hundred late and one in a hundred twice; a worker stalls half of the time."""
    n, rng, emitted = 200_000, random.Random(1), 0
    sizes: dict[int, int] = {}
    dispatcher = Dispatcher(n, [[1], [2], [3]], credits=4)
    under_way: deque[Send] = deque()
    aside: deque[Send] = deque()

    def obey(instructions: list[Instruction]) -> None:
        nonlocal emitted
        for each in instructions:
            if isinstance(each, Send):
                (aside if each.worker == 3 and each.batch % 8192 < 4096 else under_way).append(each)
            else:
                assert isinstance(each, Emit)
                assert each.batch == emitted
                emitted += 1

    obey(dispatcher.start())
    while not dispatcher.finished:
        if not under_way or (aside and rng.random() < 0.01):
            for worker in {each.worker for each in aside}:
                obey(dispatcher.timed_out(worker))
            under_way.extend(aside)  # what is late is answered after all
            aside.clear()
            continue
        each = under_way.popleft()
        luck = rng.random()
        if luck < 0.01:
            aside.append(each)
            continue
        obey(dispatcher.answered(*each))
        if luck > 0.99:
            obey(dispatcher.answered(*each))
        assert dispatcher.n_kept <= dispatcher.window + 12
        if emitted % 10_000 == 1000:
            sizes[emitted] = len(pickle.dumps(dispatcher))
    assert emitted == n
    assert dispatcher.n_dropped > n // 200
    assert len(sizes) > 5
    assert max(sizes.values()) < 10_000
