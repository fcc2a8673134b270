"""Each worker's share of its host: cores and a GPU."""

from __future__ import annotations

import pytest

from mpi_match.cluster import ClusterError
from mpi_match.cluster.transport.topology import (
    BoundHost,
    bound_host,
    device_share,
    has_own_core,
    local_ranks_in,
    places_on_host,
    shared_gpu,
    thread_share,
)


@pytest.mark.parametrize(
    ("cores", "threads"),
    [
        ([range(8)], [8]),
        ([range(8), range(8)], [4, 4]),
        ([range(4), range(4, 8)], [4, 4]),  # bound
        ([range(2), range(2), range(2)], [1, 1, 1]),  # more workers than cores
        ([range(8), range(4)], [6, 2]),
    ],
)
def test_cores_are_divided_fairly(cores: list[range], threads: list[int]) -> None:
    sets = [frozenset(each) for each in cores]
    assert [thread_share(worker, sets) for worker in range(len(sets))] == threads


@pytest.mark.parametrize(
    ("cores", "expected"),
    [
        ([{0, 1}, {0, 1}], [True, True]),  # two ranks that may both run anywhere on two cores
        ([{0, 1}, {0, 1}, {0, 1}], [False, False, False]),
        ([{0}, {0}, {1, 2}], [False, False, True]),  # bound, two of them to the same core
    ],
)
def test_a_rank_spins_only_if_every_rank_has_a_core(cores: list[set[int]], expected: list[bool]) -> None:
    given_cores = [frozenset(each) for each in cores]
    assert [has_own_core(rank, given_cores) for rank in range(len(cores))] == expected


def test_two_workers_on_one_gpu_are_named() -> None:
    assert shared_gpu([("a", None), ("a", None), ("a", "GPU-1"), ("b", "GPU-2")]) is None
    said = shared_gpu([("a", "GPU-1"), ("b", "GPU-2"), ("b", None), ("b", "GPU-2")])
    assert said is not None
    assert said.startswith("ranks 2 and 4 are on the same GPU of b (GPU-2)")


@pytest.mark.parametrize(
    ("worker", "visible", "device"), [(0, None, 0), (3, None, 3), (3, "0,1,2,3", 3), (3, "0", 0), (2, "", 2)]
)
def test_workers_get_gpus_by_local_number(worker: int, visible: str | None, device: int) -> None:
    assert device_share(worker, {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}) == device


@pytest.mark.parametrize(("n_gpus", "devices"), [(1, [0, 0, 0]), (2, [0, 1, 0]), (0, [0, 1, 2]), (None, [0, 1, 2])])
def test_workers_share_gpus_round_robin(n_gpus: int | None, devices: list[int]) -> None:
    """Also without CUDA_VISIBLE_DEVICES."""
    assert [device_share(worker, {}, n_gpus=n_gpus) for worker in range(3)] == devices
    assert [device_share(worker, {"CUDA_VISIBLE_DEVICES": "7,8"}, n_gpus=9) for worker in range(3)] == [0, 1, 0]


def test_a_gpu_map_assigns_gpus() -> None:
    visible = {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    assert [device_share(worker, visible, (3, 1, 0)) for worker in range(3)] == [3, 1, 0]
    with pytest.raises(ClusterError, match="--gpu-map has GPUs for 3 workers of a host") as caught:
        device_share(3, visible, (3, 1, 0))
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("environments", "places"),
    [
        ([{}, {}, {}], [0, 1, 2]),
        # Open MPI 5 with --oversubscribe numbers four ranks of a host like this.
        ([{"OMPI_COMM_WORLD_LOCAL_RANK": number} for number in "0213"], [0, 2, 1, 3]),
        ([{"MPI_LOCALRANKID": number} for number in "10"], [1, 0]),
        ([{"SLURM_LOCALID": number} for number in "20"], [1, 0]),  # places count the ranks of this run
        # mpirun in a Slurm allocation: what its daemon was started with is no number of a rank.
        ([{"SLURM_LOCALID": "0", "OMPI_COMM_WORLD_LOCAL_RANK": number} for number in "10"], [1, 0]),
        ([{"SLURM_LOCALID": "0"}, {"SLURM_LOCALID": "0"}], [0, 1]),
        # Never some ranks by one launcher's numbers and some by another's.
        ([{"OMPI_COMM_WORLD_LOCAL_RANK": "1"}, {"SLURM_LOCALID": "0"}], [0, 1]),
        ([{"OMPI_COMM_WORLD_LOCAL_RANK": "1", "SLURM_LOCALID": "1"}, {"SLURM_LOCALID": "0"}], [1, 0]),
        ([{"SLURM_LOCALID": "one"}, {"SLURM_LOCALID": "0"}], [0, 1]),
    ],
)
def test_places_on_a_host_follow_one_launcher(environments: list[dict[str, str]], places: list[int]) -> None:
    assert places_on_host([local_ranks_in(each) for each in environments]) == places


BY_MPIRUN = {"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "0"}


@pytest.mark.parametrize(
    ("environment", "workers", "found"),
    [
        (BY_MPIRUN, [{1}, {2}], BoundHost("n1", 2, 16)),
        (BY_MPIRUN, [{1, 2, 3, 4}, {5, 6, 7, 8}], BoundHost("n1", 8, 16)),
        (BY_MPIRUN, [set(range(8)), set(range(8, 16))], None),
        (BY_MPIRUN, [set(range(16)), set(range(16))], None),
        (BY_MPIRUN, [], None),
        ({**BY_MPIRUN, "NUMBA_NUM_THREADS": "1"}, [{1}, {2}], None),
        ({"PMI_SIZE": "3", "PMI_RANK": "0"}, [{1}, {2}], None),
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "0"}, [{1}, {2}], None),
    ],
)
def test_workers_that_mpirun_binds_to_few_cores_are_noticed(
    environment: dict[str, str], workers: list[set[int]], found: BoundHost | None
) -> None:
    assert bound_host("n1", [frozenset(each) for each in workers], frozenset(range(16)), environment) == found
