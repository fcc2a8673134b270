"""Words of signatures, in functions that are compiled for CPUs and for GPUs."""

from __future__ import annotations

import numpy as np


def common_bits(a, b):  # type: ignore[no-untyped-def]
    """The bits of two u64 up to the first, from the most significant on, that they differ in; zeros from there on."""
    differ = a ^ b
    differ |= differ >> np.uint64(1)
    differ |= differ >> np.uint64(2)
    differ |= differ >> np.uint64(4)
    differ |= differ >> np.uint64(8)
    differ |= differ >> np.uint64(16)
    differ |= differ >> np.uint64(32)
    return a & ~differ
