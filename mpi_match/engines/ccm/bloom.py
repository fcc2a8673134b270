"""Bit vectors of names; they are Bloom filters if there are more names than bits.

The host sets the same bits for a filter as the GPU sets for an event.  So if a filter has a bit that the event lacks, it has
a name that the event lacks.

The first bit of a name is its number modulo the number of bits.  Names are numbered densely, so bits are used evenly, and
with no more names than bits every name has its own bit.  Further bits are multiplicative hashes (Fibonacci hashing, by odd
multiples).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.operators import Form
from mpi_match.table.table import Table


def bit_of(name: Any, nth: int, log_bits: int) -> Any:
    """The nth bit, from 0, of 2^log_bits that a name sets; `name` is one name or an array i64."""
    if nth == 0:
        return name & ((1 << log_bits) - 1)
    factor = ((2 * nth - 1) * 0x9E3779B1) & 0xFFFFFFFF
    return ((name * factor) & 0xFFFFFFFF) >> (32 - log_bits)


def filter_names(table: Table, n_bits: int, n_hashes: int) -> Array:
    """u32[n_words, n_filters]: bit vectors of the filters' names, with 2, 4, ... `n_bits` bits, 32 in a word.

    Names that must be absent set no bits; an atom counts as a name (`vocabulary`).
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
