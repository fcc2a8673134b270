"""Unicode simple case folding in compiled code: the UTF-8 of `texts.folding.fold`."""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import nested
from mpi_match.compute.memory import is_on_cpu, load_i32, load_u8, store_u8
from mpi_match.compute.vectors import VECTOR_BYTES, fits, fold_ascii, lowest_bit
from mpi_match.compute.words import WORD_BYTES, in_lower_case, is_ascii, store_word, word_from
from mpi_match.texts.characters import LOWER_CASE, UPPER_A, UPPER_Z
from mpi_match.texts.folding import folds

FOLDING_TOO_LONG = -1
"""Result of `fold_text` if the folded text is longer than the room for it."""
_PAGE_BITS = 8
_PAGE, _IN_PAGE = 1 << _PAGE_BITS, (1 << _PAGE_BITS) - 1
_N_PAGES = 0x20000 >> _PAGE_BITS
"""The last page of code points with a character that has a case."""


def fold_table() -> Array:
    """i32: for each page of 256 code points, the index of its row in the table, or 0; then the rows, of numbers to add to
    code points."""
    changed = np.array(sorted(folds().items()), np.int32)
    pages, row = np.unique(changed[:, 0] >> _PAGE_BITS, return_inverse=True)
    rows = np.zeros((len(pages), _PAGE), np.int32)
    rows[row, changed[:, 0] & _IN_PAGE] = changed[:, 1] - changed[:, 0]
    first = np.zeros(_N_PAGES, np.int32)
    first[pages] = _N_PAGES + _PAGE * np.arange(len(pages))
    return np.concatenate([first, rows.ravel()])


@nested
def _folded(code: int, table: int) -> int:
    """The code point that another folds to."""
    if code >= _N_PAGES << _PAGE_BITS:
        return code
    row = load_i32(table, code >> _PAGE_BITS)
    return code + load_i32(table, row + (code & _IN_PAGE)) if row else code


@nested
def fold_text(data: int, start: int, stop: int, folded: int, room: int, table: int) -> int:
    """Write the folding of the text data[start:stop] to `folded`, u8[room].  Returns the number of its bytes, or
    FOLDING_TOO_LONG.

    `table` is the address of `fold_table`.  The text must be valid UTF-8; the folding of other bytes is undefined, but stays
    within the room.
    """
    at, n = start, 0
    while at < stop:
        if is_on_cpu() and n + VECTOR_BYTES <= room and fits(data + at):
            ascii_bytes = min(lowest_bit(fold_ascii(data + at, folded + n)), stop - at)
            at += ascii_bytes
            n += ascii_bytes
            if at == stop or ascii_bytes == VECTOR_BYTES:
                continue
        if not is_on_cpu() and at + WORD_BYTES <= stop and n + WORD_BYTES <= room:
            word = word_from(data + at)
            if is_ascii(word):
                n_stored = store_word(folded, n, in_lower_case(word))
                at += n_stored
                n += n_stored
                continue
        byte = load_u8(data, at)
        if byte < 0x80:
            if n == room:
                return FOLDING_TOO_LONG
            store_u8(folded, n, byte + LOWER_CASE if UPPER_A <= byte <= UPPER_Z else byte)
            at += 1
            n += 1
            continue
        length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
        code = byte & (0x7F >> length)
        for i in range(at + 1, min(at + length, stop)):
            code = code << 6 | load_u8(data, i) & 0x3F
        at += length
        code = _folded(code, table)
        if code < 0x80:
            if n == room:
                return FOLDING_TOO_LONG
            store_u8(folded, n, code)
            n += 1
            continue
        length = 2 if code < 0x800 else 3 if code < 0x10000 else 4
        if n + length > room:
            return FOLDING_TOO_LONG
        for i in range(length - 1, 0, -1):
            store_u8(folded, n + i, 0x80 | code & 0x3F)
            code >>= 6
        store_u8(folded, n, (0xF00 >> length) & 0xFF | code)
        n += length
    return n
