"""The table in a database: DuckDB, which counts satisfied constraints in SQL.

    attribute (event, name, code)          ┐ join on the name, the code   ──►  group by event and filter:  ──►  interfaces
    rule (name, lo, hi, filter, weight)    ┘ within the interval               the weights that it needs

This is the obvious query without a matcher: an interval of codes is a row (`!=` and `not in` are the intervals between their
operands), and `absent` is a row that spoils the sum.  Filters with areas are joined by these first, then with their rules.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from mpi_match.arrays.csr import Array, owners
from mpi_match.compute.circle import radius_scales
from mpi_match.compute.forks import renew_in_child
from mpi_match.engines.base import Engine, matching
from mpi_match.engines.keyed.index.filter_rows import (
    ABSENT,
    IN_LIST,
    OUT_OF_LIST,
    ROW_HI,
    ROW_KIND,
    ROW_LO,
    ROW_NAME,
    UNEQUAL,
    FilterRows,
    too_large,
)
from mpi_match.engines.sharing import Scratch, ScratchSets
from mpi_match.errors import EngineError
from mpi_match.events.batch import EventBatch
from mpi_match.lab.baselines.event_by_event import areas_of
from mpi_match.matches.matches import Matches
from mpi_match.table.kinds import KIND_SHIFT, OP_MASK
from mpi_match.table.table import Table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

try:
    from duckdb import Error as DatabaseError
    from duckdb import connect
except ImportError as error:
    raise EngineError(f"engine 'duckdb' needs the package duckdb ({error}): pip install 'mpi-match[bench]'") from error

QUERIED_AT_ONCE = 4096
"""Number of events in one query, which keeps a row for each pair of event and filter with a satisfied constraint."""
SPOILS = -(2**40)
"""Weight of an `absent` constraint whose name is present."""
_LOADED = """
create table filter as select * from filters where not has_area;
create table located as select * from filters where has_area;
create table rule as select rules.* from rules join filter using (filter) order by name, lo;
create table located_rule as select rules.* from rules join located using (filter) order by filter;
create macro square(a) as a * a;
"""
_BY_NAME = """
with hit as (
    select a.event, r.filter, sum(r.weight) as satisfied
    from attribute a join rule r on a.name = r.name and a.code between r.lo and r.hi
    group by a.event, r.filter
)
select distinct hit.event as event, f.{answer} as id
from hit join filter f using (filter) where f.need > 0 and hit.satisfied = f.need
union all
select distinct p.event as event, f.{answer} as id
from place p cross join filter f
where f.need = 0 and not exists (select 1 from hit where hit.event = p.event and hit.filter = f.filter)
"""
_BY_AREA = """
with near as (
    select p.event, f.*
    from place p join located f
    on square((p.x - f.x) * f.scale) + square((p.y - f.y) * f.scale) <= square(f.r * f.scale)
), hit as (
    select n.event, n.filter, sum(r.weight) as satisfied
    from near n join located_rule r using (filter)
    join attribute a on a.event = n.event and a.name = r.name and a.code between r.lo and r.hi
    group by n.event, n.filter
)
select distinct n.event as event, n.{answer} as id
from near n left join hit using (event, filter) where coalesce(hit.satisfied, 0) = n.need
"""
"""Filters without an area, and those with one; a filter that needs no weight matches unless a name spoils it."""

_LEFT: list[Any] = []
"""Databases that a forked child does not use and cannot close."""


class DuckDb(Engine):
    """The rules of one table in a database in memory."""

    name = "duckdb"

    def __init__(self, table: Table, device: int | None = None, threads: int | None = None, *, live: bool = False) -> None:
        self._table, self._n_threads = table, threads or len(os.sched_getaffinity(0))
        self.device = f"cpu, {self._n_threads} thread{'s' if self._n_threads > 1 else ''}"
        self._database = self._loaded()
        self._is_left, self._cursors = False, list[Any]()
        self._sharing = ScratchSets(self, DuckDb._connected)
        renew_in_child(self)

    def _loaded(self) -> DuckDBPyConnection:
        """A database of the table."""
        table, database = self._table, connect(config={"threads": self._n_threads})
        rows, (circle, circles) = FilterRows.of(table), areas_of(table)
        is_absent = rows.records[:, ROW_KIND] & OP_MASK == ABSENT
        filter_id = owners(rows.offsets)
        place = np.full((table.n_filters, 3), np.nan)
        if len(circle):
            place[circle >= 0] = circles[circle[circle >= 0]]
        _put(database, "rules", _rules(rows, filter_id))
        _put(
            database,
            "filters",
            {
                "filter": np.arange(table.n_filters, dtype=np.int64),
                "interface": table.filters.interface.astype(np.int64),
                "need": np.diff(rows.offsets) - np.bincount(filter_id[is_absent], minlength=table.n_filters),
                "has_area": circle >= 0 if len(circle) else np.zeros(table.n_filters, np.bool_),
                **dict(zip("xyr", np.ascontiguousarray(place.T), strict=True)),
                "scale": radius_scales(place[:, 2]),
            },
        )
        database.execute(_LOADED)
        n_located = len(table.filters.area)
        self._queries = [_BY_NAME] * (n_located < table.n_filters or not n_located) + [_BY_AREA] * (n_located > 0)
        for name in ("rules", "filters"):
            database.unregister(name)
        return database

    def _connected(self) -> _Connection:
        if self._is_left:
            self._database = self._loaded()
            self._is_left = False
        self._cursors.append(self._database.cursor())
        return _Connection(self._cursors[-1])

    def forked(self) -> None:
        """Make another database, because this one waits for threads of the parent."""
        _LEFT.append((self._database, self._cursors))
        self._is_left, self._cursors = True, []

    @classmethod
    def serves(cls, table: Table) -> str | None:
        return too_large(table)

    @property
    def nbytes(self) -> int:
        ((used,),) = self._database.cursor().execute("select sum(memory_usage_bytes) from duckdb_memory()").fetchall()
        return int(used)

    @matching
    def match(self, batch: EventBatch, scratch: _Connection, filters: bool) -> Matches:
        parts = (batch[at : at + QUERIED_AT_ONCE] for at in range(0, len(batch), QUERIED_AT_ONCE))
        with _interruptible():
            pieces = [self._found(part, filters, scratch.connection) for part in parts]
        n_ids = self._table.n_filters if filters else self._table.n_interfaces
        return Matches.concat(pieces) if pieces else Matches.of([], n_ids)

    def _found(self, events: EventBatch, filters: bool, connection: Any) -> Matches:
        shift, packed = self._table.vocabulary.shift, events.attributes.astype(np.int64)
        location = np.full((len(events), 2), np.nan) if events.location is None else events.location
        attribute = {"event": owners(events.bounds), "name": packed >> shift, "code": packed & ((1 << shift) - 1)}
        x, y = (np.ascontiguousarray(each) for each in location.T)
        _put(connection, "attribute", attribute)
        _put(connection, "place", {"event": np.arange(len(events)), "x": x, "y": y})
        answer = "filter" if filters else "interface"
        found = [connection.execute(query.format(answer=answer)).fetchnumpy() for query in self._queries]
        event, id_ = (np.concatenate([np.asarray(each[key], np.int64) for each in found]) for key in ("event", "id"))
        n_ids = self._table.n_filters if filters else self._table.n_interfaces
        return Matches.from_pairs(event, id_, len(events), n_ids)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Within the block, errors by which DuckDB replaces a KeyboardInterrupt are turned back into one."""
    try:
        yield
    except (RuntimeError, DatabaseError) as error:
        if "Query interrupted" in str(error) or "KeyboardInterrupt" in str(error):
            raise KeyboardInterrupt from error
        raise


