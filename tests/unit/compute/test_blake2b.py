"""BLAKE2b in compiled code against `hashlib`."""

from __future__ import annotations

import hashlib
import random

import numpy as np

from mpi_match.compute.blake2b import DIGESTED_BYTES, WORD_ORDER, digest_16


def test_digests_are_those_of_hashlib() -> None:
    draw = random.Random(1)
    for n in [*range(260), 1000, 4096, 100_000]:
        data = draw.randbytes(n)
        padded = np.zeros(n + 2 * DIGESTED_BYTES, np.uint8)
        padded[:n] = np.frombuffer(data, np.uint8)
        found = np.array(digest_16(padded.ctypes.data, n, WORD_ORDER.ctypes.data), "<u8")
        assert found.tobytes() == hashlib.blake2b(data, digest_size=16).digest()
