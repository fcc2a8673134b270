"""Restarted runs: the decisions of the policy, and the same bytes after masters were killed."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from mpirun import TIMEOUT_S, environment, launch, needs_mpirun

from mpi_match.cli.main import commands
from mpi_match.cluster import ClusterError
from mpi_match.cluster.supervise.hostfile import PROBE, Host, hosts_of, n_ranks, without
from mpi_match.cluster.supervise.restart_policy import Again, Done, Restarts, RunOutcome, StopRestarting
from mpi_match.cluster.supervise.supervisor import Supervisor, output_of, with_at_most
from mpi_match.journal.manifest import read_manifest, write_manifest
from mpi_match.journal.reader import journal_of
from mpi_match.lab.bench.kills.disturbed_run import Files, ranks_of
from mpi_match.lab.bench.kills.master import kill_masters

RANKS = ("-m", "mpi4py", "-m", "mpi_match")
N_EVENTS = 2000
"""So many that a run takes some seconds, to be killed before it ends."""
HEAD_BYTES = 400
"""A journal that holds answers is longer."""

# Decisions.


@pytest.mark.parametrize(
    ("ends", "decided"),
    [
        pytest.param([(True, 0, 0)], [Done()], id="complete"),
        pytest.param([(True, 9, 0)], [Done()], id="complete, whatever the launcher says"),
        pytest.param([(False, 0, 5)], [Again(1)], id="a launcher that lies"),
        pytest.param([(False, 137, 5), (False, 1, 7), (True, 0, 9)], [Again(1), Again(1), Done()], id="it gets on"),
        pytest.param(
            [(False, 137, 0), (False, 137, 0), (False, 137, 3)], [Again(2), Again(4), Again(1)], id="it waits longer"
        ),
        pytest.param(
            [(False, 137, 3), (False, 1, 3), (False, 1, 3), (False, 1, 3)],
            [Again(1), Again(2), Again(4), StopRestarting("3 starts in a row answered nothing", 4)],
            id="it does not get on",
        ),
        pytest.param(
            [(False, 1, 0)] * 3, [Again(2), Again(4), StopRestarting("3 starts in a row answered nothing", 1)], id="never"
        ),
        pytest.param(
            [(False, 4, k) for k in range(1, 6)],
            [*[Again(1)] * 4, StopRestarting("it has been started again 4 times", 4)],
            id="enough",
        ),
        pytest.param([(False, 2, 0)], [StopRestarting("wrong usage: it would end in the same way", 2)], id="usage"),
        pytest.param([(False, 3, 5)], [StopRestarting("bad input: it would end in the same way", 3)], id="input"),
        pytest.param(
            [(False, 5, 0)], [StopRestarting("the environment lacks something: it would end in the same way", 5)], id="MPI"
        ),
        pytest.param([(False, 130, 5)], [StopRestarting("it was interrupted", 130)], id="Ctrl-C"),
        pytest.param(
            [(False, 137, 5, False), (False, 4, 7, True)],
            [Again(1), StopRestarting("a disk is full; make room, and go on with --resume", 4)],
            id="no room",
        ),
    ],
)
def test_decisions_of_the_restart_policy(ends: list[tuple[Any, ...]], decided: list[Done | Again | StopRestarting]) -> None:
    restarts = Restarts(4)
    assert [restarts.after(RunOutcome(*end)) for end in ends] == decided


def test_without_hosts_or_restarts_left_a_run_is_not_restarted() -> None:
    assert Restarts(4).after(RunOutcome(False, 0, 5), hosts_left=False) == StopRestarting("no host answers any more", 4)
    assert Restarts(0).after(RunOutcome(False, 0, 5)) == StopRestarting("--max-restarts is 0", 4)


HOSTS = """# ours
node1 slots=3  # the master
node2 max_slots=9 slots=2
node3:4

