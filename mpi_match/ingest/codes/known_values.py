"""Keeps the attributes and atoms of short texts that come again as values of an attribute, as paths of programs do in logs.

Such a text is folded, read by automata and tested by patterns each time, and always gives the same attributes and atoms.
So each thread on a CPU has a table of *known values*.  A slot has a text of at most MOST_KNOWN_BYTES, its attribute, and the
attributes and atoms that it gives.  The hash of a value selects its slot, and bytes are compared.  A value is kept when it
comes for the second time and no other value of the slot came in between, so a value that comes once replaces none.

The table belongs to the arrays of a thread, and is valid for their vocabulary and form of events.
"""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import nested
from mpi_match.compute.memory import any_u64, load_i64, load_u32, load_u64, store_i64, store_u32, store_u64
from mpi_match.compute.vectors import same_bytes, word_at
from mpi_match.ingest.codes.atoms import ATOMS_FOUND, add_atom, found_atom, found_code, has_overflown

MOST_KNOWN_BYTES, MOST_KNOWN_ATOMS = 128, 12
"""Bytes of the longest text in the table; most atoms of a text."""
NEW_VALUE, SEEN_VALUE, KNOWN_VALUE = range(3)
"""The state of a value in the table: absent; its hash alone; its attributes and atoms."""
_MOST_ATTRIBUTES, _SLOT_BITS = 6, 12
_HASH, _SEEN, _HASH_WORDS = range(3)
"""Words of a slot at the beginning of the table, where those of all slots are side by side: hash of the value in it, or 0;
hash of the last other one."""
_KEY, _N_ATTRIBUTES_AND_ATOMS, _TEXT, _ATTRIBUTES, _ATOMS, _SLOT_WORDS = 0, 1, 2, 18, 24, 32
"""Words of a slot behind those: its attribute and length; attributes + 2^32 * atoms that it gives; text; attributes; atoms,
u32."""
_HASHES_BYTES = 8 * _HASH_WORDS << _SLOT_BITS
_SLOT_BYTES, _LINE_BYTES = 8 * _SLOT_WORDS, 64
_MIX, _LOW_BIT, _29, _32 = np.uint64(0x9E3779B97F4A7C15), np.uint64(1), np.uint64(29), np.uint64(32)
_SLOT_SHIFT = np.uint64(64 - _SLOT_BITS)


def known_values() -> Array:
    """An empty table, u64, at the beginning of a cache line.  Pages that are never written take no memory."""
    n_words = (_HASH_WORDS + _SLOT_WORDS) << _SLOT_BITS
    words = np.zeros(n_words + _LINE_BYTES // 8, np.uint64)
    first = -words.ctypes.data % _LINE_BYTES // 8
    return words[first : first + n_words]


@nested
def _hashes(slot: int, known: int) -> int:
    return known + 8 * _HASH_WORDS * slot


@nested
def _slot(slot: int, known: int) -> int:
    return known + _HASHES_BYTES + _SLOT_BYTES * slot


@nested
def _key(length: int, entry: int) -> int:
    return entry << 8 | length


@nested
def slot_of_value(text: tuple[int, int, int], entry: int, known: int) -> tuple[int, int]:
    """The number of a value's slot, and what the slot has of the value (NEW_VALUE, ...).  The hash of a new value is noted.

    The value is source[start:stop], at most MOST_KNOWN_BYTES, of the attribute with this entry.
    """
    source, start, stop = text
    hash_ = np.uint64(_key(stop - start, entry)) * _MIX
    at = start
    while at + 8 <= stop:
        hash_ = (hash_ ^ any_u64(source + at)) * _MIX
        hash_ ^= hash_ >> _32
        at += 8
    if at < stop:
        hash_ = (hash_ ^ word_at(source, at, stop - at)) * _MIX
    hash_ = ((hash_ ^ hash_ >> _29) * _MIX) | _LOW_BIT
    number = int(hash_ >> _SLOT_SHIFT)
    hashes, slot = _hashes(number, known), _slot(number, known)
    is_key = load_u64(hashes, _HASH) == hash_ and load_i64(slot, _KEY) == _key(stop - start, entry)
    if is_key and same_bytes(source + start, slot + 8 * _TEXT, stop - start):
        return number, KNOWN_VALUE
    if load_u64(hashes, _SEEN) == hash_:
        return number, SEEN_VALUE
    store_u64(hashes, _SEEN, hash_)
    return number, NEW_VALUE


@nested
def put_known(number: int, known: int, to: int, n: int, found: int) -> int:
    """Write the attributes of a slot's value after n others, and add its atoms.  Returns the new number of attributes."""
    slot = _slot(number, known)
    counts = load_i64(slot, _N_ATTRIBUTES_AND_ATOMS)
    n_attributes = counts & 0xFFFFFFFF
    for k in range(n_attributes):
        store_u64(to, n + k, load_u64(slot, _ATTRIBUTES + k))
    for k in range(counts >> 32):
        add_atom(found, load_u32(slot + 8 * _ATOMS, k))
    return n + n_attributes


@nested
def _copy_atoms(slot: int, n: int, first: int, found: int) -> int:
    """Write the atoms of a set from the first-th on behind n others of a slot.  Returns their number; -1 if they are too
    many, or one has a code."""
    n_found = load_i64(found, ATOMS_FOUND)
    if n + n_found - first > MOST_KNOWN_ATOMS or has_overflown(found):
        return -1
    for k in range(first, n_found):
        if found_code(found, k) != 0:
            return -1
        store_u32(slot + 8 * _ATOMS, n + k - first, found_atom(found, k))
    return n + n_found - first


@nested
def keep_value(
    where: tuple[int, int],
    text: tuple[int, int, int],
    entry: int,
    attributes: tuple[int, int, int],
    atoms: tuple[int, int, int],
) -> None:
    """Keep what a value gave in its slot, given by number and table: attributes[first:last]; the atoms of a set from the
    first-th on; and those of another set."""
    source, start, stop = text
    to, first, last = attributes
    found, first_atom, others = atoms
    hashes, slot = _hashes(where[0], where[1]), _slot(where[0], where[1])
    hash_ = load_u64(hashes, _SEEN)
    store_u64(hashes, _HASH, np.uint64(0))  # until all is written
    store_u64(hashes, _SEEN, np.uint64(0))
    n_atoms = _copy_atoms(slot, 0, first_atom, found)
    if n_atoms >= 0:
        n_atoms = _copy_atoms(slot, n_atoms, 0, others)
    if n_atoms < 0 or last - first > _MOST_ATTRIBUTES:
        return
    for k in range(last - first):
        store_u64(slot, _ATTRIBUTES + k, load_u64(to, first + k))
    for at in range(start, stop, 8):
        store_u64(slot, _TEXT + (at - start) // 8, word_at(source, at, min(8, stop - at)))
    store_i64(slot, _KEY, _key(stop - start, entry))
    store_i64(slot, _N_ATTRIBUTES_AND_ATOMS, last - first | n_atoms << 32)
    store_u64(hashes, _HASH, hash_)
