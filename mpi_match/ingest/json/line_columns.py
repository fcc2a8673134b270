"""Reads events of JSON lines as they were published, a block at a time: all threads scan, and `rows` judges the lines in
doubt.

It resembles `event_scanner`, which makes codes.  Each thread writes a piece of `Events` with names and strings of its own;
the judged rows are another piece; `join_events` puts them together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import compile_once
from mpi_match.compute.parallel import at_most, in_stretches, stretches_of
from mpi_match.events.events import Events
from mpi_match.events.lists import ListColumns
from mpi_match.ingest.codes.atoms import FOUND_HEADER
from mpi_match.ingest.codes.code_tables import hashed
from mpi_match.ingest.codes.string_pool import StringPool
from mpi_match.ingest.files.blocks import LineBlock
from mpi_match.ingest.json import every_name, listed_objects, to_codes, to_columns
from mpi_match.ingest.json.event_scanner import (
    LEAST_ATTRIBUTE_BYTES,
    LineArrays,
    are_identified,
    flagged_lines,
    ids_of,
    line_bounds,
    refused_overlong,
)
from mpi_match.ingest.json.join_events import JoinedEvents
from mpi_match.ingest.json.line_judge import JudgedLines, LineJudge
from mpi_match.ingest.json.text import SCRATCH_BYTES
from mpi_match.ingest.rows.flatten import Names
from mpi_match.ingest.rows.judge import EventForm, Rejects, event_judge
from mpi_match.table.table import Table


class _ColumnArrays(LineArrays):
    """Arrays for the columns of `n_bytes` of lines, and the pools of a thread."""

    def __init__(self, n_bytes: int) -> None:
        n = n_bytes // LEAST_ATTRIBUTE_BYTES
        self.pools = StringPool(), StringPool()
        arrays: dict[int, Array] = {
            to_codes.PACKED_ATTRIBUTES: np.empty(0, np.uint64),
            to_codes.ROW_ATOMS: np.zeros(FOUND_HEADER, np.int64),
            every_name.NAME_HASHES_SEEN: np.empty(every_name.SEEN_HEADER + every_name.MOST_NAMES, np.uint64),
            every_name.PREFIX_ENDS: np.empty(every_name.MOST_DEPTH, np.int64),
            every_name.PREFIX_HASHES: np.empty(every_name.MOST_DEPTH, np.uint64),
            every_name.DOTTED_NAME: np.empty(SCRATCH_BYTES, np.uint8),
            listed_objects.LIST_LEVELS: np.empty((listed_objects.MOST_LIST_LEVELS, listed_objects.LEVEL_WORDS), np.int64),
            listed_objects.LISTED_NAMES: np.empty((every_name.MOST_NAMES, listed_objects.NAME_WORDS), np.int64),
            listed_objects.LISTED_ORDER: np.empty(every_name.MOST_NAMES, np.int64),
            listed_objects.MIXED_TYPE: np.empty(n, np.uint8),
            listed_objects.MIXED_NUMBER: np.empty(n),
            listed_objects.MIXED_STRING: np.empty(n, np.uint32),
            listed_objects.MIXED_NEXT: np.empty(n, np.int64),
            to_columns.COLUMN_NAME: np.empty(n, np.uint32),
            to_columns.COLUMN_TYPE: np.empty(n, np.uint8),
            to_columns.COLUMN_NUMBER: np.empty(n),
            to_columns.COLUMN_STRING: np.empty(n, np.uint32),
            to_columns.LIST_ENDS: np.empty(n, np.int64),
            to_columns.ELEMENT_TYPE: np.empty(n, np.uint8),
            to_columns.ELEMENT_NUMBER: np.empty(n),
            to_columns.ELEMENT_STRING: np.empty(n, np.uint32),
            to_columns.COLUMN_POOLS: np.zeros(2, np.int64),
        }
        super().__init__(n_bytes, to_columns.N_COLUMN_COUNTS, arrays)

    def scan(self, data: int, start: int, stop: int, tables: int) -> None:
        """Scan data[start:stop]."""
        counts = self.arrays[to_codes.SCAN_COUNTS]
        counts[: to_codes.MOST_ATOMS] = 0
        counts[to_codes.N_COUNTS :] = 0
        counts[to_columns.SCANNED_TO_BYTE] = start
        for pool in self.pools:
            pool.clear()
        while counts[to_columns.SCANNED_TO_BYTE] < stop:
            self.arrays[to_columns.COLUMN_POOLS][:] = [pool.address for pool in self.pools]
            to_columns.scan_columns(data, stop, tables, self.address)
            if counts[to_columns.LACKING] >= 0:
                self.pools[counts[to_columns.LACKING]].grow()

    def piece(self) -> Events:
        """The rows, sharing memory, without locations and ids."""
        attributes = (to_columns.COLUMN_NAME, to_columns.COLUMN_TYPE, to_columns.COLUMN_NUMBER)
        elements = (to_columns.ELEMENT_TYPE, to_columns.ELEMENT_NUMBER, to_columns.ELEMENT_STRING)
        list_offsets = np.append(0, self.filled(to_columns.LIST_ENDS, to_columns.N_LISTS))
        name, type_, number = (self.filled(k, to_codes.N_ATTRIBUTES) for k in attributes)
        names, strings = (pool.strings() for pool in self.pools)
        return Events(
            offsets=np.append(0, self.filled(to_codes.ATTRIBUTE_ENDS, to_codes.ROWS)),
            name=name,
            type=type_,
            number=number,
            string=self.filled(to_columns.COLUMN_STRING, to_codes.N_ATTRIBUTES),
            names=names,
            strings=strings,
            lists=ListColumns(list_offsets, *(self.filled(k, to_columns.N_ELEMENTS) for k in elements)),
        )


class LineColumns:
    """Scans blocks of lines into `JoinedEvents`; compiles its functions when it is created.

    A row with a `required` attribute that cannot be read is a bad row; other attributes that cannot be read are left out of
    the events (`Events.left_out`).  Keeps arrays of about the size of the largest block, for every thread.  `n_flagged`
    counts the rows that `rows` has judged.
    """

    def __init__(self, form: EventForm, required: Iterable[str] = (), threads: int | None = None) -> None:
        self._form, self._most_threads = form, threads
        self._judge = LineJudge(event_judge(form, required), Names((*required, *form.names)), form)
        self._threads: list[_ColumnArrays] = []
        self.n_flagged = 0
        with compile_once("column-scanner"):
            self._tables = hashed(Table.from_filters([]).vocabulary, form)
            self.scan(LineBlock(np.frombuffer(bytearray(b"{}\n"), np.uint8), "", 1), [], JoinedEvents())
            if form.id is not None:
                to_codes.copy_ids(0, 0, 0, 0, 0, 0, 0)

    def scan(self, block: LineBlock, rejects: Rejects, to: JoinedEvents) -> None:
        """Add the events of a block; rejected rows go to `rejects`, in the order of their lines."""
        with at_most(self._most_threads):
            parts = [] if block.overlong else self._scan_all(block.data)
        if block.overlong:
            judged = refused_overlong(block, rejects)
        else:
            judged = self._judge.judged(block, flagged_lines(parts, block))
            if judged.rejects is not None:
                rejects.extend(judged.rejects)
        self.n_flagged += len(judged.rows)
        pieces = [part.piece() for part in parts] or [Events.of([None])]
        events, good = Events.of(judged.events), deque(enumerate(judged.good_rows.tolist()))
        ranges, first = [], 0
        for piece in pieces:  # a rejected row is an empty one of its piece
            at = 0
            while good and good[0][1] < first + len(piece):
                k, row = good.popleft()
                ranges += [(piece, at, row - first), (events, k, k + 1)]
                at = row - first + 1
            ranges.append((piece, at, len(piece)))
            first += len(piece)
        to.add_rows(ranges)
        ids = ids_of(block.data, parts, judged) if are_identified(parts, judged) else None
        to.leave_out(events.left_out)
        rejected = judged.rows[judged.is_bad] if judged.is_bad.any() else None
        to.add_places(first, self._locations(parts, judged, events), ids, rejected)

    def _scan_all(self, data: Array) -> list[_ColumnArrays]:
        """The output of each thread for its range of the lines."""
        n_stretches = stretches_of(len(data))
        bounds = line_bounds(data, n_stretches).tolist()
        for i in range(n_stretches):
            n_bytes = bounds[i + 1] - bounds[i]
            if i == len(self._threads):
                self._threads.append(_ColumnArrays(n_bytes))
            elif n_bytes > self._threads[i].n_bytes:
                self._threads[i] = _ColumnArrays(n_bytes)

        def scan(stretch: int, _: int) -> None:
            self._threads[stretch].scan(data.ctypes.data, bounds[stretch], bounds[stretch + 1], self._tables.address)

        in_stretches(len(data), scan)
        return self._threads[:n_stretches]

    def _locations(self, parts: list[_ColumnArrays], judged: JudgedLines, events: Events) -> Array | None:
        """f64[n, 2]; None when no event has one.  `events` are the judged ones."""
        if events.location is None and not any(part.count(to_codes.N_LOCATED) for part in parts):
            return None
        if any(part.count(to_codes.N_LOCATED) for part in parts):
            location = np.concatenate([part.filled(to_codes.ROW_LOCATIONS, to_codes.ROWS) for part in parts])
        else:  # where the form names no location, none is written
            location = np.full((sum(part.count(to_codes.ROWS) for part in parts), 2), np.nan)
        location[judged.rows] = np.nan
        if events.location is not None:
            location[judged.good_rows] = events.location
        return location
