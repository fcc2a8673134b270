"""Reads subscriptions of JSON lines into flat columns: lines are scanned, and `rows` judges those in doubt.

Only the lines that `to_subscriptions` flags go through `rows.parse_subscription` and `rows.subscription_filters`.  Filters
have no order of their own, so the judged ones follow the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of
from mpi_match.arrays.exact import exact
from mpi_match.arrays.strings import Strings
from mpi_match.compute.compile_cache import compile_once, is_compiled
from mpi_match.compute.memory import AddressTable
from mpi_match.ingest.codes.string_pool import StringPool
from mpi_match.ingest.files.blocks import LineBlock, read_blocks, rows_of_block
from mpi_match.ingest.json import to_constraints as columns
from mpi_match.ingest.json.condition_to_filters import CONTENT_BYTES, FIRST_PART, N_CONDITION_WORDS
from mpi_match.ingest.json.predicate_to_filters import N_ALTERNATIVE_WORDS
from mpi_match.ingest.json.text import SCRATCH_BYTES
from mpi_match.ingest.json.to_subscriptions import TABLES, scan_subscriptions
from mpi_match.ingest.rows.formats import lines_format
from mpi_match.ingest.rows.judge import (
    Reject,
    Rejects,
    parse_subscription,
    record_set_aside,
    row_text,
    subscription_filters,
    trimmed,
)
from mpi_match.model import ModelError
from mpi_match.table.conditions import PART_LABEL, id_of_unnamed
from mpi_match.table.subscriptions import Subscriptions, SubscriptionsBuilder
from mpi_match.table.virtual_names import PART_DIGITS, PART_MARK
from mpi_match.texts.characters import LINE_FEED

_WHAT = "subscription-scanner"
"""The names of the compiled functions, for `compile_cache`."""
_LEAST_LINE_BYTES = 2
"""Fewest bytes of a line, with its line feed."""
_FIRST_BYTES = 2**16
_LABEL_OF_PART = PART_LABEL.encode()
_COLUMNS = {
    columns.FILTER_ROW: columns.N_SCANNED_FILTERS,
    columns.FILTER_LABEL: columns.N_SCANNED_FILTERS,
    columns.FILTER_END: columns.N_SCANNED_FILTERS,
    columns.FILTER_AREA: columns.N_SCANNED_FILTERS,
    columns.FILTER_HAS_ID: columns.N_SCANNED_FILTERS,
    columns.FILTER_ID_END: columns.N_SCANNED_FILTERS,
    columns.FILTER_ID_BYTES: columns.N_ID_BYTES,
    columns.CONSTRAINT_NAME: columns.N_SCANNED_CONSTRAINTS,
    columns.CONSTRAINT_KIND: columns.N_SCANNED_CONSTRAINTS,
    columns.CONSTRAINT_END: columns.N_SCANNED_CONSTRAINTS,
    columns.OPERAND_NUMBER: columns.N_OPERANDS,
    columns.OPERAND_STRING: columns.N_OPERANDS,
}
"""The arrays that the scanner writes, and the count of each."""


class ScannedSubscriptions(NamedTuple):
    """Filters of lines; `row` i64[n], ascending, is the row of each, counted from 0 without blank lines."""

    subscriptions: Subscriptions
    row: Array


class ReadSubscriptions(NamedTuple):
    """The filters of files, and the number of their rows, including bad ones."""

    subscriptions: Subscriptions
    n_rows: int


class FlaggedLine(NamedTuple):
    """A line to be judged: its number, counted from 0, and its bytes."""

    line: int
    text: bytes


class SubscriptionScanner:
    """Scans lines one range after the other; compiles its functions when it is created.

    `n_rows` counts the rows since the last `take`, including flagged ones.
    """

    def __init__(self) -> None:
        self._scratch = [np.empty(SCRATCH_BYTES, np.uint8) for _ in range(4)]
        self._make(_FIRST_BYTES)
        self._begin()
        with compile_once(_WHAT):
            self.scan(np.frombuffer(b'{"interface": 1, "constraints": []}\n', np.uint8))
        self._begin()

    def _begin(self) -> None:
        self._pools = [StringPool() for _ in range(3)]
        self._chunks: dict[int, list[Array]] = {which: [] for which in _COLUMNS}
        self.n_rows = 0

    def _make(self, n_bytes: int) -> None:
        """Arrays for `n_bytes` of lines; pages that are never written take no memory."""
        n_lines, n_filters = n_bytes // _LEAST_LINE_BYTES + 1, n_bytes // columns.LEAST_FILTER_BYTES + 2
        n_constraints = n_operands = n_bytes + 2
        self._n_bytes = n_bytes
        self._arrays: dict[int, Array] = {
            columns.SUBSCRIPTION_COUNTS: np.zeros(columns.N_SUBSCRIPTION_COUNTS, np.int64),
            columns.FILTER_ROW: np.empty(n_filters, np.int64),
            columns.FILTER_LABEL: np.empty(n_filters, np.int64),
            columns.FILTER_END: np.empty(n_filters, np.int64),
            columns.FILTER_AREA: np.empty((n_filters, 3)),
            columns.FILTER_HAS_ID: np.empty(n_filters, np.uint8),
            columns.FILTER_ID_END: np.empty(n_filters, np.int64),
            columns.FILTER_ID_BYTES: np.empty(columns.MOST_ID_BYTES * n_bytes, np.uint8),
            columns.CONSTRAINT_NAME: np.empty(n_constraints, np.int64),
            columns.CONSTRAINT_KIND: np.empty(n_constraints, np.uint8),
            columns.CONSTRAINT_END: np.empty(n_constraints, np.int64),
            columns.OPERAND_NUMBER: np.empty(n_operands),
            columns.OPERAND_STRING: np.empty(n_operands, np.int64),
            columns.FLAGGED_LINES: np.empty((n_lines, 3), np.int64),
            columns.TEXT_SCRATCH: self._scratch[0],
            columns.LABEL_SCRATCH: self._scratch[1],
            columns.BOUND_SCRATCH: self._scratch[2],
            columns.PREDICATE_SCRATCH: self._scratch[3],
            columns.ALTERNATIVES: np.empty(N_ALTERNATIVE_WORDS, np.uint64),
            columns.CONDITION: np.empty(N_CONDITION_WORDS, np.int64),
            columns.CONTENT: np.empty(CONTENT_BYTES, np.uint8),
        }

    def scan(self, data: Array, *, of_columns: bool = False) -> list[FlaggedLine]:
        """Scan lines u8, each with its line feed.  Returns the lines to be judged; their filters are not added.

        In lines `of_columns`, `where` is a text that holds JSON.
        """
        if len(data) > self._n_bytes:
            self._make(len(data))
        counts = self._arrays[columns.SUBSCRIPTION_COUNTS]
        counts[:] = 0
        counts[columns.WHERE_IS_TEXT] = of_columns
        while counts[columns.SCANNED_TO] < len(data):
            pools = np.array([pool.address for pool in self._pools])
            work = AddressTable([*(self._arrays[k] for k in range(len(self._arrays))), pools])
            scan_subscriptions(data.ctypes.data, len(data), TABLES.address, work.address)
            if counts[columns.LACKING_POOL] >= 0:
                self._pools[counts[columns.LACKING_POOL]].grow()
        for which, chunks in self._chunks.items():
            chunks.append(self._arrays[which][: counts[_COLUMNS[which]]].copy())
        self._chunks[columns.FILTER_ROW][-1] += self.n_rows
        self.n_rows += int(counts[columns.SCANNED_ROWS])
        flagged = self._arrays[columns.FLAGGED_LINES][: counts[columns.N_FLAGGED_LINES]].tolist()
        return [FlaggedLine(line, data[start : stop + 1].tobytes()) for line, start, stop in flagged]

    def take(self) -> ScannedSubscriptions:
        """Take the filters that were scanned since the last call, without those of flagged lines."""
        column = {which: np.concatenate(chunks) for which, chunks in self._chunks.items()}
        sizes = self._lengths(columns.FILTER_END)
        number, string = column[columns.OPERAND_NUMBER], column[columns.OPERAND_STRING]
        written, names, strings = (pool.strings() for pool in self._pools)
        ids, id_ = self._ids(column, written)
        labels, interface = _with_parts(column[columns.FILTER_LABEL], written, names)
        subscriptions = Subscriptions(
            labels=labels,
            names=names,
            strings=strings,
            ids=ids,
            interface=interface,
            constraint_offsets=offsets_of(sizes),
            area=column[columns.FILTER_AREA].reshape(-1, 3),
            id=id_,
            name=column[columns.CONSTRAINT_NAME],
            kind=column[columns.CONSTRAINT_KIND],
            operand_offsets=offsets_of(self._lengths(columns.CONSTRAINT_END)),
            number=exact(number, np.where(string < 0, ~string, 0)),
            string=np.maximum(string, -1),
        )
        self._begin()
        return ScannedSubscriptions(subscriptions, column[columns.FILTER_ROW])

    def _ids(self, column: dict[int, Array], labels: Strings) -> tuple[Strings, Array]:
        """Ids, and the number i64[n] of the id of each filter among them; -1 for none.

        The ids of the parts of filters without an id follow from the label of their row.
        """
        has_id, row = column[columns.FILTER_HAS_ID], column[columns.FILTER_ROW]
        number = np.full(len(row), -1)
        named = np.flatnonzero(has_id == columns.HAS_ID)
        written = Strings(column[columns.FILTER_ID_BYTES], offsets_of(self._lengths(columns.FILTER_ID_END))).take(named)
        is_new = ~written.repeats()  # parts have the id of their filter
        number[named] = np.cumsum(is_new) - 1
        unnamed = has_id == columns.HAS_ID_OF_UNNAMED
        first = np.flatnonzero(np.diff(row, prepend=-1))  # filters of rows, which parts follow
        label = column[columns.FILTER_LABEL][np.repeat(first, np.diff(first, append=len(row)))[unnamed]]
        used, place = _used(label, len(labels))
        number[unnamed] = np.count_nonzero(is_new) + place
        made = Strings.of(id_of_unnamed(each.decode()).encode() for each in labels.take(used))
        return Strings.concat([written.take(np.flatnonzero(is_new)), made]), number

    def _lengths(self, which: int) -> Array:
        """The lengths of items, from the position where each ends in its chunk."""
        return np.concatenate([np.diff(chunk, prepend=0) for chunk in self._chunks[which]])


def _with_parts(label: Array, labels: Strings, names: Strings) -> tuple[Strings, Array]:
    """All labels, and the label of each filter by its number, where the labels of parts are numbered after the others."""
    is_part = label <= FIRST_PART
    part = FIRST_PART - label[is_part]
    parts, place = _used(part, len(names))
    found = label.copy()
    found[is_part] = len(labels) + place
    mark = len(PART_MARK)
    digits = names.take(parts).data.reshape(-1, mark + PART_DIGITS)[:, mark:]
    marks = np.broadcast_to(np.frombuffer(_LABEL_OF_PART, np.uint8), (len(parts), len(_LABEL_OF_PART)))
    made = np.hstack([marks, digits])
    bounds = np.arange(len(parts) + 1) * made.shape[1]
    return Strings.concat([labels, Strings(made.reshape(-1), bounds)]), found


def _used(numbers: Array, n: int) -> tuple[Array, Array]:
    """The distinct numbers below n, ascending, and the position of each number among them."""
    is_used = np.zeros(n, bool)
    is_used[numbers] = True
    return np.flatnonzero(is_used), (np.cumsum(is_used) - 1)[numbers]


def read_subscriptions(
    files: Iterable[Path], rejects: Rejects, progress: Callable[[int], None] | None = None
) -> ReadSubscriptions:
    """The subscriptions of JSON lines files; bad rows go to `rejects`, in the order of their lines.

    `progress` is called with the number of lines so far.  Raises ModelError for a damaged packed file; OSError.
    """
    scanner_, judged, n_bytes, n_lines, n_judged = None, SubscriptionsBuilder(), 0, 0, 0
    few_bytes = FEW_BYTES if is_compiled(_WHAT) else FEW_UNCOMPILED_BYTES
    for block in read_blocks(files):
        n_bytes += len(block.data)
        if scanner_ is None and n_bytes > few_bytes:
            scanner_ = SubscriptionScanner()
        is_scanned = scanner_ is not None and not block.overlong
        for line, text in scanner_.scan(block.data) if scanner_ is not None and is_scanned else rows_of_block(block):
            _judge(text, block, line, judged, rejects)
            n_judged += not is_scanned
        n_lines += 1 if block.overlong else int(np.count_nonzero(block.data == LINE_FEED))
        if progress is not None:
            progress(n_lines)
    if scanner_ is None:
        return ReadSubscriptions(judged.build(), n_judged)
    n_scanned = scanner_.n_rows
    return ReadSubscriptions(Subscriptions.concat([judged.build(), scanner_.take().subscriptions]), n_judged + n_scanned)


FEW_BYTES, FEW_UNCOMPILED_BYTES = 2**21, 2**25
"""Bytes that are judged before the scanner's code is loaded, and before it is compiled: each takes longer than judging this
number of bytes."""


def _judge(line: bytes, block: LineBlock, number: int, judged: SubscriptionsBuilder, rejects: Rejects) -> None:
    text = trimmed(line)
    is_made = text.startswith(b"\0") and not lines_format(Path(block.file)).is_plain
    bad = record_set_aside(text) if is_made else None
    try:
        if bad is not None:
            raise ModelError(bad[0])
        found = subscription_filters(parse_subscription(text))
    except ModelError as error:
        rejects.append(Reject(str(error), block.file, block.first_line + number, row_text(text if bad is None else bad[1])))
        return
    for item in found:
        judged.add(item)
