"""A clock that tests set by hand."""

from __future__ import annotations


class Clock:
    """Seconds, set by the test."""

    now = 100.0

    def __call__(self) -> float:
        return self.now
