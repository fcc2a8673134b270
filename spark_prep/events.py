"""Events to an event table, in the order in which they were written, each scanned once.

Where tasks can read the files by themselves, they do (`splits`): a task reads one range of the rows and writes it as parts.
Input that only Spark can read comes as rows.  A partition has a range of each of some files; if there are few such ranges,
each is written as parts.  Only if there are many, or fewer than cores (a single large `.gz` of another file system), are
the rows first sorted by (file, block, position).

A column that numbers rows is read first (`numbering`), which reads no other column of most sources.  Partitions that
are few runs of consecutive numbers are written as they are.  Else, if the numbers are those from 0 to n - 1, they say the
partition of each row (`dealt_out`), and tasks sort theirs.  Else Java sorts the rows, and the first wrong number is found.

    splits               --write_splits-->
    rows, perhaps sorted --write_parts-->   parts written, with the place of their first row; bad rows; blocks of lines

A part's place, (file, block, position), puts it among the others.  A bad row keeps its number among the events, as a
rejected row.  Parts are written by the job that finds the bad rows, so under `strict` they may be written and then
discarded; reading everything twice to avoid that would slow down the usual case.

The compiled code is that of `compile events --local`.  A task holds at most `EVENTS_PER_PART` events, or those of one block
of lines more; the vocabulary is loaded once for each Python worker.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mpi_match.ingest.batches.published_events import PublishedColumns
from mpi_match.ingest.columns.arrow_to_events import all_columns
from mpi_match.ingest.columns.python import needed_names
from mpi_match.ingest.files.blocks import LineBlock
from mpi_match.ingest.json.encode_events import EventsEncoder
from mpi_match.ingest.rows.judge import EventForm, row_text
from mpi_match.model import Json, ModelError
from mpi_match.storage import Reader
from mpi_match.table.schema import TABLE
from mpi_match.table.table import load_vocabulary
from mpi_match.table.vocabulary import Vocabulary
from spark_prep import SparkPrepError
from spark_prep.arrow_lines import joined_lines
from spark_prep.arrow_records import REJECT_ARROW, REJECT_SCHEMA, BadRow
from spark_prep.held_events import HeldEvents
from spark_prep.part_files import MANIFEST_ARROW, MANIFEST_SCHEMA, PartFiles, WrittenPart
from spark_prep.sources import PLACE, in_order, path_key
from spark_prep.splits import Split
from spark_prep.subscriptions import bad_row, contents
from spark_prep.tasks import in_task

EVENTS_PER_PART = 2**20
SORTED_AT_ONCE = 2**19
"""Rows that a task sorts in memory."""
LEAST_RUN = 2**16
"""Mean number of rows from which on runs are long enough to be parts."""
EVENTS_SCHEMA = f"{MANIFEST_SCHEMA}, bad bigint, lines bigint, {REJECT_SCHEMA}"
_ARROW = pa.schema([*MANIFEST_ARROW, pa.field("bad", pa.int64()), pa.field("lines", pa.int64()), *REJECT_ARROW])


class EventTarget(NamedTuple):
    """The table that events are compiled for, and their output.

    `digest` is that of `table` (`table_digest`), so that no task uses another table that has replaced it.  `opaque` are
    the columns of arrays and maps that cannot be attributes (`event_columns`).  `number` is the column that positions are
    from (`RowSource.number`): they are then the events' numbers.
    """

    form: EventForm
    table: Path
    digest: str
    files: PartFiles
    opaque: tuple[str, ...] = ()
    events_per_part: int = EVENTS_PER_PART
    number: str | None = None


class Place(NamedTuple):
    """The source of a row, see `sources`."""

    file: str
    block: int
    position: int


class WrittenEvents(NamedTuple):
    """The parts of an event table, in the order of their events, and the number of bad rows."""

    parts: list[WrittenPart]
    n_bad: int

    @classmethod
    def of(cls, found: DataFrame, number: str | None = None) -> WrittenEvents:
        """The parts that `write_splits` and `write_parts` have written.  Raises SparkPrepError if a `number` (`EventTarget`)
        is missing."""
        columns = [*WrittenPart._fields, "bad", *PLACE]
        rows = found.where("part is not null").select(columns).collect()
        rows.sort(key=lambda row: (path_key(row["file"]), row["block"], row["position"]))
        if number is not None:
            n_before = 0
            for row in rows:
                if row["position"] != n_before:
                    raise SparkPrepError(_misnumbered(number, n_before, row["position"]))
                n_before += row["rows"]
        n_columns = len(WrittenPart._fields)
        return cls([WrittenPart(*row[:n_columns]) for row in rows], sum(row["bad"] for row in rows))


def blocks(found: DataFrame) -> DataFrame:
    """The blocks of lines (`RowSource.blocks`) that `write_splits` has read."""
    return found.where("lines is not null").select("file", "block", F.lit(0).alias("first"), F.col("lines").alias("n"))


def write_splits(spark: SparkSession, tasks: list[list[Split]], lines: bool, target: EventTarget) -> DataFrame:
    """Write the parts of an event table from the splits of each task, of `lines` or of columns; rows of `EVENTS_SCHEMA`.

    Persist the result before use: computing it writes the parts.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = EventPartWriter(target)
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for split in tasks[task]:
                    yield from (writer.lines_of if lines else writer.columns_of)(split)
        yield from writer.end()

    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(in_task(run), EVENTS_SCHEMA)


