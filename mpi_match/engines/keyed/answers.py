"""The answers of a batch that is matched in blocks of events.  Each block has room for some answers, and gets more if
necessary."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of

CPU_ANSWER_ROOM = 4
"""Initial capacity of a block, in answers per event."""


SPARE_ROOM, MOST_ROOM = 1.125, 3
"""Capacity of a block, as a multiple of the largest number of answers of a block in the last batch, and its limit, as a
multiple of their mean."""


class AnswerBlocks:
    """Answers of one engine's batches, in blocks of `block_events` events whose capacity follows from the last batch."""

    def __init__(self, block_events: int) -> None:
        self._block_events, self._room = block_events, 0

    def match(
        self, n_events: int, dtype: np.dtype, match: Callable[[Array, Array, Array, Array], object]
    ) -> tuple[Array, Array]:
        """Return the counts i64[n_events] and the ids of a batch's answers, of a dtype that holds them.

        `match(to_match, places, counts, ids)` matches the blocks `to_match`: block i writes to
        ids[places[i] : places[i + 1]].  Its counts include the answers that did not fit.
        """
        starts = np.arange(0, n_events, self._block_events)
        to_match, counts = np.arange(len(starts)), np.empty(n_events, np.int64)
        places = offsets_of(np.full(len(starts), max(CPU_ANSWER_ROOM * self._block_events, self._room)))
        ids, found = np.empty(int(places[-1]), np.uint32), np.zeros(0, np.int64)
        while len(to_match):
            match(to_match, places, counts, ids)
            found, room = np.add.reduceat(counts, starts), np.diff(places)
            to_match = np.flatnonzero(found > room)
            if len(to_match):
                places, ids = _grow(places, ids, found)
        if len(found):
            self._room = int(min(SPARE_ROOM * float(found.max()), MOST_ROOM * float(found.mean())))
        return counts, np.concatenate([ids[:0], *_parts(ids, places, found)], dtype=dtype, casting="unsafe")


def _grow(places: Array, ids: Array, found: Array) -> tuple[Array, Array]:
    """Enlarge the capacity of each block to `found` answers; blocks that had enough keep their answers."""
    room = np.diff(places)
    kept = np.where(found > room, 0, found)
    grown = offsets_of(np.maximum(room, found))
    moved = np.empty(int(grown[-1]), np.uint32)
    for to, part in zip(_parts(moved, grown, kept), _parts(ids, places, kept), strict=True):
        to[:] = part
    return grown, moved


def _parts(ids: Array, places: Array, found: Array) -> list[Array]:
    """The answers of each block."""
    return [ids[at : at + n] for at, n in zip(places.tolist(), found.tolist(), strict=False)]
