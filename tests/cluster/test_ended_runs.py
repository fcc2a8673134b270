"""Incomplete runs: answers so far are kept, and the output is never a partial file."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import h5py
import pytest
from lasting import lasting
from mpirun import TIMEOUT_S, alone, environment, execute, launch, needs_mpirun, said
from run_inputs import KEPT, Inputs, leftovers, plain_events

from mpi_match.events.event_table import save_events
from mpi_match.events.schema import BLOCK_EVENTS
from mpi_match.journal.reader import JournalFile, journal_of
from mpi_match.storage import StorageError, Writer
from mpi_match.table.table import Table


def answered(output: Path) -> int:
    """How many answers the journal of a run holds, once there is one."""
    with suppress(StorageError):
        return JournalFile.look(journal_of(output)).n_answered
    return 0


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize("feed", ["master", "shared", *lasting("file")])
def test_damage_met_halfway_stops_all_ranks(feed: str, inputs: Inputs, tmp_path: Path) -> None:
    events, output = tmp_path / "events.h5", tmp_path / "matches.h5"
    save_events(plain_events(3 * BLOCK_EVENTS), events, Table.load(inputs.table).vocabulary)
    with h5py.File(events) as file:
        at = file["encoded/attributes"].id.get_offset() + 4 * (2 * BLOCK_EVENTS + 5)
    content = bytearray(events.read_bytes())
    content[at] ^= 1
    events.write_bytes(content)
    done = execute(launch(3, inputs.table, events, output, "engine=null", "batch=5000", f"feed={feed}"))
    assert done.returncode == 3
    *kept, reason = said(done).splitlines()
    assert "encoded events 131072 to 196608 are damaged" in reason
    assert leftovers(output) == ([] if feed == "shared" else KEPT)  # where all is read before anything is matched
    assert len(kept) == (feed != "shared")
    assert all("of 196,608 events are answered and kept in matches.h5.journal" in line for line in kept)


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize("ranks", [1, 3])
def test_an_interrupted_run_leaves_its_journal_and_can_be_taken_up_again(ranks: int, inputs: Inputs, tmp_path: Path) -> None:
    output = tmp_path / "matches.h5"
    command = launch(ranks, inputs.table, inputs.events, output, "engine=slow", "batch=1")
    if ranks == 1:
        command = alone(inputs.table, inputs.events, output, "engine=slow", "batch=1")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as process:
        deadline = time.monotonic() + TIMEOUT_S
        while not answered(output) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not output.exists(), "the run ended before it could be interrupted"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode != 0
    assert leftovers(output) == KEPT
    done = execute(alone(inputs.table, inputs.events, output, "engine=null", "batch=1", "resume=1"))
    assert done.returncode == 0, done.stderr
    assert 0 < json.loads(done.stdout)["resumed"] < 300
    undisturbed = tmp_path / "undisturbed.h5"
    assert execute(alone(inputs.table, inputs.events, undisturbed, "engine=null", "batch=1")).returncode == 0
    assert output.read_bytes() == undisturbed.read_bytes()
    assert leftovers(output) == ["matches.h5", "matches.h5.run.json"]


def test_an_interrupted_writer_leaves_no_file(tmp_path: Path, inputs: Inputs) -> None:
    """The output gets its name only when it is complete."""
    with pytest.raises(KeyboardInterrupt), Writer(tmp_path / "matches.h5", "matches"):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
