"""What is to be done next: all that the dispatcher can say to the master.

    Load         a worker is to have a part of the table that it has not
    Send         a batch to a worker, for the first time or again
    Emit         the answers of a batch are whole, and it is their turn
    Quarantine   it is the turn of a batch that will have no answers
    Drop         answers are here that nobody wants any more
    GiveUp       the run cannot go on

They are done in the order in which they are said, so far as one depends on another: what a worker is to load goes to it
before what it is to answer with that, and a batch has its turn after all earlier ones.
"""

from __future__ import annotations

from typing import NamedTuple


class Load(NamedTuple):
    """Have a worker load a part: besides what it has (`keep`), or instead of it."""

    worker: int
    part: int
    keep: bool = False


class Send(NamedTuple):
    """Send a batch to a worker; sends of one attempt, to all members of a group, follow each other."""

    worker: int
    batch: int
    attempt: int = 0


class Emit(NamedTuple):
    """Write the answers of a batch, which that attempt brought; all earlier batches have been emitted or quarantined."""

    batch: int
    attempt: int = 0


class Quarantine(NamedTuple):
    """A batch will have no answer, and takes its turn among those that are emitted: it killed too many groups."""

    batch: int


class Drop(NamedTuple):
    """Forget what members have answered to this attempt: the rest will not come, or another attempt was first."""

    batch: int
    attempt: int


class GiveUp(NamedTuple):
    """The run cannot go on."""

    why: str


Instruction = Load | Send | Emit | Quarantine | Drop | GiveUp
