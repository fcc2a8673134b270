"""A thread that ends this rank when its main thread is stuck in a call.

The limits of set-up and of a worker's silence are kept by loops of the main thread, between calls of MPI.  A call may never
return, though: 1 of 42 starts under ULFM whose rank was killed left another rank in MPI_Test, at 100 % of a core, deaf to
SIGTERM, since Python's handlers run between calls as well.  This thread calls no MPI.  It watches two things from the first
call of MPI to the last:

    progress   the main thread calls `beat` at least every so often; a stopped process is not silent (`Silence`)
    signals    after SIGTERM or Ctrl-C, which `set_wakeup_fd` tells of, the handler has run or the main thread makes progress

A rank that is ended here calls no MPI either: under ULFM it ends by a signal, which the others are told of, else by an exit
code, at which the launcher ends the job (`finalize`).
"""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from contextlib import suppress
from types import TracebackType

from mpi_match.cluster.signals import LEAVE_S, SIGNALS, heard_at
from mpi_match.cluster.transport.backoff import Silence
from mpi_match.cluster.transport.launcher import survives_deaths
from mpi_match.exit_codes import ExitCode

WATCH_S = 0.5
DEAF_S = 2 * LEAVE_S
"""Seconds that the main thread may do nothing after a signal: a call that matches or reads returns earlier as a rule."""


class Watchdog:
    """The watchdog of this rank, a context manager of the main thread.

    `limit_s` is the longest silence of the main thread, in seconds (None: without limit); it may be changed at any time.
    """

    def __init__(self, rank: int, limit_s: float | None) -> None:
        self.limit_s = limit_s
        self._rank, self._beats = rank, 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def beat(self) -> None:
        """Note that the main thread is not stuck."""
        self._beats += 1

    def __enter__(self) -> Watchdog:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        is_main = threading.current_thread() is threading.main_thread()
        self._before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False) if is_main else None
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._before is not None:
            signal.set_wakeup_fd(self._before, warn_on_full_buffer=False)
        self._over.set()
        os.close(self._writer)  # which wakes the thread
        self._thread.join()
        os.close(self._reader)

    def _watch(self) -> None:
        poll, silence, beats = select.poll(), Silence(), self._beats
        poll.register(self._reader, select.POLLIN)
        signalled: Silence | None = None
        came_at = 0.0
        while not self._over.is_set():
            came = set(os.read(self._reader, 64)) if poll.poll(WATCH_S * 1000) else set()
            if came & set(SIGNALS) and signalled is None:
                signalled, came_at = Silence(), time.monotonic()
            if beats != self._beats:
                beats = self._beats
                silence.reset()
            silent_s, limit_s = silence.seconds(), self.limit_s
            if signalled is not None and limit_s is None and heard_at() >= came_at - WATCH_S:
                signalled = None  # it closes its files, which may take long
            if signalled is not None and min(signalled.seconds(), silent_s) > DEAF_S:
                self._end(f"did nothing for more than {DEAF_S:g} s after a signal", ExitCode.INTERRUPTED)
            if limit_s is not None and silent_s > limit_s:
                self._end(f"made no progress for more than {limit_s:g} s", ExitCode.FAILURE)

    def _end(self, why: str, code: int) -> None:
        line = f"mpi-match: rank {self._rank} on {socket.gethostname()} {why}: it is stuck in a call, and is ended\n"
        with suppress(OSError):  # the launcher, which reads it, may have died
            os.write(2, line.encode())
        if survives_deaths(os.environ):
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(code)
