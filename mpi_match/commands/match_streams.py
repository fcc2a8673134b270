"""Matches events as they arrive: lines of standard input, or of the connections to a socket.

An answer is written as soon as its event has arrived, in the form of `export`.  When events come faster than they are
matched, more of them are matched together.  A reader that is too slow stops the input: an event is read only when the
answers to those before it have been written, so no queue grows.

SIGTERM, or Ctrl-C, ends it: no more is read, and every event that was read is answered.  Answers on connections have to be
taken within `Limits.drain_s`; the summary counts those that were not.  A second signal ends it at once.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
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
    answers_in,
    line_scanner,
    match_all,
    missing_in,
    prepare,
)
from mpi_match.commands.match_connections import Service
from mpi_match.compute.compile_parts import compile_ahead
from mpi_match.engines import Engine
from mpi_match.engines.registry import check_options
from mpi_match.ingest.batches.event_queue import EventQueue
from mpi_match.ingest.batches.unnamed import Missing
from mpi_match.ingest.files.listen import Limits, address_of, is_address, listener_on
from mpi_match.ingest.files.streams import StreamStopped, read_stream
from mpi_match.ingest.json.event_scanner import LineScanner
from mpi_match.ingest.rows.reject_log import RejectLog
from mpi_match.ingest.rows.row_files import STDIN, row_files
from mpi_match.matches.json_lines import LinesOut, LineWriter, compile_lines
from mpi_match.model import ModelError
from mpi_match.storage import check_output
from mpi_match.table.vocabulary import Vocabulary


class StopSignal(SignalFlag):
    """A signal that also ends waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.descriptor, self._write = os.pipe()

    def set(self) -> None:
        """Handle a signal.  Raises KeyboardInterrupt at the second."""
        if self.given:
            raise KeyboardInterrupt
        super().set()
        os.write(self._write, b"!")

    @property
    def given(self) -> bool:
        """Tells whether a signal has arrived."""
        return self.seconds() is not None

    def wait(self, descriptor: int) -> bool:
        """Wait until a descriptor can be read or has ended.  Returns False if a signal has arrived."""
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.register(self.descriptor, select.POLLIN)
        poll.poll()
        return not self.given

    def close(self) -> None:
        """Free its descriptors."""
        os.close(self.descriptor)
        os.close(self._write)


def match_stream(
    subscriptions: Path,
    source: str,
    options: MatchOptions,
    *,
    changes: Path | None = None,
    rejects: Path | None = None,
    limits: Limits | None = None,
    say: Callable[[str], object],
    ready: Callable[[Prepared[LineScanner], str], object],
) -> LocalSummary:
    """Match events from `source`: standard input ("-"), or the address of a socket to listen on.

    Other parameters are those of `match_rows`; `ready` is called before the first event is
    waited for, with the address of the socket or "", and `say` with what happens to connections, which have `limits`.
    Answers go to standard output, or to the connection that the event came from.  Raises as `match_rows` does.
    """
    check_options([options.engine], options.engine_options)
    if rejects is not None:
        check_output(rejects, row_files(subscriptions), streamed=True)
    if changes is not None and is_address(source):
        raise ModelError("changes take effect before the event of a number, and every connection has its own numbers")

    compile_ahead(AHEAD)

    def scanner(engine: Engine, vocabulary: Vocabulary) -> LineScanner:
        return line_scanner(engine, vocabulary, options)

    with listener_on(source) as listener, RejectLog(rejects, options.strict) as log, _stopping() as stop:
        prepared = prepare(subscriptions, changes, options, log, scanner)
        log.begin(Path(source) if listener is not None else STDIN)
        lines = _line_writer(prepared, options)
        ready(prepared, "" if listener is None else address_of(listener))
        if listener is None:
            return _match_standard_input(prepared, options, lines, log, stop)
        service = Service(prepared, options, lines, log, limits or Limits(), say)
        service.serve(listener, stop)
        summary = prepared.summary(service.counts, service.totals, log, options, Missing())
        return replace(summary, untaken=service.n_untaken, cut_off=service.n_cut_off)


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
) -> LocalSummary:
    out = sys.stdout.buffer

    def write(line: Any) -> None:
        out.write(line)
        out.flush()

    writer = LinesOut(lines, write)
    blocks = read_stream(sys.stdin.fileno(), str(STDIN), stop.wait)
    queue = EventQueue(prepared.reader.scan(block, log) for block in blocks)
    with suppress(StreamStopped):
        match_all(prepared, queue, writer.append, options)
    missing = missing_in(prepared, queue.totals, options.form) if writer.n_events else Missing()
    return prepared.summary(Counts(writer.n_events, writer.n_matches), queue.totals, log, options, missing)
