"""Matches tag sets on CPU threads: divides a batch into blocks of events, which `tag_sets.search` searches."""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.parallel import by_threads
from mpi_match.engines.keyed.answers import AnswerBlocks
from mpi_match.engines.keyed.tag_sets.index import TagSetIndex
from mpi_match.engines.keyed.tag_sets.search import CANDIDATES, N_TALLIES, SetAnswers, SetArrays, match_tag_sets
from mpi_match.engines.sharing import Scratch
from mpi_match.events.batch import EventBatch, unmarked
from mpi_match.matches.matches import Matches, id_dtype

_BLOCK_EVENTS = 256
"""Events that a thread takes at a time."""


class TagSetScratch(Scratch):
    """Scratch of a match.  `candidates` counts the sets whose tags were compared so far."""

    candidates = nbytes = 0


class TagSetMatcher:
    """Matches batches; threads that match at the same time have separate scratch."""

    def __init__(self, sets: TagSetIndex, threads: int) -> None:
        self.sets, self._threads = sets, threads
        self._blocks = AnswerBlocks(_BLOCK_EVENTS)
        self._arrays = SetArrays(*vars(sets).values())

    def match(self, batch: EventBatch, shift: int, n_ids: int, scratch: TagSetScratch, *, filters: bool) -> Matches:
        """The matched interfaces, or filters, of each event; their ids are below `n_ids`."""
        n = batch.n_events
        given = (unmarked(batch.offsets), unmarked(batch.attributes), shift, max(batch.widest, 1))
        tallies = np.zeros((-(-n // _BLOCK_EVENTS), N_TALLIES), np.int64)

        def match(todo: Array, places: Array, counts: Array, ids: Array) -> None:
            taken, answers = np.zeros(1, np.int64), SetAnswers(places, counts, ids, tallies)
            by_threads(
                max(min(self._threads, len(todo)), 1),
                lambda _: match_tag_sets(todo, taken, _BLOCK_EVENTS, filters, given, self._arrays, answers),
                stop=lambda: taken.fill(len(todo)),
            )

        counts, ids = self._blocks.match(n, id_dtype(n_ids), match)
        scratch.candidates += int(tallies[:, CANDIDATES].sum())
        return Matches(counts.astype(id_dtype(n_ids + 1)), ids, n_ids)
