"""Finds in compiled code why a flagged line is refused, for the reasons that are common in files.

`rows.judge` refuses a line that is not UTF-8 or not JSON; an event with a named number out of range, a named attribute that
stands twice, or a location that lacks a coordinate or has a text in its place.  The functions of this module find the same
reasons at the same positions; a line that leaves them in doubt (`NOT_CERTAIN`) is judged in Python.  They find a reason
as a number and the part of the line that its text shows; the text itself is the judge's (`line_judge`).

JSON is read as Python's `json` reads it, so that errors have the same positions.  A literal such as NaN, deep nesting and
long integers are left to the judge.  The functions allocate nothing and raise nothing; see `to_codes`.
"""

from __future__ import annotations

import sys

import numpy as np

from mpi_match.compute.compile_cache import jit, nested
from mpi_match.compute.memory import any_u64, load_i64, load_u8, load_u32, store_i64, store_u8, store_u32
from mpi_match.compute.vectors import word_by_bytes
from mpi_match.ingest.codes.code_tables import SEED, hash_of, mixed
from mpi_match.ingest.json.text import (
    after_blanks,
    character_bytes,
    copied,
    digits_end,
    hex_digits,
    literal,
    text_end_by_vectors,
)
from mpi_match.ingest.json.to_codes import row_begin
from mpi_match.texts.characters import (
    APOSTROPHE,
    BACKSLASH,
    BACKSPACE,
    BLANK,
    CLOSE_BRACE,
    CLOSE_BRACKET,
    COLON,
    COMMA,
    FORM_FEED,
    LINE_FEED,
    LOWER_A,
    LOWER_B,
    LOWER_CASE,
    LOWER_E,
    LOWER_F,
    LOWER_N,
    LOWER_R,
    LOWER_T,
    LOWER_U,
    LOWER_Z,
    MINUS,
    NINE,
    OPEN_BRACE,
    OPEN_BRACKET,
    PLUS,
    POINT,
    QUOTE,
    RETURN,
    SLASH,
    TAB,
    ZERO,
)

(
    NOT_CERTAIN,
    _FINE,
    NOT_UTF8,
    NO_VALUE,
    NO_NAME,
    NO_COLON,
    NO_COMMA,
    MORE_DATA,
    UNTERMINATED,
    CONTROL_CHARACTER,
    BAD_ESCAPE,
    BAD_CODE_POINT,
    COMMA_IN_OBJECT,
    COMMA_IN_LIST,
    TWICE,
    TOO_LARGE,
    NEAR_ZERO,
    INTEGER_TOO_LARGE,
    WITHOUT_X,
    WITHOUT_Y,
    TEXT_AS_X,
    TEXT_AS_Y,
    N_REASONS,
) = range(23)
"""Reasons, behind NOT_CERTAIN and the absence of one.  Those from NOT_UTF8 to COMMA_IN_LIST show a number: a byte, or a
column.  TOO_LARGE to INTEGER_TOO_LARGE, TEXT_AS_X and TEXT_AS_Y show a part of the line.  Those from TWICE to
INTEGER_TOO_LARGE belong to a name: N_REASONS times its number is added."""
FOUND_REASON, FOUND_START, FOUND_STOP, FOUND_FIRST, FOUND_LAST, FOUND_REASON_WORDS = range(6)
"""Words of a refused line: the reason; where the row begins and ends in the data; what the reason shows: a number, or where
a part of the row begins and ends, counted from the row's beginning."""
ROW_LINE, ROW_REASON, ROW_SHOWS, ROW_FIRST, ROW_LAST, ROW_START, ROW_STOP, REFUSED_WORDS = range(8)
"""Words of a refused row that is kept: its line; the number of its reason, -1 for one of its own; one of SHOWS_NOTHING to
SHOWS_PART; what the reason shows, as above; where the row begins and ends among the rows."""
SHOWS_NOTHING, SHOWS_NUMBER, SHOWS_PART = range(3)
KEY_SLOTS, KEY_ROLES, WANTED_BYTES, KEY_ENDS, KEYS_SEEN, KEY_SCALARS, N_KEY_TABLES = range(7)
"""Arrays of the names that count: u32[2^k] slots of an open hash table, NO_KEY or a name's number; i64 roles; u8 bytes; i64
ends, of each name after those before it; i64 the line that the name was last seen in; i64 the table's mask, and a number of
the last line."""
NO_KEY = 2**32 - 1
KEY_MASK, LAST_LINE, READS_LOCATION, X_NOTED, Y_NOTED, N_KEY_SCALARS = 0, 1, 2, 3, 6, 9
"""Words of KEY_SCALARS.  READS_LOCATION is 1 if nothing else can be wrong before the location is read.  At X_NOTED and
Y_NOTED are three words for a coordinate of the row: a state, and the bounds of a text."""
_STATE, _TEXT_START, _TEXT_STOP = range(3)
_ABSENT, _NUMBER, _TEXT, _OTHER = range(4)
IS_WANTED, IS_ABOVE, IS_X, IS_Y, IS_ID = 1, 2, 4, 8, 16
"""Roles of names: read; that of an object or list that may hold a name that is read; those of the location and the id."""
_NO_SCALAR, _IN_DOUBT = -1, -2
_MOST_ROW_BYTES = 2**20
_MOST_LEVELS = 60
_MOST_DIGITS = 4000
"""A longer line, deeper values and longer integers are left to the judge, as Python reads them in other ways."""
_MOST_PLAIN_DIGITS, _MOST_SHOWN = 15, 20
"""Digits of an integer that is a double; characters of a text that Python shows whole."""
_COMMA_IS_SHOWN = sys.version_info >= (3, 13)
_HIGH_BITS = np.uint64(0x8080808080808080)
_NAN, _INFINITY = (int.from_bytes(word, "little") for word in (b"NaN", b"Infinity"))
_REPLACED = 0xEFBFBD
"""U+FFFD in UTF-8."""


