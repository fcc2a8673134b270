"""Validation of a block of encoded events.

Within an event, an attribute's name is greater than that of the one before it; so the number of neighbours that do not
ascend must equal the number of those at borders of events.  Large blocks are checked by compiled code (`encoded_loops`),
which takes longer to load than NumPy takes for a small file.
"""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.table.vocabulary import Vocabulary

FEW_ATTRIBUTES = 2**16
"""Number of attributes up to which NumPy checks a block; a full block has more."""


class Sound:
    """The largest packed attributes that a vocabulary allows.

    `limits` has the last attribute of each name and atom, packed like attributes.  For an index that is neither, it has a
    value less than all packed attributes: with 16-bit names for every such index, else for all beyond the last name.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._dtype, self._shift = vocabulary.packed_dtype, vocabulary.shift
        n_codes = np.append(vocabulary.n_codes, np.ones(vocabulary.n_atoms, np.int64))
        known = np.arange(len(n_codes)) * 2**self._shift + n_codes - 1
        unknown = np.arange(len(known), 2**16) * 2**16 - 1 if self._shift == 16 else np.zeros(1, np.int64)
        self._limits = np.append(known, unknown).astype(self._dtype)
        self._names = len(known)

    def has(self, offsets: Array, attributes: Array) -> bool:
        """Tells whether the offsets u32[n + 1] (modulo 2^32) ascend up to the number of attributes, the names ascend within
        events, and the codes are known.
        """
        if not self._names:
            return len(attributes) == 0 and not np.any(offsets != offsets[0])
        shift, mask = self._dtype.type(self._shift), self._dtype.type(2**self._shift - 1)
        if len(attributes) <= FEW_ATTRIBUTES:
            return _few_ascend(offsets, attributes, mask) and _few_are_known(attributes, shift, self._limits)
        from mpi_match.events.encoded_loops import are_known, ascends  # loads Numba

        return bool(ascends(offsets, attributes, mask) and are_known(attributes, shift, self._limits))


def _few_are_known(attributes: Array, shift: int, limits: Array) -> bool:
    return not np.any(attributes > limits[np.minimum(attributes >> shift, len(limits) - 1)])


def _few_ascend(offsets: Array, attributes: Array, mask: int) -> bool:
    ends, n = offsets - offsets[0], len(attributes)  # modulo 2^32
    if ends[-1] != n or np.any(ends[1:] < ends[:-1]):
        return False
    descends = attributes[1:] <= (attributes[:-1] | mask)
    borders = np.unique(ends[(ends > 0) & (ends < n)])
    return int(np.count_nonzero(descends)) == int(np.count_nonzero(descends[borders - 1]))
