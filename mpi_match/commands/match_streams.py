"""Matching events as they come: lines of standard input, or of the connections to a socket.

An answer is written as soon as its event is there, in the form of `export`.  When events come faster than they are matched,
more of them are matched together.  What is not taken in time stops what comes: an event is read only when the answers to
those before it have been written, so no queue grows.

SIGTERM, or Ctrl-C, ends it: no more is read, and every event that was read is answered.  A second signal does not wait for
those who do not take their answers.
"""

from __future__ import annotations

import os
import select
import selectors
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mpi_match.arrays.strings import Strings
from mpi_match.cluster.signals import SignalFlag, signals_recorded
from mpi_match.commands.match import (
    AHEAD,
    Counts,
    LocalSummary,
    MatchOptions,
    Prepared,
    Seen,
    answers_in,
    line_scanner,
    match_all,
    prepare,
)
from mpi_match.compute.compile_parts import compile_ahead
from mpi_match.engines import Engine
from mpi_match.engines.registry import check_options
from mpi_match.ingest.files.blocks import READ_BYTES, LineBlock, LineCutter
from mpi_match.ingest.files.streams import StreamStopped, read_stream
from mpi_match.ingest.json.event_scanner import EventQueue, LineScanner
from mpi_match.ingest.rows.reject_log import RejectLog
from mpi_match.ingest.rows.row_files import STDIN, TCP, UNIX, row_files
from mpi_match.matches.json_lines import LinesOut, LineWriter, compile_lines
from mpi_match.model import ModelError
from mpi_match.storage import check_output
from mpi_match.table.vocabulary import Vocabulary

LOOPBACK = "127.0.0.1"
DRAIN_S = 5.0
"""After the end of a connection's events, or of the command, its answers have to be taken within this time."""


