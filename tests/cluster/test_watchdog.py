"""A rank whose main thread is stuck in a call of compiled code or MPI ends by itself, and by SIGTERM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mpi_match.cluster.transport import watchdog

STUCK = """
import ctypes, sys, time
from mpi_match.cluster.signals import SignalFlag, signals_recorded
from mpi_match.cluster.transport import watchdog

watchdog.DEAF_S = 1.0
limit_s, stuck = eval(sys.argv[1]), sys.argv[2] == "stuck"
lock = ctypes.create_string_buffer(64)
system = ctypes.CDLL(None)
flag = SignalFlag()
with signals_recorded(flag), watchdog.Watchdog(3, limit_s) as dog:
    print("here", flush=True)
    if stuck:  # no signal ends the second call, which does not hold Python's lock, as those of MPI do not
        system.pthread_mutex_lock(lock)
        system.pthread_mutex_lock(lock)
    until = time.monotonic() + 4
    while time.monotonic() < until:
        dog.beat()
        time.sleep(0.01)
print("interrupted" if flag.seconds() is not None else "quiet")
"""


def start(limit_s: float | None, how: str, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK, repr(limit_s), how],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    return process


@pytest.mark.parametrize(("environment", "code"), [({}, 1), ({"OMPI_MCA_mpi_ft_enable": "1"}, -signal.SIGKILL)])
def test_a_rank_that_is_stuck_ends_after_its_limit(environment: dict[str, str], code: int) -> None:
    with start(1.0, "stuck", environment) as process:
        said = process.communicate(timeout=60)[1]
    assert process.returncode == code
    assert said.startswith("mpi-match: rank 3 on ")
    assert said.endswith(" made no progress for more than 1 s: it is stuck in a call, and is ended\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("limit_s", [1000.0, None])
def test_a_rank_that_is_stuck_ends_by_a_signal(limit_s: float | None, number: signal.Signals) -> None:
    """Without a limit, as in a master, only before the handler has run."""
    with start(limit_s, "stuck") as process:
        time.sleep(0.0 if limit_s else 2.0)  # until it is in the call
        process.send_signal(number)
        try:
            said = process.communicate(timeout=60)[1]
        finally:
            process.kill()
    assert process.returncode == 130
    assert said.endswith(" did nothing for more than 1 s after a signal: it is stuck in a call, and is ended\n")


def test_a_rank_that_is_not_stuck_is_left_alone() -> None:
    with start(1.0, "busy") as process:
        process.send_signal(signal.SIGTERM)
        said, errors = process.communicate(timeout=60)
    assert (process.returncode, said, errors) == (0, "interrupted\n", "")


def test_a_watchdog_ends_with_its_block() -> None:
    before = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(before)
    with watchdog.Watchdog(0, None) as dog:
        thread = dog._thread
        assert thread.is_alive()
    assert not thread.is_alive()
    assert signal.set_wakeup_fd(before) == before
