"""Judges the flagged lines of a block: the common reasons for a refusal are found in compiled code (`refused_lines`), every
other line goes to `rows.judge`.

The text of a reason is always the judge's.  For each kind of reason the judge is given a line that has it; its text,
without the number or the value that it shows, is that of all lines of the kind.  A kind for which the judge answers
otherwise is left to it.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.arrays.strings import Strings
from mpi_match.compute.memory import AddressTable
from mpi_match.compute.parallel import in_stretches, stretches_of
from mpi_match.ingest.files.blocks import LineBlock
from mpi_match.ingest.json import refused_lines as refused
from mpi_match.ingest.rows.flatten import Names
from mpi_match.ingest.rows.formats import lines_format
from mpi_match.ingest.rows.judge import EventForm, Reject, record_set_aside, row_text, trimmed
from mpi_match.ingest.rows.rejects import RejectedLines, json_line
from mpi_match.model import Event, ModelError


class JudgedLines(NamedTuple):
    """The flagged rows of a block.

    rows      i64, ascending: their positions among the rows of the block
    is_bad    bool: marks the rejected ones
    events    the others, in order
    rejects   the rejected ones, in order; None without any, or where they have gone elsewhere
    """

    rows: Array
    is_bad: Array
    events: list[Event]
    rejects: KeptRejects | None = None

    @classmethod
    def of(cls, rows: Array, found: Sequence[Event | None]) -> JudgedLines:
        """The rows with the events that they are; None for a rejected one."""
        is_bad = np.fromiter((event is None for event in found), bool, len(found))
        return cls(rows, is_bad, [event for event in found if event is not None])

    @property
    def good_rows(self) -> Array:
        """The rows of the events."""
        return self.rows[~self.is_bad]


class FlaggedLines(NamedTuple):
    """Lines that a thread has flagged: i64[n, 4] as in `to_codes.FLAGGED`, the number of rows and of lines before them."""

    flagged: Array
    first_row: int
    first_line: int


class LineJudge:
    """Judges lines for `names` and a form; `judge` finds the event of a row as a program passes it
    (`rows.judge.event_of_passed`).  Any number of threads may use it."""

    def __init__(self, judge: Callable[[Any], Event], names: Names, form: EventForm) -> None:
        self._judge, self._names, self._form = judge, names, form
        self._keys: _Keys | None = None
        self._texts: dict[int, _Text | None] = {}

    def judged(self, block: LineBlock, threads: Sequence[FlaggedLines]) -> JudgedLines:
        """The flagged rows of a block."""
        flagged = np.concatenate([each.flagged for each in threads])
        n_of_threads = [len(each.flagged) for each in threads]
        rows = flagged[:, 0] + np.repeat([each.first_row for each in threads], n_of_threads)
        if not len(flagged):
            return JudgedLines(rows, np.zeros(0, bool), [])
        lines = flagged[:, 1] + np.repeat([each.first_line for each in threads], n_of_threads)
        are_made = not lines_format(Path(block.file)).is_plain
        found = np.zeros((len(flagged), refused.FOUND_REASON_WORDS), np.int64)
        if block.objects is None and not are_made:
            self._find(block.data, flagged, found)
        codes, reason = np.unique(found[:, refused.FOUND_REASON], return_inverse=True)
        texts = [self._text(code) for code in codes.tolist()]
        is_bad = np.array([text is not None for text in texts], bool)[reason]
        own: dict[int, Reject] = {}
        events: list[Event] = []
        for k in np.flatnonzero(~is_bad).tolist():
            line, start, stop = int(lines[k]), int(flagged[k, 2]), int(flagged[k, 3])
            row = _line_in(block.data[start : stop + 1]) if block.objects is None else block.objects[line - block.first_line]
            text = trimmed(row) if isinstance(row, bytes) else row
            aside = record_set_aside(text) if are_made else None
            try:
                if aside is not None:
                    raise ModelError(aside[0])
                events.append(self._judge(row))
            except ModelError as error:
                own[k] = Reject(str(error), block.file, line, row_text(text if aside is None else aside[1]))
                is_bad[k], reason[k], found[k] = True, _ITS_OWN, 0
        if not is_bad.any():
            return JudgedLines(rows, is_bad, events)
        place = np.cumsum(is_bad) - 1
        kept = np.empty((int(place[-1]) + 1, refused.REFUSED_WORDS), np.int64)
        kept[:, refused.ROW_LINE], kept[:, refused.ROW_REASON] = lines[is_bad], reason[is_bad]
        kept[:, refused.ROW_FIRST : refused.ROW_LAST + 1] = found[is_bad, refused.FOUND_FIRST :]
        its_own = {int(place[k]): reject for k, reject in own.items()}
        return JudgedLines(rows, is_bad, events, KeptRejects.of(block, found[is_bad], kept, texts, its_own))

    def _find(self, data: Array, flagged: Array, found: Array) -> None:
        """Write the reasons of flagged lines, and their places, by all threads."""
        keys = self._keys or _Keys(self._names, self._form)
        self._keys, flagged = keys, np.ascontiguousarray(flagged)
        n_stretches = stretches_of(len(flagged))
        bounds = [len(flagged) * i // n_stretches for i in range(n_stretches + 1)]

        def judge(stretch: int, _: int) -> None:
            first, last = bounds[stretch : stretch + 2]
            own = keys.take()
            where = flagged[first:].ctypes.data, last - first, own.address, found[first:].ctypes.data
            refused.judge_flagged(data.ctypes.data, *where)
            keys.put_back(own)

        in_stretches(len(flagged), judge)

    def _text(self, code: int) -> _Text | None:
        """The text of a reason; None if the line must be judged."""
        if code not in self._texts:
            kind, key = code % refused.N_REASONS, code // refused.N_REASONS
            name = self._keys.names[key] if self._keys is not None and kind in _OF_NAMES else ""
            self._texts[code] = self._text_of(kind, name) if kind != refused.NOT_CERTAIN else None
        return self._texts[code]

    def _text_of(self, kind: int, name: str) -> _Text | None:
        line, shown, shows = _example(kind, name, self._form.location or ("", ""))
        try:
            self._judge(line)
        except ModelError as error:
            before, is_shown, after = str(error).rpartition(shown) if shown else (str(error), shown, "")
            return _Text(before, after, shows) if is_shown == shown else None
        return None


class _Text(NamedTuple):
    """The text of a reason, before and after what it shows."""

    before: str
    after: str
    shows: int


_ITS_OWN = -1
"""The number of the reason of a row that the judge has rejected."""


def _line_in(lines: Array) -> bytes:
    """The last of some lines; the others are blank."""
    text = lines.tobytes()
    return text[text.rfind(b"\n", 0, -1) + 1 :]


_SHOWN = "a value"
"""The text in place of a coordinate, in an example."""
_EXAMPLES = {
    refused.NOT_UTF8: (b'{"a": "\xff"}', "7"),
    refused.NO_VALUE: (b'{"a": ?}', "7"),
    refused.NO_NAME: (b'{"a": 1 , ?}', "11"),
    refused.NO_COLON: (b'{"a" ?}', "6"),
    refused.NO_COMMA: (b'{"a": 1 ?}', "9"),
    refused.MORE_DATA: (b"{} ?", "4"),
    refused.UNTERMINATED: (b'{"a": "b', "7"),
    refused.CONTROL_CHARACTER: (b'{"a": "\x01"}', "8"),
    refused.BAD_ESCAPE: (b'{"a": "\\x"}', "8"),
    refused.BAD_CODE_POINT: (b'{"a": "\\uD83x"}', "9"),
    refused.COMMA_IN_OBJECT: (b'{"a": 1,  }', "8"),
    refused.COMMA_IN_LIST: (b"[1,  ]", "3"),
}
"""For each kind of reason a line that has it, and the number that its text shows."""
_OF_NAMES = {
    refused.TWICE: ("1, {}: 2", ""),
    refused.TOO_LARGE: ("1e400", "1e400"),
    refused.NEAR_ZERO: ("1e-400", "1e-400"),
    refused.INTEGER_TOO_LARGE: ("1" * 25, "1" * 25),
}
"""For each kind of reason of a named attribute its value, and the part of it that the text shows."""


def _example(kind: int, name: str, location: tuple[str, str]) -> tuple[bytes, str, int]:
    """A line with a reason; what its text shows; SHOWS_..."""
    if kind in _EXAMPLES:
        line, shown = _EXAMPLES[kind]
        return line, shown, refused.SHOWS_NUMBER
    if kind in _OF_NAMES:
        value, shown = _OF_NAMES[kind]
        written = json.dumps(name)
        line = f"{{{written}: {value.replace('{}', written)}}}".encode()
        return line, shown, refused.SHOWS_PART if shown else refused.SHOWS_NOTHING
    x, y = location
    values: dict[int, dict[str, object]] = {
        refused.WITHOUT_X: {y: 1},
        refused.WITHOUT_Y: {x: 1},
        refused.TEXT_AS_X: {x: _SHOWN, y: 1},
        refused.TEXT_AS_Y: {x: 1, y: _SHOWN},
    }
    is_shown = kind in (refused.TEXT_AS_X, refused.TEXT_AS_Y)
    shows = refused.SHOWS_PART if is_shown else refused.SHOWS_NOTHING
    return json.dumps(values[kind]).encode(), _SHOWN if is_shown else "", shows


class _Keys:
    """The arrays of the names that count, for any number of threads."""

    def __init__(self, names: Names, form: EventForm) -> None:
        self.names = sorted(names.names | names.above)
        pool = [name.encode() for name in self.names]
        x, y = form.location or (None, None)
        roles = [
            refused.IS_WANTED * (name in names.names)
            | refused.IS_ABOVE * (name in names.above)
            | refused.IS_X * (name == x)
            | refused.IS_Y * (name == y)
            | refused.IS_ID * (name == form.id)
            for name in self.names
        ]
        n_slots = 1 << (2 * len(pool) + 1).bit_length()
        self._scalars = n_slots - 1, 0, int(form.location is not None and not names.every)
        self._every: dict[int, Array] = {
            refused.KEY_SLOTS: np.full(n_slots, refused.NO_KEY, np.uint32),
            refused.KEY_ROLES: np.array(roles, np.int64),
            refused.WANTED_BYTES: np.frombuffer(b"".join(pool), np.uint8),
            refused.KEY_ENDS: np.cumsum([len(name) for name in pool], dtype=np.int64),
        }
        self._free: deque[AddressTable] = deque()
        own = self.take()
        refused.fill_slots(len(pool), own.address)
        self.put_back(own)

    def take(self) -> AddressTable:
        """The arrays, for a thread."""
        try:
            return self._free.pop()
        except IndexError:
            seen, scalars = np.zeros(len(self.names), np.int64), np.zeros(refused.N_KEY_SCALARS, np.int64)
            scalars[: refused.X_NOTED] = self._scalars
            every = self._every | {refused.KEYS_SEEN: seen, refused.KEY_SCALARS: scalars}
            return AddressTable(every[k] for k in range(refused.N_KEY_TABLES))

    def put_back(self, own: AddressTable) -> None:
        """Give back what `take` returned."""
        self._free.append(own)


class KeptRejects(RejectedLines):
    """Rejected lines of a file as columns, with a copy of their rows.

    lines    i64[n, REFUSED_WORDS], see `refused_lines`
    rows     u8: the rows end to end
    texts    the reasons by number
    own      the rejects with reasons of their own, by position
    """

    def __init__(self, file: str, lines: Array, rows: Array, texts: Sequence[_Text], own: dict[int, Reject]) -> None:
        self._file, self._lines, self._rows, self._texts, self._own = file, lines, rows, texts, own

    @classmethod
    def of(
        cls, block: LineBlock, found: Array, lines: Array, texts: Sequence[_Text | None], own: dict[int, Reject]
    ) -> KeptRejects:
        """Rejects that were found in a block; `lines` has no rows yet, and -1 as the reason of `own` ones."""
        found, every = np.ascontiguousarray(found), [text or _Text("", "", refused.SHOWS_NOTHING) for text in texts]
        shows = np.array([text.shows for text in every], np.int64)
        lines[:, refused.ROW_SHOWS] = shows[lines[:, refused.ROW_REASON]]
        rows = np.empty(int((found[:, refused.FOUND_STOP] - found[:, refused.FOUND_START]).sum()), np.uint8)
        refused.copy_rows(block.data.ctypes.data, found.ctypes.data, len(found), lines.ctypes.data, rows.ctypes.data)
        return cls(block.file, lines, rows, every, own)

    def __len__(self) -> int:
        return len(self._lines)

    def reject(self, i: int) -> Reject:
        """See `RejectedLines`."""
        if i in self._own:
            return self._own[i]
        line, reason, shows, first, last, start, stop = self._lines[i].tolist()
        row = self._rows[start:stop].tobytes()
        text = self._texts[reason]
        shown = str(first) if shows == refused.SHOWS_NUMBER else row[first:last].decode()
        return Reject(f"{text.before}{shown}{text.after}", self._file, line, row.decode(errors="replace"))

    @property
    def lines(self) -> Array:
        """See `RejectedLines`."""
        return self._lines[:, refused.ROW_LINE]

    def placed(self, file: str, lines: Array, first: int = 0) -> KeptRejects:
        """See `RejectedLines`."""
        last = first + len(lines)
        found = self._lines[first:last].copy()
        found[:, refused.ROW_LINE] = lines
        own = {k - first: each for k, each in self._own.items() if first <= k < last}
        own = {k: each._replace(file=file, line=int(lines[k])) for k, each in own.items()}
        return KeptRejects(file, found, self._rows, self._texts, own)

    def to_json(self) -> bytes:
        """See `RejectedLines`."""
        file = json.dumps(self._file, ensure_ascii=False)
        escaped = [json.dumps(text, ensure_ascii=False)[1:-1] for each in self._texts for text in each[:2]]
        pool = Strings.of(
            text.encode(errors="backslashreplace")
            for text in ('{"reason": "', f'", "file": {file}, "line": ', ', "row": "', *escaped)
        )
        n = len(self)
        longest = int(np.diff(pool.offsets)[3:].max()) if escaped else 0
        shown = self._lines[:, refused.ROW_LAST] - self._lines[:, refused.ROW_FIRST]
        n_shown = int(shown[self._lines[:, refused.ROW_SHOWS] == refused.SHOWS_PART].sum())
        n_bytes = n * (int(pool.offsets[3]) + 2 * longest + _MOST_DIGITS) + _MOST_OF_BYTE * (len(self._rows) + n_shown)
        to, ends = np.empty(n_bytes, np.uint8), np.empty(n, np.int64)
        arrays = self._rows, self._lines, pool.data, pool.offsets, to, ends
        rows, lines, *others = (each.ctypes.data for each in arrays)
        filled = refused.write_rejects(rows, lines, n, *others)
        if not self._own:
            return to[:filled].tobytes()
        parts, at = [], 0
        for k in sorted(self._own):
            parts += [to[at : int(ends[k])].tobytes(), json_line(self._own[k])]
            at = int(ends[k])
        return b"".join([*parts, to[at:filled].tobytes()])


_MOST_DIGITS = 64
"""Bytes of a line of a file of rejects beside its texts: two numbers and the end."""
_MOST_OF_BYTE = 6
"""Most bytes that a byte of a row is written as."""
