"""Scans the events of JSON lines, a block of lines at a time, with all threads; `rows` judges the lines in doubt.

Each thread scans the lines that begin in its stretch of the block (`scanner`), into arrays of its own.  Only the flagged
rows go through `rows.parse_json` and `rows.event_of_row`; their events are encoded together and inserted among the others.
So the batch, the ids and the rejects are those of `rows` and `Events.encode`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of
from mpi_match.arrays.strings import Strings
from mpi_match.compute.compile_cache import compile_once
from mpi_match.compute.memory import AddressTable
from mpi_match.compute.parallel import at_most, in_stretches, stretches_of
from mpi_match.events.batch import REJECTED, EventBatch
from mpi_match.events.events import Events
from mpi_match.ingest.codes.atoms import FOUND_HEADER, FOUND_ROOM, FOUND_WORDS
from mpi_match.ingest.codes.code_tables import has_atoms, hashed, n_atoms_of
from mpi_match.ingest.codes.known_values import MOST_KNOWN_ATOMS, known_values
from mpi_match.ingest.files.blocks import LineBlock, after_line_feed
from mpi_match.ingest.json import to_codes
from mpi_match.ingest.json.flat_cpu import MOST_FLAT_ATTRIBUTES, flat_lines
from mpi_match.ingest.json.line_judge import FlaggedLines, JudgedLines, LineJudge
from mpi_match.ingest.json.line_tokens import token_words
from mpi_match.ingest.json.text import SCRATCH_BYTES
from mpi_match.ingest.json.unnamed import nesting_memory
from mpi_match.ingest.rows.formats import lines_format
from mpi_match.ingest.rows.judge import (
    PLAIN,
    EventForm,
    Reject,
    Rejects,
    event_of_passed,
    names_of,
    record_set_aside,
    row_text,
    too_long,
    trimmed,
)
from mpi_match.model import Event, ModelError
from mpi_match.table.table import Table
from mpi_match.table.vocabulary import Vocabulary

LEAST_ROW_BYTES, LEAST_ATTRIBUTE_BYTES = 2, 1
"""Fewest bytes of a row with its line feed, flagged or not; and fewest bytes of an attribute or element of a list in a
batch: a text has at least two quotes and a comma, and may have views. A text that is an element of `*`, too, has as many
attributes again.
"""
NO_LIMIT = 2**62
"""ATTRIBUTE_ROOM on a CPU: the bytes of a line bound its attributes."""
_ONE_FLAGGED = np.zeros((1, 2), np.int64), np.zeros(0, np.uint8)
"""The ids of an overlong line, in the form that `scanned_ids` takes."""


class LineArrays:
    """The arrays that a thread writes while it scans lines, by their places in the table (`scanner`); SCAN_COUNTS has
    `n_counts`.

    The arrays that all scanners have in common have room for `n_bytes` of lines.  Pages that are never written
    take no memory.
    """

    def __init__(self, n_bytes: int, n_counts: int, arrays: dict[int, Array]) -> None:
        self.n_bytes = n_bytes
        n_rows = n_bytes // LEAST_ROW_BYTES
        every: dict[int, Array] = arrays | {
            to_codes.SCAN_COUNTS: np.zeros(n_counts, np.int64),
            to_codes.ATTRIBUTE_ENDS: np.empty(n_rows, np.int64),
            to_codes.ROW_LOCATIONS: np.empty((n_rows, 2)),
            to_codes.ID_BOUNDS: np.zeros((n_rows, 2), np.int64),  # not written where the form names no id
            to_codes.ID_DATA: np.empty(n_bytes, np.uint8),
            to_codes.FLAGGED: np.empty((n_rows, 4), np.int64),
            to_codes.NODES_SEEN: np.empty(to_codes.MOST_SEEN, np.int64),
            to_codes.FRAMES: np.empty((to_codes.MOST_FRAMES, to_codes.FRAME_WORDS), np.int64),
            to_codes.NESTING: nesting_memory(to_codes.NESTING_LEVELS),
            to_codes.TOKENS: np.empty(token_words(n_bytes), np.uint64),
            to_codes.DECODED: np.empty(SCRATCH_BYTES, np.uint8),
            to_codes.VIEWED: np.empty(SCRATCH_BYTES, np.uint8),
            to_codes.FOLDED: np.empty(SCRATCH_BYTES, np.uint8),
            to_codes.FOLDED_STRINGS: np.zeros(to_codes.FOLDED_HEADER + to_codes.MOST_FOLDED, np.int64),
            to_codes.KNOWN_VALUES: known_values(),
            to_codes.OTHER_ATOMS: np.zeros(FOUND_HEADER + FOUND_WORDS * MOST_KNOWN_ATOMS, np.int64),
            to_codes.DEFERRED: np.zeros(to_codes.DEFERRED_HEADER, np.int64),
        }
        rooms = {
            to_codes.ATTRIBUTE_ROOM: NO_LIMIT,
            to_codes.SEEN_ROOM: to_codes.MOST_SEEN,
            to_codes.FRAME_ROOM: to_codes.MOST_FRAMES,
            to_codes.SCRATCH_ROOM: SCRATCH_BYTES,
            to_codes.ID_ROOM: n_bytes,
        }
        every[to_codes.SCAN_COUNTS][list(rooms)] = list(rooms.values())
        every[to_codes.OTHER_ATOMS][FOUND_ROOM] = MOST_KNOWN_ATOMS
        self._table = AddressTable(every[k] for k in range(len(every)))
        self.address, self.arrays = self._table.address, self._table.arrays

    def count(self, which: int) -> int:
        return int(self.arrays[to_codes.SCAN_COUNTS][which])

    def filled(self, which: int, count: int) -> Array:
        """The filled part of an array, according to one of the counts."""
        return self.arrays[which][: self.count(count)]


class ThreadArrays(LineArrays):
    """Arrays for codes of `n_attributes`, with a bound on attributes for the `n_atoms` atoms."""

    def __init__(self, n_bytes: int, n_atoms: int, most_atoms: int, n_attributes: int | None = None) -> None:
        n_attributes = 2 * n_bytes // LEAST_ATTRIBUTE_BYTES if n_attributes is None else n_attributes
        arrays: dict[int, Array] = {
            to_codes.PACKED_ATTRIBUTES: np.empty(n_attributes + most_atoms + MOST_FLAT_ATTRIBUTES, np.uint64),
            to_codes.ROW_ATOMS: np.zeros(FOUND_HEADER + FOUND_WORDS * n_atoms, np.int64),
        }
        super().__init__(n_bytes, to_codes.N_COUNTS, arrays)
        self.arrays[to_codes.SCAN_COUNTS][to_codes.MOST_ATOMS] = most_atoms


def compile_scanner() -> None:
    """Compile the functions that scan lines for a vocabulary without `suffix` and `contains`."""
    EventScanner(Table.from_filters(()).vocabulary, PLAIN)


class ScannedEvents(NamedTuple):
    """The events of a block.

    batch        with the rejected rows
    ids          of every event, empty for an event without one; None if the form names none, or ids are not kept
    located      tells whether any event has a location
    identified   tells whether any event has an id
    n_flagged    rows that the scanner left to `rows`
    n_on_gpu     rows whose lines were scanned on a GPU
    rows         the rows themselves, see `batches.keep_rows`; None where they are not kept
    """

    batch: EventBatch
    ids: Strings | None
    located: bool
    identified: bool
    n_flagged: int
    n_on_gpu: int = 0
    rows: Strings | None = None

    @property
    def named(self) -> bool:
        """Tells whether an event has an attribute that a filter names."""
        return self.batch.n_attributes > 0


class LineScanner(Protocol):
    """Turns blocks of lines into events."""

    def scan(self, block: LineBlock, rejects: Rejects) -> ScannedEvents:
        """The events of a block; rejected rows go to `rejects`, in the order of their lines, with their file and line."""
        ...


class EventScanner:
    """Scans blocks of lines into the code space of a vocabulary.

    Compiles its functions when it is created (`compile_cache.compile_s` counts that).  Keeps arrays of about the size of the
    largest block, for every thread; results do not share them.  Unless `with_ids`, ids are judged, and not kept.
    """

    def __init__(
        self, vocabulary: Vocabulary, form: EventForm, threads: int | None = None, *, with_ids: bool = True
    ) -> None:
        self.vocabulary, self.form, self._most_threads = vocabulary, form, threads
        self.keeps_ids = with_ids and form.id is not None
        self._threads: list[ThreadArrays] = []
        with compile_once(f"scanner{'-atoms' * has_atoms(vocabulary)}{'-ids' * (form.id is not None)}"):
            self._tables = hashed(vocabulary, form)
            self._n_atoms = n_atoms_of(self._tables)
            self._flat = flat_lines(vocabulary, form)
            self._names = names_of(vocabulary, form)
            self.line_judge = LineJudge(self.judge, self._names, form)
            self.scan(LineBlock(np.frombuffer(bytearray(b"{}\n"), np.uint8), "", 1), [])

    def judge(self, row: object) -> Event:
        """The event of a row as a program passes it, with the attributes that the vocabulary and the form name.  Raises
        ModelError."""
        return event_of_passed(row, self.form, self._names)

    def for_one_thread(self) -> EventScanner:
        """Another scanner with the same tables, which scans in the calling thread alone."""
        other = copy(self)
        other._most_threads, other._threads = 1, []
        return other

    def scan(self, block: LineBlock, rejects: Rejects) -> ScannedEvents:
        """See `LineScanner.scan`."""
        with at_most(self._most_threads):
            return self._scan(block, rejects)

    def _scan(self, block: LineBlock, rejects: Rejects) -> ScannedEvents:
        if block.overlong:
            return self._joined([], block.data, refused_overlong(block, rejects))
        parts = self._scan_all(block.data)
        judged = self.line_judge.judged(block, flagged_lines(parts, block))
        if judged.rejects is not None:
            rejects.extend(judged.rejects)
        return self._joined(parts, block.data, judged)

    def _scan_all(self, data: Array) -> list[ThreadArrays]:
        """The output of each thread for its range of the lines."""
        n_stretches = stretches_of(len(data))
        bounds = line_bounds(data, n_stretches)
        for i, n_bytes in enumerate(np.diff(bounds).tolist()):
            if i == len(self._threads):
                self._threads.append(self._thread_arrays(n_bytes))
            elif n_bytes > self._threads[i].n_bytes:
                self._threads[i] = self._thread_arrays(n_bytes)
        in_stretches(len(data), self._scan_stretch, data.ctypes.data, bounds.tolist())
        return self._threads[:n_stretches]

    def _thread_arrays(self, n_bytes: int, n_found: int = 0) -> ThreadArrays:
        n_atoms = self._n_atoms
        return ThreadArrays(n_bytes, n_atoms, max(2 * n_found, n_bytes // LEAST_ATTRIBUTE_BYTES) if n_atoms else 0)

    def _scan_stretch(self, stretch: int, n_stretches: int, data: int, bounds: list[int]) -> None:
        while True:
            part = self._threads[stretch]
            where = data, bounds[stretch], bounds[stretch + 1]
            to_codes.scan_lines(*where, self._tables.address, self._flat.tables, part.address)
            if part.count(to_codes.N_ATOMS) <= part.count(to_codes.MOST_ATOMS):
                return
            self._threads[stretch] = self._thread_arrays(part.n_bytes, part.count(to_codes.N_ATOMS))

    def _joined(self, parts: list[ThreadArrays], data: Array, judged: JudgedLines) -> ScannedEvents:
        """The rows of all threads, which scanned `data`, end to end, with the judged ones among them."""
        batch = with_judged(self._collected(parts, len(data), len(judged.rows)), judged, self.vocabulary)
        return ScannedEvents(
            batch,
            ids_of(data, parts, judged) if self.keeps_ids else None,
            batch.location is not None,
            are_identified(parts, judged),
            len(judged.rows),
        )

    def _collected(self, parts: list[ThreadArrays], n_bytes: int, n_flagged: int) -> tuple[Array, Array, Array | None]:
        """Offsets, attributes and locations, if there are any, of the rows that all threads have scanned.

        Without threads there are only flagged rows.
        """
        dtype = self.vocabulary.packed_dtype
        if not parts:
            return np.zeros(n_flagged + 1, np.uint32), np.zeros(0, dtype), None
        return collected(parts, n_bytes, dtype)


class SharedScanner:
    """Scans blocks as `scanner` does, any number of them at once, each in one thread."""

    def __init__(self, scanner: EventScanner) -> None:
        self._scanner, self._idle = scanner, deque[EventScanner]()

    def scan(self, block: LineBlock, rejects: Rejects) -> ScannedEvents:
        """See `LineScanner.scan`."""
        try:
            own = self._idle.pop()
        except IndexError:
            own = self._scanner.for_one_thread()
        try:
            return own.scan(block, rejects)
        finally:
            self._idle.append(own)


def collected(parts: Sequence[LineArrays], n: int, dtype: np.dtype) -> tuple[Array, Array, Array | None]:
    """Offsets, attributes and locations, if there are any, of the rows that all threads have written, of n bytes or rows."""
    rows = list(accumulate((part.count(to_codes.ROWS) for part in parts), initial=0))
    counts = list(accumulate((part.count(to_codes.N_ATTRIBUTES) for part in parts), initial=0))
    located = any(part.count(to_codes.N_LOCATED) for part in parts)
    location = np.full((rows[-1] if located else 0, 2), np.nan)
    to = AddressTable((np.zeros(rows[-1] + 1, np.uint32), np.empty(counts[-1], dtype), location))

    def collect(stretch: int, n_stretches: int) -> None:
        where = (rows[stretch], counts[stretch], to.address, dtype == np.uint32)
        to_codes.collect(parts[stretch].address, *where)

    in_stretches(n, collect)
    offsets, attributes, _ = to.arrays
    return offsets, attributes, location if located else None


def flagged_lines(parts: Sequence[LineArrays], block: LineBlock) -> list[FlaggedLines]:
    """The flagged lines of a block; `parts` are the outputs of all threads."""
    rows = accumulate((part.count(to_codes.ROWS) for part in parts), initial=0)
    lines = accumulate((part.count(to_codes.LINES) for part in parts), initial=block.first_line)
    return [
        FlaggedLines(part.filled(to_codes.FLAGGED, to_codes.N_FLAGGED), row, line)
        for part, row, line in zip(parts, rows, lines, strict=False)
    ]


def ids_of(data: Array, parts: Sequence[LineArrays], judged: JudgedLines) -> Strings:
    """The ids of all rows, scanned and judged, empty for a row without one."""
    found = [(part.filled(to_codes.ID_BOUNDS, to_codes.ROWS), part.arrays[to_codes.ID_DATA]) for part in parts]
    return scanned_ids(data, found or [_ONE_FLAGGED], judged)


def are_identified(parts: Sequence[LineArrays], judged: JudgedLines) -> bool:
    """Tells whether any row has an id."""
    of_judged = any(event.id is not None for event in judged.events)
    return of_judged or any(part.count(to_codes.N_IDENTIFIED) for part in parts)


def scanned_ids(data: Array, parts: Sequence[tuple[Array, Array]], judged: JudgedLines) -> Strings:
    """The ids of scanned and judged rows, empty for a row without one.

    Parameters: `data` u8 are the lines, `parts` the ID_BOUNDS and ID_DATA of all rows, one part after the other.
    """
    of_judged = [(event.id or "").encode() for event in judged.events]
    lengths = np.concatenate([np.abs(bounds[:, 1] - bounds[:, 0]) for bounds, _ in parts])
    lengths[judged.rows] = 0
    lengths[judged.good_rows] = list(map(len, of_judged))
    offsets = offsets_of(lengths)
    found, first = np.empty(offsets[-1], np.uint8), 0
    for bounds, decoded in parts:
        addresses = [each.ctypes.data for each in (data, decoded, bounds, offsets[first:], found)]
        in_stretches(len(bounds), _copy_ids, len(bounds), addresses)
        first += len(bounds)
    for row, id_ in zip(judged.good_rows.tolist(), of_judged, strict=True):
        found[offsets[row] : offsets[row + 1]] = np.frombuffer(id_, np.uint8)
    return Strings(found, offsets)


def _copy_ids(stretch: int, n_stretches: int, n_rows: int, addresses: list[int]) -> None:
    to_codes.copy_ids(stretch * n_rows // n_stretches, (stretch + 1) * n_rows // n_stretches, *addresses)


def _refuse_overlong(line: bytes) -> Event:
    """Raise ModelError for a line that was cut after the first byte beyond the limit."""
    raise too_long(len(line) - 1)


def refused_overlong(block: LineBlock, rejects: Rejects) -> JudgedLines:
    """The row of a block that is the beginning of an overlong line, which goes to `rejects`."""
    line = [(block.data.tobytes(), block.first_line)]
    return JudgedLines.of(np.zeros(1, np.int64), judged_events(line, _refuse_overlong, block.file, rejects))


def judged_events(
    lines: list[tuple[Any, int]], judge: Callable[[Any], Event], file: str, rejects: Rejects
) -> list[Event | None]:
    """The events of flagged lines, or of rows of a program, given with their numbers; None for a rejected row.

    `judge` finds the event of a row as a program passes it (`rows.judge.event_of_passed`).
    """
    found: list[Event | None] = []
    are_made = not lines_format(Path(file)).is_plain
    for line, number in lines:
        text = trimmed(line) if isinstance(line, bytes) else line
        bad = record_set_aside(text) if are_made else None
        try:
            if bad is not None:
                raise ModelError(bad[0])
            found.append(judge(line))
        except ModelError as error:
            rejects.append(Reject(str(error), file, number, row_text(text if bad is None else bad[1])))
            found.append(None)
    return found


def with_judged(arrays: tuple[Array, Array, Array | None], judged: JudgedLines, vocabulary: Vocabulary) -> EventBatch:
    """Scanned rows as a batch, with the judged ones.

    Parameters: `arrays` are offsets, attributes and locations, if there are any, of all rows, the judged ones without
    attributes; they may be written to.
    """
    offsets, attributes, location = arrays
    if not len(judged.rows):  # of nearly all batches; what follows takes as long as to scan a hundred rows
        return EventBatch(offsets, attributes, location, vocabulary.fingerprint, None)
    if location is not None:
        location[judged.rows] = np.nan
    if judged.events:
        events, rows = Events.of(judged.events), judged.good_rows
        attributes = with_encoded(offsets, attributes, rows, events.encode(vocabulary))
        if events.location is not None:
            location = np.full((len(offsets) - 1, 2), np.nan) if location is None else location
            location[rows] = events.location
    rejected = judged.rows[judged.is_bad].astype(REJECTED) if judged.is_bad.any() else None
    return EventBatch(offsets, attributes, location, vocabulary.fingerprint, rejected)


def with_encoded(offsets: Array, attributes: Array, rows: Array, encoded: EventBatch) -> Array:
    """The attributes, with those of some rows, i64 ascending, that had none; changes `offsets` u32."""
    if len(encoded.attributes):
        lengths, of_rows = np.diff(offsets), np.diff(encoded.offsets)
        places = np.repeat(offsets[rows].astype(np.int64), of_rows)
        attributes = np.insert(attributes, places, encoded.attributes)
        lengths[rows] = of_rows
        np.cumsum(lengths, out=offsets[1:], dtype=np.uint32)
    return attributes


def line_bounds(data: Array, n_stretches: int) -> Array:
    """i64[n_stretches + 1]: first byte of each thread's lines, and the end of the data."""
    bounds = np.zeros(n_stretches + 1, np.int64)
    bounds[-1] = len(data)
    for i in range(1, n_stretches):
        at = max(int(bounds[i - 1]), i * len(data) // n_stretches)
        bounds[i] = after_line_feed(data, at)
    return bounds