def ordered(rows: DataFrame, partitions: int) -> DataFrame:
    """Rows in the order in which they were written, divided into partitions."""
    keys = in_order(rows.inputFiles())
    return rows.repartitionByRange(partitions, *keys).sortWithinPartitions(*keys)


class Numbering(NamedTuple):
    """The contents of a column of numbers.

    n          rows, also those without a number
    runs       runs of consecutive numbers, those of each partition apart
    is_dense   True if the least is 0, the greatest n - 1, and none is null
    """

    n: int
    runs: int
    is_dense: bool


def numbering(rows: DataFrame) -> Numbering:
    """Summarise the positions of rows, which a column of a DataFrame numbers."""
    found = rows.select("position").mapInArrow(
        in_task(_numbering_of), "n bigint, nulls bigint, runs bigint, least bigint, most bigint"
    )
    each = found.collect()
    n, nulls, runs = (sum(row[name] for row in each) for name in ("n", "nulls", "runs"))
    ends = min((row["least"] for row in each), default=0), max((row["most"] for row in each), default=-1)
    return Numbering(n, runs, not nulls and ends == (0, n - 1))


def _numbering_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs on executors."""
    n = nulls = runs = 0
    least, most, last = np.iinfo(np.int64).max, np.iinfo(np.int64).min, -2
    for batch in batches:
        n, nulls = n + len(batch), nulls + batch.column(0).null_count
        found = batch.column(0).drop_null().to_numpy()
        if len(found):
            runs += int(found[0] != last + 1) + int(np.count_nonzero(np.diff(found) != 1))
            least, most, last = min(least, int(found.min())), max(most, int(found.max())), int(found[-1])
    if n:
        yield pa.RecordBatch.from_pydict({"n": [n], "nulls": [nulls], "runs": [runs], "least": [least], "most": [most]})


def dealt_out(rows: DataFrame, n: int, partitions: int) -> DataFrame:
    """Rows with the positions 0 to n - 1, in partitions that are ranges of these, each in any order."""
    return rows.repartitionById(partitions, F.floor(F.col("position") * partitions / n).cast("int"))


def are_in_ranges(rows: DataFrame, cores: int) -> bool:
    """Tells whether the present partitions have work for all cores, without many small ranges of files."""
    n = rows.rdd.getNumPartitions()
    return n >= cores and len(rows.inputFiles()) <= 2 * n


class RowOrder(enum.Enum):
    """The order of the rows of a partition, as `write_parts` gets them."""

    RANGES = "ranges of files, one after the other"
    SORTED = "by file, block and position"
    RUNS = "runs of consecutive numbers"
    NONE = "none: a task sorts them by their positions"


def write_parts(rows: DataFrame, target: EventTarget, order: RowOrder) -> DataFrame:
    """As `write_splits`, from rows: those of `ordered`, or in partitions that are ranges of each file (see the module).

    Tasks raise ModelError for sorted numbers (`EventTarget.number`) that do not follow each other.
    """
    content = "value" if "value" in rows.columns else "row"

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = EventPartWriter(target)
        last: tuple[str, int] | None = None
        following: int | None = None
        for batch in filter(len, _by_position(batches) if order is RowOrder.NONE else batches):
            if target.number is not None and order is not RowOrder.RUNS:
                following = _checked_numbers(target.number, batch.column(3), following)
            pieces = {RowOrder.RANGES: _blocks_of, RowOrder.RUNS: _runs_of}.get(order, lambda batch: iter((batch,)))
            for piece in pieces(batch):
                block = piece.column(1)[0].as_py(), piece.column(2)[0].as_py()
                first = piece.column(3)[0].as_py()
                if (order is RowOrder.RANGES and block != last) or (order is RowOrder.RUNS and first != following):
                    yield from writer.end()
                last = block
                if order is RowOrder.RUNS:
                    following = first + len(piece)
                yield from writer.rows(piece)
        yield from writer.end()

    return rows.select(content, *PLACE).mapInArrow(in_task(run), EVENTS_SCHEMA)


def _runs_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows of a batch, divided into runs of consecutive positions."""
    start = 0
    for stop in (*(np.flatnonzero(np.diff(batch.column(3).to_numpy()) != 1) + 1).tolist(), len(batch)):
        yield batch.slice(start, stop - start)
        start = stop


