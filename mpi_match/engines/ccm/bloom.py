"""Bit vectors of names, which are Bloom filters where there are more names than bits.

The same bits are set for a filter, on the host, and for an event, on the GPU: a filter with a bit that the event lacks has a
name that the event lacks.

The first bit is the name's number modulo that of the bits: names are numbered densely, so bits are used evenly, and as many
names as there are bits have bits of their own.  Further ones are multiplicative hashes (Fibonacci's, by odd multiples).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.operators import Form
from mpi_match.table.table import Table


def bit_of(name: Any, nth: Any, log_bits: Any) -> Any:
    """The nth bit that a name sets, counted from 0, of 2^log_bits: of one name, or of an array i64."""
    if nth == 0:
        return name & ((1 << log_bits) - 1)
    factor = ((2 * nth - 1) * 0x9E3779B1) & 0xFFFFFFFF
    return ((name * factor) & 0xFFFFFFFF) >> (32 - log_bits)


def filter_names(table: Table, n_bits: int, n_hashes: int) -> Array:
    """u32[n_words, n_filters]: the bits of each filter's names, of 2, 4, ... `n_bits`; 32 of them in a word.

    Names that must be absent set none; an atom is a name (`vocabulary`).
    """
    c, v = table.constraints, table.vocabulary
    form, name = c.form, c.name_id.astype(np.int64)
    atoms = np.flatnonzero(form == Form.ATOM)
    name[atoms] = v.n_names + v.atom_offsets[c.name_id[atoms]] + c.lo[atoms]
    found = np.zeros((-(-n_bits // 32), table.n_filters), np.uint32)
    for nth in range(n_hashes):
        bit = bit_of(name, nth, n_bits.bit_length() - 1).astype(np.uint8)
        bit[form == Form.ABSENT] = n_bits
        for b in range(n_bits):
            found[b >> 5, c.filter_id[bit == b]] |= np.uint32(1 << (b & 31))
    return found
