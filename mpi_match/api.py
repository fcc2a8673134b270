"""The Python interface for notebooks and programs: no MPI, no Spark, no files needed.

    >>> import mpi_match
    >>> table = mpi_match.make_table([
    ...     {"interface": "mobile-7", "constraints": [["temp", ">", 30]]},
    ...     {"interface": "mobile-8", "constraints": [["city", "prefix", "Mi"], ["temp", "<=", 31]]},
    ... ])
    >>> engine = mpi_match.open_engine("counting", table)
    >>> batch = mpi_match.make_batch(table, [{"temp": 31, "city": "Milan"}, {"temp": 31}, {"city": "Rome"}])
    >>> answers = engine.match(batch)
    >>> answers.labels(table.labels)
    [['mobile-7', 'mobile-8'], ['mobile-7'], []]
    >>> answers.ids, answers.offsets           # the same as arrays: event i has ids[offsets[i]:offsets[i + 1]]
    (array([0, 1, 0], dtype=uint8), array([0, 2, 3, 3]))

Subscriptions and events come as plain dicts (the rows of `mpi_match.ingest.rows.judge`), as checked objects (`make_filter`,
`make_event`), from files, and events also as JSON lines in bytes and as columns.  A table is built once and serves any
number of batches; a batch belongs to the table that it was made for.  An invalid row raises ModelError with its position, or
goes to a list of `Reject` when one is given.

For subscriptions that are added, moved and removed, `mpi_match.LiveMatcher` does all of this in one object.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from mpi_match.engines import Engine, open_engine
from mpi_match.events.batch import EventBatch
from mpi_match.events.events import Events
from mpi_match.ingest.columns.frames import (
    ArrowArray,
    ArrowStream,
    encode_arrow,
    encode_numbers,
    events_of_arrow,
    events_of_numbers,
    has_arrow,
    numbers_of,
    reader_of,
    reader_of_columns,
)
from mpi_match.ingest.columns.python import (
    Frame,
    NeededNames,
    columns_of_frame,
    needed_by,
    needed_names,
    rows_of,
    wanted_columns,
)
from mpi_match.ingest.files.blocks import LineBlock, read_blocks
from mpi_match.ingest.json.passed_rows import blocks_of_rows, blocks_of_text
from mpi_match.ingest.rows.judge import (
    EventForm,
    Reject,
    Rejects,
    advice_for,
    event_of_passed,
    names_of,
    row_text,
    subscription_filters,
)
from mpi_match.ingest.rows.row_files import are_columnar, event_files, row_files
from mpi_match.matches.matches import Matches
from mpi_match.model import Event, Filter, ModelError, describe, id_of_filter
from mpi_match.table.metadata import Metadata
from mpi_match.table.subscriptions import SubscriptionsBuilder
from mpi_match.table.table import Table
from mpi_match.table.vocabulary import Vocabulary
from mpi_match.verify.explain import Explainer, Explanation

Made = TypeVar("Made")
PathLike = str | os.PathLike[str]
Columns = Mapping[str, Any] | Frame | ArrowStream | ArrowArray
"""Events as a dict of columns of equal length, or as a data frame."""
Text = bytes | bytearray | memoryview
"""Events as JSON lines."""
Passed = PathLike | Columns | Text | Iterable[Mapping[str, Any] | Event | bytes | str]
"""Events in any form that `make_events` reads."""


def make_table(
    subscriptions: PathLike | Iterable[Mapping[str, object] | Filter],
    *,
    rejects: list[Reject] | None = None,
    metadata: Mapping[str, Mapping[str, object]] | None = None,
) -> Table:
    """Build a table in memory.

    `subscriptions`: rows such as `{"interface": "mobile-7", "constraints": [["temp", ">", 30]], "area": [9.2, 45.5, 1.0]}`,
    filters of `make_filter`, any mixture of them, or the path of a file or directory of JSON lines (`.gz` too).  Their order
    does not matter.
    `rejects`: bad rows are appended to it; without it the first one raises ModelError.  A missing file raises
    FileNotFoundError.
    `metadata`: by the ids of subscriptions, such as `{"r1": {"owner": "ops", "severity": 3}}`: what `matched` shows of them
    (`table.metadata`).  Raises ModelError for an id that no subscription has.

    >>> row = {"interface": "a", "filters": [{"constraints": [["x", "=", 1]]}, {"constraints": [["x", "exists"]]}]}
    >>> table = make_table([row])
    >>> table.n_filters, table.n_interfaces, [str(f) for f in table.iter_filters()]
    (2, 1, ['a: x = 1.0', 'a: x exists'])
    """
    if isinstance(subscriptions, (str, os.PathLike)):
        from mpi_match.ingest.json.subscription_scanner import read_subscriptions  # loads Numba

        path = Path(os.fsdecode(subscriptions))
        path.stat()  # raises FileNotFoundError
        read = read_subscriptions(row_files(path), _Refused("subscription") if rejects is None else rejects)
        return _with_metadata(Table.from_subscriptions(read.subscriptions), metadata, rejects)
    if isinstance(subscriptions, (Mapping, bytes)) or not isinstance(subscriptions, Iterable):
        found = f"found {describe(subscriptions)}; one row is a list of one"
        raise ModelError(f"subscriptions are a list of rows, or the path of a file, {found}")
    if has_arrow(subscriptions) or _columns_of(subscriptions) is not None:
        raise ModelError(
            f"subscriptions are a list of rows, or the path of a file, found {type(subscriptions).__name__}; a frame has "
            "rows too: to_dict('records') of pandas, to_dicts() of polars, to_pylist() of Arrow"
        )
    builder = SubscriptionsBuilder()
    for filters in _judged(subscriptions, _filters_of, "subscription", rejects):
        for item in filters or ():
            builder.add(item)
    return _with_metadata(Table.from_subscriptions(builder.build()), metadata, rejects)


def _with_metadata(table: Table, metadata: Mapping[str, Mapping[str, object]] | None, rejects: list[Reject] | None) -> Table:
    """The table with metadata of its ids; those of rejected rows are left out."""
    if isinstance(metadata, Mapping):
        by_id: dict[str, Mapping[str, object]] = {}
        for id_, row in metadata.items():
            if by_id.setdefault(id_of_filter(id_), row) is not row:  # an integer is its digits
                raise ModelError(f"metadata has the id {id_of_filter(id_)!r} twice, as an integer and as a text")
        metadata = by_id
    if metadata is None or (made := Metadata.of(metadata)) is None:
        return table
    there = {id_.decode() for id_ in table.filters.ids}
    if not rejects and (unknown := [id_ for id_ in metadata if id_ not in there]):
        raise ModelError(f"metadata has the id {unknown[0]!r}, which no subscription has")
    return replace(table, metadata=made.of_ids(there))


def load_table(path: PathLike) -> Table:
    """Load a table from HDF5: what `mpi-match compile subscriptions` or `Table.save` wrote.  Raises StorageError."""
    if not isinstance(path, (str, os.PathLike)):
        raise ModelError(f"a table is loaded from the path of its file, found {describe(path)}")
    return Table.load(Path(os.fsdecode(path)))


def make_events(
    events: Passed,
    *,
    location: str | tuple[str, str] | None = None,
    id: str | None = None,
    rejects: list[Reject] | None = None,
) -> Events:
    """Events as raw columns, not yet bound to a table.

    `events` in one of these forms:

        rows      any mappings (nested ones flatten to dotted names, None is a null), events of `make_event`, JSON texts
        bytes     JSON lines
        a path    of any file or directory that `mpi-match match` reads (`formats`)
        columns   a dict of columns of equal length, a structured array, a data frame of pandas or polars, or anything with
                  Arrow's C interface (see `ingest.columns.python`; NaN is a number; null, None and masked entries are
                  nulls; fields of structs and objects get dotted names)

    `location`: the two attributes that hold x and y, `("x", "y")` or `"x,y"`.  `id`: the attribute that holds the event's
    id.
    `rejects`: bad events are appended to it; without it the first one raises ModelError.  A bad event keeps its number and
    matches nothing.  A missing file raises FileNotFoundError.  Attributes and columns that cannot be read are left out
    (`Events.left_out`), and refused for a table that names one.

    >>> events = make_events({"temp": [31, 25.5, None], "city": ["Milan", "Rome", "Turin"]})
    >>> [events.event(i).attributes for i in range(len(events))]
    [{'temp': 31.0, 'city': 'Milan'}, {'temp': 25.5, 'city': 'Rome'}, {'temp': None, 'city': 'Turin'}]
    """
    form, bad = form_of(location, id), _Refused("event") if rejects is None else rejects
    if isinstance(events, (str, os.PathLike)):
        return _events_of_files(events, form, bad)
    columns = _columns_of(events)
    if columns is not None:
        found, n = wanted_columns(columns, form, None, _n_rows(events))
        chunk = numbers_of(found, n, form)
        if chunk is not None:
            return events_of_numbers(chunk, form)
        reader = reader_of_columns(found, n)
        if reader is not None:
            return events_of_arrow(reader, form, bad)
        events = rows_of(found, n)
    elif has_arrow(events):
        return events_of_arrow(reader_of(cast(ArrowStream | ArrowArray, events)), form, bad)
    few, blocks = _blocks_of(events)
    if blocks is None:
        return Events.of(_judged(few, partial(event_of_passed, form=form), "event", rejects))
    from mpi_match.ingest.json.join_events import JoinedEvents
    from mpi_match.ingest.json.line_columns import LineColumns  # loads Numba

    scanner, joined = LineColumns(form), JoinedEvents()
    for block in blocks:
        scanner.scan(block, bad, joined)
    return joined.take()


def make_batch(
    table: Table,
    events: Passed | Events,
    *,
    location: str | tuple[str, str] | None = None,
    id: str | None = None,
    rejects: list[Reject] | None = None,
) -> EventBatch:
    """Events encoded for `table`, ready for `Engine.match`; the parameters are those of `make_events`.

    Rows, text, files and columns are encoded in compiled code, by all threads.  Columns that no filter names are not read.
    For a table that asks for `*`, all strings of an event, or for one object of a list, columns are read as rows.

    >>> table = make_table([{"interface": "a", "constraints": [["x", ">", 0.5]], "area": [0, 0, 5]}])
    >>> batch = make_batch(table, {"x": [0.0, 1.0, 2.0], "lat": [3, 3, 4], "lon": [4, 4, 4]}, location=("lat", "lon"))
    >>> open_engine("counting", table).match(batch).labels(table.labels)
    [[], ['a'], []]
    """
    form, vocabulary = form_of(location, id), _checked(table).vocabulary
    if isinstance(events, Events):
        return events.encode(vocabulary)
    bad = _Refused("event") if rejects is None else rejects
    if isinstance(events, (str, os.PathLike)):
        return _batch_of_files(events, vocabulary, form, bad)
    if vocabulary.asks_of_rows:
        events = _as_rows(events, form)
    columns = _columns_of(events)
    if columns is not None:
        found, n = wanted_columns(columns, form, _needed(vocabulary, form), _n_rows(events))
        chunk = numbers_of(found, n, form)
        batch = None if chunk is None else encode_numbers(chunk, vocabulary, form)
        if batch is not None:
            return batch
        reader = reader_of_columns(found, n)
        if reader is not None:
            return encode_arrow(reader, vocabulary, form, bad)
        events = rows_of(found, n)
    elif has_arrow(events):
        return encode_arrow(reader_of(cast(ArrowStream | ArrowArray, events)), vocabulary, form, bad)
    few, blocks = _blocks_of(events)
    if blocks is None:
        judge = partial(event_of_passed, form=form, names=names_of(vocabulary, form))
        return Events.of(_judged(few, judge, "event", rejects)).encode(vocabulary)
    return _scanned(blocks, vocabulary, form, bad)


def _as_rows(events: Any, form: EventForm) -> Any:
    """Columns as rows with all attributes; events in another form unchanged."""
    columns = _columns_of(events)
    if columns is not None:
        return rows_of(*wanted_columns(columns, form, None, _n_rows(events)))
    if has_arrow(events):
        return chain.from_iterable(batch.to_pylist() for batch in reader_of(events))
    return events


_FEW_ROWS = 64
"""Number of rows up to which judging them one by one is faster than starting a scanner."""


def _blocks_of(events: object) -> tuple[list[object], Iterable[LineBlock] | None]:
    """Rows and text of a program as blocks of lines; a few rows unchanged.  Raises ModelError for other objects."""
    if isinstance(events, (bytes, bytearray, memoryview)):
        return [], blocks_of_text(events)
    if not isinstance(events, Iterable):
        raise ModelError(
            f"events are rows, columns, a frame, JSON lines as bytes, or the path of a file, found {describe(events)}"
        )
    rows = iter(events)
    few = list(islice(rows, _FEW_ROWS))
    return few, blocks_of_rows(chain(few, rows)) if len(few) == _FEW_ROWS else None


def _scanned(blocks: Iterable[LineBlock], vocabulary: Vocabulary, form: EventForm, bad: Rejects) -> EventBatch:
    from mpi_match.ingest.json.event_scanner import EventScanner  # loads Numba

    scanner = EventScanner(vocabulary, form, with_ids=False)
    return _joined([scanner.scan(block, bad).batch for block in blocks], vocabulary)


def _joined(batches: list[EventBatch], vocabulary: Vocabulary) -> EventBatch:
    return EventBatch.concat(batches) if len(batches) > 1 else batches[0] if batches else Events.of(()).encode(vocabulary)


def _batch_of_files(path: PathLike, vocabulary: Vocabulary, form: EventForm, bad: Rejects) -> EventBatch:
    """The events of files in any form that `mpi-match match` reads, as it reads them."""
    files = _files(path, form)
    if not are_columnar(files):
        return _scanned(read_blocks(files, form), vocabulary, form, bad)
    names, needed = [str(file.absolute()) for file in files], _needed(vocabulary, form)
    from mpi_match.ingest.batches.scan_columns import ColumnScanner  # loads Numba

    scanner = ColumnScanner(vocabulary, form, needed, names, with_ids=False)
    return _joined([scanned.batch for scanned in scanner.scan_files(bad)], vocabulary)


def _needed(vocabulary: Vocabulary, form: EventForm) -> NeededNames:
    return needed_by(vocabulary, form)


def _events_of_files(path: PathLike, form: EventForm, bad: Rejects) -> Events:
    from mpi_match.ingest.batches.published_events import read_events  # loads Numba

    return read_events(_files(path, form), form, needed_names((), form), bad)


def _files(path: PathLike, form: EventForm) -> list[Path]:
    found = Path(os.fsdecode(path))
    found.stat()  # raises FileNotFoundError
    return event_files(found, form)


def _columns_of(events: object) -> Mapping[Any, Any] | None:
    """Columns by name; None for objects with Arrow's interface, and for events in rows."""
    if isinstance(events, Mapping):
        return events
    if isinstance(events, np.ndarray) and events.dtype.names is not None:
        return {name: events[name] for name in events.dtype.names}
    return columns_of_frame(events) if isinstance(events, Frame) and not has_arrow(events) else None


