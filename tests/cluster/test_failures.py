"""Ranks that die, stall or are terminated: the run goes on without them or ends, and no process stays behind."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from clock import Clock
from lasting import lasting
from mpirun import DRIVER, FLAGS, MPIRUN, OPEN_MPI, TIMEOUT_S, ULFM, execute, has_ulfm, needs_mpirun, said

from mpi_match.cluster.transport.backoff import Silence
from mpi_match.cluster.transport.launcher import survives_deaths
from mpi_match.cluster.transport.liveness import absent_of
from mpi_match.journal.reader import JournalFile
from mpi_match.lab.bench.kills.disturbed_run import DisturbedRun, Files, is_running
from mpi_match.lab.bench.kills.workers import measure
from mpi_match.matches.file import MatchesFile
from mpi_match.monitor.report import read_report
from mpi_match.storage import parts_directory

SOON_S = 60
"""Steps that take some seconds take no longer on a busy machine; workers wait ten times as long without a notice by MPI."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files.make(tmp_path_factory.mktemp("failures"), n_events=1000)


@pytest.fixture
def two_workers(files: Files, ulfm: tuple[str, ...], tmp_path: Path) -> Iterator[tuple[DisturbedRun, dict[int, int]]]:
    """A run under ULFM that has just begun, and its processes."""
    with DisturbedRun.of(files, tmp_path / "matches.h5", 2) as run:
        run.begun(TIMEOUT_S)
        pids = run.pids()
        assert sorted(pids) == [0, 1, 2], run.said
        yield run, pids


def wait_until_gone(pids: list[int]) -> float:
    """Seconds until none of these processes runs any more."""
    started = time.monotonic()
    while any(map(is_running, pids)):
        assert time.monotonic() - started < TIMEOUT_S, "a rank stays behind"
        time.sleep(0.02)
    return time.monotonic() - started


def wait_until(true: Callable[[], bool]) -> None:
    started = time.monotonic()
    while not true():
        assert time.monotonic() - started < TIMEOUT_S
        time.sleep(0.02)


# Workers


@pytest.mark.mpi
@needs_mpirun
def test_observers_see_a_worker_die(files: Files, ulfm: tuple[str, ...], tmp_path: Path) -> None:
    report = tmp_path / "run.jsonl"
    with DisturbedRun.of(files, tmp_path / "matches.h5", 3, "--report", str(report)) as run:
        run.begun(TIMEOUT_S)
        pid = run.pids()[2]
        os.kill(pid, signal.SIGSTOP)  # the run waits for its batch, however fast the others are
        wait_until(lambda: report.exists() and report.stat().st_size > 0)  # its first line has been written
        wait_until(lambda: any(tick["written"] for tick in read_report(report)[0].ticks))
        os.kill(pid, signal.SIGKILL)
        assert run.wait(TIMEOUT_S)
    (found,) = read_report(report)
    assert found.summary is not None
    assert found.summary["complete"], run.said
    lost = [incident for incident in found.incidents if incident["kind"] == "lost"]
    assert [(incident["worker"], incident["text"]) for incident in lost] == [(2, "worker 2 is lost")]
    assert found.ticks[0]["at_s"] < lost[0]["at_s"] < found.ticks[-1]["at_s"]
    assert found.ticks[-1]["held"] == [0, 0, 0]
    assert sum(found.ticks[-1]["answered"]) == found.run["n_events"]


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.lasting
def test_killed_and_stopped_workers_lose_no_answer(ulfm: tuple[str, ...], tmp_path: Path) -> None:
    # of three workers two are killed at most, and a batch that fewer than three died of is given to another
    tally = measure(n_kills=6, n_stops=2, workers=(3, 3), seed=1, limit_s=TIMEOUT_S, directory=tmp_path)
    assert tally.good, tally.record()
    assert tally.counts["kills"] >= 6
    assert tally.counts["stops"] >= 2
    assert tally.noticed_s, "the master never said that a rank is lost"


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize("feed", ["file", *lasting("shared")])
def test_answers_outlive_the_worker_that_wrote_them(feed: str, files: Files, ulfm: tuple[str, ...], tmp_path: Path) -> None:
    output = tmp_path / "matches.h5"
    part = parts_directory(output) / "1-rank-1.answers"
    with DisturbedRun.of(files, output, 3, "--feed", feed, "--results", "local", "--batch", "17") as run:
        run.begun(TIMEOUT_S)
        pids = run.pids()
        os.kill(pids[2], signal.SIGSTOP)  # the run waits for its batches, however fast the others are
        # it got the batch after those of its four credits when the master had heard of the first
        wait_until(lambda: JournalFile.look(part).n_answered > 4 * 17)
        os.kill(pids[1], signal.SIGKILL)
        os.kill(pids[2], signal.SIGCONT)
        assert run.wait(TIMEOUT_S)
    assert run.process.returncode == 0, run.said
    assert MatchesFile.load(output).matches == MatchesFile.load(files.expected).matches
    assert any("rank 1 is lost" in line for _, line in run.said), run.said
    assert part.exists(), "nothing of it was kept"


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize("how", ["--batch 1 --credits 1", *lasting("--batch 3 --schedule static")])
def test_short_batches_survive_a_worker(how: str, files: Files, ulfm: tuple[str, ...], tmp_path: Path) -> None:
    output = tmp_path / "matches.h5"
    with DisturbedRun.of(files, output, 3, *how.split()) as run:
        run.begun(TIMEOUT_S)
        pids = run.pids()
        os.kill(pids[2], signal.SIGSTOP)  # the others go on to the end of the window
        time.sleep(0.2)
        os.kill(pids[2], signal.SIGKILL)
        assert run.wait(TIMEOUT_S)
    assert run.process.returncode == 0, run.said
    assert output.read_bytes() == files.expected.read_bytes()
    assert any("rank 2 is lost" in line for _, line in run.said), run.said


