"""Does an event satisfy a filter?  The checks of `postings`, as a CPU makes them: one load and two comparisons each."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpi_match.compute.compile_cache import inlined, jit
from mpi_match.engines.keyed.index.layout import SHIFT
from mpi_match.engines.keyed.index.postings import COUNT_BITS, HEADER, MAX_CHECKS


@inlined
def verify(at: Any, t64: Any, words: Any, by_name: Any, thread: Any) -> Any:
    """Does the event in `by_name[thread]` satisfy the constraints of the filter at word `at`, if that is still there?"""
    state, n = words[at + 2], np.int64(words[at + 1])
    n_positive, n_negative, n_sets = n & MAX_CHECKS, n >> COUNT_BITS & MAX_CHECKS, n >> 2 * COUNT_BITS
    if state > 1:
        holds = _verify_long(np.int64(state) >> 1, t64, words, by_name, thread)
    else:
        holds = _satisfies(at + HEADER, state == 0, n_positive, n_negative, n_sets, t64, words, by_name, thread)
    return holds


@jit
def _verify_long(place: Any, t64: Any, words: Any, by_name: Any, thread: Any) -> Any:
    """The same for a long filter, whose checks are at `place`."""
    n_positive, n_negative, n_sets = np.int64(words[place - 3]), np.int64(words[place - 2]), np.int64(words[place - 1])
    return _satisfies(place, True, n_positive, n_negative, n_sets, t64, words, by_name, thread)


@inlined
def _satisfies(
    place: Any, holds: Any, n_positive: Any, n_negative: Any, n_sets: Any, t64: Any, words: Any, by_name: Any, thread: Any
) -> Any:
    """Does the event satisfy the checks at `place`, if it `holds` that they matter?"""
    shift, end = np.int64(t64[SHIFT]), place + 2 * n_positive
    while holds & (place < end):
        low = words[place]
        value = by_name[thread, low >> shift]
        holds = (low <= value) & (value <= words[place + 1])
        place += 2
    end += 2 * n_negative
    while holds & (place < end):
        low = words[place]
        value = by_name[thread, low >> shift]
        holds = (value < low) | (value > words[place + 1])
        place += 2
    end += 2 * n_sets
    while holds & (place < end):
        low, listed = words[place], np.int64(words[place + 1])
        code = np.int64(by_name[thread, low >> shift]) - np.int64(low)
        holds = _in_set(listed >> 1, code, words) != bool(listed & 1)
        place += 2
    return holds


@inlined
def _in_set(place: Any, code: Any, words: Any) -> Any:
    """Is the code in the operand list at word `place`?"""
    left = place + 1
    right = left + np.int64(words[place])
    found = False
    while left < right and not found:
        middle = (left + right) >> 1
        value = np.int64(words[middle])
        found = value == code
        if value < code:
            left = middle + 1
        else:
            right = middle
    return found
