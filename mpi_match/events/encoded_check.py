"""Validation of a block of encoded events.  Compiled: two billion attributes a second on one core.

The loops over attributes have no branches, so that compilers vectorise them.  Within an event, an attribute's name is
greater than that of the one before it; so the number of neighbours that do not ascend must equal the number of those at
borders of events.
"""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import jit
from mpi_match.table.vocabulary import Vocabulary


class Sound:
    """The largest packed attributes that a vocabulary allows.

    `limits` has the last attribute of each name and atom, packed like attributes.  For indexes that are neither it has a
    value less than all that are looked up there: with 16-bit names for every such index, with others for all beyond the last
    name.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._dtype, self._shift = vocabulary.packed_dtype, vocabulary.shift
        n_codes = np.append(vocabulary.n_codes, np.ones(vocabulary.n_atoms, np.int64))
        known = np.arange(len(n_codes)) * 2**self._shift + n_codes - 1
        unknown = np.arange(len(known), 2**16) * 2**16 - 1 if self._shift == 16 else np.zeros(1, np.int64)
        self._limits = np.append(known, unknown).astype(self._dtype)
        self._names = len(known)

    def has(self, offsets: Array, attributes: Array) -> bool:
        """Are the offsets u32[n + 1] (modulo 2^32) ascending up to the number of attributes, the names within events
        ascending, and the codes known?
        """
        if not self._names:
            return len(attributes) == 0 and not np.any(offsets != offsets[0])
        shift, mask = self._dtype.type(self._shift), self._dtype.type(2**self._shift - 1)
        return bool(_ascends(offsets, attributes, mask) and _are_known(attributes, shift, self._limits))


@jit
def _are_known(attributes: Array, shift: int, limits: Array) -> bool:
    most, unknown = np.uint64(len(limits) - 1), np.uint32(0)
    for i in range(len(attributes)):
        attribute = attributes[i]
        unknown |= np.uint32(attribute > limits[min(np.uint64(attribute >> shift), most)])
    return bool(unknown == 0)


@jit
def _ascends(offsets: Array, attributes: Array, mask: int) -> bool:
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