def _n_rows(events: Any) -> int:
    """The number of rows of a frame, which may lack columns."""
    return 0 if isinstance(events, Mapping) else len(events)


def match(
    table: Table,
    events: Passed | Events | EventBatch,
    *,
    engine: str = "auto",
    options: Mapping[str, object] | None = None,
    filters: bool = False,
    location: str | tuple[str, str] | None = None,
) -> Matches:
    """Match events once: `open_engine`, `make_batch` and `Engine.match` in one call.

    Returns the matched interfaces of every event (with `filters`, the matched filters).  To match more than one batch, keep
    the engine: building it is most of the work.  Raises ModelError and EngineError.

    >>> table = make_table([{"interface": "hot", "constraints": [["temp", ">", 30]]}])
    >>> match(table, [{"temp": 31}, {"temp": 29}], engine="counting").labels(table.labels)
    [['hot'], []]
    """
    batch = events if isinstance(events, EventBatch) else make_batch(table, events, location=location)
    return open_engine(engine, table, options=options).match(batch, filters=filters)


def explain(
    table: Table | Explainer,
    event: Mapping[str, object] | Event | bytes | str,
    *,
    interface: str | None = None,
    filter: int | str | None = None,
    location: str | tuple[str, str] | None = None,
    id: str | None = None,
    most: int = 5,
) -> Explanation:
    """Explain the answer for one event, a row or its JSON: the filters that match, or the nearest ones and what they miss.

    `interface`: the label of the only interface to explain.  `filter`: the id, or the number, of the only filter to explain.
    `location` and `id` are those of `make_events`.  `most`: the number of filters, and of alternatives of a condition, that
    are shown.  The result is true if a filter matches, and its `str` is readable text.  It takes as long as to open the
    counting engine and to match; for many events pass an `Explainer(table)`.  The table of a `LiveMatcher` is
    `make_table(matcher.filters())`.  Raises ModelError for an interface or a filter that the table does not have.

    >>> table = make_table([{"interface": "soc", "constraints": [["image", "suffix i", ".exe"], ["port", ">", 1024]]}])
    >>> print(explain(table, {"image": "C:/CMD.EXE", "port": 22, "user": "ada"}))
    it does not match:
    filter 0 on soc: misses by 1 of 2 constraints
      `port` = 22, asked: > 1024
    attributes that no filter names: `user`
    """
    explainer = table if isinstance(table, Explainer) else Explainer(_checked(table))
    return explainer.explain(event, form_of(location, id), interface=interface, filter=filter, most=most)