@pytest.mark.mpi
@needs_mpirun
def test_a_run_that_loses_all_workers_is_incomplete(two_workers: tuple[DisturbedRun, dict[int, int]]) -> None:
    run, pids = two_workers
    for rank in (1, 2):
        os.kill(pids[rank], signal.SIGKILL)
    assert run.wait(TIMEOUT_S)
    assert [line for _, line in run.said if "no worker is left" in line], run.said
    assert not run.output.exists()


@pytest.mark.mpi
@needs_mpirun
def test_only_a_worker_that_is_terminated_is_lost(two_workers: tuple[DisturbedRun, dict[int, int]], files: Files) -> None:
    run, pids = two_workers
    os.kill(pids[2], signal.SIGTERM)
    assert run.wait(TIMEOUT_S)
    assert run.output.read_bytes() == files.expected.read_bytes(), run.said


@pytest.mark.mpi
@needs_mpirun
def test_the_end_of_a_run_does_not_wait_for_a_worker_that_is_stopped(
    files: Files, ulfm: tuple[str, ...], tmp_path: Path
) -> None:
    with DisturbedRun.of(files, tmp_path / "matches.h5", 2, "--deadline", "1") as run:
        run.begun(TIMEOUT_S)
        pids = run.pids()
        os.kill(pids[1], signal.SIGSTOP)
        try:
            wait_until_gone([pids[0], pids[2]])
            assert run.output.read_bytes() == files.expected.read_bytes(), run.said
        finally:
            os.kill(pids[1], signal.SIGCONT)
        assert run.wait(TIMEOUT_S)


# The master


@pytest.mark.mpi
@needs_mpirun
def test_workers_leave_when_the_master_is_killed(two_workers: tuple[DisturbedRun, dict[int, int]]) -> None:
    run, pids = two_workers
    os.kill(pids[0], signal.SIGKILL)
    wait_until_gone([pids[1], pids[2]])
    assert run.wait(TIMEOUT_S)
    assert run.process.returncode != 0
    assert not run.output.exists()


@pytest.mark.mpi
@needs_mpirun
def test_another_master_goes_on_from_what_workers_wrote(files: Files, ulfm: tuple[str, ...], tmp_path: Path) -> None:
    output, how = tmp_path / "matches.h5", ("--feed", "shared", "--results", "local", "--batch", "17")
    with DisturbedRun.of(files, output, 2, *how) as run:
        run.begun(TIMEOUT_S)
        pids = run.pids()
        deadline = time.monotonic() + TIMEOUT_S
        part = parts_directory(output) / "1-rank-1.answers"
        while part.stat().st_size < 1000 and time.monotonic() < deadline:
            time.sleep(0.001)
        os.kill(pids[0], signal.SIGKILL)
        wait_until_gone([pids[1], pids[2]])
        assert run.wait(TIMEOUT_S)
    assert not output.exists()
    with DisturbedRun.of(files, output, 2, *how, "--resume") as run:
        assert run.wait(TIMEOUT_S)
    assert run.process.returncode == 0, run.said
    assert MatchesFile.load(output).matches == MatchesFile.load(files.expected).matches
    assert any("from the journal of an earlier run" in line for _, line in run.said), run.said


