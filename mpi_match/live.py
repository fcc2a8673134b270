"""A matcher in this process with subscriptions that can be added, moved and removed.

    >>> from mpi_match import LiveMatcher
    >>> matcher = LiveMatcher([
    ...     {"interface": "taxi", "constraints": [["seats", ">=", 2]], "area": [9.2, 45.5, 0.1], "id": "t1"},
    ...     {"interface": "desk", "constraints": [["seats", "exists"]]},
    ... ], engine="reference")
    >>> ride = {"seats": 4, "x": 9.3, "y": 45.5}
    >>> matcher.match([ride], location="x,y")
    [['desk']]
    >>> matcher.update([{"move": "t1", "area": [9.3, 45.5, 0.1]}])
    >>> matcher.match([ride], location="x,y")
    [['desk', 'taxi']]
    >>> matcher.update([{"remove_interface": "desk"}, {"add": {"interface": "bus", "constraints": [["seats", ">", 3.5]]}}])
    >>> matcher.match([ride], location="x,y")
    [['bus', 'taxi']]

It consists of an engine and the live table that produces its changes.  Answers are labels, because the id of a removed
interface may be reused.

Any number of threads may use one matcher.  An update takes effect as a whole: matches in progress end before it, and later
ones see all of it.  If anything interrupts it, such as Ctrl-C or a lack of memory, none of it takes effect: the live table
takes back its changes, and an engine that had begun the update is opened again by the next call.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any, TypeVar

from mpi_match.api import Passed, PathLike, form_of, make_batch, make_table
from mpi_match.changes.live_table import LiveTable, Refusal
from mpi_match.engines import Engine, open_engine
from mpi_match.engines.sharing import Scratch, ScratchSets
from mpi_match.errors import EngineError
from mpi_match.events.batch import EventBatch
from mpi_match.events.events import Events
from mpi_match.ingest.rows.judge import ChangeRow, Reject, change_of_row, row_text, subscription_filters
from mpi_match.model import Filter, Json, ModelError, describe
from mpi_match.table.table import Table

if TYPE_CHECKING:
    from mpi_match.ingest.json.published_scanner import RowScanner

Location = str | tuple[str, str] | None
T = TypeVar("T")


class LiveMatcher:
    """Matches events against subscriptions that change.

    Parameters: `subscriptions` a table, or anything that `make_table` takes; `engine`, `device`, `threads` and `options` as
    in `open_engine`; `expected` rows of subscriptions that may be added (see `update`).  Raises ModelError, EngineError.

    Any thread may call any method at any time.  Pickled or copied, it opens its engine at the first use, with the meaning
    that `engine`, `device`, `threads` and `options` have on that machine.
    """

    def __init__(
        self,
        subscriptions: Table | PathLike | Iterable[Mapping[str, object] | Filter],
        *,
        engine: str = "auto",
        device: int | None = None,
        threads: int | None = None,
        options: Mapping[str, object] | None = None,
        expected: Iterable[Mapping[str, object] | Filter] = (),
    ) -> None:
        table = subscriptions if isinstance(subscriptions, Table) else make_table(subscriptions)
        likely = [
            item
            for row in _rows_of(expected, "expected subscriptions")
            for item in ([row] if isinstance(row, Filter) else subscription_filters(row))
        ]
        self._live = LiveTable(table, expected=likely)
        self._how: dict[str, Any] = {"name": engine, "device": device, "threads": threads, "options": options, "live": True}
        self._scanners: dict[Location, RowScanner] = {}
        self._readers = _Readers()
        self._engine, self._is_behind = self._opened(), False

    def __getstate__(self) -> Json:
        """The state for `pickle` and `copy`: the present live table, and the arguments for opening an engine."""
        return {"live": self._readers.read(self, LiveMatcher._pickled), "how": self._how}

    def _pickled(self, _: _Reader) -> bytes:
        return pickle.dumps(self._live)

    def __setstate__(self, state: Json) -> None:
        self._live, self._how = pickle.loads(state["live"]), state["how"]
        self._scanners, self._is_behind = {}, True
        self._readers = _Readers()
        self._readers.is_changing = True  # so that the first use opens the engine

    def _opened(self) -> Engine:
        """An engine for the present filters."""
        opened = open_engine(table=self._live.table, **self._how)
        since = self._live.since()
        if len(since):
            opened.update(since)
        return opened

    @property
    def engine(self) -> Engine:
        """The engine in use."""
        found: Engine = self._readers.read(self, lambda matcher, _: matcher._engine)
        return found

    def update(
        self, rows: Mapping[str, Any] | Iterable[Mapping[str, Any] | ChangeRow], *, rejects: list[Reject] | None = None
    ) -> None:
        """Apply changes in order: every later `match` sees all of them, every earlier one none.

        `rows`: `{"move": id, "area": [x, y, r]}`, `{"add": subscription}`, `{"remove": id}`, `{"remove_interface": label}`,
        `{"consolidate": true}`; one, or many.
        An id is that of a subscription row; all filters that have it are moved or removed together.
        Anything else raises ModelError.
        `rejects`: rows that are invalid or cannot be applied are appended to it, and the others take effect; without it
        the first of them raises ModelError, after the others have taken effect.
        After any other exception, including an interrupt, none of them has taken effect.

        A filter with an operand that no filter had before needs a larger vocabulary.  The engine is then opened again, which
        takes as long as the first time, and matches wait.  If that is too long, pass subscriptions with such operands as
        `expected`.
        """
        found: list[Reject] = [] if rejects is None else rejects
        given = _rows_of(rows, "changes")
        places, good = [], []
        bad: list[Reject] = []
        for place, row in enumerate(given):
            try:
                good.append(row if isinstance(row, ChangeRow) else change_of_row(row, stamped=False))
                places.append(place)
            except ModelError as error:
                bad.append(Reject(str(error), "", place, row_text(row)))
        refused: list[Refusal] = []
        self._readers.update(self, LiveMatcher._change, good, refused)
        bad += [Reject(item.reason, "", places[item.place], row_text(given[places[item.place]])) for item in refused]
        found += sorted(bad, key=lambda reject: reject.line)
        if rejects is None and found:
            raise ModelError(f"change {found[0].line}: {found[0].reason}")

    def _change(self, rows: list[ChangeRow], refused: list[Refusal]) -> None:
        """Apply changes to the live table and the engine; after an exception `_settle` has to be called."""
        changes = self._live.apply(rows, refused)
        if changes is None:
            opened = self._opened()
            self._is_behind = True
            self._use(opened)
        elif len(changes):
            self._is_behind = True
            try:
                self._engine.update(changes)
            except EngineError:
                self._is_behind = self._engine.is_broken  # else it has refused them, and is as before
                raise
        self._live.keep()
        self._is_behind = False

    def _settle(self) -> None:
        """Take back an update that was interrupted; an engine that had begun it is opened again."""
        self._live.take_back()
        if self._is_behind:
            vars(self).pop("_engine", None)  # its memory is free before the new one needs as much
            self._use(self._opened())
            self._is_behind = False

    def _use(self, engine: Engine) -> None:
        """Match with an engine that was opened for the live table's vocabulary."""
        self._engine = engine
        self._scanners.clear()
        for each in self._readers.sets:
            each.scanners.clear()

    def batch(
        self,
        events: Passed | Events,
        *,
        location: Location = None,
    ) -> EventBatch:
        """Events encoded for the present vocabulary; the batch is refused after an `update` that needs a larger one."""
        return make_batch(self._readers.read(self, lambda matcher, _: matcher._live.table), events, location=location)

    def match(
        self,
        events: Passed | Events | EventBatch,
        *,
        location: Location = None,
    ) -> list[list[str]]:
        """Labels of the interfaces that each event must be delivered to, sorted by their UTF-8 bytes.

        `events` are those of `make_events`, or a `batch`; all see the same filters.  Raises ModelError, EngineError.
        """
        if isinstance(events, EventBatch):
            return self._readers.read(self, LiveMatcher._labels, events)
        table = self._readers.read(self, lambda matcher, _: matcher._live.table)
        batch = make_batch(table, events, location=location) if isinstance(events, _AGAIN) else None

        def match(matcher: LiveMatcher, reader: _Reader) -> list[list[str]]:
            present = matcher._live.table
            if batch is not None and present is table:
                return matcher._labels(reader, batch)
            return matcher._labels(reader, make_batch(present, events, location=location))

        return self._readers.read(self, match)

    def reading(self, work: Callable[[Engine, LiveTable], T]) -> T:
        """Call `work(engine, live table)`, which may change neither; updates wait for it."""
        return self._readers.read(self, lambda matcher, _: work(matcher._engine, matcher._live))

    def _labels(self, _: _Reader, batch: EventBatch) -> list[list[str]]:
        answers, labels = self._engine.match(batch), self._live.registry.labels
        offsets, ids = answers.offsets.tolist(), answers.ids.tolist()
        return [sorted((labels[i] for i in ids[a:b]), key=str.encode) for a, b in pairwise(offsets)]

    def match_one(self, row: Mapping[str, object] | bytes | str, *, location: Location = None) -> list[str]:
        """`match` of one event, an object or its JSON, in some microseconds (see `api.RowMatcher`).

        >>> LiveMatcher([{"interface": "desk", "constraints": [["seats", "exists"]]}]).match_one(b'{"seats": 2}')
        ['desk']
        """
        readers = self._readers
        n_updates = readers.n_updates  # if none has begun when the answer is there, none is half in it
        if not readers.is_changing:
            try:
                reader = readers.free.pop()
                ids = self._engine.match(reader.scanners[location].batch(row)).ids.tolist()
                labels = self._live.registry.labels
                answer = sorted([labels[i] for i in ids], key=str.encode) if ids else []
            except ModelError:  # a row that is no event
                readers.free.append(reader)
                raise
            except Exception:  # no free reader or scanner yet, or it met an update; else `read` raises it again
                pass
            else:
                readers.free.append(reader)
                if readers.n_updates == n_updates:
                    return answer
        return readers.read(self, LiveMatcher._match_one, row, location)

    def _match_one(self, reader: _Reader, row: Mapping[str, object] | bytes | str, location: Location) -> list[str]:
        scanner = reader.scanners.get(location)
        if scanner is None:
            scanner = reader.scanners[location] = self._scanner(location).another()
        ids, labels = self._engine.match(scanner.batch(row)).ids.tolist(), self._live.registry.labels
        return sorted([labels[i] for i in ids], key=str.encode)

    def _scanner(self, location: Location) -> RowScanner:
        """The scanner whose tables all threads share."""
        scanner = self._scanners.get(location)
        if scanner is None:
            from mpi_match.ingest.json.published_scanner import RowScanner  # loads Numba

            scanner = self._scanners[location] = RowScanner(self._live.vocabulary, form_of(location, None))
        return scanner

    def filters(self) -> Iterator[Filter]:
        """All present filters; later updates do not affect what it yields."""
        found = self._readers.read(self, lambda matcher, _: matcher._live.filters())
        return (item for _, item in found)


