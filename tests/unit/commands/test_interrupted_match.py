"""A signal at any step of `match` ends it: no thread goes on, no half-written file is left."""

from __future__ import annotations

import queue
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from interrupting import WHERE_THREADS_MEET, signalled_at

from mpi_match.cluster.signals import terminate_as_interrupt
from mpi_match.commands import match, scan_ahead
from mpi_match.ingest.rows.judge import EventForm
from mpi_match.matches import file, write_behind
from mpi_match.storage import atomic_file, writer

MODULES = (match, scan_ahead, file, write_behind, atomic_file, writer, queue)
MET = {str(each.__file__) for each in MODULES} | WHERE_THREADS_MEET


@pytest.mark.parametrize("events", ["e.jsonl", "e.csv"])
def test_a_signal_at_any_step_ends_a_match(tmp_path: Path, events: str, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.jsonl").write_text('{"interface": "a", "constraints": [["t", ">", 1]]}\n')
    (tmp_path / "e.jsonl").write_text('{"t": 2}\n{"t": 1}\n')
    (tmp_path / "e.csv").write_text("t\n2\n1\n")
    options = match.MatchOptions(EventForm(), engine="counting", threads=2)
    output, before, inputs = tmp_path / "m.h5", threading.active_count(), sorted(tmp_path.iterdir())

    def matched(step: int | None) -> int:
        """Match with a signal at a step, and count the steps."""
        with signalled_at(step, MET) as steps:
            match.match_rows(tmp_path / "s.jsonl", tmp_path / events, output, options)
        return steps.n

    matched(None)
    output.unlink()
    n_steps = matched(None)
    output.unlink()
    for step in range(1, n_steps, 13):
        with suppress(KeyboardInterrupt), terminate_as_interrupt():
            assert matched(step) < step, "it ended before"
        assert threading.active_count() == before, step
        left = sorted(tmp_path.iterdir())
        assert left in (inputs, sorted([*inputs, output])), step  # it is there when all was written before
        output.unlink(missing_ok=True)
    assert "Traceback" not in capfd.readouterr().err