@nested
def _bad_utf8(data: int, at: int, stop: int) -> tuple[int, bool]:
    """The end of the well-formed UTF-8 in data[at:stop], and True if the bytes before it are ASCII."""
    is_ascii = True
    while at < stop:
        if at + 8 <= stop and any_u64(data + at) & _HIGH_BITS == 0:
            at += 8
        elif load_u8(data, at) < 0x80:
            at += 1
        else:
            n = character_bytes(data, at)
            if n == 0 or at + n > stop:
                return at, is_ascii
            is_ascii = False
            at += n
    return stop, is_ascii


@nested
def _blanks_end(data: int, at: int, stop: int) -> int:
    while at < stop and (load_u8(data, at) == BLANK or load_u8(data, at) == TAB or load_u8(data, at) == RETURN):
        at += 1
    return at


@nested
def _string(data: int, at: int, stop: int) -> tuple[int, int]:
    """Read the string at a quote; returns _FINE and its end, or the reason and its position."""
    begin = at
    at += 1
    while True:
        at = text_end_by_vectors(data, at)
        if at >= stop:
            return UNTERMINATED, begin
        byte = load_u8(data, at)
        if byte == QUOTE:
            return _FINE, at + 1
        if byte != BACKSLASH:
            return CONTROL_CHARACTER, at
        at += 1
        if at == stop:
            return UNTERMINATED, begin
        byte = load_u8(data, at)
        if byte == LOWER_U:
            if at + 5 >= stop or hex_digits(data, at + 1) < 0:
                for k in range(at, min(at + 5, stop)):
                    if load_u8(data, k) >= 0x80:  # Python counts characters
                        return NOT_CERTAIN, at
                return BAD_CODE_POINT, at
            at += 5
        elif (
            byte == QUOTE
            or byte == BACKSLASH
            or byte == SLASH
            or byte == LOWER_B
            or byte == LOWER_F
            or byte == LOWER_N
            or byte == LOWER_R
            or byte == LOWER_T
        ):
            at += 1
        else:
            return BAD_ESCAPE, at - 1


@nested
def _is_constant(data: int, at: int, stop: int) -> bool:
    """Tells whether NaN or Infinity is here, which Python reads."""
    if load_u8(data, at) == _NAN & 255:
        return at + 3 <= stop and word_by_bytes(data, at, 3) == np.uint64(_NAN)
    return at + 8 <= stop and load_u8(data, at) == _INFINITY & 255 and word_by_bytes(data, at, 8) == np.uint64(_INFINITY)


