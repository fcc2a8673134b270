"""Runs started by a launcher itself, with its own defaults and without a script of ours."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from mpirun import MPIRUN, OPEN_MPI, TESTS, execute, needs_mpirun, said
from run_inputs import Inputs

pytestmark = [pytest.mark.mpi, needs_mpirun]

of_open_mpi = pytest.mark.skipif(not OPEN_MPI, reason="MPICH binds no rank by default")
on_two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core is all that there is")


def run_command(inputs: Inputs, output: Path) -> list[str]:
    """The options of `run`."""
    files = ("--table", inputs.table, "--events", inputs.events, "-o", output, "--engine", "counting")
    return [str(word) for word in files]


@of_open_mpi
@on_two_cores
@pytest.mark.parametrize(("flags", "n_lines"), [((), 1), (("--bind-to", "none"), 0)])
def test_workers_that_mpirun_binds_to_a_core_each_are_one_line(
    flags: tuple[str, ...], n_lines: int, inputs: Inputs, tmp_path: Path
) -> None:
    """Open MPI binds two ranks to a core each by default, and a worker has as many threads as it has cores."""
    ranks = (str(MPIRUN), *flags, "-n", "2", sys.executable, "-m", "mpi4py", "-m", "mpi_match", "run")
    done = execute([*ranks, *run_command(inputs, tmp_path / "matches.h5")], OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    assert done.returncode == 0, done.stderr
    lines = [line for line in said(done).splitlines() if "--bind-to none" in line]
    assert len(lines) == n_lines, done.stderr
    assert all(f"may use 1 of its {len(os.sched_getaffinity(0))} cores" in line for line in lines)


@of_open_mpi
def test_the_launch_script_binds_no_rank(inputs: Inputs, tmp_path: Path) -> None:
    script = str(TESTS.parent / "launch" / "local.sh")
    own = {"MPI_MATCH_PYTHON": sys.executable, "MPIRUN": str(MPIRUN)}
    done = execute([script, "1", *run_command(inputs, tmp_path / "matches.h5")], **own)
    assert done.returncode == 0, done.stderr
    assert "--bind-to" not in done.stderr


@pytest.mark.parametrize("rank", ["0", "1"])
def test_the_launcher_of_another_mpi_is_one_line_with_the_cure(rank: str, inputs: Inputs, tmp_path: Path) -> None:
    """MPICH would end the process in MPI_Init, with code 16; Open MPI would be alone."""
    by_hydra = {"PMI_SIZE": "2", "PMI_RANK": rank}
    by_mpirun = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": rank, "PMIX_RANK": rank}
    command = [sys.executable, "-m", "mpi4py", "-m", "mpi_match", "run", *run_command(inputs, tmp_path / "matches.h5")]
    done = execute(command, **(by_hydra if OPEN_MPI else by_mpirun))
    assert done.returncode == 5, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("mpi-match: ")]
    name = "Open MPI" if OPEN_MPI else "MPICH"
    assert [f"start the run with the mpirun of {name}" in line for line in lines] == [True] * (rank == "0"), done.stderr
