"""Arrivals from streams: standard input, and the connections to a socket.

A stream cannot be read again, so rows that are not answered when the master ends are lost.  A worker that ends loses none.

Backpressure: standard input is read when there is room for its rows.  A connection is read again when its peer has taken the
answers to all rows that were read.
"""

from __future__ import annotations

import os
import select
import selectors
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Event
from typing import Any, NamedTuple

from mpi_match.cluster.follow.arrivals import DIRECTORY_POLL_S, Arrivals
from mpi_match.cluster.follow.directory import committed
from mpi_match.cluster.follow.rows import RowsOfBlock
from mpi_match.ingest.files.blocks import LineBlock, LineCutter
from mpi_match.ingest.files.connections import RECEIVED_BYTES, Connection, Connections
from mpi_match.ingest.files.listen import Limits
from mpi_match.ingest.rows.row_files import STDIN

FULL_S = 0.05
"""Longest wait, in seconds, for the master to take a batch that is due."""


class Wake:
    """A pipe that ends a wait of the thread that reads."""

    def __init__(self) -> None:
        self.descriptor, self._write = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._write, False)

    def __call__(self) -> None:
        """End the wait, or the next one."""
        with suppress(BlockingIOError):
            os.write(self._write, b"!")

    def heed(self) -> None:
        """Have been woken."""
        with suppress(BlockingIOError):
            os.read(self.descriptor, 2**16)

    def close(self) -> None:
        """Free its descriptors."""
        os.close(self.descriptor)
        os.close(self._write)


class StreamArrivals(Arrivals):
    """Rows that come in a stream, with changes from a directory between them: each takes effect when it is noticed."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._wake = Wake()

    def __exit__(self, *_: object) -> None:
        super().__exit__(*_)
        self._wake.close()

    def stop(self) -> None:
        """See `Arrivals.stop`."""
        super().stop()
        self._wake()

    def take(self, timeout_s: float = 0.0) -> Any:
        """See `Arrivals.take`."""
        was_full = self._queue.full()
        found = super().take(timeout_s)
        if was_full and found is not None:
            self._wake()
        return found

    def _take_changes(self) -> None:
        for commit in committed(self._directories):
            self._change(commit)

    def _patience_s(self) -> float | None:
        """Seconds until something is due that no descriptor tells; None: nothing is."""
        moments = [DIRECTORY_POLL_S] if self._directories else []
        if self._arrived:
            moments.append(FULL_S if self._queue.full() else self._left_s())
        return min(moments, default=None)

    def _take(self, block: LineBlock, connection: Any = None) -> int:
        """Take the rows of a block; returns their number."""
        rows, now, n_rows = RowsOfBlock(block), time.monotonic(), 0
        while not rows.is_empty:
            n_rows += self._add_rows(rows, now, connection)
        return n_rows


class StandardInput(StreamArrivals):
    """The rows of standard input; they end with it."""

    def _follow(self) -> None:
        descriptor, cutter = sys.stdin.fileno(), LineCutter(str(STDIN))
        poll = select.poll()
        for each in (descriptor, self._wake.descriptor):
            poll.register(each, select.POLLIN)
        while not self._stopping.is_set():
            self._take_changes()
            left_s = self._patience_s()
            ready = [each for each, _ in poll.poll(None if left_s is None else 1e3 * left_s)]
            if self._wake.descriptor in ready:
                self._wake.heed()
            if descriptor in ready and not self._stopping.is_set():
                more = os.read(descriptor, RECEIVED_BYTES)
                for block in cutter.add(more) if more else cutter.end():
                    self._take(block)
                if not more:
                    return
            self._hand_over_in_time()


class _Sent(NamedTuple):
    """Rows of a connection that are being matched."""

    n_events: int
    n_bytes: int


class _Numbered(Connection):
    """A connection; `n_answered` of its events have answers."""

    n_answered = 0


class SocketArrivals(StreamArrivals):
    """The rows of the connections to a listening socket; their answers go back."""

    def __init__(self, listener: socket.socket, limits: Limits, say: Callable[[str], object], *given: Any) -> None:
        super().__init__(*given)
        self._listener, self._service = listener, _Service(self, limits, say)
        self._answers: deque[tuple[_Numbered, bytes, int]] = deque()
        self._stop_descriptor = os.dup(self._wake.descriptor)  # a selector has each descriptor once

    def __exit__(self, *_: object) -> None:
        super().__exit__(*_)
        os.close(self._stop_descriptor)

    def answered(self, connection: _Numbered, lines: bytes, n_events: int) -> None:
        """See `Arrivals.answered`; called by the thread that writes."""
        self._answers.append((connection, lines, n_events))
        self._wake()

    def drain(self) -> tuple[int, int]:
        """See `Arrivals.drain`."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._service.n_untaken, self._service.n_cut_off

    def _follow(self) -> None:
        with suppress(_AbandonedError):
            self._service.serve(self._listener, _Stop(self._stop_descriptor, self._stopping))

    def between(self) -> list[tuple[_Numbered, bytes, int]]:
        """Do what is due; returns the answers that have come."""
        if self._abandoned.is_set():
            raise _AbandonedError
        self._wake.heed()
        if self._stopping.is_set():
            self._close()
        else:
            self._take_changes()
            self._hand_over_in_time()
        found = []
        while self._answers:
            found.append(self._answers.popleft())
        return found


class _AbandonedError(Exception):
    """The run has failed."""


class _Stop:
    """The order to end, as `connections.Stop`."""

    def __init__(self, descriptor: int, stopping: Event) -> None:
        self.descriptor, self._stopping = descriptor, stopping

    @property
    def given(self) -> bool:
        """Tells if no more is read."""
        return self._stopping.is_set()


class _Service(Connections[_Numbered]):
    """Reads connections for arrivals, and writes the answers that come."""

    def __init__(self, arrivals: SocketArrivals, limits: Limits, say: Callable[[str], object]) -> None:
        super().__init__(limits, say)
        self._arrivals = arrivals

    def _connected(self, socket_: socket.socket, name: str) -> _Numbered:
        return _Numbered(socket_, name, self._limits)

    def _scan(self, block: LineBlock, connection: _Numbered) -> None:
        n_rows = self._arrivals._take(block, connection)
        if n_rows:
            connection.waiting.append(_Sent(n_rows, len(block.data)))

    def _may_match(self) -> bool:
        """False: workers match."""
        return False

    def _begin(self) -> None:
        self._selector.register(self._arrivals._wake.descriptor, selectors.EVENT_READ)

    def _wait_s(self) -> float | None:
        moments = [each for each in (super()._wait_s(), self._arrivals._patience_s()) if each is not None]
        return min(moments, default=None)

    def _between(self) -> list[_Numbered]:
        moved = []
        for connection, lines, n_events in self._arrivals.between():
            if connection not in self._open:
                continue
            connection.at += n_events
            while connection.waiting and connection.at >= connection.waiting[0].n_events:
                connection.at -= connection.waiting.popleft().n_events
            connection.untaken += lines
            moved.append(connection)
        for connection in dict.fromkeys(moved):
            if connection.untaken and connection in self._open:
                self._step(connection)
        return list(dict.fromkeys(moved))
