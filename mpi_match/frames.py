"""Frames in, frames out: `matched` answers a data frame with a data frame of the same library.

    >>> import pandas, mpi_match
    >>> table = mpi_match.make_table([
    ...     {"interface": "hot", "constraints": [["temp", ">", 30]]},
    ...     {"interface": "milan", "constraints": [["city", "=", "Milan"]]},
    ... ])
    >>> frame = pandas.DataFrame({"uuid": ["e1", "e2", "e3"], "temp": [31, 25, 35], "city": ["Milan", "Rome", "Turin"]})
    >>> found, rejects = mpi_match.matched(frame, table, id="uuid")
    >>> found
      uuid interface
    0   e1       hot
    1   e1     milan
    2   e3       hot

Answers are built as Arrow columns, labels as indices of a dictionary; no row becomes a Python object.
Needs pyarrow.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from mpi_match.api import PathLike, form_of, load_table, make_batch
from mpi_match.arrays.csr import Array
from mpi_match.arrays.strings import Strings
from mpi_match.changes.live_table import LiveTable
from mpi_match.engines import Engine, open_engine
from mpi_match.ingest.columns.frames import ArrowArray, ArrowStream, reader_of
from mpi_match.ingest.columns.python import needed_by
from mpi_match.ingest.rows.judge import EventForm, Reject
from mpi_match.live import LiveMatcher
from mpi_match.matches.matches import Matches
from mpi_match.model import EVERY_STRING, ModelError, describe
from mpi_match.table.metadata import Metadata
from mpi_match.table.table import Table
from mpi_match.table.vocabulary import Vocabulary

if TYPE_CHECKING:
    import polars
    import pyarrow as pa

Answered = PathLike | Table | Engine | LiveMatcher
"""A table, the path of one, an engine that `open_engine` opened for one, or a matcher whose table changes."""
HOW = ("pairs", "lists", "semi", "anti")
"""The forms of answers, see `matched`."""
_ROW, _REASON = "row", "reason"
"""Names of the columns of row numbers and of reasons."""
MOST_HELD = 2
"""Most engines that a process keeps, for tables that were passed as a path or a table."""


class MatchedFrames(NamedTuple):
    """Two frames of the library of the events: the answers, and the events that were set aside.

    frame     the answers, see `matched`
    rejects   `row`, the id column if there is one, and `reason`, for each event that is none
    """

    frame: Any
    rejects: Any

    def _repr_html_(self) -> str:
        """The answers, and the rejects if any, for notebooks."""
        parts = [_html(self.frame)]
        if n := _length(self.rejects):
            parts += [f"<p>set aside: {n:,}</p>", _html(self.rejects)]
        return "\n".join(parts)


def matched(
    frame: object,
    table: Answered,
    *,
    location: str | tuple[str, str] | None = None,
    id: str | None = None,
    filters: bool = False,
    how: str = "pairs",
) -> MatchedFrames:
    """Match the rows of a data frame; returns the answers and the rejected rows, as frames of the same library.

    `frame`: of pandas or polars (a lazy one gives lazy ones), an Arrow table, record batch or reader of them, or anything
    else with Arrow's C stream (all giving tables), or a relation of DuckDB.  Its columns are events as in `make_events`;
    only columns that filters, `location` or `id` name are read.  `table`: an engine of `open_engine`, a table, or the path
    of one.  The engines of the last two tables are kept.  With a `LiveMatcher` all rows see the same filters, and its
    updates wait; `filter` numbers them while they exist.  `location`: the columns of x and y.  `id`: the column to
    join by, an attribute as well if filters name it; without it answers have the number of the row, `row`, counted from 0.
    `how` is one of

        pairs   a row for each event and matched interface: the id or row, `interface`; with `filters` a row for each matched
                filter: the id or row, `interface`, `filter` (its number in the table), `filter_id` (its subscriber's), and
                the columns of the table's metadata
        lists   a row for each event: the id or row, `interfaces`; with `filters`, the list `filters` too, whose entries
                have their interface at the same place of `interfaces`; null for a rejected event
        semi    the frame's own rows that match something
        anti    those that match nothing; a rejected row is in neither

    Raises ModelError for another frame, `how`, or column, a null in the id column, and if no column is named by a filter;
    StorageError, EngineError.
    """
    check_how(how, filters)
    asked = _Asked(_source_of(frame), form_of(location, id), how, filters)
    if isinstance(table, LiveMatcher):
        return table.reading(lambda engine, live: _matched(asked, OpenedTable(live.table, engine), _LiveNames(live)))
    found = opened(table)
    return _matched(asked, found, found.table)


class _Asked(NamedTuple):
    """The frame and the arguments of `matched`."""

    source: _Source
    form: EventForm
    how: str
    filters: bool


def _matched(asked: _Asked, found: OpenedTable, names: AnswerNames) -> MatchedFrames:
    source, form, how, filters = asked
    id = form.id
    needed = needed_columns(source.names, found.table.vocabulary, form)
    if filters and how == "pairs" and names.metadata is not None and id in names.metadata.types:
        raise ModelError(f"the metadata of the table have a column {id!r} too; rename that of the frame")
    if id is not None:
        _check_id(source, id, how)
    source = source.with_columns(source.names if how in ("semi", "anti") else [*needed, *([id] if id is not None else [])])
    if id is not None and how in ("pairs", "lists"):
        _check_nulls(source.nulls(id), id)
    rejects: list[Reject] = []
    batch = make_batch(found.table, source.events(needed), location=form.location, rejects=rejects)
    answers = found.engine.match(batch, filters=filters)
    rejected = np.array([each.line for each in rejects], np.int64)
    if how in ("semi", "anti"):
        mask = is_kept(answers, rejected, how)
        made = source.kept(mask)
    elif how == "pairs":
        made = source.made(pair_columns(answers, names, filters=filters), id, answers.event_of())
    else:
        made = source.made(list_columns(answers, names, rejected, filters=filters), id, None)
    return MatchedFrames(made, source.made(_rejects(rejects, with_row=id is not None), id, rejected))


# Checks


def check_how(how: object, filters: bool) -> None:
    """Raise ModelError for a form of answers that `HOW` lacks."""
    if how not in HOW:
        raise ModelError(f"how is one of {', '.join(map(repr, HOW))}, found {describe(how)}")
    if filters and how in ("semi", "anti"):
        raise ModelError(f"filters=True is for how='pairs' and how='lists'; how={how!r} gives rows of the frame")


_OURS = frozenset((_ROW, _REASON, "interface", "interfaces", "filter", "filters", "filter_id"))


def check_key(id_: str, names: Sequence[Hashable]) -> None:
    """Raise ModelError if the column is missing or duplicate, or if the answers have a column of its name."""
    n = list(names).count(id_)
    if n == 0:
        raise ModelError(f"there is no column {id_!r}; there are: {_listed(names)}")
    if n > 1:
        raise ModelError(f"two columns have the name {id_!r}")
    if id_ in _OURS:
        raise ModelError(f"answers have a column {id_!r} of their own; rename the column of the id")


def _check_id(source: _Source, id_: str, how: str) -> None:
    if id_ not in source.names and id_ in getattr(getattr(source.frame, "index", None), "names", ()):
        raise ModelError(f"{id_!r} is the index of the frame, and no column; frame.reset_index() makes one of it")
    if how in ("pairs", "lists"):
        check_key(id_, source.names)
    elif id_ not in source.names:
        raise ModelError(f"there is no column {id_!r}; there are: {_listed(source.names)}")


def _check_nulls(nulls: Array, id_: str) -> None:
    if len(found := np.flatnonzero(nulls)):
        more = f" and {len(found) - 1:,} more" if len(found) > 1 else ""
        raise ModelError(
            f"column {id_!r} of the ids is null in row {found[0]}{more}, which could not be joined by it; fill it, or leave "
            "id out to join by row numbers"
        )


def needed_columns(names: Sequence[Hashable], vocabulary: Vocabulary, form: EventForm) -> list[str]:
    """The columns that filters and the location name, in their order; `v` is needed for `v.x`, and every column for `*`.

    Raises ModelError if filters name columns and the frame has none of them, for a duplicate column, and for a missing
    column of the location.
    """
    asked = needed_by(vocabulary, form._replace(id=None))
    holders = {".".join(parts[:n]) for name in asked if (parts := name.split(".")) for n in range(1, len(parts) + 1)}
    every = EVERY_STRING in vocabulary.attribute_names
    found = [name for name in names if isinstance(name, str) and (every or name in holders)]
    for name in found:
        if found.count(name) > 1:
            raise ModelError(f"two columns have the name {name!r}")
    for name in form.location or ():
        if not any(name == each or name.startswith(f"{each}.") for each in found):
            raise ModelError(f"there is no column {name!r}; there are: {_listed(names)}")
    if asked and not found:
        raise ModelError(
            f"no filter names a column of the frame; filters name {_listed(sorted(asked))}; there are: {_listed(names)}"
        )
    return found


_MOST_LISTED = 20


def _listed(names: Iterable[Hashable]) -> str:
    shown = list(map(repr, names)) or ["none"]
    return ", ".join(shown[:_MOST_LISTED]) + (f" and {len(shown) - _MOST_LISTED} more" if len(shown) > _MOST_LISTED else "")


# Engines


class OpenedTable(NamedTuple):
    """An engine and its table."""

    table: Table
    engine: Engine


class HeldEngines:
    """The engines of the tables used last, at most `MOST_HELD`, each opened once; any thread may ask."""

    def __init__(self) -> None:
        self._held: OrderedDict[Hashable, OpenedTable] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, load: Callable[[], Table], name: str = "auto", **how: Any) -> OpenedTable:
        """The engine of `key`, or one opened for the table that `load` returns; `name` and `how` as in `open_engine`."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key]
            table = load()
            while len(self._held) >= MOST_HELD:  # before the next needs memory
                self._held.popitem(last=False)
            found = self._held[key] = OpenedTable(table, open_engine(name, table, **how))
            return found


HELD = HeldEngines()


def opened(table: Answered) -> OpenedTable:
    """The engine of a table, see `matched`.  Raises ModelError, StorageError, EngineError."""
    if isinstance(table, Engine):
        if table._live:
            raise ModelError(
                "the engine's table may have changed since it was opened; open one without live=True, or pass a LiveMatcher"
            )
        return OpenedTable(table._table, table)
    if isinstance(table, Table):
        return HELD.get(id(table), lambda: table)  # the engine has the table, whose id is not given to another
    if isinstance(table, (str, os.PathLike)):
        path = Path(os.fsdecode(table)).absolute()
        return HELD.get(version_of(path), lambda: load_table(path))
    raise ModelError(
        f"a table is one of make_table or load_table, its path, an engine, or a LiveMatcher, found {describe(table)}"
    )


def version_of(path: Path) -> Hashable:
    """A key that changes when the file is written again; a missing file has one too."""
    try:
        stat = path.stat()
    except OSError:
        return str(path), 0, 0, 0
    return str(path), stat.st_size, stat.st_mtime_ns, stat.st_ino


# Answers as columns


class AnswerNames(Protocol):
    """The names of the interfaces and filters of answers: those of a `Table`, or of one that changes."""

    @property
    def labels(self) -> Strings:
        """The labels of interfaces."""
        ...

    def interfaces(self, filters: Array) -> Array:
        """The interfaces of some filters."""
        ...

    @property
    def metadata(self) -> Metadata | None:
        """The metadata of subscribers' ids."""
        ...

    def filter_names(self, filters: Array) -> Sequence[str | None]:
        """The subscribers' ids of some filters."""
        ...


class _LiveNames:
    """The names of a changing table, during a period without changes."""

    def __init__(self, live: LiveTable) -> None:
        self._registry, self.metadata = live.registry, live.table.metadata

    @property
    def labels(self) -> Strings:
        return Strings.of(label.encode() for label in self._registry.labels)

    def interfaces(self, filters: Array) -> Array:
        return np.array([self._registry.interface_of(i) for i in filters.tolist()], np.int64)

    def filter_names(self, filters: Array) -> list[str | None]:
        return [self._registry.filter_name(i) for i in filters.tolist()]


def labels_of(table: AnswerNames, ids: Array) -> pa.DictionaryArray:
    """The labels of some interfaces, as a dictionary of those that occur, if they are few."""
    import pyarrow as pa

    labels = table.labels
    if len(ids) < len(labels):
        used, ids = np.unique(ids, return_inverse=True)
        labels = labels.take(used)
    values = pa.array([label.decode() for label in labels], pa.string())
    index = np.ascontiguousarray(ids).astype(np.int32, copy=False)  # polars and DuckDB take few other types of an index
    return pa.DictionaryArray.from_arrays(pa.array(index), values)


def pair_columns(answers: Matches, table: AnswerNames, *, filters: bool) -> pa.Table:
    """`interface`, and with `filters` `filter`, `filter_id` and metadata, of every pair."""
    import pyarrow as pa

    if not filters:
        return pa.table({"interface": labels_of(table, answers.ids)})
    columns = {
        "interface": labels_of(table, table.interfaces(answers.ids)),
        "filter": pa.array(answers.ids.astype(np.int64)),
    }
    used, index = np.unique(answers.ids, return_inverse=True)
    names = table.filter_names(used)
    of_filters = pa.table({"filter_id": pa.array(names, pa.string())})
    if table.metadata is not None:
        found = table.metadata.columns(names)
        for field in found.schema:
            of_filters = of_filters.append_column(field, found.column(field.name))
    return pa.table(columns | dict(zip(of_filters.column_names, of_filters.take(pa.array(index)).columns, strict=True)))


def list_columns(answers: Matches, table: AnswerNames, rejected: Array, *, filters: bool) -> pa.Table:
    """`interfaces`, and with `filters` `filters`, of every event; null for the rejected ones."""
    import pyarrow as pa

    mask = np.zeros(len(answers), bool)
    mask[rejected] = True
    kind, dtype = (pa.ListArray, np.int32) if answers.n_matches < 2**31 else (pa.LargeListArray, np.int64)
    offsets, nulls = pa.array(answers.offsets.astype(dtype)), pa.array(mask)
    interfaces = table.interfaces(answers.ids) if filters else answers.ids
    columns = {"interfaces": kind.from_arrays(offsets, labels_of(table, interfaces).dictionary_decode(), mask=nulls)}
    if filters:
        columns["filters"] = kind.from_arrays(offsets, pa.array(answers.ids.astype(np.int64)), mask=nulls)
    return pa.table(columns)


def is_kept(answers: Matches, rejected: Array, how: str) -> Array:
    """bool[n]: the events that match something (`semi`), or nothing (`anti`)."""
    mask: Array = (answers.counts > 0) == (how == "semi")
    mask[rejected] = False
    return mask


def _rejects(rejects: list[Reject], *, with_row: bool) -> pa.Table:
    import pyarrow as pa

    columns = {_ROW: pa.array([each.line for each in rejects], pa.int64())} if with_row else {}
    return pa.table({**columns, _REASON: pa.array([each.reason for each in rejects], pa.string())})


# Libraries


class _Source:
    """The events of an Arrow table; subclasses are those of other libraries."""

    def __init__(self, frame: Any) -> None:
        self.frame = frame

    @property
    def names(self) -> list[str]:
        return list(self.frame.column_names)

    @property
    def n(self) -> int:
        return int(self.frame.num_rows)

    def with_columns(self, names: Sequence[str]) -> _Source:
        """Some of the columns, in memory."""
        if len(names) == len(self.names):
            return self
        wanted = frozenset(names)
        places = [i for i, name in enumerate(self.names) if name in wanted]
        return type(self)(self.frame.select(places))

    def events(self, names: list[str]) -> Any:
        """Columns for `make_batch`; without any, a single column of nulls that has the number of rows."""
        import pyarrow as pa

        return self.frame.select(names) if names else pa.table({"": pa.nulls(self.n)})

    def nulls(self, name: str) -> Array:
        """bool[n]: marks the nulls of a column."""
        found: Array = np.asarray(self.frame.column(name).is_null())
        return found

    def kept(self, mask: Array) -> object:
        """The rows of a mask."""
        import pyarrow as pa

        try:
            return self.frame.filter(pa.array(mask))
        except pa.ArrowNotImplementedError:
            rows = np.flatnonzero(mask)
            return pa.Table.from_arrays([_taken(each, rows) for each in self.frame.columns], schema=self.frame.schema)

    def made(self, columns: pa.Table, key: str | None, rows: Array | None) -> object:
        """A frame of columns, behind the key or the numbers of these rows (None: all rows)."""
        import pyarrow as pa

        if key is None:
            return columns.add_column(0, _ROW, pa.array(np.arange(self.n) if rows is None else rows))
        values = self.frame.column(key)
        return columns.add_column(0, key, values if rows is None else _taken(values, rows))


def _taken(column: pa.ChunkedArray, rows: Array) -> pa.ChunkedArray:
    """The rows of a column.  Raises ModelError if pyarrow cannot take rows of its type."""
    import pyarrow as pa

    from mpi_match.ingest.columns.plain_arrow import without_views

    try:
        return column.take(pa.array(rows))
    except pa.ArrowNotImplementedError as error:
        plain = without_views(column.type)
        if plain == column.type:
            raise ModelError(f"pyarrow takes no rows of a column of type {column.type}; cast it") from error
        return column.cast(plain).take(pa.array(rows)).cast(column.type)


class _Pandas(_Source):
    @property
    def names(self) -> list[str]:
        return list(self.frame.columns)

    @property
    def n(self) -> int:
        return len(self.frame)

    def with_columns(self, names: Sequence[str]) -> _Source:
        return self

    def events(self, names: list[str]) -> Any:
        return {name: self.frame[name] for name in names} if names else self.frame[names]  # not a copy of the columns

    def nulls(self, name: str) -> Array:
        return self.frame[name].isna().to_numpy(bool)  # type: ignore[no-any-return]

    def kept(self, mask: Array) -> object:
        return self.frame[mask]

    def made(self, columns: pa.Table, key: str | None, rows: Array | None) -> object:
        made = columns.to_pandas()
        if key is None:
            made.insert(0, _ROW, np.arange(self.n) if rows is None else rows)
        else:
            values = self.frame[key] if rows is None else self.frame[key].take(rows)
            made.insert(0, key, values.array)
        return made


class _Polars(_Source):
    @property
    def names(self) -> list[str]:
        return list(self.frame.columns)

    @property
    def n(self) -> int:
        return int(self.frame.height)

    def events(self, names: list[str]) -> Any:
        return self.frame.select(names) if names else super().events(names)

    def with_columns(self, names: Sequence[str]) -> _Source:
        if len(names) == len(self.names) or not names:
            return self
        return type(self)(self.frame.select([name for name in self.names if name in frozenset(names)]))

    def nulls(self, name: str) -> Array:
        return self.frame.get_column(name).is_null().to_numpy()  # type: ignore[no-any-return]

    def kept(self, mask: Array) -> polars.DataFrame | polars.LazyFrame:
        import polars

        kept: polars.DataFrame = self.frame.filter(polars.Series(mask))
        return kept

    def made(self, columns: pa.Table, key: str | None, rows: Array | None) -> polars.DataFrame | polars.LazyFrame:
        import polars

        made = polars.from_arrow(columns)
        assert isinstance(made, polars.DataFrame)
        if key is None:
            return made.insert_column(0, polars.Series(_ROW, np.arange(self.n) if rows is None else rows))
        values = self.frame.get_column(key)
        return made.insert_column(0, values if rows is None else values.gather(rows))


class _LazyPolars(_Source):
    """Columns are chosen in the query; only the chosen ones are computed."""

    @property
    def names(self) -> list[str]:
        return list(self.frame.collect_schema().names())

    def with_columns(self, names: Sequence[str]) -> _Source:
        there = self.names
        chosen = [name for name in there if name in frozenset(names)] or there[:1]
        return _CollectedPolars(self.frame.select(chosen).collect())


class _CollectedPolars(_Polars):
    """A lazy frame that was computed; its results are lazy again."""

    def kept(self, mask: Array) -> polars.DataFrame | polars.LazyFrame:
        return super().kept(mask).lazy()

    def made(self, columns: pa.Table, key: str | None, rows: Array | None) -> polars.DataFrame | polars.LazyFrame:
        return super().made(columns, key, rows).lazy()


class _Stream(_Source):
    """An object with Arrow's C stream or array: it is read once, batch by batch, with the chosen columns."""

    def __init__(self, frame: Any) -> None:
        self.frame = frame if hasattr(frame, "read_next_batch") else reader_of(frame)

    @property
    def names(self) -> list[str]:
        return list(self.frame.schema.names)

    def with_columns(self, names: Sequence[str]) -> _Source:
        import pyarrow as pa

        wanted = frozenset(names)
        places = [i for i, name in enumerate(self.names) if name in wanted] or ([0] if self.names else [])
        schema = pa.schema([self.frame.schema.field(i) for i in places])
        batches = [batch.select(places) for batch in self.frame]
        return _Source(pa.Table.from_batches(batches, schema))


class _DuckDB(_Source):
    @property
    def names(self) -> list[str]:
        return list(self.frame.columns)

    def with_columns(self, names: Sequence[str]) -> _Source:
        there = self.names
        chosen = [name for name in there if name in frozenset(names)] or there[:1]
        for name in chosen:
            if len(same := [each for each in there if each.lower() == name.lower()]) > 1:
                raise ModelError(f"DuckDB ignores case and finds {name!r} in several columns: {_listed(same)}; rename them")
        quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in chosen)
        return _ReadDuckDB(reader_of(self.frame.project(quoted)).read_all(), self.frame)


