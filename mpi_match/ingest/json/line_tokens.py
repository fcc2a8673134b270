"""Finds the tokens of a line by vectors of 64 bytes: its braces, brackets, colons and commas, and the first bytes of its
strings, numbers and literals; and checks that the line is JSON.

    {"city": "Milan", "temp": [25]}
    ^^     ^ ^      ^ ^     ^ ^^ ^^

Tokens are bits of masks of 64 bytes, after Langdale and Lemire, "Parsing gigabytes of JSON per second", 2019.  The grammar
is arithmetic with such masks, too: a sum carries the bit of each token to the next token, which tests all pairs of
neighbours together, and the digits of all numbers.  Only braces and brackets are taken one by one, onto a stack of bits.
Vectors begin at multiples of 64, so that none reaches into a page without a byte of the line.
"""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Int
from mpi_match.compute.bits import popcount
from mpi_match.compute.compile_cache import inlined, nested
from mpi_match.compute.memory import any_u32, load_i64, load_u8, load_u64, store_i64, store_u64
from mpi_match.compute.vectors import (
    VECTOR_BYTES,
    NumberMasks,
    bits_below,
    escape_masks,
    fetch_ahead,
    highest_bit,
    inside,
    json_masks,
    lowest_bit,
    number_masks,
    text_ends,
)
from mpi_match.ingest.json.text import FLAGGED_LINE, character_bytes, hex_digits, number_or_literal_end
from mpi_match.texts.characters import LOWER_E

TOKENS_BASE, TOKENS_HEADER = range(2)
"""Words, i64, before the masks: the position of the first byte of the first vector."""
TOKEN_MARKS, OPENINGS, CLOSINGS, VECTOR_MASKS = range(4)
"""Masks, u64, of each vector: tokens, the line feed the last; `{` and `[`; `}` and `]`."""
NESTING_ROOM, NESTING_WORDS = range(2)
"""Words of the memory for depth: the number of words after this one; the first of them.  A word has 64 levels."""
WORD_LEVELS = 64
_AHEAD = 1024
"""Distance in bytes at which lines are fetched from memory ahead of the reading: in the meantime a core reads 16 vectors."""
_0, _1, _5, _15, _63, _ALL, _ODD = (np.uint64(n) for n in (0, 1, 5, 15, 63, 2**64 - 1, 0xAAAAAAAAAAAAAAAA))
_TRUE, _NULL, _FALS = (int.from_bytes(text, "little") for text in (b"true", b"null", b"fals"))