@nested
def _scalar_end(data: int, at: int, stop: int) -> int:
    """The end of a number or a literal as Python's `json` finds it, _NO_SCALAR or _IN_DOUBT."""
    byte = load_u8(data, at)
    if byte == MINUS or ZERO <= byte <= NINE:
        first = at
        if byte == MINUS:
            at += 1
        byte = load_u8(data, at) if at < stop else 0
        if byte == ZERO:
            at += 1
        elif ZERO < byte <= NINE:
            at = digits_end(data, at)
            if at - first > _MOST_DIGITS:
                return _IN_DOUBT
        else:
            return _IN_DOUBT if _is_constant(data, at, stop) else _NO_SCALAR
        if at + 1 < stop and load_u8(data, at) == POINT and ZERO <= load_u8(data, at + 1) <= NINE:
            at = digits_end(data, at + 1)
        if at + 1 < stop and load_u8(data, at) | LOWER_CASE == LOWER_E:
            exponent = at + 1
            if exponent + 1 < stop and (load_u8(data, exponent) == PLUS or load_u8(data, exponent) == MINUS):
                exponent += 1
            if ZERO <= load_u8(data, exponent) <= NINE:
                at = digits_end(data, exponent)
        return at
    if _is_constant(data, at, stop):
        return _IN_DOUBT
    found, end = literal(data, at)
    return end if found >= 0 and end <= stop else _NO_SCALAR


@nested
def _scalar(data: int, at: int, stop: int) -> tuple[int, int]:
    """Read a string, a number or a literal; returns _FINE and its end, or the reason and its position."""
    if load_u8(data, at) == QUOTE:
        return _string(data, at, stop)
    end = _scalar_end(data, at, stop)
    if end < 0:
        return NO_VALUE if end == _NO_SCALAR else NOT_CERTAIN, at
    return _FINE, end


@nested
def _name(data: int, at: int, stop: int) -> tuple[int, int]:
    """Read a name and its colon; returns _FINE and the position of the value, or the reason and its position."""
    if at >= stop or load_u8(data, at) != QUOTE:
        return NO_NAME, at
    reason, at = _string(data, at, stop)
    if reason != _FINE:
        return reason, at
    at = _blanks_end(data, at, stop)
    if at >= stop or load_u8(data, at) != COLON:
        return NO_COLON, at
    return _FINE, _blanks_end(data, at + 1, stop)


@nested
def _text_error(data: int, at: int, stop: int) -> tuple[int, int]:
    """Read data[at:stop], one row in UTF-8; returns _FINE if it is JSON, or the reason and its position."""
    depth, lists = 0, np.uint64(0)
    while True:
        if at >= stop:
            return NO_VALUE, at
        byte, opened = load_u8(data, at), False
        if byte == OPEN_BRACE or byte == OPEN_BRACKET:
            at = _blanks_end(data, at + 1, stop)
            if at < stop and load_u8(data, at) == byte + 2:
                at += 1
            elif depth == _MOST_LEVELS:
                return NOT_CERTAIN, at
            else:
                depth, opened = depth + 1, True
                lists = lists << np.uint64(1) | np.uint64(1 if byte == OPEN_BRACKET else 0)
        else:
            reason, at = _scalar(data, at, stop)
            if reason != _FINE:
                return reason, at
        while not opened:
            at = _blanks_end(data, at, stop)
            if depth == 0:
                return _FINE if at == stop else MORE_DATA, at
            byte = load_u8(data, at) if at < stop else 0
            is_list = lists & np.uint64(1) != 0
            if byte == (CLOSE_BRACKET if is_list else CLOSE_BRACE):
                depth, lists = depth - 1, lists >> np.uint64(1)
                at += 1
                continue
            if byte != COMMA:
                return NO_COMMA, at
            comma = at
            at = _blanks_end(data, at + 1, stop)
            if _COMMA_IS_SHOWN and at < stop and load_u8(data, at) == (CLOSE_BRACKET if is_list else CLOSE_BRACE):
                return COMMA_IN_LIST if is_list else COMMA_IN_OBJECT, comma
            opened = True
        if lists & np.uint64(1) == 0:
            reason, at = _name(data, at, stop)
            if reason != _FINE:
                return reason, at


@nested
def _plain_string_end(data: int, at: int) -> tuple[int, bool]:
    """The end of a valid string at a quote, and whether it has an escape."""
    escaped, at = False, at + 1
    while True:
        at = text_end_by_vectors(data, at)
        if load_u8(data, at) == QUOTE:
            return at + 1, escaped
        escaped = True
        at += 2


