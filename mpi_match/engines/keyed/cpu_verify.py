"""Does an event satisfy a filter?  `index.lookup` as a CPU thread has it: one load and two comparisons for a check.

An event is `(by_name, shift)`: the packed attribute of each name, more than any where it has none, and the width of a code.
`verify` is not inlined before it is compiled (LLVM decides): in both of its callers it would make compiling `keyed` twice as
long, and matching no faster.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpi_match.compute.bits import popcount
from mpi_match.compute.compile_cache import inlined, nested
from mpi_match.engines.keyed.index.lookup import lookups, verifier

CPU_LOOKUPS = lookups(inlined, popcount)


@inlined
def _has(event: Any, low: Any, high: Any) -> Any:
    """Has the event an attribute in [low, high]?"""
    by_name, shift = event
    value = by_name[low >> shift]
    return (low <= value) & (value <= high)


@inlined
def _attribute_of(event: Any, low: Any) -> Any:
    """The event's attribute of the name of `low`, or what is none."""
    by_name, shift = event
    return np.int64(by_name[low >> shift])


verify = verifier(nested, _has, _attribute_of, long=True)
