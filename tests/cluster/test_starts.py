"""Ranks that die or stall while MPI starts: the others wait for them in MPI_Init, and not for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE

import pytest
from lasting import lasting
from mpirun import DRIVER, FLAGS, MPIRUN, ULFM, environment, has_ulfm, needs_mpirun

from mpi_match.cluster.transport import initialize
from mpi_match.cluster.transport.launcher import LaunchedBy
from mpi_match.cluster.transport.time_limit import time_limited
from mpi_match.lab.bench.kills.disturbed_run import DisturbedRun, Files, is_running

FAULTY = DRIVER.with_name("faulty_start.py")
SOON_S = 60
"""The limit is a second; the rest is for a busy machine."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files.make(tmp_path_factory.mktemp("starts"), n_events=100)


def start(files: Files, output: Path, flags: tuple[str, ...], rank: int, number: signal.Signals, when: str) -> DisturbedRun:
    """Three ranks, one of which gets a signal."""
    if flags and not has_ulfm():
        pytest.skip("this MPI has no fault tolerance (ULFM): Open MPI 5 has")
    faulty = (sys.executable, "-m", "mpi4py", FAULTY, rank, int(number), when)
    return DisturbedRun((MPIRUN, *FLAGS, *flags, "-n", 3, *faulty, *files.arguments(output), "--setup-limit", 1), output)


def end(run: DisturbedRun, rank: int) -> None:
    """Wait for the end of all ranks but one, and of the launcher."""
    end_of_ranks(run, rank)
    assert run.wait(SOON_S), run.said
    assert not run.output.exists()


def end_of_ranks(run: DisturbedRun, rank: int) -> None:
    """Wait for the end of all ranks but one."""
    deadline = time.monotonic() + SOON_S
    pids: dict[int, int] = {}
    while len(pids) < 3 and run.process.poll() is None:
        pids |= run.pids()
    while any(is_running(pid) for each, pid in pids.items() if each != rank):
        assert time.monotonic() < deadline, f"ranks wait for ever: {run.said}"
        time.sleep(0.05)
    if rank in pids and is_running(pids[rank]):  # where the launcher does not end one that is stopped
        with suppress(ProcessLookupError):
            os.kill(pids[rank], signal.SIGCONT)


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize(
    ("flags", "rank", "number"),
    [
        pytest.param((), 0, signal.SIGSTOP, id="the master stalls"),
        pytest.param((), 1, signal.SIGSTOP, id="a worker stalls"),
        pytest.param(ULFM, 0, signal.SIGKILL, id="the master dies, ulfm"),
        pytest.param(ULFM, 2, signal.SIGKILL, id="a worker dies, ulfm"),
        pytest.param(ULFM, 1, signal.SIGSTOP, id="a worker stalls, ulfm"),
    ],
)
def test_ranks_do_not_wait_for_ever_for_one_that_does_not_start_mpi(
    flags: tuple[str, ...], rank: int, number: signal.Signals, files: Files, tmp_path: Path
) -> None:
    with start(files, tmp_path / "matches.h5", flags, rank, number, "before") as run:
        end(run, rank)
    assert run.process.returncode != 0
    assert [line for _, line in run.said if "MPI did not start within 1 s: rank " in line], run.said


def end_of_childless_launcher(run: DisturbedRun) -> None:
    """End a launcher that does not end by itself, although all its ranks have.

    That of Open MPI 5 with ULFM may lock itself up when ranks give up MPI_Init together; fault-tolerance.md says so.
    """
    deadline = time.monotonic() + SOON_S / 4
    while run.process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    if run.process.poll() is None:
        children = [path.read_text() for path in Path(f"/proc/{run.process.pid}/task").glob("*/children")]
        assert not "".join(children).strip(), f"the launcher still has ranks: {run.said}"
        run.process.kill()


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize(
    ("number", "seconds"),
    [
        (signal.SIGKILL, "0.02"),
        (signal.SIGSTOP, "0.08"),
        *lasting((signal.SIGKILL, "0.08"), (signal.SIGSTOP, "0.02")),
    ],
)
def test_ranks_do_not_wait_for_ever_for_one_that_stops_in_mpi_init(
    number: signal.Signals, seconds: str, files: Files, tmp_path: Path
) -> None:
    """Or just after it: the messages depend on the progress of the ranks."""
    with start(files, tmp_path / "matches.h5", ULFM if has_ulfm() else (), 1, number, seconds) as run:
        end_of_ranks(run, 1)
        if has_ulfm():
            end_of_childless_launcher(run)
        end(run, 1)


@pytest.mark.mpi
@needs_mpirun
def test_a_rank_that_gets_sigterm_in_mpi_init_ends(files: Files, tmp_path: Path) -> None:
    """Handlers of Python would run when MPI_Init returns."""
    output = tmp_path / "matches.h5"
    faulty = (sys.executable, "-m", "mpi4py", FAULTY, 1, int(signal.SIGSTOP), "before")
    with DisturbedRun(
        (MPIRUN, *FLAGS, "-n", 3, *faulty, *files.arguments(output)), output
    ) as run:  # the limit is ten minutes
        pids: dict[int, int] = {}
        while len(pids) < 3:
            pids = run.pids()
        time.sleep(2)  # the ranks start MPI
        os.kill(pids[0], signal.SIGTERM)
        end(run, 1)
    assert run.process.returncode != 0


def test_a_process_ends_whose_launcher_has_died() -> None:
    """Nobody reads what it has to say."""
    buffered = {**environment(), "PYTHONUNBUFFERED": ""}
    code = "import sys; from mpi_match.cluster.transport.finalize import end_process; sys.stdin.read(); print('a'); "
    code += "end_process(3)"
    with subprocess.Popen([sys.executable, "-c", code], stdin=PIPE, stdout=PIPE, stderr=PIPE, env=buffered) as process:
        for pipe in (process.stdout, process.stderr, process.stdin):
            assert pipe is not None
            pipe.close()
        assert process.wait(SOON_S) == 3


def test_a_call_ends_at_its_time_limit() -> None:
    given_up, over = [], threading.Event()

    def give_up(asked: bool) -> None:
        given_up.append(asked)
        over.set()

    with time_limited(0.2, give_up):
        assert over.wait(SOON_S)
    assert given_up == [False]
    with time_limited(SOON_S, give_up):
        pass
    assert given_up == [False]


def test_a_call_ends_on_sigterm() -> None:
    given_up, over = [], threading.Event()

    def give_up(asked: bool) -> None:
        given_up.append(asked)
        over.set()

    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with time_limited(2 * SOON_S, give_up, leave_s=0.2):
            signal.raise_signal(signal.SIGTERM)
            assert over.wait(SOON_S)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert given_up == [True]


def test_mpi_is_not_started_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that has loaded mpi4py has started it."""
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", object())
    monkeypatch.setattr(initialize, "before_mpi", lambda: pytest.fail("MPI runs already"))
    initialize.initialize(LaunchedBy("mpirun", 3, 0), 1.0)
