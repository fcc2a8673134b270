"""Lines of any number of connections, in one thread and in bounded memory; their answers are written back.

A peer that does not take its answers is not read from, and none of its lines are read before those that it has sent are
answered.  When all connections together keep more than `Limits.total_bytes`, none is read from until some is taken; after
`Limits.drain_s` those that keep most are closed.  So a peer that breaks a limit loses its own connection, and no other.
"""

from __future__ import annotations

import errno
import fcntl
import math
import resource
import selectors
import socket
import struct
import termios
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from mpi_match.humanize import byte_size, plural
from mpi_match.ingest.files.blocks import LineBlock, LineCutter
from mpi_match.ingest.files.listen import Limits, address_of

RECEIVED_BYTES = 2**18
"""Bytes that are read from a connection before others have their turn."""
_WRITE_BYTES = 2**16
"""Bytes of answers that are worth writing before more events are matched."""
_RETRY_S = 1.0
"""Seconds until another connection is accepted after the system had no room for one."""
_LINGER_S = 0.02
"""Seconds between two checks of the bytes that the system still sends."""
_UNREAD_READS = 64
"""Most reads of bytes that arrive too late; without a limit, a peer could go on for ever."""
_SENDS_KNOWN = 4096
"""Number of latest sends with known lines; together they have more bytes than the system buffers."""
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Stop(Protocol):
    """The order to end: `given`, and a descriptor that becomes readable when it is given."""

    descriptor: int

    @property
    def given(self) -> bool:
        """Tells whether the command has to end."""
        ...


class Unanswered(Protocol):
    """Events of a connection that are not answered yet."""

    @property
    def n_events(self) -> int:
        """Number of events."""
        ...

    @property
    def n_bytes(self) -> int:
        """Bytes that are kept for them."""
        ...


class Connection:
    """A connection: the line that has begun, events that are not matched yet, and answers that its peer has not taken.

    at          events of the first of `waiting` that are answered already
    counted     its share of the bytes that the service has counted
    moved_at    when bytes last arrived or were taken
    ended       no more bytes will arrive
    lingers     all answers are written, and the system may still be sending them
    """

    def __init__(self, socket_: socket.socket, name: str, limits: Limits) -> None:
        self.socket, self.name, self.cutter = socket_, name, LineCutter(name, limits.line_bytes)
        self.waiting: deque[Any] = deque()
        self.untaken = bytearray()
        self.at = self.counted = 0
        self.moved_at = time.monotonic()
        self.ended = self.lingers = False
        self._n_sent, self._sent = 0, deque[tuple[int, int]]()
        socket_.setblocking(False)

    @property
    def held(self) -> int:
        """Bytes that are kept for the connection."""
        n_waiting: int = sum(each.n_bytes for each in self.waiting)
        return self.cutter.held + len(self.untaken) + n_waiting

    @property
    def n_unanswered(self) -> int:
        """Number of events that were read and whose answers have not been taken."""
        n_waiting: int = sum(each.n_events for each in self.waiting)
        return self.untaken.count(b"\n") + n_waiting - self.at

    @property
    def n_undelivered(self) -> int:
        """Number of events whose answers the system may have taken, but not delivered to another host."""
        try:
            n_bytes = struct.unpack("i", fcntl.ioctl(self.socket, termios.TIOCOUTQ, bytes(4)))[0]
        except OSError:
            n_bytes = 0
        while self._sent and self._sent[0][0] <= self._n_sent - n_bytes:
            self._sent.popleft()
        return sum(n_lines for _, n_lines in self._sent)

    def close(self) -> None:
        """Close the connection.  Closing it with unread bytes would reset it, and sent answers could be lost."""
        with suppress(OSError):
            for _ in range(_UNREAD_READS):
                if not self.socket.recv(RECEIVED_BYTES):
                    break
        self.socket.close()

    def send(self) -> None:
        """Send as much of the answers as the system takes now.  Raises OSError."""
        n = self.socket.send(self.untaken)
        self._n_sent += n
        self._sent.append((self._n_sent, self.untaken.count(b"\n", 0, n)))
        del self.untaken[:n]
        self.moved_at = time.monotonic()
        if len(self._sent) > _SENDS_KNOWN:
            self._sent.popleft()


C = TypeVar("C", bound=Connection)


