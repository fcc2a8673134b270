"""Answers: for every event the sorted set of its matched interfaces (or the sorted list of its matched filters).

    counts    number of ids of each event: u8, u16 or u32, the narrowest that holds the largest possible count
    ids       the ids of all events, concatenated: u8, u16 or u32, the narrowest that holds every id of the table

Messages and files contain counts instead of offsets, because counts need fewer bytes.  Both dtypes follow from the table
alone, never from the answers, so the file does not depend on the division of events into batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import SupportsIndex, overload

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of, owners, place_of, smallest_unsigned, take_ranges
from mpi_match.arrays.strings import Strings
from mpi_match.humanize import plural
from mpi_match.model import ModelError

SHOWN_EVENTS = 3
"""Events whose ids the `repr` of answers shows."""


@dataclass(eq=False, repr=False)  # not frozen, see `EventBatch`
class Matches:
    """Matched ids of n events: `counts` and `ids` in the dtypes of the module, `n_ids` the number of different ids.

    Make one with `from_counts`, `from_offsets`, `of` or `from_pairs`.
    """

    counts: Array
    ids: Array
    n_ids: int

    @classmethod
    def from_counts(cls, counts: Array, ids: Array, n_ids: int) -> Matches:
        """Make answers from the number of ids of each event, and the concatenated ids."""
        return cls(counts.astype(id_dtype(n_ids + 1), copy=False), ids.astype(id_dtype(n_ids), copy=False), n_ids)

    @classmethod
    def from_offsets(cls, offsets: Array, ids: Array, n_ids: int) -> Matches:
        """Make answers from the bounds of each event's ids, i64[n + 1], and the concatenated ids."""
        return cls.from_counts(np.diff(offsets), ids, n_ids)

    @classmethod
    def of(cls, found: list[list[int]], n_ids: int) -> Matches:
        """Make answers from one list of ids for each event; the lists are sorted and deduplicated."""
        clean = [sorted(set(ids)) for ids in found]
        counts = np.array([len(ids) for ids in clean], np.int64)
        return cls.from_counts(counts, np.array([i for ids in clean for i in ids], np.int64), n_ids)

    @classmethod
    def from_pairs(cls, event: Array, id_: Array, n_events: int, n_ids: int) -> Matches:
        """Make answers from (event, id) pairs in any order, repeated or not."""
        pairs = np.unique(np.asarray(event, np.int64) * max(n_ids, 1) + id_)
        counts = np.bincount(pairs // max(n_ids, 1), minlength=n_events)
        return cls.from_counts(counts, pairs % max(n_ids, 1), n_ids)

    @property
    def n_events(self) -> int:
        return len(self.counts)

    @property
    def n_matches(self) -> int:
        """Number of (event, id) pairs."""
        return len(self.ids)

    def __len__(self) -> int:
        return self.n_events

    @overload
    def __getitem__(self, event: SupportsIndex) -> Array: ...

    @overload
    def __getitem__(self, event: slice) -> Matches: ...

    def __getitem__(self, event: SupportsIndex | slice) -> Array | Matches:
        """Sorted ids of one event, counted from the end if negative; or the answers of a slice of the events.

        Raises IndexError for an event that does not exist.
        """
        if not isinstance(event, slice):
            i = place_of(event, self.n_events, "event")
            return self.ids[self.offsets[i] : self.offsets[i + 1]]
        start, stop, step = event.indices(self.n_events)
        if step == 1:  # shares this one's memory
            ids = self.ids[self.offsets[start] : self.offsets[max(start, stop)]]
        else:
            ids = self.ids[take_ranges(self.offsets[:-1][event], self.counts[event])]
        return Matches(self.counts[event], ids, self.n_ids)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Matches):
            return NotImplemented
        return np.array_equal(self.counts, other.counts) and np.array_equal(self.ids, other.ids)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Number of events and matches, and the ids of the first events: `<3 events, 4 matches: [0, 1], [], [2, 3]>`."""
        shown = [str(self[event].tolist()) for event in range(min(self.n_events, SHOWN_EVENTS))]
        more = ["..."] if self.n_events > SHOWN_EVENTS else []
        counts = f"{plural(self.n_events, 'event')}, {plural(self.n_matches, 'match', 'matches')}"
        return f"<{counts}: {', '.join(shown + more)}>" if shown else f"<{counts}>"

    def labels(self, labels: Strings) -> list[list[str]]:
        """The answers of interfaces as labels: one sorted list per event.  Raises ModelError for ids of more filters."""
        if self.n_ids > len(labels):
            raise ModelError(
                f"the answers are of {plural(self.n_ids, 'filter')}, not of the {plural(len(labels), 'interface')} with "
                "these labels; match without filters=True, or see mpi_match.matched(..., filters=True)"
            )
        ids = self.ids
        if self.n_matches < len(labels):  # there may be millions
            used, ids = np.unique(ids, return_inverse=True)
            labels = labels.take(used)
        names = [label.decode() for label in labels]
        found = [names[i] for i in ids.tolist()]
        return [found[first:last] for first, last in pairwise(self.offsets.tolist())]

    @cached_property
    def offsets(self) -> Array:
        """i64[n + 1]: event e has ids[offsets[e]:offsets[e + 1]]."""
        return offsets_of(self.counts)

    @cached_property
    def wire(self) -> bytes:
        """The wire format: the bytes of the counts, then those of the ids."""
        return self.counts.tobytes() + self.ids.tobytes()

    def event_of(self) -> Array:
        """i64[n_matches]: the event of every pair."""
        return owners(self.offsets)

    def with_rejected(self, rejected: Array) -> Matches:
        """The answers with empty ones inserted for rejected rows (ascending numbers, as in `EventBatch`)."""
        counts = np.zeros(len(self.counts) + len(rejected), self.counts.dtype)
        accepted = np.ones(len(counts), bool)
        accepted[rejected] = False
        counts[accepted] = self.counts
        return Matches(counts, self.ids, self.n_ids)

    @staticmethod
    def concat(parts: list[Matches]) -> Matches:
        """Concatenate the answers of consecutive batches."""
        return Matches(np.concatenate([p.counts for p in parts]), np.concatenate([p.ids for p in parts]), parts[0].n_ids)


@lru_cache(64)
def id_dtype(n_ids: int) -> np.dtype:
    """The narrowest unsigned dtype for ids 0 to n_ids - 1."""
    return smallest_unsigned(max(n_ids - 1, 0))
