"""Runs under a Slurm that is started for them: the batch script as people submit it, srun, GPUs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts.inputs import Inputs
from hosts.slurm import SlurmCluster, why_no_slurm
from mpirun import DRIVER, MPIRUN, OPEN_MPI, needs_mpirun

pytestmark = [pytest.mark.slurm, needs_mpirun]
PMI = "pmix" if OPEN_MPI else "pmi2"


@pytest.fixture(scope="module")
def cluster(shell: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """Three nodes."""
    why = why_no_slurm()
    if why is not None:
        pytest.skip(why)
    with SlurmCluster(3, tmp_path_factory.mktemp("slurm"), shell) as cluster:
        yield cluster


def wait_for(cluster: SlurmCluster, job: int, *states: str, timeout: float = 60) -> dict[str, str]:
    """The job, once it is in one of the states."""
    end = time.monotonic() + timeout
    while (found := cluster.job(job))["JobState"] not in states:
        assert time.monotonic() < end, f"{found}\n{cluster.logs()}"
        time.sleep(0.2)
    return found


def drive(inputs: Inputs, output: Path, *options: str) -> tuple[object, ...]:
    """What a rank runs whose engine is made for the test."""
    return (sys.executable, "-m", "mpi4py", DRIVER, inputs.table, inputs.events, output, *options)


def gpus_in(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What the workers of a run with the engine `numbered` said: host, the GPU that it would take, of which it sees."""
    assert done.returncode == 0, done.stderr
    return sorted(json.loads(done.stdout)["device"].split(", "))


def test_the_batch_script_as_it_is(cluster: SlurmCluster, inputs: Inputs, repository: Path, tmp_path: Path) -> None:
    """Five ranks on three nodes, of which only the first has the files."""
    local = cluster.shell.local
    assert cluster.run("cp", inputs.table, inputs.events, local).returncode == 0
    files = ("--table", local / "table.h5", "--events", local / "events.h5", "-o", tmp_path / "matches.h5")
    submit = ("sbatch", "--parsable", "--output", tmp_path / "log", "launch/slurm.sbatch")
    done = cluster.run(*submit, *files, "--engine", "counting", "--batch", 16, cwd=repository)
    assert done.returncode == 0, done.stderr
    job = wait_for(cluster, int(done.stdout), "COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL")
    log = (tmp_path / "log").read_text()
    assert (job["JobState"], job["ExitCode"], job["NodeList"]) == ("COMPLETED", "0:0", "n[1-3]"), log
    assert (tmp_path / "matches.h5").read_bytes() == inputs.expected
    assert len(log.splitlines()) == 2, log
    assert "4 workers" in log


def test_srun_with_the_pmi_of_another_mpi_is_refused(cluster: SlurmCluster, inputs: Inputs, tmp_path: Path) -> None:
    output = tmp_path / "matches.h5"
    done = cluster.run("srun", "-n", 3, "-N", 3, "--mpi=none", *drive(inputs, output, "engine=counting"))
    assert done.returncode == 5
    refused = [line for line in done.stderr.splitlines() if not line.startswith("srun: ")]
    assert refused == [
        "srun started 3 processes, but each finds itself alone (MPI world size 1): "
        "use srun --mpi=pmix (Open MPI), srun --mpi=pmi2 (MPICH), or mpirun inside the allocation"
    ]
    assert not output.exists()


def test_a_gpu_for_each_task(cluster: SlurmCluster, inputs: Inputs, tmp_path: Path) -> None:
    """Slurm shows each task one; the second task of a node has the second one, by the number 0."""
    ranks = ("srun", "-n", 5, "-N", 3, "--gpus-per-task=1", f"--mpi={PMI}")
    done = cluster.run(*ranks, *drive(inputs, tmp_path / "matches.h5", "engine=numbered"))
    assert gpus_in(done) == ["n1 GPU 0 of 1", "n2 GPU 0 of 0", "n2 GPU 0 of 1", "n3 GPU 0 of 0"]


def test_gpus_for_each_node(cluster: SlurmCluster, inputs: Inputs, tmp_path: Path) -> None:
    """Every task sees all of its node; workers take one each, and the master none."""
    ranks = ("srun", "-N", 3, "--ntasks-per-node=2", "--gpus-per-node=2", f"--mpi={PMI}")
    done = cluster.run(*ranks, *drive(inputs, tmp_path / "matches.h5", "engine=numbered"))
    assert gpus_in(done) == [
        "n1 GPU 0 of 0,1",
        *("n2 GPU 0 of 0,1", "n2 GPU 1 of 0,1"),
        *("n3 GPU 0 of 0,1", "n3 GPU 1 of 0,1"),
    ]


def test_mpirun_in_an_allocation(cluster: SlurmCluster, inputs: Inputs, tmp_path: Path) -> None:
    """mpirun starts one task on each other node, so both ranks there inherit its SLURM_LOCALID, which is 0."""
    allocate = ("salloc", "-N", 3, "--ntasks-per-node=2", "--gpus-per-node=2")
    flags = ("--bind-to", "none", "--allow-run-as-root") if OPEN_MPI else ()
    done = cluster.run(*allocate, MPIRUN, *flags, "-n", 6, *drive(inputs, tmp_path / "matches.h5", "engine=numbered"))
    taken = [each.split(" of ")[0] for each in gpus_in(done)]
    assert taken == ["n1 GPU 0", "n2 GPU 0", "n2 GPU 1", "n3 GPU 0", "n3 GPU 1"]
