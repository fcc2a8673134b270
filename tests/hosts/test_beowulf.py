"""Runs over hosts that know one another by ssh: `launch/mpirun.sh` with a hostfile, as people type it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from hosts.beowulf import Beowulf, why_no_beowulf
from hosts.inputs import Inputs
from mpirun import DRIVER, MPIRUN, OPEN_MPI, needs_mpirun

pytestmark = [pytest.mark.beowulf, needs_mpirun]


@pytest.fixture(scope="module")
def cluster(shell: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beowulf]:
    """Two hosts, n1 and n2."""
    why = why_no_beowulf()
    if why is not None:
        pytest.skip(why)
    with Beowulf(2, tmp_path_factory.mktemp("beowulf"), shell) as cluster:
        yield cluster


def drive(cluster: Beowulf, hostfile: Path, inputs: Inputs, output: Path, *options: str) -> CompletedProcess[str]:
    """A run of five ranks whose engine is made for the test."""
    flags = ("--allow-run-as-root", "--bind-to", "none", "-x", "PYTHONPATH") if OPEN_MPI else ()
    ranks = (MPIRUN, "--hostfile", hostfile, *flags, "-n", 5, sys.executable, "-m", "mpi4py", DRIVER)
    return cluster.run(*ranks, inputs.table, inputs.events, output, *options)


@pytest.fixture
def hostfile(tmp_path: Path) -> Path:
    """Three ranks on n1, one of them the master, and two on n2."""
    form = "{} slots={}" if OPEN_MPI else "{}:{}"
    path = tmp_path / "hostfile"
    path.write_text(f"{form.format('n1', 3)}\n{form.format('n2', 2)}\n")
    return path


def test_the_launch_script_gives_the_answers_of_a_run_alone(
    cluster: Beowulf, hostfile: Path, inputs: Inputs, repository: Path, tmp_path: Path
) -> None:
    """Only the master's host has the files."""
    local = cluster["n1"].local
    assert cluster.run("cp", inputs.table, inputs.events, local).returncode == 0
    assert cluster["n2"].run("ls", local).stdout == ""
    files = ("--table", local / "table.h5", "--events", local / "events.h5", "-o", local / "matches.h5")
    done = cluster.run("launch/mpirun.sh", hostfile, *files, "--engine", "counting", "--batch", 16, "--json", cwd=repository)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["workers"] == 4
    assert cluster.run("cp", local / "matches.h5", tmp_path / "matches.h5").returncode == 0
    assert (tmp_path / "matches.h5").read_bytes() == inputs.expected


def test_each_host_has_one_copy_of_the_table(cluster: Beowulf, hostfile: Path, inputs: Inputs, tmp_path: Path) -> None:
    done = drive(cluster, hostfile, inputs, tmp_path / "matches.h5", "engine=whereabouts")
    assert done.returncode == 0, done.stderr
    tables = re.findall(r"memory (\d+) \S+ of (\w+)", json.loads(done.stdout)["device"])  # an inode, and whose
    assert sorted(host for _, host in set(tables)) == ["n1", "n2"]


def test_each_host_gives_out_its_own_gpus(cluster: Beowulf, hostfile: Path, inputs: Inputs, tmp_path: Path) -> None:
    done = drive(cluster, hostfile, inputs, tmp_path / "matches.h5", "engine=numbered")
    assert done.returncode == 0, done.stderr
    taken = sorted(json.loads(done.stdout)["device"].split(", "))
    assert taken == ["n1 GPU 0 of all", "n1 GPU 1 of all", "n2 GPU 0 of all", "n2 GPU 1 of all"]
