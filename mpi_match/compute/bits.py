"""Bits of words, as compiled code for CPUs counts them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import intrinsic

from mpi_match.compute.compile_cache import inlined


@intrinsic
def _population(_: Any, word: Any) -> Any:
    """LLVM's count of bits, which is one instruction where the processor has one."""
    return word(word), lambda _context, builder, _signature, values: builder.ctpop(values[0])


_count: Any = _population  # whose callers do not give the first argument


@inlined
def popcount(word: Any) -> Any:
    """Number of bits set in a u64, i64."""
    return np.int64(_count(np.uint64(word)))