@pytest.mark.mpi
@needs_mpirun
def test_workers_leave_when_the_master_is_silent(files: Files, tmp_path: Path) -> None:
    """A launcher that keeps a job, without ULFM: no rank is notified that the master has died."""
    if not OPEN_MPI:
        pytest.skip("only Open MPI's launcher has --enable-recovery")
    arguments = (files.table, files.events, tmp_path / "matches.h5", "engine=slow", "batch=1", "silence=3")
    command = [MPIRUN, *FLAGS, "--enable-recovery", "-n", 3, sys.executable, "-m", "mpi4py", DRIVER, *arguments]
    with DisturbedRun(command, tmp_path / "matches.h5") as run:
        deadline = time.monotonic() + TIMEOUT_S
        while not list(tmp_path.glob("*matches.h5*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(2)
        pids = run.pids()
        os.kill(pids[0], signal.SIGKILL)
        wait_until_gone([pids[1], pids[2]])
        assert run.wait(TIMEOUT_S)
        assert any("because the master is gone: it sent nothing for 3 s" in line for _, line in run.said), run.said


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize("flags", [pytest.param((), marks=pytest.mark.lasting), ULFM], ids=["plain", "ulfm"])
def test_an_interrupted_run_ends_within_seconds(flags: tuple[str, ...], files: Files, tmp_path: Path) -> None:
    if flags and not has_ulfm():
        pytest.skip("this MPI has no fault tolerance (ULFM): Open MPI 5 has")
    with DisturbedRun.of(files, tmp_path / "matches.h5", 3, flags=flags) as run:
        run.begun(TIMEOUT_S)
        pids = run.pids()
        os.kill(pids[0], signal.SIGTERM)
        assert wait_until_gone([*pids.values()]) < SOON_S
        assert run.wait(TIMEOUT_S)
        assert run.process.returncode != 0
        assert sum("interrupted" in line for _, line in run.said) == 1, "\n".join(line for _, line in run.said)
        assert not run.output.exists()


# Before the first batch


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize("flags", [(), ULFM], ids=["plain", "ulfm"])
def test_a_rank_that_dies_before_the_first_batch_ends_the_run(flags: tuple[str, ...], files: Files, tmp_path: Path) -> None:
    if flags and not has_ulfm():
        pytest.skip("this MPI has no fault tolerance (ULFM): Open MPI 5 has")
    output = tmp_path / "matches.h5"
    ranks = (sys.executable, "-m", "mpi4py", DRIVER, files.table, files.events, output, "engine=dying")
    done = execute([str(each) for each in (MPIRUN, *FLAGS, *flags, "-n", 4, *ranks)])
    assert done.returncode != 0
    assert not output.exists()
    if flags:  # where MPI prints a message of its own
        own = [line for line in said(done).splitlines() if not line.startswith("NBC_Progress: ")]
        assert own == ["rank 2 died before the first batch; start the run again"]


STUCK_WORKER = (
    2,
    "engine=stuck",
    "nothing was heard for more than 2 s of rank 2 on {host} (its last step: opening its engine); if ",
)
STUCK_MASTER = (0, "engine=null master_stops=1", "nothing was heard of the master for more than 2 s")


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize(
    ("flags", "stopped", "how", "words"),
    [(ULFM, *STUCK_WORKER), ((), *STUCK_MASTER), *lasting(((), *STUCK_WORKER), (ULFM, *STUCK_MASTER))],
    ids=["ulfm, a worker", "plain, the master", "plain, a worker", "ulfm, the master"],
)
def test_a_rank_that_stalls_before_the_first_batch_ends_the_run(
    flags: tuple[str, ...], stopped: int, how: str, words: str, files: Files, tmp_path: Path
) -> None:
    if flags and not has_ulfm():
        pytest.skip("this MPI has no fault tolerance (ULFM): Open MPI 5 has")
    output = tmp_path / "matches.h5"
    arguments = (files.table, files.events, output, "setup_limit=2", *how.split())
    with DisturbedRun((MPIRUN, *FLAGS, *flags, "-n", 4, sys.executable, "-m", "mpi4py", DRIVER, *arguments), output) as run:
        pids: dict[int, int] = {}
        while len(pids) < 4 and run.process.poll() is None:
            pids = run.pids()
        wait_until_gone([pid for rank, pid in pids.items() if rank != stopped])
        with suppress(ProcessLookupError):  # without ULFM the launcher has ended it
            os.kill(pids[stopped], signal.SIGCONT)
        assert run.wait(TIMEOUT_S)
    assert run.process.returncode != 0
    own = [line for _, line in run.said if "nothing was heard" in line]
    assert len(own) == 1, run.said
    assert own[0].startswith(words.format(host=os.uname().nodename))
    assert not run.output.exists()


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize("flags", [(), pytest.param(ULFM, marks=pytest.mark.lasting)], ids=["plain", "ulfm"])
def test_workers_that_get_sigterm_do_not_wait_for_a_stopped_master(
    flags: tuple[str, ...], files: Files, tmp_path: Path
) -> None:
    if flags and not has_ulfm():
        pytest.skip("this MPI has no fault tolerance (ULFM): Open MPI 5 has")
    arguments = (files.table, files.events, tmp_path / "matches.h5", "engine=null", "master_stops=1")  # ten minutes' limit
    with DisturbedRun(
        (MPIRUN, *FLAGS, *flags, "-n", 3, sys.executable, "-m", "mpi4py", DRIVER, *arguments), arguments[2]
    ) as run:
        pids: dict[int, int] = {}
        while len(pids) < 3 and run.process.poll() is None:
            pids = run.pids()
        wait_until(lambda: Path(f"/proc/{pids[0]}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        for rank in (1, 2):
            os.kill(pids[rank], signal.SIGTERM)
        assert wait_until_gone([pids[1], pids[2]]) < SOON_S
        with suppress(ProcessLookupError):  # without ULFM the launcher has ended it
            os.kill(pids[0], signal.SIGCONT)
        assert run.wait(TIMEOUT_S)
    assert run.process.returncode != 0
    assert not run.output.exists()


@pytest.mark.mpi
@needs_mpirun
def test_a_run_begins_without_a_worker_that_is_not_ready(files: Files, ulfm: tuple[str, ...], tmp_path: Path) -> None:
    """Rank 1 leaves the last common step 2 s later than the master waits for; it ends when it finds no master."""
    arguments = (files.table, files.events, tmp_path / "matches.h5", "engine=reference", "batch=100", "meeting=1")
    ranks = (sys.executable, "-m", "mpi4py", DRIVER, *arguments)
    done = execute([str(each) for each in (MPIRUN, *FLAGS, *ulfm, "-n", 3, *ranks)])
    assert said(done).splitlines()[0] == "rank 1 is lost: it was not ready 1 s after the others"
    assert MatchesFile.load(arguments[2]).matches == MatchesFile.load(files.expected).matches


# What they are made of


class Quiet:
    """Traffic with half a second between two polls, in which workers get ready at the given times."""

    def __init__(self, clock: Clock, ready: dict[int, float], lost: dict[int, str]) -> None:
        self.lost, self.ready = lost, set[int]()
        self._clock, self._coming, self._began = clock, ready, clock.now

    def poll(self) -> bool:
        self._clock.now += 0.5
        come = {rank for rank, at_s in self._coming.items() if self._clock.now - self._began >= at_s} - self.ready
        self.ready |= come
        return bool(come)


@pytest.mark.parametrize(
    ("ready", "lost", "absent", "after_s"),
    [
        ({1: 0, 2: 2, 3: 20}, {}, [], 20),
        ({1: 0, 3: 20}, {2: "it died"}, [], 20),
        ({1: 0, 3: 20}, {}, [2], 50),
        ({}, {}, [1, 2, 3], 30),
    ],
    ids=["all are ready", "one is lost", "one is not ready", "none is ready"],
)
def test_workers_have_30_s_after_the_last_ready_one(
    ready: dict[int, float], lost: dict[int, str], absent: list[int], after_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    traffic, began = Quiet(clock, ready, lost), clock.now
    found = absent_of([1, 2, 3], traffic, traffic.ready, lambda: None)  # type: ignore[arg-type]
    assert found == dict.fromkeys(absent, "it was not ready 30 s after the others")
    assert after_s <= clock.now - began <= after_s + 0.5


def test_silence_does_not_count_time_in_which_this_process_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    silence = Silence()
    for now[0] in (0.5, 1.0, 1000.0):  # stopped for a quarter of an hour
        heard_s = silence.seconds()
    assert heard_s == 2.0
    silence.reset()
    now[0] = 1000.5
    assert silence.seconds() == 0.5


@pytest.mark.parametrize(("value", "expected"), [("1", True), ("true", True), ("0", False), (None, False)])
def test_the_environment_says_whether_jobs_survive(value: str | None, expected: bool) -> None:
    assert survives_deaths({} if value is None else {"OMPI_MCA_mpi_ft_enable": value}) is expected
