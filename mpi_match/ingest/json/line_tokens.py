"""Finds the tokens of a line by vectors of 64 bytes: the positions of its braces, brackets, colons and commas, and of the
beginnings of its strings, numbers and literals.

    {"city": "Milan", "temp": [25]}
    ^^     ^ ^      ^ ^     ^ ^^ ^^

The same pass checks strings: their escapes, their bytes, their ends.  All of it is arithmetic with masks of 64 bytes, after
Langdale and Lemire, "Parsing gigabytes of JSON per second", 2019.  Vectors begin at multiples of 64, so that no vector
reaches into a page without a byte of the line.
"""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Int
from mpi_match.compute.bits import popcount
from mpi_match.compute.compile_cache import inlined, nested
from mpi_match.compute.memory import load_i64, load_u8, load_u32, store_i64, store_u32
from mpi_match.compute.vectors import VECTOR_BYTES, bits_below, escape_masks, inside, json_masks, lowest_bit
from mpi_match.ingest.json.text import FLAGGED_LINE, character_bytes, hex_digits
from mpi_match.texts.characters import BACKSLASH

TOKENS_BASE, HAS_ESCAPES, TOKENS_HEADER = range(3)
"""Words, i64, before the tokens: the position from which theirs count; 1 if the line has a backslash.  The tokens are
u32, the last the line feed."""
TOKENS_AT_ONCE = 8
"""Number of tokens that are written at a time, including undefined ones."""
_0, _1, _63, _ALL, _ODD = (np.uint64(n) for n in (0, 1, 63, 2**64 - 1, 0xAAAAAAAAAAAAAAAA))


@inlined
def token_place(tokens: int, k: int) -> int:
    """The position of the k-th token."""
    return load_i64(tokens, TOKENS_BASE) + load_u32(tokens + 8 * TOKENS_HEADER, k)


@nested
def _are_hex(data: int, at: int, marks: np.uint64) -> bool:
    """Tells whether four hexadecimal digits follow each mark; the first mark is for the byte at `at`."""
    while marks != _0:
        if hex_digits(data, at + lowest_bit(marks) + 1) < 0:
            return False
        marks &= marks - _1
    return True


@nested
def _after_characters(data: int, at: int, marks: np.uint64, after: int) -> int:
    """Check the characters beyond ASCII that begin at marked bytes, from the position `after` on; the first mark is for the
    byte at `at`.  Returns the position after the last, or FLAGGED_LINE."""
    while marks != _0:
        place = at + lowest_bit(marks)
        marks &= marks - _1
        if place >= after:
            n = character_bytes(data, place)
            if n == 0:
                return FLAGGED_LINE
            after = place + n
    return after


@nested
def find_tokens(data: int, begin: int, tokens: int) -> Int:
    """Write the tokens of the line that begins at `begin`, with its line feed as the last, and check its strings.  Returns
    the number of tokens, or FLAGGED_LINE for an invalid string."""
    places = tokens + 8 * TOKENS_HEADER
    store_i64(tokens, TOKENS_BASE, begin)
    at = begin - ((data + begin) & (VECTOR_BYTES - 1))
    live = _ALL << np.uint64(begin - at)
    in_string, escaped_first, scalar_before, has_escapes, checked, n = _0, _0, _0, _0, begin, 0
    while True:
        found = json_masks(data + at)
        ended = found.line_feeds & live
        live &= bits_below(ended)
        backslashes, escaped = found.backslashes & live, escaped_first
        if backslashes != _0:
            has_escapes = _1
            open_ = backslashes & ~escaped_first
            series = ((open_ << _1 | _ODD) - open_) ^ _ODD
            escaped = series ^ (backslashes | escaped_first)
            escaped_first = (series & backslashes) >> _63
        else:
            escaped_first = _0
        quotes = found.quotes & live & ~escaped
        strings = inside(quotes) ^ in_string
        in_string = _0 - (strings >> _63)
        if found.controls & strings & live != _0 or escaped != _0:
            if found.controls & ~found.beyond_ascii & strings & live != _0:
                return FLAGGED_LINE
            if escaped != _0:
                known, with_digits = escape_masks(data + at)
                if escaped & live & ~known != _0 or not _are_hex(data, at, escaped & live & with_digits):
                    return FLAGGED_LINE
            if found.beyond_ascii & live != _0:
                checked = _after_characters(data, at, found.beyond_ascii & live, checked)
                if checked == FLAGGED_LINE:
                    return FLAGGED_LINE
        scalars = live & ~(found.brackets | found.blanks)
        others = scalars & ~quotes
        starts = found.brackets & live | scalars & ~(others << _1 | scalar_before)
        scalar_before = others >> _63
        starts &= ~(strings ^ quotes)
        n_starts, base, k = popcount(starts), at - begin, n
        n += n_starts
        while k < n:
            for _ in range(TOKENS_AT_ONCE):
                store_u32(places, k, base + lowest_bit(starts))
                starts &= starts - _1
                k += 1
        if ended != _0:
            if strings & (ended & (_0 - ended)) != _0:
                return FLAGGED_LINE
            store_i64(tokens, HAS_ESCAPES, np.int64(has_escapes))
            store_u32(places, n, base + lowest_bit(ended))
            return n + 1
        at += VECTOR_BYTES
        live = _ALL


@nested
def has_backslash(data: int, start: int, stop: int) -> bool:
    """Tells whether data[start:stop] contains the byte."""
    while start < stop and load_u8(data, start) != BACKSLASH:
        start += 1
    return start < stop
