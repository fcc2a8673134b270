"""The measurement of the memory of a run's ranks: a short run, and its judgement of growing memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from mpirun import needs_mpirun

from mpi_match.lab.bench.kills.memory import Look, Memory, growth, measure


@pytest.mark.mpi
@needs_mpirun
def test_memory_is_bounded_over_thousands_of_batches_with_a_stalled_worker(tmp_path: Path) -> None:
    found = measure(n_events=4000, stop_s=8.0, directory=tmp_path)
    assert found["same_bytes"]
    assert found["happened"]["overdue"] >= 1
    assert [rank["rank"] for rank in found["ranks"]] == [0, 1, 2]
    assert max(rank["grown_mib"] for rank in found["ranks"]) < 16


def test_growth_is_from_the_first_tenth_to_the_most() -> None:
    sizes = [(0, 10), (99, 50), (100, 60), (400, 200), (1000, 90)]
    looks = [Look(written, {0: Memory(mib << 20, 5 << 20)}) for written, mib in sizes]
    expected = {"rank": 0, "at_tenth_mib": 60, "last_mib": 90, "most_mib": 200, "grown_mib": 140, "files_mib": 5}
    assert growth(looks, 1000) == [expected]