@nested
def _is_of_number(byte: int) -> bool:
    return byte | LOWER_CASE == LOWER_E or (PLUS <= byte <= NINE and byte != COMMA)


@nested
def _value_end(data: int, at: int) -> tuple[int, bool, bool]:
    """The end of a valid value; whether it is an object or has one in it; and whether it has an escape, or in a list a
    number that may be out of range."""
    depth, has_object, doubtful, first = 0, False, False, load_u8(data, at)
    while True:
        byte = load_u8(data, at)
        if byte == QUOTE:
            at, escaped = _plain_string_end(data, at)
            doubtful |= escaped
        elif byte == MINUS or ZERO <= byte <= NINE:
            begin = at
            while _is_of_number(load_u8(data, at)):
                doubtful |= depth > 0 and load_u8(data, at) | LOWER_CASE == LOWER_E
                at += 1
            doubtful |= depth > 0 and at - begin > _MOST_PLAIN_DIGITS
        else:
            if byte == OPEN_BRACE or byte == OPEN_BRACKET:
                depth += 1
                has_object |= byte == OPEN_BRACE
            elif byte == CLOSE_BRACE or byte == CLOSE_BRACKET:
                depth -= 1
            at += 1
        if depth == 0 and not (LOWER_A <= first <= LOWER_Z and LOWER_A <= load_u8(data, at) <= LOWER_Z):
            return at, has_object, doubtful


@nested
def _number_reason(data: int, at: int, stop: int) -> int:
    """_FINE, the reason why the number data[at:stop] cannot be read, or NOT_CERTAIN."""
    if load_u8(data, at) == MINUS:
        at += 1
    first, whole_digits, leading, is_point, digits = at, 0, 0, False, False
    while at < stop and load_u8(data, at) | LOWER_CASE != LOWER_E:
        byte = load_u8(data, at)
        if byte == POINT:
            is_point = True
        elif digits or byte != ZERO:
            digits = True
            whole_digits += 0 if is_point else 1
        elif is_point:
            leading += 1
        at += 1
    if not is_point and at == stop:
        n = stop - first
        return _FINE if n <= 18 else INTEGER_TOO_LARGE if 20 < n <= 38 else NOT_CERTAIN
    if not digits:
        return _FINE
    exponent = whole_digits - 1 if whole_digits > 0 else -1 - leading
    if at < stop:
        at += 1
        negative = load_u8(data, at) == MINUS
        if negative or load_u8(data, at) == PLUS:
            at += 1
        given = 0
        while at < stop:
            given = min(given * 10 + load_u8(data, at) - ZERO, 2**20)
            at += 1
        exponent += -given if negative else given
    if -323 <= exponent <= 307:
        return _FINE
    if stop - first >= 60 or exponent == 308 or exponent == -324:
        return NOT_CERTAIN
    return TOO_LARGE if exponent > 308 else NEAR_ZERO


@nested
def _has_point(data: int, at: int, stop: int) -> bool:
    while at < stop and load_u8(data, at) != POINT:
        at += 1
    return at < stop


@nested
def _key_at(data: int, start: int, stop: int, keys: int) -> int:
    """The number of the name data[start:stop], or NO_KEY."""
    slots, mask = load_i64(keys, KEY_SLOTS), load_i64(load_i64(keys, KEY_SCALARS), KEY_MASK)
    slot = np.int64(mixed(hash_of(data, start, stop, SEED)) & np.uint64(mask))
    while True:
        key = load_u32(slots, slot)
        if key == NO_KEY:
            return key
        begin = load_i64(load_i64(keys, KEY_ENDS), key - 1) if key > 0 else 0
        if load_i64(load_i64(keys, KEY_ENDS), key) - begin == stop - start:
            same, names = 0, load_i64(keys, WANTED_BYTES)
            while same < stop - start and load_u8(names, begin + same) == load_u8(data, start + same):
                same += 1
            if same == stop - start:
                return key
        slot = slot + 1 & mask


@nested
def _is_shown_plainly(data: int, at: int, stop: int) -> bool:
    """Tells whether Python shows a text as it is, between single quotes."""
    if stop - at > _MOST_SHOWN:
        return False
    for k in range(at, stop):
        byte = load_u8(data, k)
        if byte < BLANK or byte > 126 or byte == APOSTROPHE or byte == BACKSLASH:
            return False
    return True


