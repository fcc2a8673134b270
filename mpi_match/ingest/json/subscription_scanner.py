"""Reads subscriptions of JSON lines into flat columns: lines are scanned, and `rows` judges those in doubt.

Only the lines that `to_subscriptions` flags go through `rows.parse_subscription` and `rows.subscription_filters`.  Filters
have no order of their own, so the judged ones follow the others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.arrays.exact import exact
from mpi_match.arrays.strings import Strings, sort_distinct
from mpi_match.compute.compile_cache import compile_once, is_compiled
from mpi_match.compute.memory import AddressTable
from mpi_match.ingest.codes.string_pool import StringPool
from mpi_match.ingest.files.blocks import LineBlock, read_blocks, rows_of_block
from mpi_match.ingest.json import to_constraints as columns
from mpi_match.ingest.json.condition_to_filters import CONTENT_BYTES, N_CONDITION_WORDS
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
from mpi_match.table.virtual_names import PART_MARK, strings_of_digests
from mpi_match.texts.characters import LINE_FEED

_WHAT = "subscription-scanner"
"""The names of the compiled functions, for `compile_cache`."""
_LEAST_LINE_BYTES = 2
"""Fewest bytes of a line, with its line feed."""
_FIRST_BYTES = 2**16
_LABEL_OF_PART = PART_LABEL.encode()
_COUNTS = {
    columns.FILTER_ROW: columns.N_SCANNED_FILTERS,
    columns.FILTER_LABEL: columns.N_SCANNED_FILTERS,
    columns.FILTER_END: columns.N_SCANNED_FILTERS,
    columns.ID_OF_FILTER: columns.N_SCANNED_FILTERS,
    columns.AREA_FILTER: columns.N_SCANNED_AREAS,
    columns.SCANNED_AREAS: columns.N_SCANNED_AREAS,
    columns.SCANNED_ID_END: columns.N_SCANNED_IDS,
    columns.SCANNED_ID_BYTES: columns.N_ID_BYTES,
    columns.PART_DIGESTS: columns.N_SCANNED_PARTS,
    columns.CONSTRAINT_NAME: columns.N_SCANNED_CONSTRAINTS,
    columns.CONSTRAINT_KIND: columns.N_SCANNED_CONSTRAINTS,
    columns.CONSTRAINT_END: columns.N_SCANNED_CONSTRAINTS,
    columns.OPERAND_NUMBER: columns.N_OPERANDS,
    columns.OPERAND_STRING: columns.N_OPERANDS,
}
"""The arrays that the scanner writes, and the count of each."""
_COUNTED = {
    columns.FILTER_ROW: columns.SCANNED_ROWS,
    columns.FILTER_END: columns.N_SCANNED_CONSTRAINTS,
    columns.AREA_FILTER: columns.N_SCANNED_FILTERS,
    columns.SCANNED_ID_END: columns.N_ID_BYTES,
    columns.CONSTRAINT_END: columns.N_OPERANDS,
}
"""The arrays with places in others, which begin anew with each range of lines, and the counts of those."""


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

    @property
    def n_rows(self) -> int:
        return int(self._before[columns.SCANNED_ROWS])

    def __init__(self) -> None:
        self._scratch = [np.empty(SCRATCH_BYTES, np.uint8) for _ in range(4)]
        self._make(_FIRST_BYTES)
        self._begin()
        with compile_once(_WHAT):
            self.scan(np.frombuffer(b'{"interface": 1, "constraints": []}\n', np.uint8))
        self._begin()

    def _begin(self) -> None:
        self._pools = [StringPool() for _ in range(3)]
        self._chunks: dict[int, list[Array]] = {which: [] for which in _COUNTS}
        self._before = np.zeros(columns.N_SUBSCRIPTION_COUNTS, np.int64)

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
            columns.ID_OF_FILTER: np.empty(n_filters, np.int64),
            columns.AREA_FILTER: np.empty(n_filters, np.int64),
            columns.SCANNED_AREAS: np.empty((n_filters, 3)),
            columns.SCANNED_ID_END: np.empty(n_filters, np.int64),
            columns.SCANNED_ID_BYTES: np.empty(n_bytes, np.uint8),
            columns.PART_DIGESTS: np.empty((n_filters, 2), np.uint64),
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
        counts[columns.IDS_BEFORE], counts[columns.PARTS_BEFORE] = self._before[
            [columns.N_SCANNED_IDS, columns.N_SCANNED_PARTS]
        ]
        while counts[columns.SCANNED_TO] < len(data):
            pools = np.array([pool.address for pool in self._pools])
            work = AddressTable([*(self._arrays[k] for k in range(len(self._arrays))), pools])
            scan_subscriptions(data.ctypes.data, len(data), TABLES.address, work.address)
            if counts[columns.LACKING_POOL] >= 0:
                self._pools[counts[columns.LACKING_POOL]].grow()
        for which, chunks in self._chunks.items():
            written = self._arrays[which][: counts[_COUNTS[which]]]
            chunks.append(written + self._before[_COUNTED[which]] if which in _COUNTED else written.copy())
        number, string = (self._chunks[which] for which in (columns.OPERAND_NUMBER, columns.OPERAND_STRING))
        number[-1] = exact(number[-1], np.where(string[-1] < 0, ~string[-1], 0))
        np.maximum(string[-1], -1, out=string[-1])
        self._before += counts
        flagged = self._arrays[columns.FLAGGED_LINES][: counts[columns.N_FLAGGED_LINES]].tolist()
        return [FlaggedLine(line, data[start : stop + 1].tobytes()) for line, start, stop in flagged]

    def take(self) -> ScannedSubscriptions:
        """Take the filters that were scanned since the last call, without those of flagged lines."""
        column = {which: np.concatenate(self._chunks.pop(which)) for which in _COUNTS}
        row, label, id_ = (column[which] for which in (columns.FILTER_ROW, columns.FILTER_LABEL, columns.ID_OF_FILTER))
        strings = self._pools[columns.STRING_POOL].strings()
        (labels, label_rank), (names, name_rank) = (
            sort_distinct(self._pools[pool].strings()) for pool in (columns.LABEL_POOL, columns.NAME_POOL)
        )
        parts, place = _distinct_digests(column[columns.PART_DIGESTS])
        before = bisect_left(names, PART_MARK)  # names of views and of elements sort behind those of parts
        name_rank[name_rank >= before] += len(parts)
        made, id_ = _ids_of_unnamed(id_, row, label, labels.take(label_rank))
        subscriptions = Subscriptions(
            labels=Strings.concat([labels, strings_of_digests(_LABEL_OF_PART, parts)]),
            names=Strings.concat(
                [names.between(0, before), strings_of_digests(PART_MARK, parts), names.between(before, len(names))]
            ),
            strings=strings,
            ids=Strings.concat([Strings(column[columns.SCANNED_ID_BYTES], _offsets(column[columns.SCANNED_ID_END])), made]),
            interface=_numbers(label, label_rank, len(labels) + place),
            constraint_offsets=_offsets(column[columns.FILTER_END]),
            area=_areas(column[columns.AREA_FILTER], column[columns.SCANNED_AREAS], len(row)),
            id=id_,
            name=_numbers(column[columns.CONSTRAINT_NAME], name_rank, before + place),
            kind=column[columns.CONSTRAINT_KIND],
            operand_offsets=_offsets(column[columns.CONSTRAINT_END]),
            number=column[columns.OPERAND_NUMBER],
            string=column[columns.OPERAND_STRING],
        )
        self._begin()
        return ScannedSubscriptions(subscriptions, row)


def _offsets(ends: Array) -> Array:
    return np.append(0, ends)


def _numbers(scanned: Array, rank: Array, place: Array) -> Array:
    """i64[n]: `rank` of each number of a string in a pool, `place` of each part (FIRST_PART)."""
    return np.concatenate([rank, place[::-1], [-1] * -(columns.FIRST_PART + 1)])[scanned]


def _areas(filters: Array, areas: Array, n: int) -> Array:
    """f64[n, 3]: the areas of all filters, from those of some."""
    if not len(filters):
        return np.broadcast_to(np.nan, (n, 3))
    found = np.full((n, 3), np.nan)
    found[filters] = areas
    return found


def _ids_of_unnamed(id_: Array, row: Array, label: Array, labels: Strings) -> tuple[Strings, Array]:
    """The ids of the parts of filters without an id, which follow from the label of their row, and the ids of all filters,
    where these are numbered behind the others."""
    unnamed = id_ == columns.HAS_ID_OF_UNNAMED
    if not unnamed.any():
        return Strings.of(()), id_
    first = np.flatnonzero(np.diff(row, prepend=-1))  # filters of rows, which parts follow
    used, place = np.unique(label[np.repeat(first, np.diff(first, append=len(row)))[unnamed]], return_inverse=True)
    found = id_.copy()
    found[unnamed] = id_.max() + 1 + place
    return Strings.of(id_of_unnamed(each.decode()).encode() for each in labels.take(used)), found


def _distinct_digests(digests: Array) -> tuple[Array, Array]:
    """The distinct digests u64[p, 2] in the order of their bytes, and the place i64[n] of each among them."""
    words = digests.byteswap()
    order = np.argsort(words[:, 0])
    ordered = words[order]
    differs = ordered[1:] != ordered[:-1]
    if (differs[:, 1] & ~differs[:, 0]).any():
        order = np.lexsort((words[:, 1], words[:, 0]))
        ordered = words[order]
        differs = ordered[1:] != ordered[:-1]
    is_new = np.append(np.ones(min(len(order), 1), bool), differs.any(axis=1))
    place = np.empty(len(order), np.int64)
    place[order] = np.cumsum(is_new) - 1
    return digests[order[is_new]], place


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
