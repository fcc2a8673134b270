"""SIGTERM and Ctrl-C end a run in one line at any point, and its answers so far are kept."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from interrupting import line_without_lock, lines_of_waiting, terminated_before, waiting_at
from mpirun import DRIVER, FLAGS, MPIRUN, TIMEOUT_S, ULFM, execute, has_ulfm, needs_mpirun, said
from run_inputs import Inputs

from mpi_match.cluster import RunOptions, run, signals
from mpi_match.cluster.signals import SignalFlag, held, signals_recorded, terminate_as_interrupt
from mpi_match.monitor.status import RunStatus


def test_repeated_signals_are_one_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher sends SIGTERM, a terminal SIGINT, both at once; a later signal is another interruption."""
    with terminate_as_interrupt():
        with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        later = time.monotonic() + signals.AGAIN_S + 1
        monkeypatch.setattr(time, "monotonic", lambda: later)
        with pytest.raises(KeyboardInterrupt, match="SIGINT"):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_nested_blocks_share_interruptions() -> None:
    with terminate_as_interrupt():
        with pytest.raises(KeyboardInterrupt), terminate_as_interrupt():
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)  # in time
    with pytest.raises(KeyboardInterrupt), terminate_as_interrupt():  # another run
        signal.raise_signal(signal.SIGINT)


def test_where_they_are_held_interruptions_wait() -> None:
    reached = []

    def hold() -> None:
        with held() as interruptions:
            interruptions.let_through()
            with held():
                signal.raise_signal(signal.SIGTERM)
                reached.append("inside")
            reached.append("between")
            interruptions.let_through()
            reached.append("never")

    with terminate_as_interrupt():
        with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
            hold()
        signal.raise_signal(signal.SIGTERM)  # the same one
        with held() as interruptions:
            interruptions.let_through()
    assert reached == ["inside", "between"]


def test_interruptions_are_raised_at_once_within_heeded() -> None:
    def heed() -> None:
        with held() as interruptions, interruptions.heeded():
            signal.raise_signal(signal.SIGTERM)
            raise AssertionError

    with terminate_as_interrupt(), pytest.raises(KeyboardInterrupt, match="SIGTERM"):
        heed()


def test_held_interruptions_are_raised_at_the_end_of_the_block() -> None:
    def hold(error: Exception | None) -> None:
        with held():
            signal.raise_signal(signal.SIGINT)
            if error is not None:
                raise error

    with terminate_as_interrupt(), pytest.raises(KeyboardInterrupt, match="SIGINT"):
        hold(None)
    with terminate_as_interrupt(), pytest.raises(ZeroDivisionError):  # ends the run as well
        hold(ZeroDivisionError())
    with pytest.raises(KeyboardInterrupt):  # they are not held
        hold(None)


def test_only_the_main_thread_holds_interruptions() -> None:
    """The main thread alone handles signals."""

    def hold() -> None:
        with held() as interruptions:
            interruptions.let_through()
            begun.set()
            over.wait()

    begun, over = threading.Event(), threading.Event()
    with terminate_as_interrupt():
        thread = threading.Thread(target=hold)
        thread.start()
        begun.wait()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        over.set()
        thread.join()


def test_a_worker_records_signals() -> None:
    flag = SignalFlag()
    with signals_recorded(flag):
        assert flag.seconds() is None
        signal.raise_signal(signal.SIGTERM)
        asked_s = flag.seconds()
    assert asked_s is not None
    assert 0 <= asked_s < TIMEOUT_S


def test_ignored_signals_stay_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with terminate_as_interrupt():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def terminated_at(line: int) -> Callable[[RunStatus], AbstractContextManager[None]]:
    return lambda _: terminated_before(waiting_at(line))


def test_a_run_is_interrupted_at_any_line_of_a_wait(inputs: Inputs, expected: bytes, tmp_path: Path) -> None:
    """Before any line of `Condition.wait`; at three of them an exception would end in another error."""
    options = RunOptions(inputs.table, inputs.events, tmp_path / "matches.h5", engine="counting", batch=100)
    threads, ended = threading.active_count(), 0
    for line in lines_of_waiting():
        with suppress(KeyboardInterrupt):
            run(replace(options, watch=terminated_at(line)))
            options.output.unlink()  # the line was not reached, or when all was done
            continue
        ended += 1
        assert threading.active_count() == threads
    assert ended > 10
    run(replace(options, resume=True))
    assert options.output.read_bytes() == expected


@pytest.mark.mpi
@needs_mpirun
def test_a_master_that_is_interrupted_between_two_locks_reports_it(inputs: Inputs, tmp_path: Path) -> None:
    ulfm = ULFM if has_ulfm() else ()
    output = tmp_path / "matches.h5"
    rank = (sys.executable, "-m", "mpi4py", DRIVER)
    what = (inputs.table, inputs.events, output, "engine=slow", "batch=100", f"interrupted_at={line_without_lock()}")
    done = execute([str(each) for each in (MPIRUN, *FLAGS, *ulfm, "-n", 3, *rank, *what)])
    assert done.returncode != 0
    assert "interrupted" in said(done).splitlines()
    assert "Traceback" not in done.stderr
    assert not output.exists()


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize("place", ["set-up", "greeting"])
def test_workers_do_not_wait_for_a_master_that_is_interrupted_before_the_first_batch(
    place: str, ulfm: tuple[str, ...], inputs: Inputs, tmp_path: Path
) -> None:
    """ULFM does not report a rank that ends with an exit code."""
    what = (inputs.table, inputs.events, tmp_path / "matches.h5", "engine=null", f"interrupted_in={place}")
    command = (MPIRUN, *FLAGS, *ulfm, "-n", 3, sys.executable, "-m", "mpi4py", DRIVER, *what)
    done = execute([str(each) for each in command])  # within its time
    assert done.returncode != 0
    assert said(done).splitlines().count("interrupted") == 1
    assert "Traceback" not in done.stderr
