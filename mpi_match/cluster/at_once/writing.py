"""Writes answers in the thread that has computed them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class WriteAtOnce(Generic[T]):
    """Calls `write` immediately with each item that is `put`."""

    def __init__(self, write: Callable[[T], None]) -> None:
        self.put = write

    def __enter__(self) -> WriteAtOnce[T]:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def finish(self) -> None:
        """Do nothing: everything is written already."""