def _by_position(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All rows of a task, sorted by their positions."""
    if held := list(batches):
        rows = pa.Table.from_batches(held)
        yield from rows.take(pc.sort_indices(rows.column("position"))).combine_chunks().to_batches()


def _checked_numbers(column: str, numbers: pa.Array, following: int | None) -> int:
    """The number after those of a batch; `following` is the one after the batch before it.  Raises ModelError."""
    if numbers.null_count:
        raise ModelError(f"the column {column!r} numbers the events, and is null in a row; every row needs its number")
    found = numbers.to_numpy()
    first = int(found[0]) if following is None else following
    wrong = np.flatnonzero(found != first + np.arange(len(found)))
    if first < 0:
        raise ModelError(f"the column {column!r} numbers the events, from 0 on; it holds {first}")
    if len(wrong):
        raise ModelError(_misnumbered(column, first + int(wrong[0]), int(found[wrong[0]])))
    return first + len(found)


def _misnumbered(column: str, expected: int, found: int) -> str:
    """The error message for a number, in ascending order, that differs from the expected one."""
    if found < expected:
        return f"the column {column!r} numbers the events, and {found} occurs twice; each number is of one row"
    return (
        f"the column {column!r} numbers the events, from 0 on without gaps, and {expected} is missing (next is {found}); "
        f"number the rows anew: F.row_number().over(Window.orderBy({column!r})) - 1"
    )


def _blocks_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows of a batch, divided by file and block."""
    file, block = batch.column(1), batch.column(2)
    if (file[0], block[0]) == (file[len(batch) - 1], block[len(batch) - 1]):
        yield batch
        return
    codes, start = file.dictionary_encode().indices.to_numpy(), 0
    for stop in (*(np.flatnonzero(np.diff(codes) | np.diff(block.to_numpy())) + 1).tolist(), len(batch)):
        yield batch.slice(start, stop - start)
        start = stop


def table_digest(table: Path) -> str:
    """Digest of a table file, by which a cached vocabulary is validated.  Raises StorageError."""
    with Reader(table, TABLE) as reader:
        return str(reader.attributes["digest"])


@lru_cache(maxsize=1)
def _vocabulary(table: str, digest: str) -> Vocabulary:
    if table_digest(Path(table)) != digest:
        raise RuntimeError(f"{table}: was replaced while events were compiled; compile them again")
    return load_vocabulary(table)


@lru_cache(maxsize=1)
def _encoder(table: str, digest: str) -> EventsEncoder:
    return EventsEncoder(_vocabulary(table, digest), threads=1)


class EventPartWriter:
    """Writes the events of a task; runs on executors.  Its methods yield records."""

    def __init__(self, target: EventTarget) -> None:
        table = str(target.table), target.digest
        self._target, self._vocabulary = target, _vocabulary(*table)
        self._needed = needed_names(self._vocabulary.attribute_names, target.form)
        self._held = HeldEvents(target.form, self._needed, target.opaque, lambda: _encoder(*table))
        self._first: Place | None = None

    def lines_of(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Add the lines of a split."""
        n_lines = 0
        for found in split.lines():
            for block in found.blocks:
                place = Place(split.path, split.start, n_lines + block.first_line)
                yield from self._make_room(place)
                bad = self._held.add_lines(block._replace(first_line=place.position))
                yield from _bad_records([BadRow(x.reason, split.path, split.start, x.line, x.row) for x in bad])
            n_lines += found.n_lines
        yield _records([{"file": split.path, "block": split.start, "lines": n_lines}])

    def columns_of(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Add the row groups of a split."""
        with PublishedColumns(Path(split.path), self._target.form, self._needed) as file:
            for row, batch in file.batches(split.pieces(file.n_pieces)):
                yield from self._make_room(Place(split.path, 0, row))
                for at, reason in self._held.add_columns(batch, file.columns):
                    bad = file.reject(batch, row, at, reason)
                    yield from _bad_records([BadRow(reason, split.path, 0, row + at, bad.row)])

    def frame(self, batch: pa.RecordBatch, first: int) -> Iterator[pa.RecordBatch]:
        """Add rows of a frame, behind `first` rows of the task."""
        yield from self._make_room(Place("", 0, first))
        for at, reason in self._held.add_columns(batch, all_columns(batch.schema)):
            (shown,) = batch.slice(at, 1).to_pylist()
            yield from _bad_records([BadRow(reason, "", 0, first + at, row_text(shown))])

    def rows(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Add rows of content, file, block and position."""
        at = 0
        while at < len(batch):
            yield from self._make_room(Place(*(batch.column(i)[at].as_py() for i in (1, 2, 3))))
            piece = batch.slice(at, self._target.events_per_part - len(self._held))
            at += len(piece)
            yield from _bad_records(list(self._add(piece)))

    def _add(self, batch: pa.RecordBatch) -> Iterator[BadRow]:
        content = batch.column(0)
        if pa.types.is_struct(content.type):
            rows = pa.RecordBatch.from_struct_array(content)
            for at, reason in self._held.add_columns(rows, all_columns(rows.schema)):
                yield bad_row(reason, row_text(content[at].as_py()), batch, at)
            return
        lines = joined_lines(content)
        if lines is None:
            each = dict(contents(batch))
            for at, reason in self._held.add_each(iter(each.items())):
                yield bad_row(reason, row_text(each[at]), batch, at)
            return
        for reject in self._held.add_lines(LineBlock(lines, "", 0)):
            yield bad_row(reject.reason, reject.row, batch, reject.line)

    def _make_room(self, place: Place) -> Iterator[pa.RecordBatch]:
        """Write the held events if they are enough for a part; the next events begin at `place`."""
        if len(self._held) >= self._target.events_per_part:
            yield from self.end()
        if not len(self._held):
            self._first = place

    def end(self) -> Iterator[pa.RecordBatch]:
        """Write the held events."""
        if len(self._held):
            assert self._first is not None
            n_bad = self._held.n_bad
            written = self._held.write(self._vocabulary, self._target.files)
            yield _records([{**written._asdict(), "bad": n_bad, **self._first._asdict()}])


def _bad_records(bad: list[BadRow]) -> Iterator[pa.RecordBatch]:
    if bad:
        yield _records([item._asdict() for item in bad])


def _records(rows: Iterable[Json]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=_ARROW)
