"""The dispatcher's instructions to the master.

    Load         have a worker load a shard
    Send         send a batch to a worker, for the first time or again
    Emit         write the answers of a batch: they are complete, and all earlier batches are emitted or quarantined
    Quarantine   skip a batch that will have no answers, in its place in the order
    Drop         forget answers that are not used
    GiveUp       end the run: it cannot go on

They are carried out in order: a worker loads a shard before it gets batches for it, and a batch is emitted after all earlier
ones.
"""

from __future__ import annotations

from typing import NamedTuple


class Load(NamedTuple):
    """Have a worker load a shard: in addition to its shards (`keep`), or instead of them."""

    worker: int
    part: int
    keep: bool = False


class Send(NamedTuple):
    """Send a batch to a worker; sends of one attempt, to all members of a group, follow each other."""

    worker: int
    batch: int
    attempt: int = 0


class Emit(NamedTuple):
    """Write the answers of a batch, from that attempt; all earlier batches have been emitted or quarantined."""

    batch: int
    attempt: int = 0


class Quarantine(NamedTuple):
    """Skip a batch that has no answer, in the order of emission: too many groups died of it or failed on it."""

    batch: int


class Drop(NamedTuple):
    """Forget the members' answers to this attempt: the rest will not come, or another attempt was first."""

    batch: int
    attempt: int


class GiveUp(NamedTuple):
    """The run cannot go on."""

    why: str


Instruction = Load | Send | Emit | Quarantine | Drop | GiveUp
