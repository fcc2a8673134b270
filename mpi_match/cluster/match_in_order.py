"""The matching of batches in order by one engine, with changes that take effect between their events.

    events of a batch    0 1 2 3 4 5 6 7 8 9           update a, b │ match 0-3 │ update c │ match 4-9
    changes              a       c
                         b

So the batch size does not affect when changes take effect.  `run` of one process and `match` match by `answers_to`, a worker
by `match_changing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from mpi_match.changes.stream import ChangeStream, StampedChanges
from mpi_match.engines.base import Engine, match_all
from mpi_match.events.batch import EventBatch
from mpi_match.matches.matches import Matches
from mpi_match.table.range_reader import RangeReader
from mpi_match.table.table import Table

DueChanges = Callable[[int], StampedChanges | None]
"""The changes that come with the next batch of a number of events, with stamps counted from its first event, or None."""


def answers_to(
    batches: Iterable[EventBatch], engine: Engine, due: DueChanges | None, *, filters: bool, overlapped: bool = True
) -> Iterator[Matches]:
    """The answers to batches, in order, with the changes that are `due` with each; None: the table does not change.

    Unless `overlapped`, every batch is answered before the next is taken.
    """
    if due is not None:
        for batch in batches:
            yield match_changing(engine, batch, due(len(batch)), filters=filters)
    elif overlapped:
        yield from match_all(engine, batches, filters=filters)
    else:
        for batch in batches:
            yield engine.match(batch, filters=filters)


def due_in_order(stream: ChangeStream[Table] | ChangeStream[RangeReader]) -> DueChanges | None:
    """The changes of a stream for batches of all events in order; None where the stream has none."""
    if not len(stream.changes):
        return None
    known: int | None = None  # all changes before that event are applied

    def due(n_events: int) -> StampedChanges | None:
        nonlocal known
        start, is_first = known or 0, known is None
        known = start + n_events
        found = stream.within(start, known)
        return StampedChanges(found.before_event - start, found.changes) if is_first or len(found) else None

    return due


def match_changing(engine: Engine, batch: EventBatch, stamped: StampedChanges | None, *, filters: bool) -> Matches:
    """Match a batch, applying each change before the event that first sees it; stamps count from the batch's first event."""
    if stamped is None:
        return engine.match(batch, filters=filters)
    if not len(stamped):
        engine.update(stamped.changes)  # no change, but it has the number of ids
    found, at = [], 0
    for first, changes in stamped.runs():
        if first > at:
            found.append(engine.match(batch[at:first], filters=filters))
            at = first
        engine.update(changes)
    found.append(engine.match(batch[at:], filters=filters))
    return Matches.concat(found)
