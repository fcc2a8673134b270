"""Binary search, to be compiled for CPUs and for GPUs."""

from __future__ import annotations

import numpy as np


def lower_bound(ascending, first, last, value):  # type: ignore[no-untyped-def]
    """The first index in ascending[first:last] whose number is at least `value` i64, or `last`."""
    while first < last:
        middle = (first + last) >> 1
        if np.int64(ascending[middle]) < value:
            first = middle + 1
        else:
            last = middle
    return first