def _rows_of(rows: object, what: str) -> list[object]:
    """Rows, or a single row, as a list.  Raises ModelError, with a text that begins with `what`, for anything but rows."""
    if isinstance(rows, (Mapping, Filter, ChangeRow)):
        return [rows]
    if isinstance(rows, Iterable) and not isinstance(rows, (str, bytes, bytearray)):
        return list(rows)
    raise ModelError(f"{what} are one row or an iterable of rows, found {describe(rows)}")


_AGAIN = (str, bytes, os.PathLike, Events, Mapping, list, tuple)
"""Events in a form that can be encoded a second time, so that no update has to wait for the first encoding."""


class _Reader(Scratch):
    """The objects that one match needs for itself: a scanner of rows for each location."""

    def __init__(self, _: object) -> None:
        self.busy = RLock()  # type: ignore[assignment]  # a generator of events may update the matcher
        self.scanners: dict[Location, RowScanner] = {}


class _Readers(ScratchSets[_Reader]):
    """Lets any number of threads match with a live matcher, without a reference to it, while one of them may update it.

    After an update that was interrupted, the matcher's `_settle` is called before all else.  `n_updates` have begun so far.
    """

    name = "LiveMatcher"

    def __init__(self) -> None:
        super().__init__(self, _Reader)
        self._updating, self.n_updates = Lock(), 0

    def read(self, matcher: LiveMatcher, work: Callable[..., T], *given: object) -> T:
        """Call `work(matcher, reader, *given)` while no update is in progress."""
        while True:
            try:
                reader = self.free.pop()
            except IndexError:
                reader = self.another(matcher)
            try:
                with reader.busy:
                    if not self.is_changing:
                        found = work(matcher, reader, *given)
                        break
            except ModelError:  # a row that is no event
                self.free.append(reader)
                raise
            self.free.append(reader)
            self.settle(matcher)
        self.free.append(reader)
        return found

    def update(self, matcher: LiveMatcher, apply: Callable[..., object], *given: Any) -> None:
        """See `ScratchSets.update`."""
        with self._writer:
            self.settle(matcher)
            super().update(matcher, self._alone, apply, *given)

    def _alone(self, matcher: LiveMatcher, work: Callable[..., object], *given: object) -> None:
        with self._updating:
            self.n_updates += 1
            work(matcher, *given)

    def settle(self, matcher: LiveMatcher) -> None:
        """Return when no update is in progress and an interrupted one has been settled."""
        with self._writer:
            if self._updating.locked():  # and this thread holds the other lock, so it has come back to the matcher
                raise EngineError("a LiveMatcher is used within an update of its own, by a signal handler perhaps")
            if self.is_changing:
                self._alone(matcher, LiveMatcher._settle)
                self.is_changing = False

    def _refuse(self) -> None:
        """False: after an interrupted update nothing is refused, because `settle` is called before readers begin."""
