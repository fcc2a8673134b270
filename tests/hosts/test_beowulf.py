"""Runs over hosts connected by ssh: `launch/mpirun.sh` with a hostfile, as users start it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from hosts.beowulf import Beowulf, why_no_beowulf
from hosts.host_kills import kill_hosts
from hosts.inputs import SLOWLY, Inputs, wait_for_answers
from hosts.namespaces import TIMEOUT_S
from mpirun import DRIVER, MPIRUN, OPEN_MPI, needs_mpirun

pytestmark = [pytest.mark.beowulf, needs_mpirun]


@pytest.fixture(scope="module", autouse=True)
def ssh() -> None:
    """Skips with the reason where hosts cannot be made."""
    why = why_no_beowulf()
    if why is not None:
        pytest.skip(why)


@pytest.fixture(scope="module")
def cluster(shell: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beowulf]:
    """Two hosts, n1 and n2."""
    with Beowulf(2, tmp_path_factory.mktemp("beowulf"), shell) as cluster:
        yield cluster


def drive(cluster: Beowulf, hostfile: Path, inputs: Inputs, output: Path, *options: str) -> CompletedProcess[str]:
    """A run of five ranks with a test engine."""
    flags = ("--allow-run-as-root", "--bind-to", "none", "-x", "PYTHONPATH") if OPEN_MPI else ()
    ranks = (MPIRUN, "--hostfile", hostfile, *flags, "-n", 5, sys.executable, "-m", "mpi4py", DRIVER)
    return cluster.run(*ranks, inputs.table, inputs.events, output, *options)


def hostfile_in(directory: Path, **ranks: int) -> Path:
    """A hostfile in the form of the installed MPI."""
    path = directory / f"{len(ranks)}-hosts"
    path.write_text("".join(f"{host} slots={n}\n" if OPEN_MPI else f"{host}:{n}\n" for host, n in ranks.items()))
    return path


@pytest.fixture
def hostfile(tmp_path: Path) -> Path:
    """Three ranks on n1, one of them the master, and two on n2."""
    return hostfile_in(tmp_path, n1=3, n2=2)


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


@pytest.mark.lasting  # the next one loses a host too
def test_a_run_that_loses_a_host_goes_on_from_its_journal_on_the_others(
    shell: dict[str, str], hostfile: Path, inputs: Inputs, repository: Path, tmp_path: Path
) -> None:
    """The launcher ends the job when it loses a host, with any exit code; the answers so far are kept."""
    directory, output, hold = tmp_path / "beowulf", tmp_path / "matches.h5", tmp_path / "hold"
    directory.mkdir()
    hold.mkdir()
    run = ("--table", inputs.table, "--events", inputs.events, "-o", output, "--engine", "counting", "--batch", 4)
    with Beowulf(2, directory, shell) as cluster:
        slowly = {**shell, "PYTHONPATH": f"{SLOWLY}:{repository}:{hold}"}
        launch = (repository / "launch" / "mpirun.sh", hostfile, *run)
        first = cluster["n1"].start(*launch, log=tmp_path / "log", environment=slowly)
        wait_for_answers(output)
        cluster["n2"].kill()
        hold.rmdir()
        first.wait(TIMEOUT_S)
        assert not output.exists(), (tmp_path / "log").read_text()
        rest = hostfile_in(tmp_path, n1=3)
        done = cluster.run("launch/mpirun.sh", rest, *run, "--resume", cwd=repository)
    assert done.returncode == 0, done.stderr
    assert "from the journal of an earlier run" in done.stderr
    assert output.read_bytes() == inputs.expected


def test_a_supervised_run_that_loses_a_host_completes_by_itself(
    shell: dict[str, str], hostfile: Path, inputs: Inputs, repository: Path, tmp_path: Path
) -> None:
    """A host without power closes no connection, and its launcher may never notice: hence --stalled."""
    directory, output, log, hold = (tmp_path / name for name in ("beowulf", "matches.h5", "log", "hold"))
    directory.mkdir()
    hold.mkdir()
    run = ("--table", inputs.table, "--events", inputs.events, "-o", output, "--engine", "counting", "--batch", 4)
    supervise = (sys.executable, "-m", "mpi_match", "supervise", "--hostfile", hostfile, "--stalled", 30, "--")
    with Beowulf(2, directory, shell) as cluster:
        slowly = {**shell, "PYTHONPATH": f"{SLOWLY}:{repository}:{hold}"}
        launch = (*supervise, repository / "launch" / "mpirun.sh", hostfile, *run)
        supervised = cluster["n1"].start(*launch, log=log, environment=slowly)
        wait_for_answers(output)
        cluster["n2"].kill()
        hold.rmdir()
        assert supervised.wait(TIMEOUT_S) == 0, log.read_text()
    assert "from the journal of an earlier run" in log.read_text()
    assert output.read_bytes() == inputs.expected


@pytest.mark.lasting
def test_hosts_lost_one_after_the_other_do_not_change_the_answers(tmp_path: Path) -> None:
    found = kill_hosts(3, 3, tmp_path, seed=2, limit_s=TIMEOUT_S)
    assert found["kills"] == 3
    assert found["right"], found
    assert (found["hangs"], found["failed"]) == (0, [])
    assert found["restarts"] + found["typed"] > 0