@nested
def _note_coordinate(data: int, start: int, stop: int, place: int) -> None:
    """Write to `place` whether the coordinate data[start:stop] is a number, a text, or something else, and the text."""
    byte, state = load_u8(data, start), _OTHER
    if byte == LOWER_N:
        return
    if byte == MINUS or ZERO <= byte <= NINE:
        state = _NUMBER if stop - start <= _MOST_PLAIN_DIGITS or _has_point(data, start, stop) else _OTHER
    elif byte == QUOTE and _is_shown_plainly(data, start + 1, stop - 1):
        state = _TEXT
    store_i64(place, _STATE, state)
    store_i64(place, _TEXT_START, start + 1)
    store_i64(place, _TEXT_STOP, stop - 1)


@nested
def _location_error(keys: int) -> tuple[int, int, int]:
    """The reason why the coordinates that were noted are no location, and what it shows."""
    scalars = load_i64(keys, KEY_SCALARS)
    x, y = scalars + 8 * X_NOTED, scalars + 8 * Y_NOTED
    of_x, of_y = load_i64(x, _STATE), load_i64(y, _STATE)
    if load_i64(scalars, READS_LOCATION) == 0 or of_x == _OTHER or of_y == _OTHER:
        return NOT_CERTAIN, 0, 0
    if (of_x == _ABSENT) != (of_y == _ABSENT):
        return WITHOUT_X if of_x == _ABSENT else WITHOUT_Y, 0, 0
    if of_x == _TEXT:
        return TEXT_AS_X, load_i64(x, _TEXT_START), load_i64(x, _TEXT_STOP)
    return (TEXT_AS_Y, load_i64(y, _TEXT_START), load_i64(y, _TEXT_STOP)) if of_y == _TEXT else (NOT_CERTAIN, 0, 0)


@nested
def _value_reason(data: int, start: int, stop: int, role: int, scalars: int) -> int:
    """_FINE, the reason why the value of a name that is read cannot be read, or NOT_CERTAIN; notes a coordinate."""
    byte = load_u8(data, start)
    if role & IS_X:
        _note_coordinate(data, start, stop, scalars + 8 * X_NOTED)
    if role & IS_Y:
        _note_coordinate(data, start, stop, scalars + 8 * Y_NOTED)
    return _number_reason(data, start, stop) if byte == MINUS or ZERO <= byte <= NINE else _FINE


@nested
def _object_error(data: int, at: int, keys: int) -> tuple[int, int, int]:
    """The reason why an object of JSON is no event, and the part of the data that its text shows; NOT_CERTAIN if there may
    be none."""
    scalars = load_i64(keys, KEY_SCALARS)
    line = load_i64(scalars, LAST_LINE) + 1
    store_i64(scalars, LAST_LINE, line)
    store_i64(scalars, X_NOTED + _STATE, _ABSENT)
    store_i64(scalars, Y_NOTED + _STATE, _ABSENT)
    seen, roles = load_i64(keys, KEYS_SEEN), load_i64(keys, KEY_ROLES)
    twice, wrong, first, last = NOT_CERTAIN, NOT_CERTAIN, 0, 0
    at += 1
    while load_u8(data, at) != CLOSE_BRACE:
        if load_u8(data, at) != QUOTE:
            at += 1
            continue
        end, escaped = _plain_string_end(data, at)
        key = _key_at(data, at + 1, end - 1, keys)
        role = load_i64(roles, key) if key != NO_KEY else 0
        while load_u8(data, end) != COLON:
            end += 1
        start = after_blanks(data, end + 1)
        at, has_object, doubtful = _value_end(data, start)
        is_object = load_u8(data, start) == OPEN_BRACE
        if escaped or (role & IS_ABOVE and has_object):
            return NOT_CERTAIN, 0, 0
        if role & IS_WANTED == 0 or is_object:
            continue
        if load_i64(seen, key) == line:
            twice = TWICE + N_REASONS * key if twice == NOT_CERTAIN else twice
        elif role & IS_ID == 0:
            reason = NOT_CERTAIN if doubtful else _value_reason(data, start, at, role, scalars)
            if reason == NOT_CERTAIN:
                return NOT_CERTAIN, 0, 0
            if reason != _FINE and wrong == NOT_CERTAIN:
                wrong, first, last = reason + N_REASONS * key, start, at
        store_i64(seen, key, line)
    if twice != NOT_CERTAIN:
        return twice, 0, 0
    return (wrong, first, last) if wrong != NOT_CERTAIN else _location_error(keys)


