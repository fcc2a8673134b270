"""A batch that changes fall into is matched in pieces, up to each event that sees something new.

    events of the batch    0 1 2 3 4 5 6 7 8 9           update a, b │ match 0-3 │ update c │ match 4-9
    changes                a       c
                           b

So the size of a batch has nothing to do with when changes take effect, and a worker need not have matched the batches
before: with each batch it gets all changes that it has not been told of yet, in order, those of other workers' batches
stamped 0.
"""

from __future__ import annotations

from mpi_match.batch import EventBatch
from mpi_match.change_stream import StampedChanges
from mpi_match.engines import Engine
from mpi_match.matches import Matches


def match_changing(engine: Engine, batch: EventBatch, stamped: StampedChanges | None, *, filters: bool) -> Matches:
    """Tell the engine of changes and match, each event with what it sees; stamps count from the batch's first event."""
    if stamped is None:
        return engine.match(batch, filters=filters)
    if not len(stamped):
        engine.update(stamped.changes)  # none, but they say how many ids there are
    found, at = [], 0
    for first, changes in stamped.runs():
        if first > at:
            found.append(engine.match(batch[at:first], filters=filters))
            at = first
        engine.update(changes)
    found.append(engine.match(batch[at:], filters=filters))
    return Matches.concat(found)
