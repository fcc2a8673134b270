"""MPI-CUDA as published: CCM (and CLCB) by ranks, one event for each idle worker.  Kernels run in the CUDA simulator."""

from __future__ import annotations

from pathlib import Path

import pytest
from lasting import lasting
from mpirun import execute, launch, needs_mpirun, said
from random_tables import Shape, random_subscriptions

from mpi_match.events.event_table import save_events
from mpi_match.events.events import Events
from mpi_match.matches.file import MatchesFile
from mpi_match.model import match_naive
from mpi_match.table.table import Table

N_EVENTS = 6


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize(
    ("engine", "schedule"),
    [
        ("ccm", "dynamic"),
        *lasting(("clcb", "dynamic"), ("ccm", "static")),
    ],
)
def test_each_event_is_matched_by_an_idle_worker(engine: str, schedule: str, tmp_path: Path) -> None:
    shape = Shape(n_filters=20, n_events=N_EVENTS, areas=0.5 if engine == "clcb" else 0.0, sizes=(1, 3))
    filters, events = random_subscriptions(11, shape)
    table = Table.from_filters(filters)
    files = [tmp_path / name for name in ("table.h5", "events.h5", "matches.h5")]
    table.save(files[0])
    save_events(Events.of(events), files[1], table.vocabulary)
    how = ("batch=1", "credits=1", "feed=master", f"schedule={schedule}", "share_gpus=1")
    done = execute(launch(3, *files, f"engine={engine}", *how), NUMBA_ENABLE_CUDASIM="1", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, said(done)
    found = MatchesFile.load(files[2])
    expected = [match_naive(filters, event) for event in events]
    assert found.matches.labels(table.labels) == expected
    assert any(expected)
