"""Finds the texts that another text begins with, ends with or contains, by look-ups of each length."""

from __future__ import annotations

PIECE_NS, BYTE_NS = 100.0, 0.5
"""Nanoseconds to cut a piece out of a text and look it up, beside its bytes; and to search or copy a byte."""


class Pieces:
    """Distinct texts, each with a number."""

    def __init__(self) -> None:
        self._by_length: dict[int, dict[bytes, int]] = {}

    def add(self, piece: bytes, number: int) -> None:
        """Adds a text."""
        self._by_length.setdefault(len(piece), {})[piece] = number

    def starting(self, text: bytes) -> list[int]:
        """Numbers of the texts that another text begins with: one look-up for each length."""
        return [by[text[:n]] for n, by in self._by_length.items() if n <= len(text) and text[:n] in by]

    def ending(self, text: bytes) -> list[int]:
        """Numbers of the texts that another text ends with: one look-up for each length."""
        starts = ((len(text) - n, by) for n, by in self._by_length.items() if n <= len(text))
        return [by[text[start:]] for start, by in starts if text[start:] in by]

    def within(self, text: bytes) -> list[int]:
        """Numbers of the texts that another text contains, each once.

        For each length, either every piece of the other text is looked up or every text is searched for, whichever is less
        work.  This keeps the memory small for many texts of one length and for many lengths.
        """
        found: list[int] = []
        for n, by in self._by_length.items():
            n_starts = len(text) - n + 1
            if n_starts <= 0:
                continue
            if len(by) * (PIECE_NS + BYTE_NS * len(text)) < n_starts * (PIECE_NS + BYTE_NS * n):
                found += [number for piece, number in by.items() if piece in text]
            else:
                found += [by[piece] for piece in {text[i : i + n] for i in range(n_starts)} & by.keys()]
        return found
