"""Does an event satisfy a filter?  The checks of `postings`, as a CPU makes them: one load and two comparisons each."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpi_match.compute.compile_cache import inlined
from mpi_match.engines.keyed.index.layout import SHIFT
from mpi_match.engines.keyed.index.postings import COUNT_BITS, HEADER, MAX_CHECKS


@inlined
def verify(at: Any, t64: Any, words: Any, by_name: Any, thread: Any) -> Any:
    """Does the event in `by_name[thread]` satisfy the constraints of the filter at word `at`, if that is still there?"""
    n, shift = np.int64(words[at + 1]), np.int64(t64[SHIFT])
    place, holds = at + HEADER, words[at + 2] == 0
    end = place + 2 * (n & MAX_CHECKS)
    while holds & (place < end):
        low = words[place]
        value = by_name[thread, low >> shift]
        holds = (low <= value) & (value <= words[place + 1])
        place += 2
    end += 2 * (n >> COUNT_BITS & MAX_CHECKS)
    while holds & (place < end):
        low = words[place]
        value = by_name[thread, low >> shift]
        holds = (value < low) | (value > words[place + 1])
        place += 2
    end += 2 * (n >> 2 * COUNT_BITS)
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
