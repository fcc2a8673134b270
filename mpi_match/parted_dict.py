"""A dictionary of millions, in parts, so that it is never made anew all at once.

Python's own is copied into a larger one when keys have come and gone for a while.  With 2.5 million keys that takes 0.2
seconds, in which nothing else happens, and twice the memory.  A part takes a tenth of a millisecond, and parts fill up at
different times, because how many keys are in each is chance.
"""

from __future__ import annotations

from typing import Generic, TypeVar

N_PARTS = 1021
"""A prime: keys of one part still differ in the bits by which its dictionary tells them apart."""

Value = TypeVar("Value")


class PartedDict(Generic[Value]):
    """`of(key)` is the dictionary that a key is in, if it is in any, and belongs into."""

    def __init__(self) -> None:
        self._parts: list[dict[str, Value]] = [{} for _ in range(N_PARTS)]

    def of(self, key: str) -> dict[str, Value]:
        """The part of a key."""
        return self._parts[hash(key) % N_PARTS]