class RowMatcher:
    """Matches one event at a time with the least latency: an object, or the bytes of its JSON, to labels.

    `engine` was opened for `table`.  `location` and `id` are those of `make_events`.  `match` of an event of some attributes
    takes about ten microseconds, where `make_batch` and `Engine.match` take hundreds.  Any number of threads may call it.
    Pickled or copied, it opens its engine again (see `Engine`).

    >>> table = make_table([{"interface": "hot", "constraints": [["temp", ">", 30]]}])
    >>> matcher = RowMatcher(table, open_engine("counting", table))
    >>> matcher.match(b'{"temp": 31}'), matcher.match({"temp": 29})
    (['hot'], [])
    """

    def __init__(
        self, table: Table, engine: Engine, *, location: str | tuple[str, str] | None = None, id: str | None = None
    ) -> None:
        from mpi_match.ingest.json.published_scanner import RowScanner  # loads Numba

        self._given = table, engine, location, id
        if not isinstance(engine, Engine):
            raise ModelError(f"an engine is one of open_engine, found {describe(engine)}")
        self._engine, self._scanner = engine, RowScanner(_checked(table).vocabulary, form_of(location, id))
        self._free = deque([self._scanner])  # a thread takes one and puts it back; the one that was used last is taken first
        self._labels = [label.decode() for label in table.labels]

    def match(self, row: Mapping[str, object] | bytes | str) -> list[str]:
        """Labels of the interfaces that the event must be delivered to, in the order of the table.

        Raises ModelError when the row is not an event, EngineError.
        """
        try:
            scanner = self._free.pop()
        except IndexError:
            scanner = self._scanner.another()
        try:
            found = self._engine.match(scanner.batch(row)).ids.tolist()
        except ModelError:
            self._free.append(scanner)
            raise
        self._free.append(scanner)
        return [self._labels[i] for i in found]

    def __reduce__(self) -> tuple[object, ...]:
        return _row_matcher, self._given


