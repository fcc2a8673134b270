"""Copies the texts of a column of Python's strings in one pass of compiled code.

In a column whose strings are objects of their own, each costs a cache miss, and several in Python and pyarrow, which look at
it for its type, for a list of objects, and for its text.  Here it is looked at once, after it was fetched in advance.

CPython's C interface gives the UTF-8 of any string (`PyUnicode_AsUTF8AndSize`).  An ASCII string has it behind its header,
where it is read without a call if the objects of this interpreter look as expected (`_ascii_layout`).
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.arrays.strings import Strings
from mpi_match.compute.compile_cache import compile_once, locked_jit
from mpi_match.compute.lines import prefetch
from mpi_match.compute.memory import (
    any_u64,
    clear_error,
    load_i64,
    load_u8,
    load_u32,
    store_i64,
    store_u8,
    store_u64,
    utf8_of,
)

_AHEAD = 16
"""Entries between the one that is copied and the one that is fetched."""
_LINE_BYTES = 64
_TYPE, _LENGTH, _STATE = 8, 16, 32
"""Bytes before the type, the length and the state of a string, in objects of CPython with a global lock."""
_ASCII_STATES = (0x60, 0x180000)
"""Bits of the state, u32, that only a compact ASCII string has: of CPython up to 3.13, and from 3.14 on."""
_FIRST_BYTES = 16
"""Bytes of text per entry for which memory is taken at first."""
_NOT_A_TEXT = -1


class Texts(NamedTuple):
    """The texts of a column, empty for None, and bool[n] that marks those that are there; None if all are."""

    texts: Strings
    is_there: Array | None


def texts_of(column: Array) -> Texts | None:
    """The texts of an array of objects that are all `str` or None; None for another array, a string that UTF-8 cannot have,
    and under an interpreter whose objects are unknown."""
    layout = _ascii_layout()
    if layout is None:
        return None
    compile_texts()
    column, n = np.ascontiguousarray(column), len(column)
    offsets, is_there = np.zeros(n + 1, np.int64), np.empty(n, np.uint8)
    known = np.array([id(str), id(None), *layout, 0], np.int64)
    data, done = np.empty(_FIRST_BYTES * n, np.uint8), 0
    while done < n:
        to = (offsets.ctypes.data, is_there.ctypes.data, data.ctypes.data, len(data))
        found = _copy_texts(column.ctypes.data, done, n, known.ctypes.data, to)
        if found == _NOT_A_TEXT:
            return None
        if (done := found) < n:
            more = 2 * len(data) + 4 * sys.getsizeof(column[done])
            data = np.concatenate((data[: offsets[done]], np.empty(more, np.uint8)))
    return Texts(Strings(data[: offsets[n]], offsets), None if is_there.all() else is_there.view(bool))


class _Layout(NamedTuple):
    """The bits that mark an ASCII string, 0 if none do so reliably, and the number of bytes before its text."""

    state: int
    text: int


@cache
def _ascii_layout() -> _Layout | None:
    """The layout of this interpreter's strings, as some of them show it; None if even their type is elsewhere."""
    text = sys.getsizeof("") - 1
    ascii_, others = [(b"x" * n).decode() for n in (0, 1, 7, 300)], ["\xe9" * 3, "\u0394" * 3, "\U0001f600" * 3]
    seen = {each: ctypes.string_at(id(each), sys.getsizeof(each)) for each in (*ascii_, *others)}
    if any(_word(found, _TYPE, 8) != id(str) for found in seen.values()):
        return None
    for state in _ASCII_STATES:
        is_ascii = {each: _word(found, _STATE, 4) & state == state for each, found in seen.items()}
        if all(is_ascii[each] == (each in ascii_) for each in seen) and all(
            _word(seen[each], _LENGTH, 8) == len(each) and seen[each][text:] == each.encode() + b"\0" for each in ascii_
        ):
            return _Layout(state, text)
    return _Layout(0, 0)


def _word(found: bytes, at: int, size: int) -> int:
    return int.from_bytes(found[at : at + size], sys.byteorder)


@cache
def compile_texts() -> None:
    """Compile the function."""
    with compile_once("text-objects", 1):
        _copy_texts(0, 0, 0, 0, (0, 0, 0, 0))


@locked_jit
def _copy_texts(column: int, first: int, n: int, known: int, to: tuple[int, int, int, int]) -> int:
    """Copy the texts of the objects at `column` from object `first` on.  Returns the first that lacks room, or n, or
    `_NOT_A_TEXT`.

    `known`: the addresses of `str` and None, a `_Layout`, and a word of scratch; `to`: the addresses of offsets i64[n + 1],
    marks u8[n] and data, and the bytes of the data.
    """
    offsets, is_there, data, room = to
    if first == n:
        return n
    of_text, of_none, state, behind = load_i64(known, 0), load_i64(known, 1), load_i64(known, 2), load_i64(known, 3)
    at = load_i64(offsets, first)
    for i in range(first, n):
        if i + _AHEAD < n:
            prefetch(load_i64(column, i + _AHEAD))
            prefetch(load_i64(column, i + _AHEAD) + _LINE_BYTES)
        object_, size = load_i64(column, i), 0
        store_u8(is_there, i, object_ != of_none)
        if object_ != of_none:
            if load_i64(object_ + _TYPE, 0) != of_text:
                return _NOT_A_TEXT
            if state != 0 and load_u32(object_ + _STATE, 0) & state == state:
                text, size = object_ + behind, load_i64(object_ + _LENGTH, 0)
            else:
                text = utf8_of(object_, known + 8 * 4)
                size = load_i64(known, 4)
                if text == 0:
                    clear_error()
                    return _NOT_A_TEXT
            if size > room - at:
                return i
            k = 0
            while k + 8 <= size:
                store_u64(data + at + k, 0, any_u64(text + k))
                k += 8
            while k < size:
                store_u8(data, at + k, load_u8(text, k))
                k += 1
        at += size
        store_i64(offsets, i + 1, at)
    return n
