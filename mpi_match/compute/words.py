"""Texts eight bytes at a time, in words, for threads of a GPU, which have no vectors: each byte is tested by the same few
instructions (Lamport, "Multiple byte processing with full-word instructions", 1975)."""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Int
from mpi_match.compute.compile_cache import inlined
from mpi_match.compute.memory import load_u64, store_u8, store_u64
from mpi_match.compute.vectors import lowest_bit
from mpi_match.texts.characters import BACKSLASH, BLANK, LOWER_CASE, QUOTE, UPPER_A, UPPER_Z

WORD_BYTES = 8
_ONES, _HIGH = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_QUOTES, _BACKSLASHES, _BLANKS = (np.uint64(byte) * _ONES for byte in (QUOTE, BACKSLASH, BLANK))
_ALL, _LETTERS = np.uint64(2**64 - 1), np.uint64(LOWER_CASE | UPPER_A) * _ONES
_FROM_A, _FROM_BEHIND_Z = np.uint64(0x80 - UPPER_A) * _ONES, np.uint64(0x80 - UPPER_Z - 1) * _ONES
_TO_LOWER = np.uint64((0x80 // LOWER_CASE).bit_length() - 1)
_0, _1, _3, _7, _8, _63 = (np.uint64(n) for n in (0, 1, 3, 7, 8, 63))


@inlined
def word_from(address: Int) -> np.uint64:
    """The 8 bytes from an address on, the first one lowest; reads the aligned word of the first one and the next."""
    shift = (np.uint64(address) & _7) << _3
    begin = address - (address & 7)
    return (load_u64(begin, 0) >> shift) | ((load_u64(begin, 1) << _1) << (_63 - shift))


@inlined
def plain_bytes(word: np.uint64) -> np.int64:
    """The number of a word's lowest bytes that are plain text of a string: those before a quote, a backslash, a control
    character or a byte beyond ASCII."""
    quotes, backslashes = word ^ _QUOTES, word ^ _BACKSLASHES
    ends = (quotes - _ONES) & ~quotes | (backslashes - _ONES) & ~backslashes | (word - _BLANKS) & ~word | word
    return lowest_bit(ends & _HIGH) >> 3  # a bit above the lowest may be wrong


@inlined
def plain_end(data: int, at: int) -> int:
    """The position of the first byte from `at` on that is not plain text of a string (`plain_bytes`)."""
    begin, kept = (data + at) & -WORD_BYTES, _ALL << ((np.uint64(data + at) & _7) << _3)
    word, n = load_u64(begin, 0) & kept | _LETTERS & ~kept, 0
    while True:
        n = plain_bytes(word)
        if n < WORD_BYTES:
            return begin - data + n
        begin += WORD_BYTES
        word = load_u64(begin, 0)


@inlined
def place_of_byte(word: np.uint64, byte: Int) -> np.int64:
    """The place of the first of a word's bytes that is this one, WORD_BYTES if there is none."""
    others = word ^ np.uint64(byte) * _ONES
    return lowest_bit((others - _ONES) & ~others & _HIGH) >> 3


@inlined
def is_ascii(word: np.uint64) -> bool:
    """Tells whether all bytes of a word are ASCII."""
    return word & _HIGH == _0


@inlined
def in_lower_case(word: np.uint64) -> np.uint64:
    """The word of ASCII bytes with A to Z as a to z."""
    return word | ((word + _FROM_A) & ~(word + _FROM_BEHIND_Z) & _HIGH) >> _TO_LOWER


@inlined
def store_word(to: int, at: Int, word: np.uint64) -> int:
    """Write the lowest bytes of a word at any position, those before the next multiple of eight in memory, with one store if
    they are eight.  Returns their number."""
    n = WORD_BYTES - int((to + at) & (WORD_BYTES - 1))
    if n == WORD_BYTES:
        store_u64(to + at, 0, word)
        return n
    for k in range(n):
        store_u8(to, at + k, np.int64(word & np.uint64(0xFF)))
        word >>= _8
    return n


@inlined
def begins_in_word(word: np.uint64, following: np.uint64, wanted: Int) -> bool:
    """Tells whether the four bytes of the number `wanted` begin at one of the eight bytes of a word; `following` is the word
    behind it."""
    found = False
    for k in range(5):
        found |= np.uint32(word >> np.uint64(8 * k)) == np.uint32(wanted)
    for k in range(5, WORD_BYTES):
        found |= np.uint32(word >> np.uint64(8 * k) | following << np.uint64(64 - 8 * k)) == np.uint32(wanted)
    return found