def _row_matcher(table: Table, engine: Engine, location: str | tuple[str, str] | None, id_: str | None) -> RowMatcher:
    """The `RowMatcher` that was pickled."""
    return RowMatcher(table, engine, location=location, id=id_)


def form_of(location: str | tuple[str, str] | None, id_: str | None) -> EventForm:
    """The form of events with this `location` and `id`, see `make_events`.  Raises ModelError."""
    if id_ is not None and not isinstance(id_, str):
        raise ModelError(f"id is the name of an attribute, found {describe(id_)}")
    if location is None or isinstance(location, str):
        return EventForm.of(location, id_)
    if not isinstance(location, (tuple, list)) or len(location) != 2 or not all(isinstance(each, str) for each in location):
        raise ModelError(f"location is the names of two attributes, such as ('x', 'y') or 'x,y', found {describe(location)}")
    return EventForm((location[0], location[1]), id_)


def _checked(table: Table) -> Table:
    if not isinstance(table, Table):
        raise ModelError(f"a table is one of make_table or load_table, found {describe(table)}")
    return table


def _filters_of(row: Mapping[str, object] | Filter) -> list[Filter]:
    return [row] if isinstance(row, Filter) else subscription_filters(row)


class _Refused:
    """Turns the first reject into an error, for callers that passed no list; `what` names the rows."""

    def __init__(self, what: str) -> None:
        self._what = what

    def append(self, reject: Reject) -> None:
        """Raises ModelError."""
        place, advice = (reject.place, advice_for(reject)) if reject.file else (f"{self._what} {reject.line}", "")
        raise ModelError(f"{place}: {reject.reason}{advice}")

    def extend(self, rejects: Iterable[Reject]) -> None:
        """Raises ModelError."""
        for reject in rejects:
            self.append(reject)


def _judged(
    rows: Iterable[object], convert: Callable[[Any], Made], what: str, rejects: list[Reject] | None
) -> Iterator[Made | None]:
    """Apply `convert` to every row.  Returns None for a bad row, see `make_table`."""
    bad = _Refused(what) if rejects is None else rejects
    for position, row in enumerate(rows):
        try:
            yield convert(row)
        except ModelError as error:
            bad.append(Reject(str(error), "", position, row_text(row)))
            yield None


__all__: Sequence[str] = (
    "RowMatcher",
    "explain",
    "load_table",
    "make_batch",
    "make_events",
    "make_table",
    "match",
    "open_engine",
)
