"""The monotonic clock, for compiled code."""

from __future__ import annotations

import time
from typing import Any

from numba.core import cgutils as _cgutils
from numba.core import types
from numba.extending import intrinsic

from mpi_match.compute.llvm import BaseContext, Typed, ir

_TIMESPEC = ir.LiteralStructType([ir.IntType(64), ir.IntType(64)])
"""Seconds and nanoseconds."""
cgutils: Any = _cgutils


@intrinsic
def _now(_: object) -> Typed:
    def generate(_context: BaseContext, builder: ir.IRBuilder, __: object, ___: object) -> ir.Value:
        timespec = cgutils.alloca_once(builder, _TIMESPEC)
        of_c = ir.FunctionType(ir.IntType(32), [ir.IntType(32), _TIMESPEC.as_pointer()])
        clock_gettime = cgutils.get_or_insert_function(builder.module, of_c, "clock_gettime")
        builder.call(clock_gettime, [ir.IntType(32)(time.CLOCK_MONOTONIC), timespec])
        now = builder.load(timespec)
        seconds, rest = builder.extract_value(now, 0), builder.extract_value(now, 1)
        return builder.add(builder.mul(seconds, ir.IntType(64)(1_000_000_000)), rest)

    return types.int64(), generate


monotonic_ns: Any = _now
"""Nanoseconds, as `time.monotonic_ns()` returns them on a 64-bit Unix; a call takes about 25 ns."""
