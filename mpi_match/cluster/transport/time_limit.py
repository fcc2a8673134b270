"""A time limit for calls that can only block, such as MPI_Init; SIGTERM and Ctrl-C end them too.

Neither an exception nor a signal handler of Python ends a call of MPI that waits for a dead or stalled rank: handlers run
when the call returns.  So a thread watches the clock and, through `signal.set_wakeup_fd`, the signals; the call is made
without Python's lock.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mpi_match.cluster.signals import LEAVE_S, SIGNALS
from mpi_match.cluster.transport.backoff import Silence

TIME_LIMIT_POLL_S = 0.1
_OVER = b"\0"
"""No signal has this number."""


@contextmanager
def time_limited(limit_s: float, give_up: Callable[[bool], None], leave_s: float = LEAVE_S) -> Iterator[None]:
    """Call `give_up`, which ends the process, when the block still runs after `limit_s` seconds, or `leave_s` seconds
    after SIGTERM or Ctrl-C; its argument says whether it was the latter.  Time during which this process is stopped does not
    count.  In a block of another thread than the main one signals are not seen.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    in_main = threading.current_thread() is threading.main_thread()
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False) if in_main else -1
    watch = threading.Thread(target=_watch, args=(reader, limit_s, give_up, leave_s), name="limit", daemon=True)
    watch.start()
    try:
        yield
    finally:
        if in_main:
            signal.set_wakeup_fd(before, warn_on_full_buffer=False)
        os.write(writer, _OVER)
        watch.join()
        os.close(reader)
        os.close(writer)


def _watch(reader: int, limit_s: float, give_up: Callable[[bool], None], leave_s: float) -> None:
    poll, silence, asked = select.poll(), Silence(), False
    poll.register(reader, select.POLLIN)
    while silence.seconds() < limit_s:
        if poll.poll(TIME_LIMIT_POLL_S * 1000):
            said = os.read(reader, 64)
            if _OVER in said:
                return
            if not asked and set(said) & set(SIGNALS):
                asked, silence, limit_s = True, Silence(), leave_s
    give_up(asked)