@nested
def _row_stop(data: int, start: int, stop: int) -> int:
    """The end of a row without the blanks that `bytes.strip` removes."""
    while stop > start:
        byte = load_u8(data, stop - 1)
        if byte != BLANK and (byte < TAB or byte > RETURN):
            return stop
        stop -= 1
    return stop


@nested
def _characters(data: int, at: int, stop: int) -> int:
    """The number of characters in data[at:stop]."""
    found = 0
    for k in range(at, stop):
        found += 1 if load_u8(data, k) & 0xC0 != 0x80 else 0
    return found


@nested
def _judge(data: int, start: int, stop: int, keys: int) -> tuple[int, int, int]:
    """The reason why a row is refused, and what it shows."""
    if stop - start > _MOST_ROW_BYTES:
        return NOT_CERTAIN, 0, 0
    at, is_ascii = _bad_utf8(data, start, stop)
    if at < stop:
        return NOT_UTF8, at - start, 0
    reason, at = _text_error(data, start, stop)
    if reason != _FINE:
        return reason, 1 + (at - start if is_ascii else _characters(data, start, at)), 0
    if load_u8(data, start) != OPEN_BRACE:
        return NOT_CERTAIN, 0, 0
    reason, first, last = _object_error(data, start, keys)
    return reason, first - start, last - start


@jit
def judge_flagged(data: int, flagged: int, n: int, keys: int, to: int) -> None:
    """Judge n flagged rows (`to_codes.FLAGGED`) of the data, and write FOUND_REASON_WORDS for each.

    `keys` is the address of the arrays of names; each thread needs arrays of its own.
    """
    for k in range(n):
        row, found = flagged + 32 * k, to + 8 * FOUND_REASON_WORDS * k
        start = row_begin(data, load_i64(row, 2))
        while load_u8(data, start) == LINE_FEED:  # a blank line, which a GPU leaves before the row
            start = row_begin(data, start + 1)
        stop = _row_stop(data, start, load_i64(row, 3))
        reason, first, last = _judge(data, start, stop, keys)
        store_i64(found, FOUND_REASON, reason)
        store_i64(found, FOUND_START, start)
        store_i64(found, FOUND_STOP, stop)
        store_i64(found, FOUND_FIRST, first)
        store_i64(found, FOUND_LAST, last)


@jit
def fill_slots(n: int, keys: int) -> None:
    """Enter n names into the slots, which are empty."""
    slots, mask = load_i64(keys, KEY_SLOTS), load_i64(load_i64(keys, KEY_SCALARS), KEY_MASK)
    begin = 0
    for key in range(n):
        end = load_i64(load_i64(keys, KEY_ENDS), key)
        slot = np.int64(mixed(hash_of(load_i64(keys, WANTED_BYTES), begin, end, SEED)) & np.uint64(mask))
        while load_u32(slots, slot) != NO_KEY:
            slot = slot + 1 & mask
        store_u32(slots, slot, key)
        begin = end


@nested
def _put_escaped(data: int, at: int, stop: int, to: int, filled: int) -> int:
    """Append data[at:stop] to `to` as the inside of a JSON string, each ill-formed sequence of UTF-8 as U+FFFD.  Returns the
    end of the filled part."""
    while at < stop:
        byte = load_u8(data, at)
        if BLANK <= byte < 0x80 and byte != QUOTE and byte != BACKSLASH:
            store_u8(to, filled, byte)
            at += 1
            filled += 1
        elif byte >= 0x80:
            n = _well_formed(data, at, stop)
            if n > 0:
                filled = copied(data, at, at + n, to, filled)
                at += n
            else:
                for k in range(3):
                    store_u8(to, filled + k, _REPLACED >> 16 - 8 * k & 255)
                filled += 3
                at -= n
        else:
            short = _short_escape(byte)
            store_u8(to, filled, BACKSLASH)
            store_u8(to, filled + 1, short)
            at += 1
            filled += 2
            if short == LOWER_U:
                low = byte & 15
                store_u8(to, filled, ZERO)
                store_u8(to, filled + 1, ZERO)
                store_u8(to, filled + 2, ZERO + (byte >> 4))
                store_u8(to, filled + 3, ZERO + low if low < 10 else LOWER_A + low - 10)
                filled += 4
    return filled


