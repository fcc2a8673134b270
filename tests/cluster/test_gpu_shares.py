"""Which worker takes which GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mpirun import execute, launch, needs_mpirun, said
from run_inputs import Inputs


@pytest.mark.mpi
@needs_mpirun
def test_two_workers_share_a_gpu_where_that_is_allowed(inputs: Inputs, tmp_path: Path) -> None:
    output = tmp_path / "matches.h5"
    done = execute(launch(3, inputs.table, inputs.events, output, "engine=one_gpu", "share_gpus=1"))
    assert done.returncode == 0, said(done)
    assert output.exists()


@pytest.mark.mpi
@needs_mpirun
def test_workers_take_the_gpus_of_the_map(inputs: Inputs, tmp_path: Path) -> None:
    files = (inputs.table, inputs.events, tmp_path / "matches.h5")
    done = execute(launch(4, *files, "engine=numbered", "gpu_map=3,1,0"), CUDA_VISIBLE_DEVICES="4,5,6,7")
    assert done.returncode == 0, said(done)
    taken = json.loads(done.stdout)["device"].split(", ")
    assert sorted(each.split(" GPU ")[1] for each in taken) == ["0 of 4,5,6,7", "1 of 4,5,6,7", "3 of 4,5,6,7"]


@pytest.mark.mpi
@needs_mpirun
def test_workers_share_the_only_gpu_without_a_gpu_map(inputs: Inputs, tmp_path: Path) -> None:
    """Numba's simulator has one GPU."""
    files = (inputs.table, inputs.events, tmp_path / "matches.h5")
    done = execute(launch(3, *files, "engine=numbered", "share_gpus=1"), NUMBA_ENABLE_CUDASIM="1", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, said(done)
    assert json.loads(done.stdout)["device"].startswith("2 x ")
