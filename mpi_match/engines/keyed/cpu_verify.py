"""Tests if an event satisfies a filter: `index.lookup` for a CPU thread, with one load and two comparisons per check.

An event is `(by_name, shift)`: its packed attribute of each name, or a value larger than any attribute, and the width of a
code.  `verify` is not inlined before it is compiled (LLVM decides): inlining it in both callers would double the compile
time of `keyed` without making it faster.
"""

from __future__ import annotations

import numpy as np

from mpi_match.compute.compile_cache import inlined, nested
from mpi_match.engines.keyed.index.lookup import verifier


@inlined
def _has(event: tuple, low: int, high: int) -> bool:
    """Tells whether the event has an attribute in [low, high]."""
    by_name, shift = event
    value = by_name[low >> shift]
    return (low <= value) & (value <= high)


@inlined
def _attribute_of(event: tuple, low: int) -> np.int64:
    """The event's attribute of the name of `low`, or the value that means none."""
    by_name, shift = event
    return np.int64(by_name[low >> shift])


verify = verifier(nested, _has, _attribute_of, long=True)