class StopSignal(SignalFlag):
    """A signal that also ends waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.descriptor, self._write = os.pipe()

    def set(self) -> None:
        """A signal has arrived.  Raises KeyboardInterrupt at the second."""
        if self.given:
            raise KeyboardInterrupt
        super().set()
        os.write(self._write, b"!")

    @property
    def given(self) -> bool:
        """Has a signal arrived?"""
        return self.seconds() is not None

    def wait(self, descriptor: int) -> bool:
        """Wait until something can be read from a descriptor, or it has ended; False: a signal has arrived."""
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.register(self.descriptor, select.POLLIN)
        poll.poll()
        return not self.given

    def close(self) -> None:
        """Free its descriptors."""
        os.close(self.descriptor)
        os.close(self._write)


def is_address(name: str) -> bool:
    """Is it the address of a socket?"""
    return name.startswith((TCP, UNIX))


def match_stream(
    subscriptions: Path,
    source: str,
    options: MatchOptions,
    *,
    changes: Path | None = None,
    rejects: Path | None = None,
    ready: Callable[[Prepared[LineScanner], str], object],
) -> LocalSummary:
    """Match events from `source`: standard input ("-"), or the address of a socket to listen on.

    Other parameters are those of `match_rows`; `ready` is called before the first event is
    waited for, with the address of the socket or "".  Answers go to standard output, or
    to the connection that the event came from.  Raises as `match_rows` does.
    """
    check_options([options.engine], options.engine_options)
    if rejects is not None:
        check_output(rejects, row_files(subscriptions), streamed=True)
    if changes is not None and is_address(source):
        raise ModelError("changes take effect before the event of a number, and every connection has its own numbers")

    compile_ahead(AHEAD)

    def scanner(engine: Engine, vocabulary: Vocabulary) -> LineScanner:
        return line_scanner(engine, vocabulary, options)

    with _listener(source) as listener, RejectLog(rejects, options.strict) as log, _stopping() as stop:
        prepared = prepare(subscriptions, changes, options, log, scanner)
        log.begin(Path(source) if listener is not None else STDIN)
        lines = _line_writer(prepared, options)
        ready(prepared, "" if listener is None else _address_of(listener))
        if listener is None:
            counts, seen = _match_standard_input(prepared, options, lines, log, stop)
            return prepared.summary(counts, log, options, seen)
        service = Service(prepared, options, lines, log)
        service.serve(listener, stop)
        return prepared.summary(service.counts, log, options, Seen())


@contextmanager
def _stopping() -> Iterator[StopSignal]:
    stop = StopSignal()
    try:
        with signals_recorded(stop):
            yield stop
    finally:
        stop.close()


def _line_writer(prepared: Prepared[LineScanner], options: MatchOptions) -> LineWriter:
    """The writer of lines; compiled, so that the first answer does not wait for that."""
    unit = answers_in(options)
    compile_lines()
    return LineWriter(unit, Strings.of(()) if unit == "filter" else prepared.stream.labels)


def _match_standard_input(
    prepared: Prepared[LineScanner], options: MatchOptions, lines: LineWriter, log: RejectLog, stop: StopSignal
) -> tuple[Counts, Seen]:
    """Counts, and what no event had."""
    out = sys.stdout.buffer

    def write(line: Any) -> None:
        out.write(line)
        out.flush()

    writer = LinesOut(lines, write)
    blocks = read_stream(sys.stdin.fileno(), str(STDIN), stop.wait)
    queue = EventQueue(prepared.reader.scan(block, log) for block in blocks)
    with suppress(StreamStopped):
        match_all(prepared, queue, writer.append, options)
    seen = Seen.of(prepared, queue, options.form) if writer.n_events else Seen()
    return Counts(writer.n_events, writer.n_matches, queue.n_flagged, queue.n_on_gpu), seen


class _Connection:
    """A connection, and the answers that its peer has not taken yet."""

    def __init__(self, socket_: socket.socket, name: str, lines: LineWriter) -> None:
        self.socket, self.cutter = socket_, LineCutter(name)
        self.untaken = bytearray()
        self.answers = LinesOut(lines, self.untaken.extend)
        self.ended_at: float | None = None
        socket_.setblocking(False)


class Service:
    """Answers the events of any number of connections, in one thread; `counts` are those so far."""

    def __init__(self, prepared: Prepared[LineScanner], options: MatchOptions, lines: LineWriter, log: RejectLog) -> None:
        self._prepared, self._options, self._lines, self._log = prepared, options, lines, log
        self.counts = Counts(0, 0, 0, 0)

    def serve(self, listener: socket.socket, stop: StopSignal) -> None:
        """Until `stop`, and until the answers of events that were read are taken, at most DRAIN_S."""
        name, n = _address_of(listener), 0
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            selector.register(stop.descriptor, selectors.EVENT_READ)
            open_: set[_Connection] = set()
            while not stop.given or open_:
                for key, _ in selector.select(DRAIN_S if stop.given or any(each.ended_at for each in open_) else None):
                    if key.fileobj is listener and not stop.given:
                        with suppress(OSError):  # the peer has gone
                            n += 1
                            open_.add(connection := _Connection(listener.accept()[0], f"{name}#{n}", self._lines))
                            selector.register(connection.socket, selectors.EVENT_READ, connection)
                    elif isinstance(key.data, _Connection):
                        self._step(key.data, stop.given)
                if stop.given and listener in selector.get_map():
                    selector.unregister(listener)
                    selector.unregister(stop.descriptor)
                for each in list(open_):
                    if stop.given and each.ended_at is None:
                        each.ended_at = time.monotonic()
                    if self._is_over(each):
                        open_.remove(each)
                        selector.unregister(each.socket)
                        each.socket.close()
                    else:
                        wanted = selectors.EVENT_WRITE if each.untaken else selectors.EVENT_READ
                        selector.modify(each.socket, wanted, each)

    @staticmethod
    def _is_over(connection: _Connection) -> bool:
        ended_at = connection.ended_at
        return ended_at is not None and (not connection.untaken or time.monotonic() - ended_at > DRAIN_S)

    def _step(self, connection: _Connection, is_stopped: bool) -> None:
        """Read, match and write what can be now."""
        try:
            if not connection.untaken and connection.ended_at is None and not is_stopped:
                more = connection.socket.recv(READ_BYTES)
                for block in connection.cutter.add(more) if more else connection.cutter.end():
                    self._answer(block, connection)
                if not more:
                    connection.ended_at = time.monotonic()
            if connection.untaken:
                del connection.untaken[: connection.socket.send(connection.untaken)]
        except BlockingIOError:
            pass
        except OSError:  # reset by the peer, who takes no answers
            connection.untaken.clear()
            connection.ended_at = time.monotonic()

    def _answer(self, block: LineBlock, connection: _Connection) -> None:
        queue = EventQueue(iter([self._prepared.reader.scan(block, self._log)]))
        answers = connection.answers
        before = answers.n_events, answers.n_matches
        match_all(self._prepared, queue, answers.append, self._options)
        events, matches, flagged, on_gpu = self.counts
        events, matches = events + answers.n_events - before[0], matches + answers.n_matches - before[1]
        self.counts = Counts(events, matches, flagged + queue.n_flagged, on_gpu + queue.n_on_gpu)


@contextmanager
def _listener(source: str) -> Iterator[socket.socket | None]:
    """The socket that listens on an address; None for standard input."""
    if not is_address(source):
        yield None
        return
    if source.startswith(UNIX):
        path = Path(source.removeprefix(UNIX))
        _remove_stale(path)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
            try:
                yield listener
            finally:
                path.unlink(missing_ok=True)
        return
    host, _, port = source.removeprefix(TCP).rpartition(":")
    if not port.isdecimal():
        raise ModelError(f"{source}: an address is {TCP}HOST:PORT or {UNIX}PATH")
    host = host.strip("[]") or LOOPBACK
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, int(port)), family=family)
    except (OSError, OverflowError) as error:
        raise ModelError(f"{source}: cannot be listened on: {error}") from None
    with listener:
        yield listener


def _remove_stale(path: Path) -> None:
    """Remove a socket that nobody listens on.  Raises ModelError for anything else of that name."""
    if path.exists():
        with socket.socket(socket.AF_UNIX) as probe:
            if path.is_socket() and probe.connect_ex(str(path)) != 0:
                path.unlink()
                return
        raise ModelError(f"{UNIX}{path}: exists; remove it, or give another path")


def _address_of(listener: socket.socket) -> str:
    name = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        return f"{UNIX}{name}"
    return f"{TCP}[{name[0]}]:{name[1]}" if ":" in name[0] else f"{TCP}{name[0]}:{name[1]}"
