"""A closed channel has no receive that MPI would still fill."""

from __future__ import annotations

import pytest
from mpirun import execute, launch, needs_mpirun

pytestmark = [pytest.mark.mpi, needs_mpirun]

CLOSED = """
import time
from mpi4py import MPI
from mpi_match.cluster.transport.channel import Traffic
from mpi_match.cluster.transport.protocol import Command, Order, fields_of
import numpy as np

comm, heard = MPI.COMM_WORLD, []
traffic = Traffic(comm)
if comm.rank == 0:
    traffic.listen(1, lambda header: heard.append(fields_of(header)) or True)
    traffic.close()
comm.Barrier()
if comm.rank == 1:
    traffic.write(Order(Command.WAIT, 7), [], 0)
comm.Barrier()
if comm.rank == 0:
    late = np.zeros(1024, np.uint8)
    request = comm.Irecv([late, MPI.BYTE], 1, MPI.ANY_TAG)
    until = time.monotonic() + 5  # it was sent before both ranks met
    while not request.Test() and time.monotonic() < until:
        traffic.poll()
    print(fields_of(late)[:2], heard, len(traffic))
"""


def test_a_header_that_arrives_after_the_end_is_not_written_to_memory() -> None:
    """A receive that was left open would write it, into memory with another use by then."""
    done = execute(launch(2, python=("-m", "mpi4py", "-c", CLOSED)))
    assert done.stdout.strip() == "(4, 7) [] 0", done.stderr
