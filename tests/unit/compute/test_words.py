"""Texts eight bytes at a time: what a GPU does with a word is what Python does with its bytes."""

from __future__ import annotations

import random

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute import words
from mpi_match.compute.compile_cache import jit

_BYTES = b'"\\ \x00\n\x1f !#@AMZ[`az{\x7f\x80\xc3\xff'


@jit
def _tried(address: int, found: Array, stored: int, at: int) -> None:
    word = words.word_from(address)
    found[0], found[1], found[2] = words.plain_bytes(word), words.is_ascii(word), words.place_of_byte(word, 0x7F)
    found[3] = words.store_word(stored, at, words.in_lower_case(word))
    found[4] = words.begins_in_word(word, words.word_from(address + words.WORD_BYTES), _WANTED)
    found[5] = words.plain_end(address - 3, 3)


_WANTED = int.from_bytes(b"[`az", "little")


def test_words() -> None:
    chosen, found, stored = random.Random(1), np.zeros(6, np.int64), np.zeros(4, np.uint64)
    n_with = 0
    for _ in range(20_000):
        data, at, to = np.array(chosen.choices(_BYTES, k=40), np.uint8), chosen.randrange(16), chosen.randrange(16)
        if chosen.randrange(3) == 0:
            begin = at + chosen.randrange(12)
            data[begin : begin + 4] = list(b"[`az")
        stored[:] = 0
        data[-1] = ord('"')
        _tried(data.ctypes.data + at, found, stored.ctypes.data, to)
        text = data[at : at + words.WORD_BYTES].tobytes()
        end = next(k for k, byte in enumerate(data[at:].tobytes()) if byte in b'"\\' or not 32 <= byte < 128)
        n_plain = min(end, words.WORD_BYTES)
        place = text.find(b"\x7f") if b"\x7f" in text else words.WORD_BYTES
        n_stored = words.WORD_BYTES - to % words.WORD_BYTES
        has_wanted = b"[`az" in data[at : at + words.WORD_BYTES + 3].tobytes()
        assert found.tolist() == [n_plain, text.isascii(), place, n_stored, has_wanted, 3 + end], text
        written = stored.tobytes()
        assert not text.isascii() or written[to : to + n_stored] == text.lower()[:n_stored]
        assert not any(written[:to] + written[to + n_stored :])
        n_with += has_wanted
    assert n_with > 1000
