"""Changes to a change log: parsed in any order, applied in theirs.

Whether a change can be applied depends on all before it: an id must exist to be moved, and must not exist to be added.  So
Spark reads and parses in parallel, and sorts the parsed changes by the order in which they take effect; the driver then
applies them one after the other to a registry (`mpi_match.changes.registry`), and encodes the added filters.

    rows --parse--> records --in order--> driver: applied changes with their ids --> a `ChangeLog`; and refused ones

A record is an added filter, any other change, or a bad row: the columns of both in `arrow_records`, and before them

    stamp, kind, target, circle     of a change: before which event, `Change`, id or label, new area of a MOVE
    place                           0, 1, ... for the filters that one row adds
    rows                            1 on the first record of a row, else 0: their sum is the number of rows

The order is (stamp, file, block, position, place), which no partitioning changes.  Unlike for subscriptions, everything that
was parsed passes through the driver; a log is one file, and changes are few compared with the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mpi_match.arrays.csr import Array
from mpi_match.arrays.strings import Strings
from mpi_match.changes.log import ChangeLog
from mpi_match.changes.registry import Registry, Step
from mpi_match.ingest.rows.judge import ChangeRow, change_of_row, parse_subscription, row_text
from mpi_match.model import Area, Change, Filter, Json, ModelError
from mpi_match.table.conditions import decompose
from mpi_match.table.constraints import encode
from mpi_match.table.filters import FilterColumns
from mpi_match.table.subscriptions import SubscriptionsBuilder
from mpi_match.table.table import Table
from spark_prep import arrow_records
from spark_prep.arrow_records import BadRow, ConstraintColumns, areas_of, ids_of
from spark_prep.sources import PLACE, in_order
from spark_prep.subscriptions import bad_row, contents
from spark_prep.tasks import in_task

CHANGES_SCHEMA = (
    "stamp bigint, kind tinyint, target binary, circle array<double>, place int, rows int, "
    f"{arrow_records.FILTER_SCHEMA}, {arrow_records.REJECT_SCHEMA}"
)
_OF_CHANGES = (
    *(pa.field("stamp", pa.int64()), pa.field("kind", pa.int8()), pa.field("target", pa.binary())),
    *(pa.field("circle", pa.list_(pa.float64())), pa.field("place", pa.int32())),
    pa.field("rows", pa.int32()),
)
_ARROW = pa.schema([*_OF_CHANGES, *arrow_records.FILTER, *arrow_records.REJECT_ARROW])
_DONE = ("stamp", "kind", "target", "circle", "place", "interface", "id", "area", "constraints", *PLACE)


def parse(rows: DataFrame) -> DataFrame:
    """Records (`CHANGES_SCHEMA`) of rows of value, file, block and position (`sources`); the first of a row has its text."""
    return rows.select("value", *PLACE).mapInArrow(in_task(_parse_batches), CHANGES_SCHEMA)


def _parse_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs on executors."""
    for batch in batches:
        builder = SubscriptionsBuilder()
        came: list[dict[str, Any]] = []  # one entry for each filter of the builder
        others: list[dict[str, Any]] = []
        for at, content in contents(batch):
            try:
                change = change_of_row(parse_subscription(content))
            except ModelError as error:
                others.append({"rows": 1, **bad_row(str(error), row_text(content), batch, at)._asdict()})
                continue
            origin = bad_row("", row_text(content), batch, at)._asdict() | {"reason": None}
            first = {"rows": 1, "stamp": change.before_event, "kind": int(change.kind), "place": 0, **origin}
            if change.kind is not Change.ADD:
                circle = None if change.area is None else list(change.area)
                others.append({**first, "target": change.target.encode(), "circle": circle})
            for place, item in enumerate(each for whole in change.filters for each in decompose(whole)):
                builder.add(item)
                came.append({**first, "rows": int(place == 0), "place": place, "row": None if place else origin["row"]})
        if came:
            yield _with_filters(came, builder)
        if others:
            yield pa.RecordBatch.from_pylist(others, schema=_ARROW)


