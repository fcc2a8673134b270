"""The scripts of launch/: leftovers of an earlier launcher do not affect the next; the directory of compiled code."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mpirun import MPIRUN, OPEN_MPI, TESTS, TIMEOUT_S, environment, execute, needs_mpirun

pytestmark = [pytest.mark.mpi, needs_mpirun]
LEFT_BEHIND = 'mkdir "$TMPDIR/ompi.$$" && touch "$TMPDIR/ompi.$$/pmix.$(uname -n).tool" && exec "$@"'
"""The files of a killed launcher of Open MPI with the process number of this shell's successor, and that successor."""


def test_a_dead_launchers_files_under_the_same_number_do_not_matter(tmp_path: Path) -> None:
    script = [str(TESTS.parent / "launch" / "local.sh"), "1", "--help"]
    done = execute(["bash", "-c", LEFT_BEHIND, "sh", *script], TMPDIR=str(tmp_path), MPIRUN=str(MPIRUN))
    assert (done.returncode, done.stderr) == (0, "")
    assert "--table" in done.stdout
    left = sorted(path.name.partition(".")[0] for path in tmp_path.iterdir())
    assert left == ["mpi-match", "ompi"], "the dead launcher's directory is left alone, and the new one has made its own"


def test_a_launcher_keeps_the_tmpdir_that_it_is_given(tmp_path: Path) -> None:
    script = [str(TESTS.parent / "launch" / "local.sh"), "1", "--help"]
    done = execute(script, TMPDIR=str(tmp_path), MPIRUN=str(MPIRUN))
    assert (done.returncode, done.stderr, list(tmp_path.iterdir())) == (0, "", [])


RANK = """
import os, pathlib, sys, time
from mpi4py import MPI
MPI.COMM_WORLD.barrier()
shm = pathlib.Path(os.environ["OMPI_MCA_btl_sm_backing_directory"])
said = pathlib.Path(sys.argv[1], f"rank-{os.getpid()}")
said.with_suffix(".part").write_text(f"{shm} {len(list(shm.iterdir()))}")
said.with_suffix(".part").rename(said.with_suffix(".txt"))
time.sleep(60)
"""


@pytest.mark.skipif(not OPEN_MPI, reason="shared memory of Open MPI")
def test_shared_memory_of_killed_ranks_goes_with_their_launcher(tmp_path: Path) -> None:
    """Each rank of a host has a file there, 16 MiB, which a kill leaves behind."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nexec {shlex.join([sys.executable, '-c', RANK, str(tmp_path)])}\n")
    python.chmod(0o755)
    script, own = TESTS.parent / "launch" / "local.sh", {"MPI_MATCH_PYTHON": str(python), "MPIRUN": str(MPIRUN)}
    with subprocess.Popen([script, "1", "--help"], env=environment(**own), stderr=subprocess.DEVNULL) as launcher:
        ranks = soon(
            lambda: sorted(tmp_path.glob("rank-*.txt")), lambda found: len(found) == 2 or launcher.poll() is not None
        )
        ((shm, n_files),) = {tuple(rank.read_text().split()) for rank in ranks}
        assert int(n_files) == 2
        for pid in (launcher.pid, *(int(rank.stem.removeprefix("rank-")) for rank in ranks)):
            os.kill(pid, signal.SIGKILL)
    soon(lambda: Path(shm).exists(), lambda there: not there)


def soon(look: Callable[[], Any], is_well: Callable[[Any], bool]) -> Any:
    """What is to be seen, as soon as it is well."""
    deadline = time.monotonic() + TIMEOUT_S
    while not is_well(found := look()):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def test_ranks_use_what_others_have_compiled_on_one_host_and_have_a_cache_for_each_of_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    python, hostfile = tmp_path / "python", tmp_path / "hosts"
    python.write_text('#!/bin/sh\necho "${NUMBA_CACHE_DIR-the user\'s}"\n')
    python.chmod(0o755)
    hostfile.write_text("localhost slots=1\n" if OPEN_MPI else "localhost:1\n")
    own = {"MPI_MATCH_PYTHON": str(python), "MPIRUN": str(MPIRUN), "HOME": str(tmp_path)}
    launch = TESTS.parent / "launch"
    here = execute([str(launch / "local.sh"), "1", "--help"], **own)
    hosts = execute([str(launch / "mpirun.sh"), str(hostfile), "--help"], **own)
    assert (here.returncode, here.stdout) == (0, "the user's\n" * 2), here.stderr
    assert (hosts.returncode, hosts.stdout) == (0, f"{tmp_path}/.cache/mpi-match/{os.uname().nodename}\n"), hosts.stderr


def test_what_is_no_host_name_reaches_no_launcher(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("node1 slots=2\n-oProxyCommand=touch${IFS}run slots=2\n")
    done = execute([str(TESTS.parent / "launch" / "mpirun.sh"), str(tmp_path / "hosts"), "--help"], MPIRUN=str(MPIRUN))
    assert (done.returncode, done.stdout) == (3, "")
    said = f'mpirun.sh: {tmp_path}/hosts, line 2: no host name at the beginning of "-oProxyCommand='
    assert done.stderr.startswith(said)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("node1 slots=2\r", "ends in a carriage return, which no launcher reads; run: sed -i 's/\\r$//' "),
        ("[::1] slots=2", 'no host name at the beginning of "[::1] slots=2"; an IPv6 address needs a name'),
        ("[::1]:2", 'no host name at the beginning of "[::1]:2"'),
        ("fe80::1 slots=2", 'no host name at the beginning of "fe80::1 slots=2"'),
        ("\ufeffnode1 slots=2", "no host name at the beginning of "),
    ],
)
def test_a_line_that_launchers_misread_is_named(line: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(f"# ours\n\n{line}\n", newline="\n")
    done = execute([str(TESTS.parent / "launch" / "mpirun.sh"), str(tmp_path / "hosts"), "--help"], MPIRUN=str(MPIRUN))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (3, "", 1)
    assert done.stderr.startswith(f"mpirun.sh: {tmp_path}/hosts, line 3: {why}")


LISTENING = """
import os, pathlib
from mpi4py import MPI
MPI.COMM_WORLD.barrier()
own = {os.readlink(each) for each in pathlib.Path("/proc/self/fd").iterdir() if each.is_symlink()}
for family, loopback in (("tcp", "0100007F"), ("tcp6", "0" * 24 + "01000000")):
    for line in pathlib.Path("/proc/net", family).read_text().splitlines()[1:]:
        words = line.split()
        address, state, inode = words[1].partition(":")[0], words[3], words[9]
        if state == "0A" and f"socket:[{inode}]" in own and address != loopback:
            print(family, words[1])
MPI.COMM_WORLD.barrier()
"""


@pytest.mark.skipif(not OPEN_MPI, reason="ranks of MPICH inherit a port of their launcher")
def test_ranks_of_one_host_do_not_listen_on_the_network(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nexec {shlex.join([sys.executable, '-c', LISTENING])}\n")
    python.chmod(0o755)
    own = {"MPI_MATCH_PYTHON": str(python), "MPIRUN": str(MPIRUN)}
    done = execute([str(TESTS.parent / "launch" / "local.sh"), "2", "--help"], **own)
    assert (done.returncode, done.stdout) == (0, "")
