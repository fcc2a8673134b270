"""The changes of a followed run, kept as what they amount to.

A run that goes on applies the changes of earlier runs again.  Few of them still have an effect after a while: a filter that
was added and removed is as if it had never been there, and of the moves of a filter only the last counts.

    add f1, move f1, add f2, remove f1, move f2, move f2, remove t3     what arrived; t3 is the table's
    remove t3, add f2, move f2                                          what is kept

So rows are kept by the filters that they change: those of the table first, then those of each added row.  They are rows
that a subscriber could have written, and applied in this order they lead to the same filters; ids of engines are others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mpi_match.changes.registry import Step
from mpi_match.ingest.rows.judge import ChangeRow
from mpi_match.model import Change

_CONSOLIDATE = b'{"consolidate": true}'
_OF_TABLE = 0
"""The number of the changes to the table's own filters."""


class ToKeep(NamedTuple):
    """Rows of changes to be kept for later runs, as JSON lines: after those that are kept, or, `anew`, instead of them."""

    rows: bytes = b""
    anew: bool = False

    @classmethod
    def joined(cls, parts: Iterable[ToKeep]) -> ToKeep:
        """All of these, one after the other."""
        rows, anew = list[bytes](), False
        for each in parts:
            if each.anew:
                rows, anew = [], True
            rows.append(each.rows)
        return cls(b"".join(rows), anew)


NO_CHANGES = ToKeep()


@dataclass(slots=True)
class _Kept:
    """The rows about some filters.

    n_there   filters of an added row that are there
    added     the row that added them; empty for those of the table
    later     the rows after it, in their order; None: there are none
    """

    n_there: int
    added: bytes
    later: dict[bytes, None] | None = None

    @property
    def rows(self) -> Iterator[bytes]:
        """All rows, in their order."""
        if self.added:
            yield self.added
        yield from self.later or ()


class KeptChanges:
    """The rows to which the changes of a table amount.

    n_bytes   of these rows as lines
    """

    def __init__(self) -> None:
        self._kept = {_OF_TABLE: _Kept(0, b"")}
        self._number_of: dict[int, int] = {}  # by id, of each added filter that is there
        self._moves: dict[str, bytes] = {}  # by the id that subscribers know: the last row that moved it
        self._last = _OF_TABLE
        self._consolidates = False
        self.n_bytes = 0

    def add(self, line: bytes, row: ChangeRow, steps: Sequence[Step]) -> None:
        """Keep a row that was applied, with its steps, as long as it has an effect."""
        match row.kind:
            case Change.ADD if steps:
                self._last += 1
                self._kept[self._last] = _Kept(len(steps), line)
                self._number_of.update((step.target, self._last) for step in steps)
                self._count(line)
            case Change.CONSOLIDATE:
                self._consolidates = True
            case Change.MOVE:
                (number,) = self._numbers(step.target for step in steps)  # those with one id were added by one row
                self._forget_move(number, row.target)
                self._moves[row.target] = line
                self._put(number, line)
            case Change.REMOVE | Change.REMOVE_INTERFACE:
                self._remove(line, row, [each for step in steps for each in _removed_by(step)])

    def _remove(self, line: bytes, row: ChangeRow, gone: Sequence[int]) -> None:
        numbers = self._numbers(gone)
        if row.kind is Change.REMOVE:
            self._forget_move(numbers[0], row.target)
        for filter_id in gone:
            self._kept[self._number_of.pop(filter_id, _OF_TABLE)].n_there -= 1
        for number in numbers:
            if number == _OF_TABLE or self._kept[number].n_there:
                self._put(number, line)
            else:
                for each in self._kept.pop(number).rows:
                    self._count(each, -1)

    def _numbers(self, filter_ids: Iterable[int]) -> list[int]:
        return list(dict.fromkeys(self._number_of.get(each, _OF_TABLE) for each in filter_ids))

    def _put(self, number: int, line: bytes) -> None:
        kept = self._kept[number]
        kept.later = kept.later or {}
        kept.later[line] = None
        self._count(line)

    def _forget_move(self, number: int, name: str) -> None:
        line = self._moves.pop(name, None)
        later = self._kept[number].later
        if line is not None and later is not None and line in later:
            del later[line]
            self._count(line, -1)

    def _count(self, line: bytes, sign: int = 1) -> None:
        self.n_bytes += sign * (len(line) + 1)

    def lines(self) -> bytes:
        """The rows, as JSON lines."""
        return b"".join(line + b"\n" for line in self._rows())

    def _rows(self) -> Iterator[bytes]:
        for kept in self._kept.values():
            yield from kept.rows
        if self._consolidates:
            yield _CONSOLIDATE


def _removed_by(step: Step) -> Sequence[int]:
    return step.left if step.kind is Change.REMOVE_INTERFACE else (step.target,)
