"""Sorting of part of an array, which is short mostly: plain Python for any compiler."""

from __future__ import annotations

from typing import Any


def sort_part(values: Any, first: Any, last: Any) -> None:
    """Sort values[first:last] in place."""
    if last - first > 64:
        values[first:last].sort()
    else:
        for i in range(first + 1, last):
            item, at = values[i], i
            while at > first and values[at - 1] > item:
                values[at] = values[at - 1]
                at -= 1
            values[at] = item
