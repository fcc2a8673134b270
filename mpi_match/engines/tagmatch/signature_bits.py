"""Operations on words of signatures, compiled both for CPUs and for GPUs."""

from __future__ import annotations

import numpy as np


def common_bits(a, b):  # type: ignore[no-untyped-def]
    """The common prefix of two u64: their leading bits up to the first that differs, followed by zeros."""
    differ = a ^ b
    differ |= differ >> np.uint64(1)
    differ |= differ >> np.uint64(2)
    differ |= differ >> np.uint64(4)
    differ |= differ >> np.uint64(8)
    differ |= differ >> np.uint64(16)
    differ |= differ >> np.uint64(32)
    return a & ~differ
