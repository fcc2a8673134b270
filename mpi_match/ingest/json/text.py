"""The text of JSON in compiled code: blanks, strings, literals, ends of numbers; for values see `codes.numbers`.

Every text ends with a line feed, and no function passes one.  Positions count bytes from an address (`compute.memory`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mpi_match.arrays.csr import Int
from mpi_match.compute.compile_cache import inlined, nested
from mpi_match.compute.memory import is_on_cpu, load_u8, store_u8
from mpi_match.compute.vectors import VECTOR_BYTES, copy_text, fits, lowest_bit, text_ends
from mpi_match.compute.words import WORD_BYTES, plain_bytes, plain_end, store_word, word_from
from mpi_match.ingest.codes.code_tables import SEED, feed, hash_of
from mpi_match.texts.characters import (
    BACKSLASH,
    BLANK,
    LINE_FEED,
    LOWER_A,
    LOWER_B,
    LOWER_CASE,
    LOWER_E,
    LOWER_F,
    LOWER_L,
    LOWER_N,
    LOWER_R,
    LOWER_S,
    LOWER_T,
    LOWER_U,
    MINUS,
    NINE,
    PLUS,
    POINT,
    QUOTE,
    RETURN,
    SLASH,
    TAB,
    VERTICAL_TAB,
    ZERO,
)

SCRATCH_BYTES = 2**16
"""Most bytes of a dotted name, and of a decoded string with escapes."""
FLAGGED_LINE = -1
"""The value of a position that says that the line is not certain."""


@inlined
def after_blanks(data: int, at: Int) -> Int:
    """The first byte after JSON whitespace; a line feed ends the line and does not count as such."""
    if load_u8(data, at) == BLANK:  # one is usual
        at += 1
    while load_u8(data, at) == BLANK or load_u8(data, at) == TAB or load_u8(data, at) == RETURN:
        at += 1
    return at


@nested
def after_margin(data: int, at: int) -> int:
    """The position of the first byte that `bytes.strip` would not remove, or of the line feed."""
    while load_u8(data, at) == BLANK or load_u8(data, at) == TAB or VERTICAL_TAB <= load_u8(data, at) <= RETURN:
        at += 1
    return at


@nested
def next_line(data: int, at: int) -> int:
    """The position after the next line feed at or after `at`."""
    while load_u8(data, at) != LINE_FEED:
        at += 1
    return at + 1


@nested
def character_bytes(data: int, at: int) -> int:
    """Length of the UTF-8 character beyond ASCII that begins here; 0 if there is none."""
    first, second = load_u8(data, at), load_u8(data, at + 1)
    if first < 0xC2 or first > 0xF4 or second & 0xC0 != 0x80:
        return 0
    if first < 0xE0:
        return 2
    if load_u8(data, at + 2) & 0xC0 != 0x80:
        return 0
    if first < 0xF0:
        return 0 if (first == 0xE0 and second < 0xA0) or (first == 0xED and second > 0x9F) else 3
    if load_u8(data, at + 3) & 0xC0 != 0x80 or (first == 0xF0 and second < 0x90) or (first == 0xF4 and second > 0x8F):
        return 0
    return 4


@nested
def scan_string(data: int, at: int, hash_: np.uint64) -> tuple[int, np.uint64]:
    """Read from after the opening quote to the closing quote, a backslash, or a byte that no string may have.  Returns its
    position, and the hash of the bytes before it."""
    while True:
        byte = load_u8(data, at)
        if byte < 0x80:
            if byte == QUOTE or byte == BACKSLASH or byte < BLANK:
                return at, hash_
            hash_ = feed(hash_, byte)
            at += 1
        else:
            n = character_bytes(data, at)
            if n == 0:
                return at, hash_
            for i in range(at, at + n):
                hash_ = feed(hash_, load_u8(data, i))
            at += n


@nested
def hex_digits(data: int, at: int) -> int:
    """The number with four hexadecimal digits, or -1 if they are invalid."""
    found = 0
    for i in range(at, at + 4):
        byte = load_u8(data, i)
        if ZERO <= byte <= NINE:
            found = found * 16 + byte - ZERO
        elif LOWER_A <= (byte | LOWER_CASE) <= LOWER_F:
            found = found * 16 + (byte | LOWER_CASE) - LOWER_A + 10
        else:
            return -1
    return found


@nested
def _escaped(data: int, at: int) -> tuple[int, int]:
    """The character of the escape after a backslash, or -1, and the position where the escape ends."""
    byte = load_u8(data, at)
    if byte == LOWER_U:
        code = hex_digits(data, at + 1)
        at += 5
        if 0xD800 <= code <= 0xDFFF:
            if code >= 0xDC00 or load_u8(data, at) != BACKSLASH or load_u8(data, at + 1) != LOWER_U:
                return -1, at
            low = hex_digits(data, at + 2)
            if not 0xDC00 <= low <= 0xDFFF:
                return -1, at
            return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00), at + 6
        return code, at
    code = -1
    if byte == QUOTE or byte == BACKSLASH or byte == SLASH:
        code = byte
    elif byte == LOWER_B:
        code = 8
    elif byte == LOWER_F:
        code = 12
    elif byte == LOWER_N:
        code = 10
    elif byte == LOWER_R:
        code = 13
    elif byte == LOWER_T:
        code = 9
    return code, at + 1


@nested
def _encode(code: int, to: int, filled: int) -> int:
    """Write a character as UTF-8 into `to`.  Returns where it ends."""
    if code < 0x80:
        store_u8(to, filled, code)
        return filled + 1
    if code < 0x800:
        store_u8(to, filled, 0xC0 | code >> 6)
        store_u8(to, filled + 1, 0x80 | code & 63)
        return filled + 2
    if code < 0x10000:
        store_u8(to, filled, 0xE0 | code >> 12)
        store_u8(to, filled + 1, 0x80 | code >> 6 & 63)
        store_u8(to, filled + 2, 0x80 | code & 63)
        return filled + 3
    store_u8(to, filled, 0xF0 | code >> 18)
    store_u8(to, filled + 1, 0x80 | code >> 12 & 63)
    store_u8(to, filled + 2, 0x80 | code >> 6 & 63)
    store_u8(to, filled + 3, 0x80 | code & 63)
    return filled + 4


@nested
def decode_string(data: int, at: int, to: int, filled: int, room: int = SCRATCH_BYTES) -> tuple[int, int]:
    """Write the string that begins after an opening quote into `to` u8[room], from `filled` on, without escapes.

    Returns the position after the closing quote, and the end of the filled part of `to`; FLAGGED_LINE if it is not a string
    or too long.
    """
    while True:
        if is_on_cpu() and filled + VECTOR_BYTES <= room and fits(data + at):
            n = lowest_bit(copy_text(data + at, to + filled))
            at += n
            filled += n
            if n == VECTOR_BYTES:
                continue
        if not is_on_cpu() and filled + WORD_BYTES <= room:
            word = word_from(data + at)
            n_stored = store_word(to, filled, word)
            n = min(plain_bytes(word), n_stored)
            at += n
            filled += n
            if n == n_stored:
                continue
        byte = load_u8(data, at)
        if byte == QUOTE:
            return at + 1, filled
        if filled + 4 > room or byte < BLANK:
            return FLAGGED_LINE, filled
        if byte == BACKSLASH:
            code, at = _escaped(data, at + 1)
            if code < 0:
                return FLAGGED_LINE, filled
            filled = _encode(code, to, filled)
            continue
        n = character_bytes(data, at) if byte >= 0x80 else 1
        if n == 0:
            return FLAGGED_LINE, filled
        for i in range(n):
            store_u8(to, filled + i, load_u8(data, at + i))
        at += n
        filled += n


@nested
def text_at(data: int, at: int, scratch: int) -> tuple[int, int, int, int, np.uint64]:
    """Read the string at a quote.  Returns where it ends; the address, start and end of its bytes; and their hash."""
    if load_u8(data, at) != QUOTE:
        return FLAGGED_LINE, data, 0, 0, SEED
    start = at + 1
    at, hash_ = scan_string(data, start, SEED)
    if load_u8(data, at) == QUOTE:
        return at + 1, data, start, at, hash_
    if load_u8(data, at) != BACKSLASH:
        return FLAGGED_LINE, data, 0, 0, SEED
    at, stop = decode_string(data, start, scratch, 0)
    return at, scratch, 0, stop, hash_of(scratch, 0, stop if at != FLAGGED_LINE else 0, SEED)


@nested
def copied(data: int, start: int, stop: int, to: int, filled: int) -> int:
    """Append data[start:stop] to `to`.  Returns the end of its filled part."""
    for i in range(start, stop):
        store_u8(to, filled + i - start, load_u8(data, i))
    return filled + stop - start


@nested
def literal(data: int, at: int) -> tuple[int, int]:
    """`false`, `true` or `null` as 0, 1 or 2, and the position where it ends; -1 for anything else."""
    if (
        load_u8(data, at) == LOWER_T
        and load_u8(data, at + 1) == LOWER_R
        and load_u8(data, at + 2) == LOWER_U
        and load_u8(data, at + 3) == LOWER_E
    ):
        return 1, at + 4
    if (
        load_u8(data, at) == LOWER_N
        and load_u8(data, at + 1) == LOWER_U
        and load_u8(data, at + 2) == LOWER_L
        and load_u8(data, at + 3) == LOWER_L
    ):
        return 2, at + 4
    if (
        load_u8(data, at) == LOWER_F
        and load_u8(data, at + 1) == LOWER_A
        and load_u8(data, at + 2) == LOWER_L
        and load_u8(data, at + 3) == LOWER_S
        and load_u8(data, at + 4) == LOWER_E
    ):
        return 0, at + 5
    return -1, at


@inlined
def digits_end(data: int, at: int) -> int:
    """The position of the first byte from `at` on that is not a digit."""
    while ZERO <= load_u8(data, at) <= NINE:
        at += 1
    return at


@nested
def after_number(data: int, at: int) -> int:
    """The position after the number at `at`, or FLAGGED_LINE if it is invalid."""
    if load_u8(data, at) == MINUS:
        at += 1
    first = at
    at = digits_end(data, at)
    if at == first or (load_u8(data, first) == ZERO and at != first + 1):
        return FLAGGED_LINE
    if load_u8(data, at) == POINT:
        first = at + 1
        at = digits_end(data, first)
        if at == first:
            return FLAGGED_LINE
    if load_u8(data, at) | LOWER_CASE == LOWER_E:
        at += 1
        if load_u8(data, at) == PLUS or load_u8(data, at) == MINUS:
            at += 1
        first = at
        at = digits_end(data, at)
        if at == first:
            return FLAGGED_LINE
    return at


@inlined
def number_or_literal_end(data: int, at: int) -> int:
    """The end of a value other than a string, list or object, or FLAGGED_LINE."""
    byte = load_u8(data, at)
    if byte == MINUS or ZERO <= byte <= NINE:
        return after_number(data, at)
    found, at = literal(data, at)
    return at if found >= 0 else FLAGGED_LINE


@nested
def after_escape(data: int, at: int) -> int:
    """The position after the escape that begins at a backslash, or FLAGGED_LINE if it is invalid."""
    byte = load_u8(data, at + 1)
    if byte == LOWER_U:
        return at + 6 if hex_digits(data, at + 2) >= 0 else FLAGGED_LINE
    if (
        byte == QUOTE
        or byte == BACKSLASH
        or byte == SLASH
        or byte == LOWER_N
        or byte == LOWER_T
        or byte == LOWER_R
        or byte == LOWER_B
        or byte == LOWER_F
    ):
        return at + 2
    return FLAGGED_LINE


def _string_end(text_end: Callable[[int, int], int]) -> Callable[[int, int], int]:
    """`string_end(data, at)`: the position after the string at an opening quote, or FLAGGED_LINE if it is invalid."""

    @nested
    def string_end(data: int, at: int) -> int:
        at = text_end(data, at + 1)
        while load_u8(data, at) != QUOTE:
            if load_u8(data, at) != BACKSLASH:
                return FLAGGED_LINE
            at = after_escape(data, at)
            if at == FLAGGED_LINE:
                return FLAGGED_LINE
            at = text_end(data, at)
        return at + 1

    return string_end


@nested
def text_end_by_bytes(data: int, at: int) -> int:
    """The first byte from `at` on that is not plain text of a string: a quote, a backslash, a control character, a byte of
    no well-formed UTF-8."""
    while True:
        if not is_on_cpu():
            at = plain_end(data, at)
        byte = load_u8(data, at)
        if byte >= 0x80:
            n = character_bytes(data, at)
            if n == 0:
                return at
            at += n
        elif byte == QUOTE or byte == BACKSLASH or byte < BLANK:
            return at
        else:
            at += 1


@nested
def _after_other(data: int, at: int) -> int:
    """The position of the first byte from `at` on that is ASCII, or does not begin a well-formed character."""
    while load_u8(data, at) >= 0x80:
        n = character_bytes(data, at)
        if n == 0:
            return at
        at += n
    return at


@inlined
def text_end_by_vectors(data: int, at: int) -> int:
    """The same, for CPUs."""
    while True:
        address = data + at
        if fits(address):
            ends = text_ends(address)
            if ends == 0:
                at += VECTOR_BYTES
                continue
            at += lowest_bit(ends)
        byte = load_u8(data, at)
        if byte == QUOTE or byte == BACKSLASH or byte < BLANK:
            return at
        if byte < 0x80:
            at += 1
        else:
            after = _after_other(data, at)
            if load_u8(data, after) >= 0x80:
                return after
            at = after


string_end_by_bytes = _string_end(text_end_by_bytes)
string_end = _string_end(text_end_by_vectors)
