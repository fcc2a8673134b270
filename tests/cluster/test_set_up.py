"""Set-up: with any options all ranks make the same collective calls, and a phase that fails on one rank ends all."""

from __future__ import annotations

from pathlib import Path

import pytest
from mpirun import execute, launch, needs_mpirun
from run_inputs import Inputs

pytestmark = [pytest.mark.mpi, needs_mpirun]

MASTER = (
    "opening the files",
    "reading the table",
    "looking for the parts of the output",
    "comparing GPUs",
    "opening the observers",
)
WORKER = ("opening the events", "opening its part of the output", "opening its engine")

RANKS = """
import sys
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from mpi4py import MPI
from mpi_match.cluster import RunOptions
from mpi_match.cluster.transport.channel import Traffic
from mpi_match.cluster.transport.collectives import RankGroup, Ended
from mpi_match.cluster.transport.liveness import StartupBarrier
from mpi_match.cluster.execution import execution_for
from mpi_match.cluster.set_up import set_up
from mpi_match.cluster.signals import SignalFlag
from mpi_match.cluster.transport.topology import Topology

table, events, output = map(Path, sys.argv[1:])
comm = MPI.COMM_WORLD
barrier = StartupBarrier(Traffic(comm), 60.0, SignalFlag())
ranks = RankGroup(comm, barrier)
node = ranks.parted(comm.rank // 2)
leaders = ranks.parted(0 if node.rank == 0 else None)
topology = Topology(**{**vars(Topology.find(ranks)), "node": node, "leaders": leaders})


class Logged(RankGroup):
    steps = []  # the sides that this rank has
    fails = None  # the one that raises
    def gather(self, value):
        self.calls.append("gather")
        return super().gather(value)
    def copy(self, array):
        self.calls.append("copy")
        super().copy(array)
    def parted(self, color):
        self.calls.append("parted")
        return super().parted(color)
    def step(self, doing, *, master=None, worker=None):
        mine = (master, worker)[self.rank > 0]
        if mine is not None and self.fails == (doing, self.rank):
            master = worker = self.fail
        if mine is not None and doing not in self.steps:
            self.steps.append(doing)
        return super().step(doing, master=master, worker=worker)
    def fail(self):
        raise RuntimeError("on purpose")


def take(**more):
    world = Logged(comm, barrier)
    world.calls = []
    given = dict(table=table, events=events, output=output, engine="counting", threads=1)
    try:
        with ExitStack() as stack:
            options = RunOptions(**given, **more)
            here = Topology(**{**vars(topology), "ranks": world})
            ready = set_up(options, execution_for(options), here, stack)
            return str(len(ready.opened)), world.calls
    except Ended as ended:
        return str(ended.error), world.calls
"""

EVERY_KIND = """
kinds = (("replicate", "master"), ("replicate", "local"), ("shard", "master"))
for feed, (placement, results), batch in product(("master", "shared", "file"), kinds, (1, 100)):
    found = comm.gather(take(feed=feed, placement=placement, results=results, batch=batch))
    if comm.rank == 0:
        calls = found[0][1]
        assert found == 4 * [("3", calls)], (feed, placement, results, batch, found)
        print(len(calls))
"""

ONE_FAILS = """
take()
for i, steps in enumerate(comm.allgather(Logged.steps)):
    for doing in steps:
        Logged.fails = doing, i
        found = comm.gather(take(results="local"))
        if comm.rank == 0:
            calls = found[0][1]
            assert all("on purpose" in said and made == calls for said, made in found), (doing, found)
            print(i, doing)
"""


def test_both_sides_make_the_same_calls(inputs: Inputs, tmp_path: Path) -> None:
    """Four ranks on two simulated hosts; with fewer calls on one side the others would wait for ever."""
    script = RANKS + EVERY_KIND
    done = execute(launch(4, inputs.table, inputs.events, tmp_path / "matches.h5", python=("-m", "mpi4py", "-c", script)))
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 18
    assert min(map(int, done.stdout.split())) > 10


def test_a_phase_that_fails_on_one_rank_ends_all(inputs: Inputs, tmp_path: Path) -> None:
    script = RANKS + ONE_FAILS
    done = execute(launch(4, inputs.table, inputs.events, tmp_path / "matches.h5", python=("-m", "mpi4py", "-c", script)))
    assert done.returncode == 0, done.stderr
    failed = [tuple(line.split(" ", 1)) for line in done.stdout.splitlines()]
    assert failed == [("0", each) for each in MASTER] + [(rank, each) for rank in "123" for each in WORKER]
