"""Events in shared memory of a host."""

from __future__ import annotations

from pathlib import Path

import pytest
from mpirun import execute, launch, needs_mpirun, said
from run_inputs import Inputs, leftovers, plain_events

from mpi_match.events.event_table import save_events
from mpi_match.table.table import Table


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize("other_table", [False, True])
def test_events_that_no_host_has_memory_for_are_refused(other_table: bool, inputs: Inputs, tmp_path: Path) -> None:
    """The size is known beforehand where the events are encoded, and only after encoding where they are encoded again."""
    events, output = tmp_path / "events.h5", tmp_path / "matches.h5"
    save_events(
        plain_events(300_000),
        events,
        Table.from_filters([]).vocabulary if other_table else Table.load(inputs.table).vocabulary,
    )
    left = f"left_bytes={2**28 + 2**21}"  # some for other processes, and some for the table
    done = execute(launch(3, inputs.table, events, output, "engine=null", "batch=1000", "feed=shared", left))
    assert done.returncode == 1
    assert "no memory for the events: " in said(done)
    assert "use --feed file or --feed master" in said(done)
    assert len(said(done).splitlines()) == 1 + other_table
    assert leftovers(output) == []


HOSTS = """
import sys
from pathlib import Path
import numpy as np
from mpi4py import MPI
from mpi_match.events.batch import EventBatch
from mpi_match.cluster import RunOptions
from mpi_match.cluster.distribution import shared_memory
from mpi_match.cluster.transport import channel
from mpi_match.cluster.transport.collectives import RankGroup, Ended
from mpi_match.cluster.distribution.broadcast import share_events
from mpi_match.cluster.execution import THREADED
from mpi_match.cluster.run_files import RunFiles
from mpi_match.cluster.signals import SignalFlag
from mpi_match.cluster.transport.liveness import StartupBarrier
from mpi_match.cluster.transport.topology import Topology

*files, full, piece_bytes = sys.argv[1:]
channel.PIECE_BYTES = int(piece_bytes)
comm = MPI.COMM_WORLD
ranks = RankGroup(comm, StartupBarrier(channel.Traffic(comm), 60.0, SignalFlag()))
node = ranks.parted(comm.rank // 2)
leaders = ranks.parted(0 if node.rank == 0 else None)
found = Topology.find(ranks)
topology = Topology(**{**vars(found), "node": node, "leaders": leaders})
if str(comm.rank // 2) == full:
    shared_memory.left_bytes = lambda: 0
options = RunOptions(*map(Path, files), batch=37, feed="shared")
try:
    if comm.rank == 0:
        with RunFiles(options) as files:
            copy = share_events(topology, files.events, THREADED.workers)
            expected = [files.events.read(i).to_wire() for i in range(files.events.n_batches)]
    else:
        copy, expected = share_events(topology, None, THREADED.workers), None
except Ended as ended:
    if comm.rank == 0:
        print(ended)
    sys.exit(0)
expected = comm.bcast(expected)
assert len(copy.starts) == len(expected) + 1
for batch, wire in enumerate(expected):
    there, published = (EventBatch.from_wire(each) for each in (copy.wire(batch), wire))
    for name in ("offsets", "attributes", "location"):
        assert np.array_equal(getattr(there, name), getattr(published, name), equal_nan=True)
    assert vars(there)["widest"] == published.widest
assert not copy.memory.flags.writeable
print("copied")
"""


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize(("full", "n_copied"), [("none", 6), ("0", 0), pytest.param("2", 0, marks=pytest.mark.lasting)])
def test_every_host_has_the_events_once(full: str, n_copied: int, inputs: Inputs, tmp_path: Path) -> None:
    """Three simulated hosts of two ranks: ranks of one machine that do not share memory."""
    files = (inputs.table, inputs.events, tmp_path / "matches.h5")
    done = execute(launch(6, *files, full, 1000, python=("-m", "mpi4py", "-c", HOSTS)))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("copied") == n_copied
    assert done.stdout.count("no memory for the events: ") == (n_copied == 0)
    assert ("rank 4 on" in done.stdout) == (full == "2")