class _ReadDuckDB(_Source):
    """A relation that was computed; its results are relations of the same connection."""

    def __init__(self, frame: Any, relation: Any) -> None:
        super().__init__(frame)
        self._relation = relation

    def kept(self, mask: Array) -> object:
        return self._related(super().kept(mask))

    def made(self, columns: pa.Table, key: str | None, rows: Array | None) -> object:
        return self._related(super().made(columns, key, rows))

    def _related(self, mpi_match_found: pa.Table) -> object:
        """DuckDB finds the argument by its name, in the connection of the relation."""
        return self._relation.query("mpi_match_events", "select * from mpi_match_found")


_LIBRARIES = {
    ("pandas", "DataFrame"): _Pandas,
    ("polars", "DataFrame"): _Polars,
    ("polars", "LazyFrame"): _LazyPolars,
    ("pyarrow", "Table"): _Source,
    ("duckdb", "DuckDBPyRelation"): _DuckDB,
    ("_duckdb", "DuckDBPyRelation"): _DuckDB,
}


def _source_of(frame: object) -> _Source:
    if find_spec("pyarrow") is None:
        raise ModelError("matched needs pyarrow; install it, or mpi-match[arrow]")
    kinds = [(each.__module__.partition(".")[0], each.__name__) for each in type(frame).__mro__]
    for kind in kinds:
        if kind in _LIBRARIES:
            return _LIBRARIES[kind](frame)
    if ("pyspark", "DataFrame") in kinds:
        raise ModelError("a DataFrame of Spark is matched by spark_prep.matched, where it is")
    if isinstance(frame, (ArrowStream, ArrowArray)) and ("pandas", "Series") not in kinds:
        return _Stream(frame)
    raise ModelError(
        f"a frame is one of pandas, polars, Arrow or DuckDB, found {type(frame).__name__}; for rows, columns and files "
        "there is mpi_match.match"
    )


def _length(frame: Any) -> int:
    """The number of rows of a frame of any supported library; 0 for a lazy frame, which has none yet."""
    try:
        return len(frame)
    except TypeError:
        return 0


def _html(frame: object) -> str:
    from html import escape

    found = getattr(frame, "_repr_html_", None)
    if found is not None and (text := found()) is not None:
        return str(text)
    return f"<pre>{escape(str(frame))}</pre>"