class _Connection(Scratch):
    """A connection to the database, which sees only the events that it registers."""

    def __init__(self, connection: object) -> None:
        super().__init__()
        self.connection = connection


def _put(connection: DuckDBPyConnection, name: str, columns: dict[str, Array]) -> None:
    connection.register(name, columns)


def _rules(rows: FilterRows, filter_id: Array) -> dict[str, Array]:
    """The columns of `rule`: intervals of codes, i64, and the weight of each for its filter."""
    name, lo, hi, kind = (rows.records[:, k].astype(np.int64) for k in (ROW_NAME, ROW_LO, ROW_HI, ROW_KIND))
    form, type_ = kind & OP_MASK, kind >> KIND_SHIFT
    plain = np.flatnonzero(~np.isin(form, (UNEQUAL, IN_LIST, OUT_OF_LIST, ABSENT)))
    pieces = [(plain, lo[plain], hi[plain], 1)]
    absent = np.flatnonzero(form == ABSENT)
    pieces.append((absent, np.zeros(len(absent), np.int64), np.full(len(absent), 2**32), SPOILS))
    unequal = np.flatnonzero(form == UNEQUAL)
    first, last = rows.segments[type_[unequal], :, name[unequal]].T
    pieces.append((unequal, first, np.minimum(lo[unequal] - 1, last), 1))
    pieces.append((unequal, np.maximum(lo[unequal] + 1, first), last, 1))
    for row in np.flatnonzero(np.isin(form, (IN_LIST, OUT_OF_LIST))).tolist():
        codes = rows.set_codes[rows.set_offsets[lo[row]] : rows.set_offsets[lo[row] + 1]].astype(np.int64)
        if form[row] == IN_LIST:
            pieces.append((np.full(len(codes), row), codes, codes, 1))
            continue
        start, end = rows.segments[type_[row], :, name[row]]
        low, high = np.maximum(np.append(start, codes + 1), start), np.minimum(np.append(codes - 1, end), end)
        pieces.append((np.full(len(low), row), low, high, 1))
    of_row = np.concatenate([piece[0] for piece in pieces])
    return {
        "name": name[of_row],
        "lo": np.concatenate([piece[1] for piece in pieces]),
        "hi": np.concatenate([piece[2] for piece in pieces]),
        "filter": filter_id[of_row],
        "weight": np.concatenate([np.full(len(piece[0]), piece[3], np.int64) for piece in pieces]),
    }
