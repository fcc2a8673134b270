"""Texts eight bytes at a time: what a GPU does with a word is what Python does with its bytes."""

from __future__ import annotations

import random

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute import words
from mpi_match.compute.compile_cache import jit

_BYTES = b'"\\ \x00\n\x1f !#@AMZ[`az{\x7f\x80\xc3\xff'


@jit
def _tried(address: int, found: Array, stored: int) -> None:
    word = words.word_from(address)
    found[0], found[1], found[2] = words.plain_bytes(word), words.is_ascii(word), words.place_of_byte(word, 0x7F)
    words.store_word(stored, 3, words.in_lower_case(word))


def test_words() -> None:
    chosen, found, stored = random.Random(1), np.zeros(3, np.int64), np.zeros(16, np.uint8)
    for _ in range(20_000):
        data, at = np.array(chosen.choices(_BYTES, k=32), np.uint8), chosen.randrange(16)
        _tried(data.ctypes.data + at, found, stored.ctypes.data)
        text = data[at : at + words.WORD_BYTES].tobytes()
        n_plain = next((k for k, byte in enumerate(text) if byte in b'"\\' or not 32 <= byte < 128), words.WORD_BYTES)
        place = text.find(b"\x7f") if b"\x7f" in text else words.WORD_BYTES
        assert found.tolist() == [n_plain, text.isascii(), place], text
        assert not text.isascii() or stored[3:11].tobytes() == text.lower()