class Connections(Generic[C]):
    """Reads lines of connections; a subclass has `_connected`, `_scan`, `_may_match` and `_answer`.

    n_untaken    events of connections that ended, or were closed, before their answers were taken
    n_cut_off    events whose answers were not taken before the command ended
    """

    def __init__(self, limits: Limits, say: Callable[[str], object]) -> None:
        self._limits, self._say, self._said = limits, say, set[str]()
        self._open: set[C] = set()
        self._lingering: set[C] = set()
        self._held, self._idle_at = 0, math.inf
        self._accepts_from = 0.0
        self._full_since: float | None = None
        self._n_accepted = 0
        self._stopped_at: float | None = None
        self.n_untaken = self.n_cut_off = 0

    def _connected(self, socket_: socket.socket, name: str) -> C:
        """A connection that was accepted."""
        raise NotImplementedError

    def _scan(self, block: LineBlock, connection: C) -> None:
        """Take lines of a connection; those with events are `waiting` then."""
        raise NotImplementedError

    def _may_match(self) -> bool:
        """Tells if `_answer` may be called now."""
        raise NotImplementedError

    def _answer(self, connection: C) -> None:
        """Answer some waiting events of a connection."""
        raise NotImplementedError

    def _begin(self) -> None:
        """Register what else is waited for."""

    def _between(self) -> list[C]:
        """Do what is to be done between two waits; returns the connections for which something has changed."""
        return []

    def serve(self, listener: socket.socket, stop: Stop) -> None:
        """Serve until `stop`, and then until the answers of the read events are taken, for at most `Limits.drain_s`."""
        self._name = address_of(listener)
        listener.setblocking(False)
        with selectors.DefaultSelector() as selector:
            self._selector = selector
            selector.register(stop.descriptor, selectors.EVENT_READ)
            self._begin()
            try:
                while self._stopped_at is None or self._open:
                    self._watch(listener, selectors.EVENT_READ if self._accepts() else 0)
                    moved, was_full = list(self._lingering), self._is_full
                    for key, _ in selector.select(self._wait_s()):
                        if key.fileobj is listener:
                            moved += self._accept(listener)
                        elif key.data is not None:
                            self._step(key.data)
                            moved.append(key.data)
                    moved += self._between()
                    if stop.given and self._stopped_at is None:
                        self._stopped_at = time.monotonic()
                        selector.unregister(stop.descriptor)
                    self._close_late()
                    for each in moved:
                        self._count(each)
                    self._relieve()
                    depends = was_full or self._is_full or self._stopped_at is not None  # each on the others
                    for each in list(self._open) if depends else moved:
                        if each in self._open:
                            self._settle(each)
            finally:
                for each in self._open:
                    each.close()

    @property
    def _is_full(self) -> bool:
        return self._full_since is not None

    def _accepts(self) -> bool:
        if self._stopped_at is not None or time.monotonic() < self._accepts_from:
            return False
        if len(self._open) >= self._limits.connections:
            self._say_once(
                "connections", f"{len(self._open)} connections are open; others wait until one ends (--connections)"
            )
            return False
        return True

    def _wait_s(self) -> float | None:
        """Seconds until work is due that no descriptor announces, or None."""
        limits, now = self._limits, time.monotonic()
        moments = [] if self._accepts_from <= now else [self._accepts_from]
        if self._full_since is not None:
            moments.append(self._full_since + limits.drain_s)
        if self._stopped_at is not None:
            moments.append(self._stopped_at + limits.drain_s)
        if self._idle_at < math.inf:
            moments.append(self._idle_at)
        if self._lingering:
            moments.append(now + _LINGER_S)
        return max(0.0, min(moments) - now) if moments else None

    def _accept(self, listener: socket.socket) -> list[C]:
        """The connection that is accepted, if one is."""
        try:
            accepted = listener.accept()[0]
        except OSError as error:
            if error.errno in _NO_ROOM:  # else the peer has gone
                self._accepts_from = time.monotonic() + _RETRY_S
                most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
                self._say_once(
                    "descriptors",
                    f"no connection can be accepted: {error.strerror} (ulimit -n is {most}); others wait until one ends",
                )
            return []
        self._n_accepted += 1
        connection = self._connected(accepted, f"{self._name}#{self._n_accepted}")
        self._open.add(connection)
        if self._limits.idle_s:
            self._idle_at = min(self._idle_at, connection.moved_at + self._limits.idle_s)
        return [connection]

    def _step(self, connection: C) -> None:
        """Read, match and write as much as is possible now."""
        try:
            if connection.lingers:
                connection.ended = not connection.socket.recv(RECEIVED_BYTES)  # bytes that come too late
                return
            if not connection.untaken and not connection.waiting and not connection.ended and not self._is_full:
                self._read(connection)
            most = min(self._limits.answer_bytes, _WRITE_BYTES)
            while connection.waiting and len(connection.untaken) < most and self._may_match():
                self._answer(connection)
            if connection.untaken:
                connection.send()
        except BlockingIOError:
            pass
        except OSError:  # reset by the peer, which takes no answers
            self._close(connection)
        except MemoryError:
            self._close(connection, "memory", "there is not enough memory for its events or their answers")

    def _read(self, connection: C) -> None:
        more = connection.socket.recv(min(RECEIVED_BYTES, self._limits.line_bytes))
        connection.moved_at = time.monotonic()
        connection.ended = not more
        for block in connection.cutter.add(more) if more else connection.cutter.end():
            self._scan(block, connection)

    def _count(self, connection: C) -> None:
        """Update the count of bytes that are kept for a connection."""
        held = connection.held if connection in self._open else 0
        self._held += held - connection.counted
        connection.counted = held

    def _close_late(self) -> None:
        """Close connections that were idle for too long.  `_idle_at` is the time at which the next may have been."""
        limits, now = self._limits, time.monotonic()
        if self._stopped_at is None and now < self._idle_at:
            return
        for each in list(self._open):
            if self._stopped_at is not None and now - self._stopped_at >= limits.drain_s:
                self.n_cut_off += each.n_unanswered + each.n_undelivered * (each.socket.family != socket.AF_UNIX)
                each.untaken.clear()
                each.waiting.clear()
                each.at = 0
                self._close(each)
            elif limits.idle_s and now - each.moved_at >= limits.idle_s and not each.lingers:
                self._close(each, "idle", f"nothing has moved on it for {limits.idle_s:g} s (--idle)")
        moved_at = [each.moved_at for each in self._open if not each.lingers] if limits.idle_s else []
        self._idle_at = min(moved_at, default=math.inf) + limits.idle_s

    def _relieve(self) -> None:
        """Measure for how long too much has been kept, and after the limit close the connections that keep most."""
        limits, held = self._limits, self._held
        if held <= limits.total_bytes:
            self._full_since = None
        elif self._full_since is None:
            self._full_since = time.monotonic()
        elif time.monotonic() - self._full_since >= limits.drain_s:
            for each in sorted(self._open, key=lambda each: each.held, reverse=True):
                if held <= limits.total_bytes // 2:
                    break
                held -= each.held
                text = f"it keeps {byte_size(each.held)}, and all connections too much (--memory)"
                self._close(each, "memory", text)
            self._full_since = None

    def _settle(self, connection: C) -> None:
        """Close a connection that is done with, or choose what to wait for."""
        is_done = connection.ended or self._stopped_at is not None
        if connection.untaken or (connection.waiting and self._may_match()):
            self._watch(connection.socket, selectors.EVENT_WRITE, connection)
        elif connection.waiting:
            self._watch(connection.socket, 0)
        elif not is_done:
            self._watch(connection.socket, 0 if self._is_full else selectors.EVENT_READ, connection)
        elif self._lingers(connection):
            self._lingering.add(connection)
            self._watch(connection.socket, selectors.EVENT_READ, connection)
        else:
            self._close(connection)

    @staticmethod
    def _lingers(connection: C) -> bool:
        """Tells whether the system still sends bytes, which closing a connection with unread bytes would drop."""
        if connection.ended or connection.socket.family == socket.AF_UNIX:
            return False
        if not connection.lingers:
            with suppress(OSError):
                connection.socket.shutdown(socket.SHUT_WR)
        connection.lingers = connection.n_undelivered > 0
        return connection.lingers

    def _close(self, connection: C, kind: str = "", reason: str = "") -> None:
        """Close a connection; the first `reason` of each kind is reported."""
        n_lost = connection.n_unanswered
        self.n_untaken += n_lost
        self._watch(connection.socket, 0)
        self._open.discard(connection)
        self._lingering.discard(connection)
        self._count(connection)
        connection.close()
        if kind:
            lost = f"; {plural(n_lost, 'event')} without answer" if n_lost else ""
            self._say_once(kind, f"{connection.name} is closed: {reason}{lost}")

    def _say_once(self, kind: str, text: str) -> None:
        if kind not in self._said:
            self._said.add(kind)
            self._say(text)

    def _watch(self, socket_: socket.socket, events: int, connection: C | None = None) -> None:
        """Wait for these events on a socket; 0: for none."""
        key = self._selector.get_map().get(socket_)
        if not events:
            if key is not None:
                self._selector.unregister(socket_)
        elif key is None:
            self._selector.register(socket_, events, connection)
        elif key.events != events:
            self._selector.modify(socket_, events, connection)
