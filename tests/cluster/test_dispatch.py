"""The dispatcher: tables of calls, then any order of answers; the launch in the environment, and shares of a host."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_match.cluster.scheduling.dispatcher import Dispatcher
from mpi_match.cluster.scheduling.instructions import Drop, Emit, GiveUp, Instruction, Load, Quarantine, Send
from mpi_match.cluster.transport.launcher import LaunchedBy, Library, found_in, mismatch, singleton_refusal


def sends(*pairs: tuple[int, int]) -> list[Instruction]:
    return [Send(worker, batch) for worker, batch in pairs]


def emits(*batches: int) -> list[Instruction]:
    return [Emit(batch) for batch in batches]


# Tables of calls: ((worker, batch) answered, instructions)


@pytest.mark.parametrize("schedule", ["dynamic", "static"])
def test_the_first_batches_are_sent_round_robin_up_to_the_credits(schedule: str) -> None:
    dispatcher = Dispatcher(10, [[1], [2], [3]], credits=2, schedule=schedule)
    assert dispatcher.start() == sends((1, 0), (2, 1), (3, 2), (1, 3), (2, 4), (3, 5))


def test_dynamic_gives_the_next_batch_to_the_worker_that_answers() -> None:
    dispatcher = Dispatcher(6, [[1], [2]], credits=2)
    dispatcher.start()
    calls = [
        ((2, 1), sends((2, 4))),
        ((2, 3), sends((2, 5))),
        ((2, 4), []),
        ((1, 0), emits(0, 1)),
        ((1, 2), emits(2, 3, 4)),
    ]
    for (worker, batch), expected in calls:
        assert dispatcher.answered(worker, batch, 0) == expected
    assert not dispatcher.finished
    assert dispatcher.answered(2, 5, 0) == emits(5)
    assert dispatcher.finished


def test_static_keeps_every_batch_with_its_worker() -> None:
    dispatcher = Dispatcher(7, [[1], [2]], credits=1, schedule="static")
    assert dispatcher.start() == sends((1, 0), (2, 1))
    calls = [
        ((2, 1), sends((2, 3))),
        ((2, 3), []),  # batch 5 is its next, but the window of four is full
        ((1, 0), [*sends((1, 2), (2, 5)), *emits(0, 1)]),
        ((2, 5), []),
        ((1, 2), [*sends((1, 4)), *emits(2, 3)]),
        ((1, 4), [*sends((1, 6)), *emits(4, 5)]),
        ((1, 6), emits(6)),
    ]
    for (worker, batch), expected in calls:
        assert dispatcher.answered(worker, batch, 0) == expected
    assert dispatcher.finished


def test_a_slow_worker_stops_the_others_at_the_window() -> None:
    dispatcher = Dispatcher(100, [[1], [2]], credits=1, window=3)
    dispatcher.start()
    assert dispatcher.answered(2, 1, 0) == sends((2, 2))
    assert dispatcher.answered(2, 2, 0) == []
    assert dispatcher.answered(1, 0, 0) == [*sends((1, 3), (2, 4)), *emits(0, 1, 2)]


def test_no_batches_no_instructions() -> None:
    dispatcher = Dispatcher(0, [[1], [2]])
    assert dispatcher.start() == []
    assert dispatcher.finished


@pytest.mark.parametrize(
    ("worker", "batch", "words"),
    [(1, 5, "worker 1 answered batch 5, which was never sent"), (9, 0, "there is no worker 9")],
)
def test_an_answer_of_an_unknown_worker_or_to_an_unsent_batch_is_refused(worker: int, batch: int, words: str) -> None:
    dispatcher = Dispatcher(10, [[1], [2]], credits=1)
    dispatcher.start()
    with pytest.raises(ValueError, match=words):
        dispatcher.answered(worker, batch, 0)


def test_a_second_answer_is_dropped_and_counted() -> None:
    dispatcher = Dispatcher(10, [[1], [2]], credits=1)
    dispatcher.start()
    assert dispatcher.answered(1, 0, 0) == [*sends((1, 2)), *emits(0)]
    assert not dispatcher.wants(1, 0, 0)
    assert dispatcher.answered(1, 0, 0) == []
    assert dispatcher.n_dropped == 1


@pytest.mark.parametrize(("schedule", "ahead"), [("dynamic", [2, 3, 4]), ("static", [2, 3, 4])])
def test_upcoming_batches_are_those_sent_next(schedule: str, ahead: list[int]) -> None:
    dispatcher = Dispatcher(6, [[1], [2]], credits=1, schedule=schedule)
    dispatcher.start()
    assert dispatcher.upcoming(3) == ahead
    assert dispatcher.upcoming(9) == [2, 3, 4, 5]


def test_upcoming_batches_of_an_uneven_static_run_hold_every_workers_next() -> None:
    dispatcher = Dispatcher(9, [[1], [2]], credits=1, schedule="static", window=9)
    dispatcher.start()
    for batch in (1, 3, 5):
        dispatcher.answered(2, batch, 0)
    assert dispatcher.upcoming(2) == [2, 4]
    assert dispatcher.upcoming(4) == [2, 4, 6, 8]


# Tables of what goes wrong: (what happened, instructions)


Call = tuple[str, tuple[int, ...], list[Instruction]]


def play(dispatcher: Dispatcher, calls: list[Call]) -> None:
    for name, arguments, expected in calls:
        assert getattr(dispatcher, name)(*arguments) == expected, (name, arguments)


def again(worker: int, batch: int, attempt: int = 1) -> Send:
    return Send(worker, batch, attempt)


def test_batches_of_a_lost_worker_go_to_the_others() -> None:
    dispatcher = Dispatcher(6, [[1], [2], [3]], credits=2)
    dispatcher.start()
    calls: list[Call] = [
        ("lost", (2,), []),  # the others are full
        ("answered", (3, 2, 0), [again(3, 1)]),
        ("answered", (1, 0, 0), [again(1, 4), *emits(0)]),
        ("answered", (2, 1, 0), []),  # it had said so before it died
        ("lost", (2,), []),
        ("answered", (3, 1, 1), [Emit(1, 1), *emits(2)]),
        ("answered", (1, 3, 0), emits(3)),
        ("answered", (1, 4, 1), [Emit(4, 1)]),
        ("answered", (3, 5, 0), emits(5)),
    ]
    play(dispatcher, calls)
    assert dispatcher.finished
    assert dispatcher.n_dropped == 1


def test_a_lost_workers_queue_is_shared() -> None:
    dispatcher = Dispatcher(9, [[1], [2], [3]], credits=1, schedule="static", window=9)
    dispatcher.start()
    calls: list[Call] = [
        ("answered", (3, 2, 0), sends((3, 5))),
        ("lost", (2,), []),
        ("answered", (3, 5, 0), [again(3, 1)]),
        ("answered", (3, 1, 1), sends((3, 4))),
        ("answered", (1, 0, 0), [*sends((1, 3)), *emits(0), Emit(1, 1), *emits(2)]),
        ("answered", (3, 4, 0), sends((3, 7))),
    ]
    play(dispatcher, calls)


def test_a_stragglers_queue_is_shared_until_it_answers() -> None:
    dispatcher = Dispatcher(12, [[1], [2]], credits=1, schedule="static", window=12)
    dispatcher.start()
    calls: list[Call] = [
        ("timed_out", (2,), []),
        ("answered", (1, 0, 0), [again(1, 1), *emits(0)]),
        ("answered", (1, 1, 1), [*sends((1, 2)), Emit(1, 1)]),
        ("answered", (1, 2, 0), [*sends((1, 3)), *emits(2)]),
        ("answered", (2, 1, 0), sends((2, 5))),
        ("answered", (1, 3, 0), [*sends((1, 4)), *emits(3)]),
        ("answered", (1, 4, 0), [*sends((1, 6)), *emits(4)]),  # 7 is worker 2's
    ]
    play(dispatcher, calls)
    assert dispatcher.n_dropped == 1


def test_batches_of_a_straggler_are_executed_speculatively() -> None:
    dispatcher = Dispatcher(7, [[1], [2]], credits=2)
    dispatcher.start()
    calls: list[Call] = [
        ("timed_out", (1,), []),  # worker 2 is full
        ("timed_out", (1,), []),
        ("answered", (2, 1, 0), [again(2, 0)]),
        ("answered", (2, 3, 0), [again(2, 2)]),
        ("answered", (2, 0, 1), [*sends((2, 4)), Emit(0, 1), *emits(1)]),
        ("answered", (1, 0, 0), sends((1, 5))),  # late, and dropped; worker 1 gets batches again
        ("answered", (1, 2, 0), [*sends((1, 6)), *emits(2, 3)]),  # this time it is first
        ("answered", (2, 2, 1), []),
    ]
    play(dispatcher, calls)
    assert dispatcher.n_dropped == 2


def test_a_straggler_that_answers_keeps_batches_not_yet_sent_to_others() -> None:
    dispatcher = Dispatcher(4, [[1], [2]], credits=2)
    dispatcher.start()
    calls: list[Call] = [
        ("timed_out", (1,), []),
        ("answered", (1, 0, 0), emits(0)),
        ("answered", (2, 1, 0), emits(1)),
        ("answered", (1, 2, 0), emits(2)),
        ("answered", (2, 3, 0), emits(3)),
    ]
    play(dispatcher, calls)
    assert dispatcher.finished


def test_a_suspected_batch_is_sent_alone() -> None:
    dispatcher = Dispatcher(20, [[1], [2], [3]], credits=2, window=20)
    dispatcher.start()  # 0 and 3 with 1, 1 and 4 with 2, 2 and 5 with 3
    calls: list[Call] = [
        ("answered", (2, 1, 0), sends((2, 6))),
        ("answered", (2, 4, 0), sends((2, 7))),
        ("lost", (1,), []),
        ("answered", (2, 6, 0), [again(2, 0)]),
        ("answered", (3, 2, 0), [again(3, 3)]),
        ("lost", (2,), []),  # of 0 or 7; 0 has killed two, perhaps
        ("answered", (3, 5, 0), []),  # nothing more for worker 3, which is kept free for 0
        ("answered", (3, 3, 1), [again(3, 0, 2)]),  # alone
        ("answered", (3, 0, 2), [again(3, 7), *sends((3, 8)), Emit(0, 2), *emits(1, 2), Emit(3, 1), *emits(4, 5, 6)]),
    ]
    play(dispatcher, calls)
    assert dispatcher.quarantined == []


def test_a_batch_that_killed_three_groups_is_quarantined_in_order() -> None:
    dispatcher = Dispatcher(5, [[1], [2], [3], [4]], credits=1)
    dispatcher.start()
    calls: list[Call] = [
        ("lost", (1,), []),
        ("answered", (2, 1, 0), [again(2, 0)]),
        ("lost", (2,), []),
        ("answered", (3, 2, 0), [again(3, 0, 2)]),
        ("lost", (3,), [Quarantine(0), *emits(1, 2)]),
        ("answered", (4, 3, 0), [*sends((4, 4)), *emits(3)]),
        ("answered", (4, 4, 0), emits(4)),
    ]
    play(dispatcher, calls)
    assert dispatcher.finished
    assert dispatcher.quarantined == [0]


def test_without_a_worker_the_run_is_given_up() -> None:
    dispatcher = Dispatcher(5, [[1], [2]], credits=1)
    dispatcher.start()
    calls: list[Call] = [
        ("lost", (1,), []),
        ("lost", (2,), [GiveUp("no worker is left")]),
        ("answered", (2, 1, 0), []),
    ]
    play(dispatcher, calls)


def test_a_group_is_dissolved_after_two_failures_in_a_row() -> None:
    dispatcher = Dispatcher(9, [[1], [2]], credits=1, window=9)
    dispatcher.start()
    calls: list[Call] = [
        ("failed", (1, 0, 0), sends((1, 2))),  # not batch 0 again
        ("answered", (1, 2, 0), sends((1, 3))),
        ("failed", (1, 3, 0), sends((1, 4))),
        ("failed", (1, 4, 0), []),  # it is out
        ("failed", (1, 4, 0), []),
        ("answered", (2, 1, 0), [again(2, 0)]),
        ("answered", (2, 0, 1), [again(2, 3), Emit(0, 1), *emits(1, 2)]),
    ]
    play(dispatcher, calls)
    assert not dispatcher.flight(1, 4, 0)


def test_a_batch_that_every_remaining_engine_fails_on_is_quarantined() -> None:
    dispatcher = Dispatcher(3, [[1], [2]], credits=1)
    dispatcher.start()
    calls: list[Call] = [
        ("failed", (1, 0, 0), sends((1, 2))),
        ("answered", (2, 1, 0), [again(2, 0)]),
        ("failed", (2, 0, 1), [Quarantine(0), *emits(1)]),
        ("answered", (1, 2, 0), emits(2)),
    ]
    play(dispatcher, calls)
    assert dispatcher.quarantined == [0]


def test_a_flight_exists_until_its_answer_or_the_end_of_its_group() -> None:
    dispatcher = Dispatcher(6, [[1, 2], [3, 4]], credits=2)
    dispatcher.start()
    assert [[flight.batch for flight in dispatcher.flights(worker)] for worker in range(1, 5)] == [[0, 2]] * 2 + [[1, 3]] * 2
    first = dispatcher.flight(1, 0, 0)
    assert first is next(dispatcher.flights(1))
    assert first is not dispatcher.flight(2, 0, 0)
    dispatcher.answered(1, 0, 0)
    assert dispatcher.flight(1, 0, 0) is None
    assert dispatcher.flight(2, 0, 0) is not None
    dispatcher.lost(4)
    assert [list(dispatcher.flights(worker)) for worker in (3, 4)] == [[], []]


def test_a_group_answers_when_all_of_its_members_have() -> None:
    dispatcher = Dispatcher(4, [[1, 2], [3, 4]], credits=1)
    assert dispatcher.start() == sends((1, 0), (2, 0), (3, 1), (4, 1))
    calls: list[Call] = [
        ("answered", (2, 0, 0), []),
        ("answered", (1, 0, 0), [*sends((1, 2), (2, 2)), *emits(0)]),
        ("answered", (3, 1, 0), []),
        ("lost", (4,), [Drop(1, 0)]),  # what worker 3 said is of no use; its group is out
        ("answered", (1, 2, 0), []),
        ("answered", (2, 2, 0), [again(1, 1), again(2, 1)]),
    ]
    play(dispatcher, calls)
    assert not dispatcher.wants(3, 1, 0)


def test_of_two_groups_with_one_batch_the_first_counts_and_the_parts_of_the_other_are_dropped() -> None:
    dispatcher = Dispatcher(2, [[1, 2], [3, 4]], credits=2)
    dispatcher.start()
    calls: list[Call] = [
        ("answered", (1, 0, 0), []),
        ("timed_out", (2,), [again(3, 0), again(4, 0)]),
        ("answered", (1, 0, 0), []),  # twice, and not from the one that is late
        ("answered", (3, 0, 1), []),
        ("answered", (4, 0, 1), [Drop(0, 0), Emit(0, 1)]),
        ("answered", (2, 0, 0), []),
    ]
    play(dispatcher, calls)
    assert dispatcher.n_dropped == 2


def test_with_changes_a_batch_is_sent_again_to_a_group_without_later_ones() -> None:
    """A worker that is sent an earlier batch opens its engine afresh: one does it, not all."""
    dispatcher = Dispatcher(20, [[1], [2], [3]], credits=2, ascending=True)
    dispatcher.start()  # 0 and 3 with 1, 1 and 4 with 2, 2 and 5 with 3
    calls: list[Call] = [
        ("lost", (1,), []),
        ("answered", (2, 1, 0), [again(2, 0)]),
        ("answered", (3, 2, 0), sends((3, 6))),  # batch 3 waits for worker 2
        ("answered", (2, 4, 0), [again(2, 3)]),
    ]
    play(dispatcher, calls)


def test_silent_workers_are_those_that_block_the_run() -> None:
    dispatcher = Dispatcher(20, [[1], [2]], credits=1)
    dispatcher.start()
    dispatcher.timed_out(1)
    assert dispatcher.silent == []
    dispatcher.timed_out(2)
    assert dispatcher.silent == [1, 2]
    dispatcher.answered(2, 1, 0)
    assert dispatcher.silent == []


def test_a_member_beside_a_silent_one_is_not_silent() -> None:
    """It may be loading, or slow: a worker that is given up here could not load the shard of the other."""
    dispatcher = Dispatcher(9, [[1, 2]], credits=2)
    dispatcher.start()
    dispatcher.timed_out(1)
    assert dispatcher.silent == [1]
    dispatcher.timed_out(2)
    assert dispatcher.silent == [1, 2]
    dispatcher.answered(2, 0, 0)
    assert dispatcher.silent == [1]
    assert Load(2, 0, keep=True) in dispatcher.lost(1)


# Any order of answers


@given(
    n_batches=st.integers(0, 60),
    n_workers=st.integers(1, 6),
    credits=st.integers(1, 5),
    schedule=st.sampled_from(["dynamic", "static"]),
    window=st.none() | st.integers(1, 40),
    data=st.data(),
)
def test_answers_may_come_in_any_order(
    n_batches: int, n_workers: int, credits: int, schedule: str, window: int | None, data: st.DataObject
) -> None:
    workers = list(range(1, n_workers + 1))
    dispatcher = Dispatcher(n_batches, [[worker] for worker in workers], credits=credits, schedule=schedule, window=window)
    held: dict[int, set[int]] = {worker: set() for worker in workers}
    sent: list[int] = []
    emitted: list[int] = []
    accepted: set[int] = set()

    def obey(instructions: list[Instruction], answering: int | None) -> None:
        for instruction in instructions:
            if isinstance(instruction, Send):
                worker, batch, _ = instruction
                held[worker].add(batch)
                sent.append(batch)
                assert len(held[worker]) <= credits
                assert schedule == "dynamic" or worker == workers[batch % n_workers]
            else:
                assert isinstance(instruction, Emit)
                assert instruction.batch in accepted
                emitted.append(instruction.batch)
        if schedule == "dynamic" and answering is not None and window is None and len(sent) < n_batches:
            full = all(len(batches) == credits for batches in held.values())
            assert full or max(sent) - len(emitted) == dispatcher.window - 1, (
                "a credit lies idle although a batch may be sent"
            )

    obey(dispatcher.start(), None)
    while not dispatcher.finished:
        under_way = [(worker, batch) for worker, batches in held.items() for batch in sorted(batches)]
        assert under_way, "nothing under way, and yet not finished"
        worker, batch = data.draw(st.sampled_from(under_way))
        held[worker].remove(batch)
        accepted.add(batch)
        obey(dispatcher.answered(worker, batch, 0), worker)
        assert len(accepted) - len(emitted) + sum(map(len, held.values())) <= dispatcher.window
    assert emitted == list(range(n_batches))
    assert sorted(sent) == list(range(n_batches))
    assert not any(held.values())


# Launched or not?


SLURM_STEP = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "2", "SLURM_NTASKS": "4"}


@pytest.mark.parametrize(
    ("environment", "launch"),
    [
        ({}, None),
        ({"SLURM_NTASKS": "8", "SLURM_JOB_ID": "1"}, None),  # salloc's shell
        ({"SLURM_NTASKS": "8", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}, None),  # sbatch's script
        ({**SLURM_STEP, "SLURM_STEP_ID": "4294967290"}, None),  # salloc's interactive step
        (SLURM_STEP, LaunchedBy("srun", 4, 2)),
        ({"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "1"}, LaunchedBy("mpirun", 3, 1)),
        ({**SLURM_STEP, "OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "1"}, LaunchedBy("mpirun", 3, 1)),
        ({**SLURM_STEP, "OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}, LaunchedBy("mpirun", 1, 0)),
        ({"PMI_SIZE": "2", "PMI_RANK": "0"}, LaunchedBy("mpiexec", 2, 0)),
        ({"PMIX_RANK": "3"}, LaunchedBy("a PMIx launcher", None, 3)),
    ],
)
def test_the_launch_is_found_in_the_environment(environment: dict[str, str], launch: LaunchedBy | None) -> None:
    assert found_in(environment) == launch


OPEN_MPI_5 = Library("Open MPI v5.0.11, package: Open MPI user@localhost Distribution", has_pmix=True)
OPEN_MPI_4 = Library("Open MPI v4.1.8, package: Debian OpenMPI, ident: 4.1.8", has_pmix=True)
OF_MPICH = Library("MPICH Version:      5.0.2\nMPICH Release date: Fri Sep 25", has_pmix=False)
OF_INTEL = Library("Intel(R) MPI Library 2021.18.1 for Linux* OS\n", has_pmix=False)
BY_MPIRUN = {"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "0", "PMIX_RANK": "0"}
BY_HYDRA = {"PMI_SIZE": "4", "PMI_RANK": "2"}
BY_HYDRA_IN_A_JOB = {**BY_HYDRA, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"}


@pytest.mark.parametrize(
    ("environment", "library", "cure"),
    [
        (SLURM_STEP, OPEN_MPI_5, "use srun --mpi=pmix, or mpirun inside"),
        (SLURM_STEP, OF_MPICH, "use srun --mpi=pmi2, or mpirun inside"),
        ({**SLURM_STEP, **BY_HYDRA}, OPEN_MPI_4, "use srun --mpi=pmix, or mpirun inside"),
        (BY_HYDRA_IN_A_JOB, OPEN_MPI_4, "start the run with the mpirun of Open MPI"),
        (BY_MPIRUN, OF_INTEL, "start the run with the mpirun of Intel MPI"),
        (BY_HYDRA, OPEN_MPI_4, "start the run with the mpirun of Open MPI"),
        ({"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}, OPEN_MPI_5, None),
        ({"PMIX_RANK": "0"}, OPEN_MPI_5, None),
    ],
)
def test_a_singleton_is_refused_with_a_remedy(environment: dict[str, str], library: Library, cure: str | None) -> None:
    launch = found_in(environment)
    assert launch is not None
    refusal = singleton_refusal(launch, library, environment)
    assert (refusal is None) if cure is None else (refusal is not None and cure in refusal)


@pytest.mark.parametrize(
    ("environment", "library", "cure"),
    [
        (BY_MPIRUN, OPEN_MPI_5, None),
        (BY_MPIRUN, OPEN_MPI_4, None),
        (BY_MPIRUN, OF_MPICH, "start the run with the mpirun of MPICH"),
        (BY_MPIRUN, OF_INTEL, "start the run with the mpirun of Intel MPI"),
        (BY_MPIRUN, OF_MPICH._replace(has_pmix=True), None),
        (BY_HYDRA, OF_MPICH, None),
        (BY_HYDRA, OF_INTEL, None),
        (BY_HYDRA, OPEN_MPI_4, None),
        (BY_HYDRA, OPEN_MPI_5, "start the run with the mpirun of Open MPI"),
        ({**SLURM_STEP, **BY_HYDRA}, OF_MPICH, None),
        ({**SLURM_STEP, **BY_HYDRA}, OPEN_MPI_5, "use srun --mpi=pmix"),
        ({**SLURM_STEP, "PMIX_RANK": "2"}, OPEN_MPI_5, None),
        ({**SLURM_STEP, "PMIX_RANK": "2"}, OF_MPICH, "use srun --mpi=pmi2"),
        (SLURM_STEP, OPEN_MPI_5, None),
    ],
)
def test_a_library_that_cannot_start_under_the_launcher_is_refused_before_it_does(
    environment: dict[str, str], library: Library, cure: str | None
) -> None:
    launch = found_in(environment)
    assert launch is not None
    refusal = mismatch(launch, library, environment)
    assert (refusal is None) if cure is None else (refusal is not None and cure in refusal)