def _with_filters(came: list[Json], builder: SubscriptionsBuilder) -> pa.RecordBatch:
    """Records of added filters: the columns of their rows, and those of the filters themselves."""
    beside = pa.RecordBatch.from_pylist(came, schema=_ARROW)
    filters = arrow_records.filter_records(builder.build())
    columns = [(filters if field in arrow_records.FILTER else beside)[field.name] for field in _ARROW]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW)


class Numbered(NamedTuple):
    """A log, and (reason, file, block, position) of the rows that could not be applied."""

    log: ChangeLog
    refused: list[tuple[str, str, int, int]]


def number(parsed: DataFrame, table: Table) -> Numbered:
    """Apply the changes among records, in order.  Runs on the driver."""
    ordered = parsed.where(F.col("kind").isNotNull()).orderBy("stamp", *in_order(), "place").select(*_DONE)
    found = ordered.toArrow().combine_chunks()
    columns = {name: found[name].to_pylist() for name in _DONE if name != "constraints"}
    registry = Registry(table, reuse=False)
    steps: list[Step] = []
    stamps: list[int] = []
    taken: list[int] = []
    refused = []
    starts = [i for i, place in enumerate(columns["place"]) if place == 0]
    for start, stop in pairwise([*starts, len(found)]):
        row = _row(columns, start, stop)
        try:
            done = registry.apply(row)
        except ModelError as error:
            refused.append((str(error), *(columns[name][start] for name in PLACE)))
            continue
        steps += done
        stamps += [row.before_event] * len(done)
        if row.kind is Change.ADD:
            taken += range(start, stop)
    return Numbered(ChangeLog.of_steps(table, registry, stamps, steps, _added(found, taken)), refused)


def _row(columns: dict[str, list[Any]], start: int, stop: int) -> ChangeRow:
    """The change of some records, its filters without their constraints, which the registry does not use."""
    kind, stamp = Change(columns["kind"][start]), columns["stamp"][start]
    if kind is Change.ADD:
        return ChangeRow(kind, filters=tuple(_filter(columns, i) for i in range(start, stop)), before_event=stamp)
    circle = columns["circle"][start]
    return ChangeRow(kind, columns["target"][start].decode(), Area(*circle) if circle else None, before_event=stamp)


def _filter(columns: dict[str, list[Any]], i: int) -> Filter:
    area, id_ = columns["area"][i], columns["id"][i]
    return Filter(
        columns["interface"][i].decode(), (), Area(*area) if area else None, id_.decode() if id_ is not None else None
    )


def _added(found: pa.Table, taken: list[int]) -> Table:
    """The filters of the records `taken`, in that order, as by `Table.from_subscriptions_in_order`."""
    if not taken:
        return Table.from_filters(())
    rows = found.select(["id", "area", "constraints"]).take(pa.array(taken)).combine_chunks()
    lists, areas = rows["constraints"].combine_chunks(), rows["area"].combine_chunks()
    size: Array = np.diff(lists.offsets.to_numpy()).astype(np.int64)
    each = lists.flatten()
    fields = {name: each.field(name) for name in ("name", "kind", "numbers", "strings", "residues")}
    owner = pa.array(np.repeat(np.arange(len(taken)), size))
    vocabulary, constraints = encode(*ConstraintColumns.of([pa.RecordBatch.from_pydict({"filter": owner, **fields})]))
    columns = FilterColumns.of(size, np.zeros(len(taken), np.int64), areas_of(areas), *ids_of(rows["id"].combine_chunks()))
    return Table(vocabulary, constraints, columns, Strings.of((b"",)))


def with_refused(parsed: DataFrame, refused: list[tuple[str, str, int, int]]) -> DataFrame:
    """All bad rows (`REJECT_SCHEMA`): those that could not be parsed, and those that could not be applied."""
    bad = parsed.where(F.col("reason").isNotNull()).select(*BadRow._fields)
    if not refused:
        return bad
    places = parsed.sparkSession.createDataFrame(refused, "why string, file string, block bigint, position bigint")
    texts = parsed.where("rows = 1 and reason is null and kind is not null").select(*PLACE, "row")
    return bad.unionByName(places.join(texts, list(PLACE)).withColumnRenamed("why", "reason").select(*BadRow._fields))