def token_words(n_bytes: int) -> int:
    """The words that tokens of a line of n bytes need."""
    return TOKENS_HEADER + VECTOR_MASKS * (n_bytes // VECTOR_BYTES + 2)


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


@inlined
def _behind(tokens: np.uint64, carried: np.uint64, others: np.uint64) -> tuple[np.uint64, np.uint64]:
    """The token after each of some tokens, and the carry to the next vector; `others` are all bytes but tokens.

    A bit that is added to a row of ones ends after it.
    """
    total = (tokens << _1 | carried) + others
    return total & ~others, tokens >> _63 | np.uint64(total < others)


@inlined
def _wrong_in_numbers(found: NumberMasks, runs: np.uint64, firsts: np.uint64) -> np.uint64:
    """Errors in runs of bytes that should be numbers and end in this vector; `firsts` are their first bytes.  No bit is set
    if all of them are numbers of JSON."""
    digits, points, exponents = found.digits & runs, found.points & runs, found.exponents & runs
    signs, minuses = (found.minuses | found.pluses) & runs, found.minuses & firsts
    of_integers = firsts & ~minuses | minuses << _1
    of_fractions, behind_exponents = points << _1, exponents << _1
    of_exponents = behind_exponents & ~signs | (behind_exponents & signs) << _1
    after_integers, after_fractions = (of_integers + digits) & ~digits, (of_fractions + digits) & ~digits
    return (
        runs & ~(digits | points | exponents | signs)
        | (of_integers | of_fractions | of_exponents) & ~digits
        | points & ~after_integers
        | exponents & ~(after_integers | after_fractions)
        | signs & ~(minuses | behind_exponents)
        | (of_integers & found.zeros) << _1 & digits
    )


@inlined
def _wrong_in_scalars(data: int, at: int, runs: np.uint64, firsts: np.uint64) -> np.uint64:
    """Errors in runs of bytes that should be numbers or literals and end in the vector at `at`; `firsts` are their first
    bytes.  No bit is set if all of them are."""
    found = number_masks(data + at)
    letters = firsts & ~(found.digits | found.minuses)
    while letters != _0:
        place = lowest_bit(letters)
        word = any_u32(data + at + place) if runs >> np.uint64(place) & _15 == _15 else 0
        n = np.uint64(5 if word == _FALS and load_u8(data, at + place + 4) == LOWER_E else 4)
        if n != _5 and word != _TRUE and word != _NULL:
            return letters
        runs &= ~(((_1 << n) - _1) << np.uint64(place))
        letters &= letters - _1
    firsts &= runs
    return runs & ~(runs << _1 | firsts) | _wrong_in_numbers(found, runs, firsts)


@nested
def find_tokens(data: int, begin: int, tokens: int, nesting: int) -> Int:  # noqa: C901  one pass over a line
    """Write the tokens of the line that begins at `begin`, with its line feed as the last, and check that the line is JSON.
    Returns FLAGGED_LINE if it is not JSON in UTF-8, or is nested deeper than `nesting` has room for.

    A second value after the first is not noticed.
    """
    at = begin - ((data + begin) & (VECTOR_BYTES - 1))
    store_i64(tokens, TOKENS_BASE, at)
    masks, most = tokens + 8 * TOKENS_HEADER, WORD_LEVELS * load_i64(nesting, NESTING_ROOM)
    live = _ALL << np.uint64(begin - at)
    in_string, escaped_first, scalar_before, checked, scalar_end = _0, _0, _0, begin, begin
    after_part, after_separator, after_name = _0, _1, _0  # a value follows, as after a colon
    wrong, depth, objects = _0, 0, _0  # the last: a bit for each of the innermost levels, the lowest for the innermost
    while True:
        while in_string & ~(_0 - escaped_first) != _0 and text_ends(data + at) == _0:
            fetch_ahead(data + at + _AHEAD)
            for k in range(VECTOR_MASKS):
                store_u64(masks, k, _0)
            masks += 8 * VECTOR_MASKS
            at += VECTOR_BYTES
        fetch_ahead(data + at + _AHEAD)
        found = json_masks(data + at)
        ended = found.line_feeds & live
        end = ended & (_0 - ended)
        live &= bits_below(ended)
        backslashes, escaped = found.backslashes & live, escaped_first
        if backslashes != _0:
            open_ = backslashes & ~escaped_first
            series = ((open_ << _1 | _ODD) - open_) ^ _ODD
            escaped = series ^ (backslashes | escaped_first)
            escaped_first = (series & backslashes) >> _63
        else:
            escaped_first = _0
        quotes = found.quotes & live & ~escaped
        strings = inside(quotes) ^ in_string
        in_string = _0 - (strings >> _63)
        wrong |= found.controls & ~found.beyond_ascii & strings & live | strings & end
        if escaped != _0:
            known, with_digits = escape_masks(data + at)
            wrong |= escaped & live & ~known
            if escaped & live & with_digits != _0 and not _are_hex(data, at, escaped & live & with_digits):
                return FLAGGED_LINE
        if found.beyond_ascii & live != _0:
            checked = _after_characters(data, at, found.beyond_ascii & live, checked)
            if checked == FLAGGED_LINE:
                return FLAGGED_LINE

        outside = live & ~(strings | quotes)
        texts, openings, closings = quotes & strings, found.openings & outside, found.closings & outside
        colons, commas = found.colons & outside, found.commas & outside
        brackets = openings | closings
        scalars = outside & ~(brackets | colons | commas | found.blanks)
        firsts = scalars & ~(scalars << _1 | scalar_before)
        scalar_before = scalars >> _63
        values = texts | firsts | openings
        every = values | closings | colons | commas | end
        store_u64(masks, TOKEN_MARKS, every)
        store_u64(masks, OPENINGS, openings)
        store_u64(masks, CLOSINGS, closings)
        masks += 8 * VECTOR_MASKS

        others = ~every
        may_be_name, after_part = _behind(openings | commas, after_part, others)
        behind_separator, after_separator = _behind(commas | colons, after_separator, others)
        behind_name, after_name = _behind(texts & may_be_name, after_name, others)
        may_be_value = may_be_name | behind_separator
        wrong |= values & ~may_be_value | (commas | end) & may_be_value | closings & behind_separator | colons & ~behind_name
        in_object = colons | closings & found.braces
        in_list = (firsts | openings) & may_be_name | behind_name & ~colons | closings & ~found.braces
        while brackets != _0:
            upto = brackets ^ (brackets - _1)
            one, are_objects = upto & brackets, _0 - (objects & _1)
            wrong |= (in_list & are_objects | in_object & ~are_objects) & upto
            in_list &= ~upto
            in_object &= ~upto
            is_closing = closings & one != _0
            if is_closing:
                depth -= 1
                objects >>= _1
                if depth & (WORD_LEVELS - 1) == 0:
                    if depth < 0:
                        return FLAGGED_LINE
                    if depth:
                        objects = load_u64(nesting, NESTING_WORDS + depth // WORD_LEVELS - 1)
            else:
                if depth & (WORD_LEVELS - 1) == 0 and depth:
                    if depth >= most:
                        return FLAGGED_LINE
                    store_u64(nesting, NESTING_WORDS + depth // WORD_LEVELS - 1, objects)
                depth += 1
                objects = objects << _1 | np.uint64(found.braces & one != _0)
            brackets &= brackets - _1
        are_objects = _0 - (objects & _1)
        wrong |= in_list & are_objects | in_object & ~are_objects

        if scalar_end > at:
            n_checked = np.uint64(min(scalar_end - at, 63))
            scalars = scalars >> n_checked << n_checked if scalar_end - at < VECTOR_BYTES else _0
        if scalars != _0:
            if scalars >> _63 != _0:  # the last one goes on in the next vector
                last = highest_bit(firsts)
                if last < 0:
                    return FLAGGED_LINE
                scalar_end = number_or_literal_end(data, at + last)
                if scalar_end - at < VECTOR_BYTES:
                    return FLAGGED_LINE
                scalars &= (_1 << np.uint64(last)) - _1
                firsts &= scalars
            wrong |= _wrong_in_scalars(data, at, scalars, firsts)
        if end != _0:
            return begin if wrong == _0 and depth == 0 else FLAGGED_LINE
        at += VECTOR_BYTES
        live = _ALL


@inlined
def next_token(at: int, tokens: int) -> Int:
    """The position of the token after the one at a position."""
    base = load_i64(tokens, TOKENS_BASE)
    masks = tokens + 8 * (TOKENS_HEADER + VECTOR_MASKS * ((at - base) >> 6))
    marks = load_u64(masks, TOKEN_MARKS) & (_ALL << _1 << np.uint64((at - base) & 63))
    at -= (at - base) & 63
    while marks == _0:
        masks += 8 * VECTOR_MASKS
        at += VECTOR_BYTES
        marks = load_u64(masks, TOKEN_MARKS)
    return at + lowest_bit(marks)


@nested
def after_brackets(at: int, tokens: int) -> Int:
    """The position of the token after the list or object that begins at a position."""
    base = load_i64(tokens, TOKENS_BASE)
    masks = tokens + 8 * (TOKENS_HEADER + VECTOR_MASKS * ((at - base) >> 6))
    rest, depth = _ALL << _1 << np.uint64((at - base) & 63), 1
    at -= (at - base) & 63
    while True:
        openings, closings = load_u64(masks, OPENINGS) & rest, load_u64(masks, CLOSINGS) & rest
        if popcount(closings) >= depth:
            left, n_closed = closings, 0
            while left != _0:
                n_closed += 1
                if depth + popcount(openings & bits_below(left)) == n_closed:
                    return next_token(at + lowest_bit(left), tokens)
                left &= left - _1
        depth += popcount(openings) - popcount(closings)
        masks += 8 * VECTOR_MASKS
        at += VECTOR_BYTES
        rest = _ALL
