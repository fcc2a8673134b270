"""Answers to streams: standard output, and the connections that events came from.  None are kept: each run begins anew."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mpi_match.cluster.follow.answer_files import Committed
from mpi_match.cluster.follow.arrivals import ArrivedBatch
from mpi_match.cluster.follow.directory import FileKey
from mpi_match.ingest.rows.judge import Reject
from mpi_match.matches.matches import Matches

if TYPE_CHECKING:
    from mpi_match.matches.json_lines import LineWriter  # loads Numba


class AnswerStream:
    """The destination of answers that are not kept, with the methods of `AnswerFiles`.

    `write` takes lines; without it they go back to connections by `send`, each with numbers of its own.
    """

    earlier_changes = b""

    def __init__(self, lines: LineWriter, write: Callable[[Any], object] | None) -> None:
        self._lines, self._write = lines, write
        self.send: Callable[[Any, bytes, int], object] = lambda connection, lines, n_events: None
        self.progress = Committed()
        self.done: dict[FileKey, None] = {}
        self.is_there: Callable[[FileKey], bool] = lambda key: True

    def __enter__(self) -> AnswerStream:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def write(self, matches: Matches, arrived: ArrivedBatch, rejects: Sequence[Reject] = ()) -> None:
        """Write the answers to the next events.  Raises OSError."""
        before, at = self.progress, 0
        if self._write is not None:
            self._write(self._text(before.events, matches))
        for connection, n in arrived.parts:
            lines = b""
            if self._write is None:
                lines = self._text(connection.n_answered, matches[at : at + n])
                connection.n_answered += n
            at += n
            self.send(connection, lines, n)
        self.progress = before._replace(
            events=before.events + matches.n_events,
            matches=before.matches + matches.n_matches,
            rejected=before.rejected + len(rejects),
        )

    def _text(self, first: int, matches: Matches) -> bytes:
        return b"".join(piece.tobytes() for piece in self._lines.lines(first, matches, None))

    def set_aside(self, arrived: ArrivedBatch) -> None:
        """The next events have no answers: connections get their numbers without one."""
        before = self.progress
        for connection, n in arrived.parts:
            connection.n_answered += n
            self.send(connection, b"", n)
        self.progress = before._replace(
            events=before.events + arrived.n_events, set_aside=before.set_aside + arrived.n_events
        )

    def name(self, labels: Mapping[int, str]) -> None:
        """See `AnswerFiles.name`."""
        self._lines.name(labels)

    def check(self) -> None:
        """Nothing: errors are raised by `write`."""

    def finish(self) -> None:
        """Nothing: all is written."""


def write_standard_output(lines: bytes) -> None:
    """Write lines to standard output at once."""
    sys.stdout.buffer.write(lines)
    sys.stdout.buffer.flush()
