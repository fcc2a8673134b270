"""The file of matches while it is written, and what of it the journal does not know yet.

    appended   ██████████████████████░░░░░░░░░        chunks that are full are in the file, the rest is in memory
    noted      ███████████|  to be noted  |

Long answers are written once, to this file.  Now and then the journal is told where in it they are, and gets what is not in
it yet: less than a chunk of counts and one of ids.  Whoever writes answers and whoever notes them are two threads.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from mpi_match.arrays import Array
from mpi_match.journal_file import Part, Placed, Stretch
from mpi_match.matches import MatchesWriter
from mpi_match.storage import Column


class _Mark(NamedTuple):
    """How far a column is: its rows and their CRC-32."""

    row: int
    crc: int


class _Noted(NamedTuple):
    """Answers that the journal is to be told of: their events, and both columns before and with them."""

    events: Stretch
    before: tuple[_Mark, _Mark]
    after: tuple[_Mark, _Mark]


class AnswersFile:
    """Answers appended to a file in the order of their events, with the `writer` that has been entered."""

    def __init__(self, writer: MatchesWriter) -> None:
        self._writer = writer
        self._lock = threading.Lock()
        self._noted: list[_Noted] = []

    def append(self, counts: Array, ids: Array) -> None:
        """Answers that the journal knows already, or that nobody asks it for."""
        with self._lock:
            self._writer.append_raw(counts, ids)

    def append_noted(self, start: int, counts: Array, ids: Array) -> None:
        """The answers of the events from `start` on, of which the journal is to be told."""
        with self._lock:
            before = self._marks()
            self._writer.append_raw(counts, ids)
            events, last = Stretch(start, start + len(counts)), self._noted[-1] if self._noted else None
            if last is not None and last.events.stop == start and last.after == before:
                self._noted.pop()
                events, before = Stretch(last.events.start, events.stop), last.before
            self._noted.append(_Noted(events, before, self._marks()))

    def _marks(self) -> tuple[_Mark, _Mark]:
        counts, ids = self._writer.columns
        return _Mark(counts.n_rows, counts.crc), _Mark(ids.n_rows, ids.crc)

    def take(self) -> list[Placed]:
        """Where the answers are of which the journal is to be told, once.  Raises StorageError."""
        with self._lock:
            placed = [
                Placed(each.events, each.after[1].row - each.before[1].row, *map(_part, self._writer.columns, *each[1:]))
                for each in self._noted
            ]
            self._noted = []
            return placed

    def sync(self) -> None:
        """Have the disk take what the file has.  Raises StorageError."""
        self._writer.sync()


def _part(column: Column, before: _Mark, after: _Mark) -> Part:
    return Part(column.place(before.row, after.row), before.crc, after.crc)