@nested
def _short_escape(byte: int) -> int:
    """The character after the backslash of an escape; `u` for a byte without a short one."""
    if byte == QUOTE or byte == BACKSLASH:
        return byte
    if byte == LINE_FEED:
        return LOWER_N
    if byte == RETURN:
        return LOWER_R
    if byte == TAB:
        return LOWER_T
    if byte == BACKSPACE:
        return LOWER_B
    return LOWER_F if byte == FORM_FEED else LOWER_U


@nested
def _well_formed(data: int, at: int, stop: int) -> int:
    """The length of the character beyond ASCII at `at`; minus that of the longest beginning of one, at least 1, if it is
    ill-formed."""
    first = load_u8(data, at)
    n = 4 if first >= 0xF0 else 3 if first >= 0xE0 else 2
    if first < 0xC2 or first > 0xF4 or at + 1 >= stop:
        return -1
    second = load_u8(data, at + 1)
    least = 0xA0 if first == 0xE0 else 0x90 if first == 0xF0 else 0x80
    greatest = 0x9F if first == 0xED else 0x8F if first == 0xF4 else 0xBF
    if second < least or second > greatest:
        return -1
    for k in range(2, n):
        if at + k >= stop or load_u8(data, at + k) & 0xC0 != 0x80:
            return -k
    return n


@nested
def _put_number(number: int, to: int, filled: int) -> int:
    """Append the digits of a number that is not negative."""
    n, rest = 1, number // 10
    while rest > 0:
        n, rest = n + 1, rest // 10
    for k in range(n):
        store_u8(to, filled + n - 1 - k, ZERO + number % 10)
        number //= 10
    return filled + n


@nested
def _put_part(pool: int, ends: int, which: int, to: int, filled: int) -> int:
    """Append text number `which` of a pool."""
    return copied(pool, load_i64(ends, which), load_i64(ends, which + 1), to, filled)


@jit
def write_rejects(rows: int, lines: int, n: int, pool: int, ends: int, to: int, line_ends: int) -> int:
    """Write n refused rows as lines of a file of rejects; returns the bytes written.  Also writes to i64 `line_ends` where
    each line ends.

    Parameters: `rows` u8 are the rows end to end; `lines` are i64[n, REFUSED_WORDS]; `pool` u8 are texts that i64 `ends`
    bound: those before the reason, after it, and before the row; then two for each reason, before and after what it shows.
    """
    filled = 0
    for k in range(n):
        line = lines + 8 * REFUSED_WORDS * k
        start, stop, reason = load_i64(line, ROW_START), load_i64(line, ROW_STOP), load_i64(line, ROW_REASON)
        if reason >= 0:
            filled = _put_part(pool, ends, 0, to, filled)
            filled = _put_part(pool, ends, 3 + 2 * reason, to, filled)
            first, last = load_i64(line, ROW_FIRST), load_i64(line, ROW_LAST)
            if load_i64(line, ROW_SHOWS) == SHOWS_NUMBER:
                filled = _put_number(first, to, filled)
            elif load_i64(line, ROW_SHOWS) == SHOWS_PART:
                filled = _put_escaped(rows, start + first, start + last, to, filled)
            filled = _put_part(pool, ends, 4 + 2 * reason, to, filled)
            filled = _put_part(pool, ends, 1, to, filled)
            filled = _put_number(load_i64(line, ROW_LINE), to, filled)
            filled = _put_part(pool, ends, 2, to, filled)
            filled = _put_escaped(rows, start, stop, to, filled)
            store_u8(to, filled, QUOTE)
            store_u8(to, filled + 1, CLOSE_BRACE)
            store_u8(to, filled + 2, LINE_FEED)
            filled += 3
        store_i64(line_ends, k, filled)
    return filled


@jit
def copy_rows(data: int, found: int, n: int, lines: int, to: int) -> None:
    """Copy n rows, whose ends in the data are in `found` (`judge_flagged`), to u8 `to`; writes their ends to `lines`."""
    filled = 0
    for k in range(n):
        row, line = found + 8 * FOUND_REASON_WORDS * k, lines + 8 * REFUSED_WORDS * k
        store_i64(line, ROW_START, filled)
        filled = copied(data, load_i64(row, FOUND_START), load_i64(row, FOUND_STOP), to, filled)
        store_i64(line, ROW_STOP, filled)
