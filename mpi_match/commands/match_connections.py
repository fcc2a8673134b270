"""Answers the events of any number of connections, in one thread and in bounded memory.

The answers of a connection's events are made a piece at a time: a piece is written, or is as long as `Limits.answer_bytes`,
before the next events are matched.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import NamedTuple

from mpi_match.arrays.strings import Strings
from mpi_match.commands.match import MATCHED_AT_ONCE, Counts, MatchOptions, Prepared
from mpi_match.events.batch import EventBatch
from mpi_match.ingest.batches.scan_report import ScanTotals
from mpi_match.ingest.files.blocks import LineBlock
from mpi_match.ingest.files.connections import Connection, Connections
from mpi_match.ingest.files.listen import Limits
from mpi_match.ingest.json.event_scanner import LineScanner, ScannedEvents
from mpi_match.ingest.rows.reject_log import RejectLog
from mpi_match.matches.json_lines import LinesOut, LineWriter

_MATCH_BYTES = 64
"""Bytes of memory that an engine takes for a match while it matches; `keyed` takes 20."""
_MATCHED_PART = 2
"""A batch whose events match everything takes at most this part of `Limits.total_bytes`."""


class _Waiting(NamedTuple):
    """Events that are not matched yet, with their ids and rows on request; `n_bytes` is the size of the arrays."""

    batch: EventBatch
    ids: Strings | None
    rows: Strings | None
    n_bytes: int

    @property
    def n_events(self) -> int:
        """See `connections.Unanswered`."""
        return self.batch.n_events

    @classmethod
    def of(cls, scanned: ScannedEvents) -> _Waiting:
        batch, texts = scanned.batch, [each for each in (scanned.ids, scanned.rows) if each is not None]
        arrays = [batch.offsets, batch.attributes, batch.location, batch.rejected, batch.signatures]
        arrays += [array for text in texts for array in (text.data, text.offsets)]
        return cls(batch, scanned.ids, scanned.rows, sum(array.nbytes for array in arrays if array is not None))

    def between(self, start: int, stop: int) -> tuple[EventBatch, Strings | None, Strings | None]:
        ids, rows = (None if each is None else each.between(start, stop) for each in (self.ids, self.rows))
        return self.batch[start:stop], ids, rows


class _Connection(Connection):
    """A connection whose events are scanned when they have come.

    at_once   events that are matched together: fewer if their answers do not fit
    """

    def __init__(self, socket_: socket.socket, name: str, lines: LineWriter, limits: Limits) -> None:
        super().__init__(socket_, name, limits)
        self.answers = LinesOut(lines, self.untaken.extend)
        self.at_once = MATCHED_AT_ONCE


class Service(Connections[_Connection]):
    """Answers the events of connections.

    counts       events read and matches found so far
    totals       of the rows read so far
    """

    def __init__(
        self,
        prepared: Prepared[LineScanner],
        options: MatchOptions,
        lines: LineWriter,
        log: RejectLog,
        limits: Limits,
        say: Callable[[str], object],
    ) -> None:
        super().__init__(limits, say)
        self._prepared, self._options, self._lines, self._log = prepared, options, lines, log
        n_ids = prepared.stream.n_filters if options.filters else prepared.stream.n_interfaces
        room = limits.total_bytes // _MATCHED_PART // (_MATCH_BYTES * max(n_ids, 1))
        self._most_events = min(max(room, 1), MATCHED_AT_ONCE)
        self.counts, self.totals = Counts(0, 0), ScanTotals()

    def _connected(self, socket_: socket.socket, name: str) -> _Connection:
        return _Connection(socket_, name, self._lines, self._limits)

    def _scan(self, block: LineBlock, connection: _Connection) -> None:
        scanned = self._prepared.reader.scan(block, self._log)
        n_events = scanned.batch.n_events
        self.totals.add(scanned)
        self.counts = self.counts._replace(events=self.counts.events + n_events)
        if n_events:
            connection.waiting.append(_Waiting.of(scanned))

    def _may_match(self) -> bool:
        """Match for a connection; while too much is kept, only if no answers wait to be taken."""
        return not self._is_full or not any(each.untaken for each in self._open)

    def _answer(self, connection: _Connection) -> None:
        """Match the next waiting events; if answers do not fit, their events are matched again."""
        first, limits = connection.waiting[0], self._limits
        n = min(first.batch.n_events - connection.at, connection.at_once, self._most_events)
        batch, ids, rows = first.between(connection.at, connection.at + n)
        found = self._prepared.engine.match(batch, filters=self._options.filters)
        fitting = self._lines.fitting(found, ids, rows, limits.answer_bytes)
        ids, rows = (None if each is None else each.between(0, fitting) for each in (ids, rows))
        connection.answers.append(found[:fitting], ids, rows)
        connection.at_once = fitting if fitting < n else min(2 * connection.at_once, MATCHED_AT_ONCE)
        connection.at += fitting
        if connection.at == first.batch.n_events:
            connection.waiting.popleft()
            connection.at = 0
        self.counts = self.counts._replace(matches=self.counts.matches + found[:fitting].n_matches)
