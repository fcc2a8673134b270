"""Options of an engine reach every worker, and wrong ones are refused before any file is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mpirun import execute, launch, needs_mpirun, said
from run_inputs import Inputs
from tuned_engine import DEFAULTS


@pytest.mark.mpi
@needs_mpirun
def test_options_reach_every_worker(inputs: Inputs, tmp_path: Path) -> None:
    files = (inputs.table, inputs.events, tmp_path / "matches.h5")
    done = execute(launch(3, *files, "engine=tuned", "set.depth=5", "set.tuned.twice=on"))
    assert done.returncode == 0, said(done)
    chosen = {**DEFAULTS, "depth": 5, "twice": True}
    summary = json.loads(done.stdout)
    assert summary["device"] == f"2 x {json.dumps(chosen)}"
    assert summary["engine_options"] == {"tuned": chosen}
    assert json.loads((tmp_path / "matches.h5.run.json").read_text())["run"]["engine_options"] == {"tuned": chosen}


@pytest.mark.mpi
@needs_mpirun
def test_an_unknown_engine_option_is_wrong_usage_reported_once(inputs: Inputs, tmp_path: Path) -> None:
    files = (inputs.table, inputs.events, tmp_path / "matches.h5")
    done = execute(launch(3, *files, "engine=tuned", "set.deep=5"))
    assert done.returncode == 2
    assert said(done).count("tuned has no option 'deep'; it has: order, depth, share, twice") == 1
    assert not (tmp_path / "matches.h5").exists()
