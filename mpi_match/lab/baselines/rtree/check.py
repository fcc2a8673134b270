"""Checks the candidates of an R*-tree, event by event, in compiled code."""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.array_pointers import line
from mpi_match.compute.compile_cache import jit, nested
from mpi_match.lab.baselines.candidate_check import N_CANDIDATE_ARRAYS, forget_codes, is_match, note_codes
from mpi_match.lab.baselines.event_by_event import NEXT_EVENT, PAIRS_BEFORE, PAIRS_COUNTED, EncodedEvents, event_at, note

BOX_INTERFACE, BOX_DONE, BOX_STATE, BOX_PROGRESS = range(N_CANDIDATE_ARRAYS, N_CANDIDATE_ARRAYS + 4)
"""Arrays of the engine (`engine.RTree`), by their number in its table of pointers, behind those of `candidate_check`."""
BOX_SERIAL, BOX_CANDIDATES = range(2)
"""Words of BOX_STATE: the number of the event; filters that were checked so far, for all events."""


@nested
def _check(filters: bool, event: tuple, candidates: Array, table: Array, pairs: Array) -> None:
    """Note those of some filters that match; those of interfaces that already match are skipped."""
    interface, done = line(table, BOX_INTERFACE, np.uint32), line(table, BOX_DONE, np.int64)
    state, progress = line(table, BOX_STATE, np.int64), line(table, BOX_PROGRESS, np.int64)
    for f in candidates:
        if not filters and done[interface[f]] == state[BOX_SERIAL]:
            continue
        state[BOX_CANDIDATES] += 1
        if is_match(f, event, table):
            done[interface[f]] = state[BOX_SERIAL]
            note(event, f if filters else interface[f], progress, pairs)


@jit
def check_events(filters: bool, events: EncodedEvents, found: tuple, everywhere: Array, table: Array, pairs: Array) -> None:
    """Check the candidates in `found` of the events from `progress` on, until `pairs` is full.

    Parameters: `filters` is whether filters, not interfaces, are answered; `events` EncodedEvents; `found` candidates i64
    and their bounds i64[n + 1], of
    the next n events; `everywhere` i64, candidates of every event; `table` of pointers to the arrays that are numbered
    above; `pairs` u64, the room for answers.
    """
    candidates, bounds = found
    state, progress = line(table, BOX_STATE, np.int64), line(table, BOX_PROGRESS, np.int64)
    first = progress[NEXT_EVENT]
    for number in range(first, first + len(bounds) - 1):
        state[BOX_SERIAL] += 1
        progress[PAIRS_COUNTED] = progress[PAIRS_BEFORE]
        attributes, event = event_at(events, number)
        names = note_codes(attributes, events.shift, table)
        _check(filters, event, candidates[bounds[number - first] : bounds[number - first + 1]], table, pairs)
        _check(filters, event, everywhere, table, pairs)
        forget_codes(names, table)
        if progress[PAIRS_COUNTED] > len(pairs):
            return
        progress[NEXT_EVENT], progress[PAIRS_BEFORE] = number + 1, progress[PAIRS_COUNTED]
