"""Only tests marked `mpi` start ranks."""

from __future__ import annotations

import subprocess
import sys

import pytest
from mpirun import MPIRUN, launch, needs_mpirun


@pytest.mark.parametrize("command", [["launch/local.sh", "2"], ["bash", "-c", "exec mpirun -n 1 true"], "srun -n 2 true"])
def test_a_test_that_is_not_marked_starts_no_ranks(command: list[str] | str) -> None:
    with pytest.raises(AssertionError, match="is not marked `mpi`"):
        subprocess.run(command, check=False)


@needs_mpirun
def test_nor_does_it_by_the_helpers_of_those_that_are() -> None:
    with pytest.raises(AssertionError, match="is not marked `mpi`"):
        subprocess.run(launch(1), check=False)
    assert subprocess.run([str(MPIRUN), "--version"], capture_output=True, check=False).returncode == 0
    assert subprocess.run([sys.executable, "-c", ""], check=False).returncode == 0
