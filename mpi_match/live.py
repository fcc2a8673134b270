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
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from mpi_match.api import Passed, PathLike, form_of, make_batch, make_table
from mpi_match.changes.live_table import LiveTable, Refusal
from mpi_match.engines import Engine, open_engine
from mpi_match.events.batch import EventBatch
from mpi_match.events.events import Events
from mpi_match.ingest.rows.judge import ChangeRow, Reject, change_of_row, row_text, subscription_filters
from mpi_match.model import Filter, ModelError
from mpi_match.table.table import Table

if TYPE_CHECKING:
    from mpi_match.ingest.json.published_scanner import RowScanner


class LiveMatcher:
    """Matches events against subscriptions that change.

    Parameters: `subscriptions` a table, or what `make_table` makes one of; `engine`, `device`, `threads` and `options` as
    in `open_engine`; `expected` rows of subscriptions that may be added (see `update`).  Raises ModelError, EngineError.
    `engine` is the engine in use.
    """

    engine: Engine

    def __init__(
        self,
        subscriptions: Table | PathLike | Iterable[Mapping[str, Any] | Filter],
        *,
        engine: str = "auto",
        device: int | None = None,
        threads: int | None = None,
        options: Mapping[str, object] | None = None,
        expected: Iterable[Mapping[str, Any] | Filter] = (),
    ) -> None:
        table = subscriptions if isinstance(subscriptions, Table) else make_table(subscriptions)
        likely = [item for row in expected for item in ([row] if isinstance(row, Filter) else subscription_filters(row))]
        self._live = LiveTable(table, expected=likely)
        self._how: dict[str, Any] = {"name": engine, "device": device, "threads": threads, "options": options, "live": True}
        self._open()

    def _open(self) -> None:
        self._scanners: dict[str | tuple[str, str] | None, RowScanner] = {}
        self.engine = open_engine(table=self._live.table, **self._how)
        since = self._live.since()
        if len(since):
            self.engine.update(since)

    def update(
        self, rows: Mapping[str, Any] | Iterable[Mapping[str, Any] | ChangeRow], *, rejects: list[Reject] | None = None
    ) -> None:
        """Apply changes in order: every later `match` sees them.

        `rows`: `{"move": id, "area": [x, y, r]}`, `{"add": subscription}`, `{"remove": id}`, `{"remove_interface": label}`,
        `{"consolidate": true}`; one, or many.
        An id is that of a subscription row; all filters that have it are moved or removed together.
        `rejects`: rows that have no meaning or cannot be done are appended to it, and the others take effect; without it
        the first of them raises ModelError, after the others have taken effect.

        A filter with an operand that no filter had before needs a larger vocabulary.  The engine is then opened again, which
        takes as long as it did at first.  If that is too long, pass subscriptions with such operands as `expected`.
        """
        found: list[Reject] = [] if rejects is None else rejects
        given: list[Any] = [rows] if isinstance(rows, Mapping) else list(rows)
        places, good = [], []
        bad: list[Reject] = []
        for place, row in enumerate(given):
            try:
                good.append(row if isinstance(row, ChangeRow) else change_of_row(row, stamped=False))
                places.append(place)
            except ModelError as error:
                bad.append(Reject(str(error), "", place, row_text(row)))
        refused: list[Refusal] = []
        changes = self._live.apply(good, refused)
        if changes is None:
            self._open()
        elif len(changes):
            self.engine.update(changes)
        bad += [Reject(item.reason, "", places[item.place], row_text(given[places[item.place]])) for item in refused]
        found += sorted(bad, key=lambda reject: reject.line)
        if rejects is None and found:
            raise ModelError(f"change {found[0].line}: {found[0].reason}")

    def batch(
        self,
        events: Passed | Events,
        *,
        location: str | tuple[str, str] | None = None,
    ) -> EventBatch:
        """Events encoded for the present vocabulary; the batch is refused after an `update` that needs a larger one."""
        return make_batch(self._live.table, events, location=location)

    def match(
        self,
        events: Passed | Events | EventBatch,
        *,
        location: str | tuple[str, str] | None = None,
    ) -> list[list[str]]:
        """Labels of the interfaces that each event must be delivered to, sorted by their UTF-8 bytes.

        `events` are those of `make_events`, or a `batch`.  Raises ModelError, EngineError.
        """
        batch = events if isinstance(events, EventBatch) else self.batch(events, location=location)
        answers, labels = self.engine.match(batch), self._live.registry.labels
        offsets, ids = answers.offsets.tolist(), answers.ids.tolist()
        return [sorted((labels[i] for i in ids[a:b]), key=str.encode) for a, b in pairwise(offsets)]

    def match_one(self, row: Mapping[str, Any] | bytes | str, *, location: str | tuple[str, str] | None = None) -> list[str]:
        """`match` of one event, an object or its JSON, in some microseconds (see `api.RowMatcher`).

        >>> LiveMatcher([{"interface": "desk", "constraints": [["seats", "exists"]]}]).match_one(b'{"seats": 2}')
        ['desk']
        """
        scanner = self._scanners.get(location)
        if scanner is None:
            from mpi_match.ingest.json.published_scanner import RowScanner  # loads Numba

            scanner = self._scanners[location] = RowScanner(self._live.table.vocabulary, form_of(location, None))
        found, labels = self.engine.match(scanner.batch(row)).ids.tolist(), self._live.registry.labels
        return sorted([labels[i] for i in found], key=str.encode) if found else []

    def filters(self) -> Iterator[Filter]:
        """All present filters."""
        return (item for _, item in self._live.filters())
