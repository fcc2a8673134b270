"""Engines that fail, stall or never answer: other workers take over, or the run reports the events without answers."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from lasting import lasting
from mpirun import alone, execute, launch, needs_mpirun, said
from run_inputs import Inputs, plain_events

from mpi_match.events.event_table import save_events
from mpi_match.journal.reader import JournalFile, journal_of
from mpi_match.table.table import Table


@pytest.fixture(scope="module")
def plain(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, bytes]:
    """Table, 300 plain events, and the answers of engine `null` to batches of five."""
    directory = tmp_path_factory.mktemp("plain")
    save_events(plain_events(300), directory / "events.h5", Table.load(inputs.table).vocabulary)
    done = execute(alone(inputs.table, directory / "events.h5", directory / "matches.h5", "engine=null", "batch=5"))
    assert done.returncode == 0, done.stderr
    return inputs.table, directory / "events.h5", (directory / "matches.h5").read_bytes()


@pytest.mark.mpi
@needs_mpirun
def test_a_batch_that_an_engine_fails_on_goes_to_another(plain: tuple[Path, Path, bytes], tmp_path: Path) -> None:
    table, events, answers = plain
    output = tmp_path / "matches.h5"
    done = execute(launch(4, table, events, output, "engine=failing", "batch=5"))
    assert done.returncode == 0, said(done)
    assert said(done).count("Traceback") == 1  # and one line for each of the others
    line = rf"rank [123] on {os.uname().nodename}, matching events \d+ to \d+: ZeroDivisionError: an engine's mistake"
    failures = [each for each in said(done).splitlines() if re.fullmatch(line, each)]
    assert 1 <= len(failures) <= 3
    assert len(set(failures)) == len(failures)
    assert output.read_bytes() == answers


@pytest.mark.mpi
@needs_mpirun
def test_a_run_without_a_worker_that_works_is_incomplete(plain: tuple[Path, Path, bytes], tmp_path: Path) -> None:
    table, events, _ = plain
    output = tmp_path / "matches.h5"
    done = execute(launch(4, table, events, output, "engine=broken", "batch=5"))
    assert done.returncode == 4
    assert said(done).count("Traceback") == 1
    line = (
        r"no worker is left: the events from \d+ on have no answers; "
        rf"rank [123] on {os.uname().nodename}, matching events \d+ to \d+: ZeroDivisionError: an engine's mistake"
    )
    assert re.fullmatch(line, said(done).splitlines()[-1])
    assert not output.exists()


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize(
    ("ranks", "size"),
    [(5, 5), *lasting((2, 20), (2, 5), (5, 20))],
)
def test_a_batch_that_every_engine_fails_on_is_set_aside(
    ranks: int, size: int, plain: tuple[Path, Path, bytes], tmp_path: Path
) -> None:
    table, events, _ = plain
    output = tmp_path / "matches.h5"
    done = execute(launch(ranks, table, events, output, "engine=picky", f"batch={size}"))
    assert done.returncode == 4
    first = 150 // size * size
    failed = f"matching events {first} to {first + size}: ZeroDivisionError: I do not like event 150"
    assert said(done).count(failed) == min(ranks - 1, 3)
    assert said(done).splitlines()[-1].startswith(f"no answers for the events {first} to {first + size}")
    assert not output.exists()
    kept = JournalFile.look(journal_of(output))
    assert kept.unanswered() == kept.set_aside() == [(first, first + size)]


@pytest.mark.mpi
@needs_mpirun
def test_batches_of_a_stalled_worker_go_to_others(plain: tuple[Path, Path, bytes], tmp_path: Path) -> None:
    table, events, answers = plain
    output = tmp_path / "matches.h5"
    done = execute(launch(3, table, events, output, "engine=pausing", "batch=5", "deadline=2"))
    assert done.returncode == 0, said(done)
    assert re.search(r"rank 1 has not answered events \d+ to \d+ within 2 s; another worker gets them too", said(done))
    assert output.read_bytes() == answers


@pytest.mark.mpi
@needs_mpirun
def test_workers_that_never_answer_are_given_up(plain: tuple[Path, Path, bytes], tmp_path: Path) -> None:
    table, events, _ = plain
    output = tmp_path / "matches.h5"
    done = execute(launch(3, table, events, output, "engine=silent", "batch=20", "deadline=1"))
    assert done.returncode == 4
    for rank in (1, 2):
        assert f"rank {rank} is lost: it sent nothing for more than 1 s" in said(done)
    assert said(done).splitlines()[-1] == "no worker is left: the events from 0 on have no answers"
    assert not output.exists()
