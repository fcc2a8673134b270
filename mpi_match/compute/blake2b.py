"""BLAKE2b in compiled code: the digests of 16 bytes that `hashlib.blake2b(data, digest_size=16)` makes (RFC 7693)."""

from __future__ import annotations

import numpy as np

from mpi_match.compute.compile_cache import jit, nested
from mpi_match.compute.memory import load_u8, load_u64

DIGESTED_BYTES = 128
"""The bytes of a message are padded with zeros to a multiple of these."""
_PERMUTATIONS = (
    (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
    (14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3),
    (11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4),
    (7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8),
    (9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13),
    (2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9),
    (12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11),
    (13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10),
    (6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5),
    (10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0),
)
_ROUNDS = 12
WORD_ORDER = np.array([_PERMUTATIONS[i % len(_PERMUTATIONS)] for i in range(_ROUNDS)], np.uint8)
"""u8[12, 16]: the words of a block in the order in which each round mixes them in."""
_I0, _I1, _I2, _I3, _I4, _I5, _I6, _I7 = (
    np.uint64(word)
    for word in (
        0x6A09E667F3BCC908,
        0xBB67AE8584CAA73B,
        0x3C6EF372FE94F82B,
        0xA54FF53A5F1D36F1,
        0x510E527FADE682D1,
        0x9B05688C2B3E6C1F,
        0x1F83D9ABFB41BD6B,
        0x5BE0CD19137E2179,
    )
)
_PARAMETERS = np.uint64(0x01010000 | 16)
"""The parameter block: no key, no tree, a digest of 16 bytes."""
_ALL = np.uint64(2**64 - 1)
_U64 = tuple[np.uint64, np.uint64, np.uint64, np.uint64]


@nested
def _rotated(word: np.uint64, n: int) -> np.uint64:
    return word >> np.uint64(n) | word << np.uint64(64 - n)


@nested
def _mixed(a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64, data: int, words: int) -> _U64:
    """Mix the two words of a block whose indices are at `words` into four words of the state."""
    a = a + b + load_u64(data, load_u8(words, 0))
    d = _rotated(d ^ a, 32)
    c = c + d
    b = _rotated(b ^ c, 24)
    a = a + b + load_u64(data, load_u8(words, 1))
    d = _rotated(d ^ a, 16)
    c = c + d
    b = _rotated(b ^ c, 63)
    return a, b, c, d


@jit
def digest_16(data: int, n: int, order: int) -> tuple[np.uint64, np.uint64]:
    """The digest of the n bytes at the address `data`, as two numbers, the lowest byte first.

    Behind the bytes are zeros up to a multiple of DIGESTED_BYTES, one block at least.  `order` is the address of
    `WORD_ORDER`.
    """
    h0, h1, h2, h3, h4, h5, h6, h7 = _I0 ^ _PARAMETERS, _I1, _I2, _I3, _I4, _I5, _I6, _I7
    done = 0
    while True:
        v0, v1, v2, v3, v4, v5, v6, v7 = h0, h1, h2, h3, h4, h5, h6, h7
        is_last = n - done <= DIGESTED_BYTES
        v8, v9, v10, v11 = _I0, _I1, _I2, _I3
        v12, v13, v14, v15 = (
            _I4 ^ np.uint64(min(done + DIGESTED_BYTES, n)),
            _I5,
            _I6 ^ (_ALL if is_last else np.uint64(0)),
            _I7,
        )
        for turn in range(_ROUNDS):
            words = order + 16 * turn
            v0, v4, v8, v12 = _mixed(v0, v4, v8, v12, data, words)
            v1, v5, v9, v13 = _mixed(v1, v5, v9, v13, data, words + 2)
            v2, v6, v10, v14 = _mixed(v2, v6, v10, v14, data, words + 4)
            v3, v7, v11, v15 = _mixed(v3, v7, v11, v15, data, words + 6)
            v0, v5, v10, v15 = _mixed(v0, v5, v10, v15, data, words + 8)
            v1, v6, v11, v12 = _mixed(v1, v6, v11, v12, data, words + 10)
            v2, v7, v8, v13 = _mixed(v2, v7, v8, v13, data, words + 12)
            v3, v4, v9, v14 = _mixed(v3, v4, v9, v14, data, words + 14)
        h0, h1, h2, h3 = h0 ^ v0 ^ v8, h1 ^ v1 ^ v9, h2 ^ v2 ^ v10, h3 ^ v3 ^ v11
        h4, h5, h6, h7 = h4 ^ v4 ^ v12, h5 ^ v5 ^ v13, h6 ^ v6 ^ v14, h7 ^ v7 ^ v15
        if is_last:
            return h0, h1
        done += DIGESTED_BYTES
        data += DIGESTED_BYTES
