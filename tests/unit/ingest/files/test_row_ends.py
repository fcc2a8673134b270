"""Row ends found eight bytes at a time, against lines that are stripped one by one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from mpi_match.ingest.files.row_ends import STRETCH_BYTES, row_ends
from mpi_match.ingest.rows.judge import trimmed

PIECES = (
    b"\n",
    b"\n",
    b" ",
    b"\r",
    b"\t",
    b"\x0b",
    b"\xef\xbb\xbf",
    b"\xbf",
    b"\xbb\xbf",
    b"{}",
    b"a" * 30,
    b"\x8a",
    b"\x1f",
    b"\x0e",
)


def expected(data: bytes) -> list[int]:
    """Positions of the line feeds of lines that are not blank."""
    found, at = [], 0
    for line in data.split(b"\n")[:-1]:
        at += len(line) + 1
        if trimmed(line):
            found.append(at - 1)
    return found


@pytest.mark.untraced
def test_row_ends_are_those_of_lines_that_are_not_blank() -> None:
    generator = random.Random(5)
    memory = np.zeros(60 * STRETCH_BYTES, np.uint8)
    for _ in range(3000):
        data = b"".join(generator.choices(PIECES, k=generator.randrange(60))) + b"\n"
        memory[: len(data)] = np.frombuffer(data, np.uint8)
        memory[len(data) :] = ord("\n")
        found = []
        for start in range(0, len(data), STRETCH_BYTES):
            bits = int(row_ends(memory.ctypes.data, start, len(data)))
            found += [start + i for i in range(STRETCH_BYTES) if bits >> i & 1]
        assert found == expected(data), data