node4
"""


def test_hostfiles() -> None:
    assert hosts_of(HOSTS) == [Host("node1", 3), Host("node2", 2), Host("node3", 4), Host("node4", None)]
    assert n_ranks(HOSTS) is None
    assert without(HOSTS, []) == HOSTS
    left = without(HOSTS, ["node1", "node4"])
    assert left == "# ours\nnode2 max_slots=9 slots=2\nnode3:4\n\n"
    assert n_ranks(left) == 6


@pytest.mark.parametrize(
    ("command", "ranks", "expected"),
    [
        ("mpirun -n 5 python -n 9", 3, "mpirun -n 3 python -n 9"),
        ("mpirun -n 5 python", 8, "mpirun -n 5 python"),
        ("mpirun --np 5 python", None, "mpirun --np 5 python"),
        ("mpirun python", 3, "mpirun python"),
    ],
)
def test_the_number_of_ranks_is_limited_to_the_slots(command: str, ranks: int | None, expected: str) -> None:
    assert " ".join(with_at_most(command.split(), ranks)) == expected


def test_the_output_of_a_command() -> None:
    both = ["mpirun", "--output", "tag", "python", "-m", "mpi_match", "run", "-o", "a/m.h5", "--batch", "7"]
    assert output_of(both) == Path("a/m.h5")
    assert output_of(["mpirun", "python", "-m", "mpi_match", "run", "--output=m.h5"]) == Path("m.h5")
    with pytest.raises(ClusterError, match="has no -o OUTPUT"):
        output_of(["mpirun", "python", "-m", "mpi_match", "run"])


# Starts, by a launcher that is a script.

SCRIPT = """#!/bin/sh
echo "$@" >> starts
{}
"""


def script(directory: Path, body: str) -> str:
    path = directory / "launcher"
    path.write_text(SCRIPT.format(body))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def starts(directory: Path) -> list[str]:
    return (directory / "starts").read_text().splitlines()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mpi_match.cluster.supervise.restart_policy.FIRST_WAIT_S", 0.01)
    return tmp_path


def test_exit_code_0_without_a_manifest_is_incomplete(here: Path) -> None:
    said: list[str] = []
    write_manifest(here / "m.h5", {"state": "complete"})  # of an earlier run
    assert Supervisor([script(here, "exit 0"), "-o", "m.h5"], 1, say=said.append).run() == 1
    assert starts(here) == ["-o m.h5", "-o m.h5 --resume"]
    assert said == [
        "the run ended with code 0; nothing is answered; started again (1 of 1)",
        "the run ended with code 0; nothing is answered; not started again: it has been started again 1 times",
    ]


def test_a_complete_manifest_counts_whatever_the_exit_code(here: Path) -> None:
    body = """[ "$3" = --resume ] && echo '{"state": "complete"}' > m.h5.run.json; kill -9 $$"""
    said: list[str] = []
    assert Supervisor([script(here, body), "-o", "m.h5"], 3, say=said.append).run() == 0
    assert said == ["the run ended with code 137; nothing is answered; started again (1 of 3)"]


def test_the_exit_report_of_rank_0_counts_and_not_the_launchers_code(here: Path) -> None:
    """srun ends with 143 when it has ended the ranks that wait for the one with the error."""
    said: list[str] = []
    command = [script(here, 'echo 3 >"$MPI_MATCH_EXIT_REPORT"; exit 143'), "-o", "m.h5"]
    assert Supervisor(command, 3, say=said.append).run() == 3
    assert said == [
        "the run ended with code 3; nothing is answered; not started again: bad input: it would end in the same way"
    ]


def test_an_exit_report_is_of_one_start(here: Path) -> None:
    body = """[ "$3" = --resume ] && kill -9 $$; echo 4 >"$MPI_MATCH_EXIT_REPORT"; exit 4"""
    said: list[str] = []
    assert Supervisor([script(here, body), "-o", "m.h5"], 1, say=said.append).run() == 1
    assert [line.partition(";")[0] for line in said] == ["the run ended with code 4", "the run ended with code 137"]


LIMITED = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (600, -1)); "
LIMITED += "runpy.run_module('mpi_match', run_name='__main__')"
"""A full disk, to the program: Python ignores SIGXFSZ."""


def test_a_full_disk_is_not_cured_by_starting_again(here: Path) -> None:
    files = Files.make(here, n_events=64)
    words = ("run", "--table", files.table, "--events", files.events, "-o", "m.h5", "--engine", "counting")
    supervise = (sys.executable, "-m", "mpi_match", "supervise", "--", sys.executable, "-c", LIMITED)
    command = list(map(str, (*supervise, *words)))
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    lines = done.stderr.splitlines()
    assert done.returncode == 1, done.stderr
    assert lines[-2:] == [
        "mpi-match: m.h5: cannot be written: File too large",
        "the run ended with code 1; nothing is answered; not started again: "
        "a disk is full; make room, and go on with --resume",
    ]


def test_hosts_that_do_not_answer_are_left_out(here: Path) -> None:
    (here / "hosts").write_text("localhost slots=2\nlost slots=3\nthere slots=1\n")
    command = [script(here, "cat $2 >> starts"), "--hostfile", "hosts", "-n", "6", "-o", "m.h5"]
    said: list[str] = []
    Supervisor(command, 1, hostfile=Path("hosts"), probe="test {} = there", say=said.append).run()
    first, *given, second, kept, also = starts(here)
    assert first == "--hostfile hosts -n 6 -o m.h5"
    assert len(given) == 3
    assert second.split()[2:] == ["-n", "3", "-o", "m.h5", "--resume"]
    assert (kept, also) == ("localhost slots=2", "there slots=1")
    assert said[0].endswith("started again (1 of 1), without lost")


def test_a_run_without_a_host_left_is_not_restarted(here: Path) -> None:
    (here / "hosts").write_text("lost slots=3\n")
    command = [script(here, "exit 0"), "--hostfile", "hosts", "-o", "m.h5"]
    said: list[str] = []
    assert Supervisor(command, 3, hostfile=Path("hosts"), probe="false {}", say=said.append).run() == 1
    assert said[-1].endswith("not started again: no host answers any more")


def test_a_stalled_run_is_ended(here: Path) -> None:
    said: list[str] = []
    began = time.monotonic()
    code = Supervisor([script(here, "exec sleep 1000"), "-o", "m.h5"], 0, stalled_s=0.5, say=said.append).run()
    assert (code, said[0]) == (1, "no answers for 0 s: the run is ended")
    assert time.monotonic() - began < 60


def test_a_start_that_does_not_open_its_files_in_time_is_ended(here: Path) -> None:
    said: list[str] = []
    body = """[ "$3" = --resume ] && rm m.h5.run.json && exec sleep 2; exec sleep 1000"""
    command = [script(here, body), "-o", "m.h5"]
    assert Supervisor(command, 1, start_limit_s=0.5, say=said.append).run() == 1
    assert [line.partition(" (")[0] for line in said] == [
        "the run has not begun within 0.5 s",
        "the run ended with code 143; nothing is answered; started again",
        "the run ended with code 0; nothing is answered; not started again: it has been started again 1 times",
    ]
    assert not (here / "m.h5.run.json").exists()


@pytest.mark.parametrize(
    "name",
    [
        *("-oProxyCommand=touch${IFS}run", "you@-F/dev/null", "a$(id)", "'a'", "node1,-oA"),
        *("[::1]", "[fe80::1]:2", "::1", "fe80::1", "node1:", "\ufeffnode1"),
    ],
)
def test_an_invalid_host_name_is_passed_to_no_command(name: str, here: Path) -> None:
    """`ssh` reads a name that begins with `-` as an option, and some options run commands."""
    (here / "hosts").write_text(f"# ours\nnode1 slots=2\n{name} slots=2\n")
    command = [script(here, "exit 0"), "--hostfile", "hosts", "-n", "4", "-o", "m.h5"]
    probe = f"{sys.executable} -c open('run','w') {{}}"
    done = CliRunner().invoke(commands, ["supervise", "--hostfile", "hosts", "--probe", probe, "--", *command])
    assert done.exit_code == 3
    assert done.stderr.startswith(f"mpi-match: hosts, line 3: {name!r} is not a host name: ")
    assert len(done.stderr.splitlines()) == 1
    assert sorted(path.name for path in here.iterdir()) == ["hosts", "launcher"]


def test_a_hostfile_that_windows_has_written_is_refused_with_its_line(here: Path) -> None:
    """Open MPI ends with 250 and "a parse error", which would be tried again."""
    (here / "hosts").write_bytes(b"# ours\nnode1 slots=2\r\n")
    command = ["supervise", "--hostfile", "hosts", "--", script(here, "exit 0"), "--hostfile", "hosts", "-o", "m.h5"]
    done = CliRunner().invoke(commands, command)
    said = "mpi-match: hosts, line 2: ends in a carriage return, which no launcher reads; run: sed -i 's/\\r$//' hosts\n"
    assert (done.exit_code, done.stderr) == (3, said)


def test_host_names_are_no_options_of_the_probe() -> None:
    assert PROBE.endswith(" -- {} true")


def test_an_unreadable_hostfile_is_refused_before_the_start(here: Path) -> None:
    done = CliRunner().invoke(commands, ["supervise", "--hostfile", "hosts", "--", script(here, ""), "hosts", "-o", "m.h5"])
    assert (done.exit_code, done.stderr) == (3, "mpi-match: hosts: No such file or directory\n")


@pytest.mark.parametrize(
    ("command", "hostfile", "code", "words"),
    [
        (["nothing-of-this-name", "-o", "m.h5"], None, 5, "nothing-of-this-name: cannot be started"),
        (["mpirun", "-o", "m.h5"], Path("hosts"), 2, "does not name the hostfile hosts"),
    ],
)
def test_a_command_that_cannot_be_supervised_is_refused_in_one_line(
    command: list[str], hostfile: Path | None, code: int, words: str, here: Path
) -> None:
    with pytest.raises(ClusterError, match=words) as caught:
        Supervisor(command, 1, hostfile=hostfile, say=print).run()
    assert caught.value.exit_code == code


# Masters that are killed.


def wait_for_answers(output: Path) -> None:
    """Wait until some of the answers are in the journal."""
    journal, end = journal_of(output), time.monotonic() + TIMEOUT_S
    while not journal.exists() or journal.stat().st_size < HEAD_BYTES:
        assert time.monotonic() < end, f"no answers in {journal}"
        time.sleep(0.01)


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.lasting
def test_killed_masters_do_not_change_the_answers(tmp_path: Path) -> None:
    found = kill_masters(3, 3, tmp_path, n_events=1500, seed=1, longest_s=0.3)
    assert found["kills"] >= 3
    assert found["right"], found
    assert any(found["resumed"])
    assert found["hangs"] == 0
    assert found["left"] == ["matches.h5", "matches.h5.run.json"]


def test_a_killed_run_of_one_process_does_not_change_the_answers(tmp_path: Path) -> None:
    found = kill_masters(3, 1, tmp_path, n_events=1500, seed=2, longest_s=0.3)
    assert found["kills"] >= 3
    assert found["right"], found
    assert any(found["resumed"])


@pytest.mark.mpi
@needs_mpirun
def test_supervise_completes_a_run_whose_master_is_killed(tmp_path: Path) -> None:
    files, output = Files.make(tmp_path, N_EVENTS, n_filters=600), tmp_path / "matches.h5"
    command = launch(3, *files.arguments(output), "--batch", 1, python=RANKS)
    supervised = [sys.executable, "-m", "mpi_match", "supervise", "--max-restarts", "5", "--", *command]
    with subprocess.Popen(supervised, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        wait_for_answers(output)
        time.sleep(0.3)
        os.kill(ranks_of(output)[0], signal.SIGKILL)
        _, said = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, said
    assert "events are answered; started again (1 of 5)" in said
    assert output.read_bytes() == files.expected.read_bytes()
    manifest = read_manifest(output)
    assert manifest is not None
    assert 0 < manifest["resumed"] < N_EVENTS


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.lasting), signal.SIGTERM])
def test_an_interrupted_supervisor_ends_its_run_and_keeps_the_answers(number: int, tmp_path: Path) -> None:
    files, output = Files.make(tmp_path, N_EVENTS, n_filters=600), tmp_path / "matches.h5"
    command = launch(3, *files.arguments(output), "--batch", 1, python=RANKS)
    supervised = [sys.executable, "-m", "mpi_match", "supervise", "--", *command]
    with subprocess.Popen(supervised, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        wait_for_answers(output)
        os.kill(process.pid, number)
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert journal_of(output).exists()
    assert ranks_of(output) == {}
    asked = subprocess.run(
        [sys.executable, "-m", "mpi_match", "inspect", str(output)],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.returncode == 4
    assert "incomplete: " in asked.stderr


def test_the_record_of_kills_is_json(tmp_path: Path) -> None:
    assert json.loads(json.dumps(kill_masters(0, 1, tmp_path, n_events=5)))["right"]
