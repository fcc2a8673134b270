"""The command `bench` with its subcommands."""

from __future__ import annotations

from mpi_match.lab.cli.bench.ablation import ablation
from mpi_match.lab.cli.bench.end_to_end import end_to_end
from mpi_match.lab.cli.bench.kills import kills, memory
from mpi_match.lab.cli.bench.live import growth, soak
from mpi_match.lab.cli.bench.load import load
from mpi_match.lab.cli.bench.read import false_positives, read
from mpi_match.lab.cli.bench.routing import routing
from mpi_match.lab.cli.bench.scenarios import bench

for _command in (end_to_end, read, soak, growth, kills, memory, false_positives, ablation, load, routing):
    bench.add_command(_command)

__all__ = ["bench"]
