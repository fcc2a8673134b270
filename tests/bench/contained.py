"""Strings that one name may contain, and lines with strings of 100 bytes, all distinct, of which one in four has one."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array

N_WORDS, STRING_BYTES = 10_637, 100


def contained(n_lines: int, n_words: int = N_WORDS) -> tuple[list[dict[str, Any]], Array]:
    """Subscriptions, as rows, and lines, u8."""
    generator = random.Random(0)
    words: set[str] = set()
    while len(words) < n_words:
        words.add("".join(generator.choices("abcdefghijklmnopqrstuvwxyz/.-=0123456789", k=generator.randrange(6, 25))))
    ordered = sorted(words)
    rows = [{"interface": f"i{k % 500}", "constraints": [["text", "contains", word]]} for k, word in enumerate(ordered)]
    letters = np.random.default_rng(0).integers(ord("a"), ord("z") + 1, (n_lines, STRING_BYTES), np.uint8)
    for line in range(0, n_lines, 4):
        word = generator.choice(ordered).encode()
        at = generator.randrange(STRING_BYTES - len(word))
        letters[line, at : at + len(word)] = list(word)
    before, after = (np.tile(list(part), (n_lines, 1)).astype(np.uint8) for part in (b'{"text": "', b'"}\n'))
    return rows, np.hstack([before, letters, after]).reshape(-1)
