"""The bitwise `and` of cache lines, 512 bits each, in vector registers.

Numba vectorises loops over arrays of unknown length, but cannot keep a value of eight words in registers from one line to
the next.  So this one loop is written directly in LLVM IR; LLVM splits a vector of 512 bits if the processor has shorter
ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numba.core import cgutils, types
from numba.extending import intrinsic

from mpi_match.compute.llvm import BaseContext, Signature, Typed, ir

LINE_WORDS = 8
AT_ONCE = 4
"""Lines that are combined between two tests for an empty result: a branch misprediction costs as much as several lines."""

_cgutils: Any = cgutils
_i64 = ir.IntType(64)
_line = ir.VectorType(_i64, LINE_WORDS)


@intrinsic
def _prefetch(_: object, address: object) -> Typed:
    def generate(
        _context: BaseContext, builder: ir.IRBuilder, _signature: Signature, values: Sequence[ir.Value]
    ) -> ir.Value:
        pointer, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        builder.call(fetch, [builder.inttoptr(values[0], pointer), flag(0), flag(3), flag(1)])
        return values[0]

    return types.int64(types.int64), generate


@intrinsic
def _meet(_: object, words: types.Type, places: types.Type, n: types.Type, offset: types.Type, result: types.Type) -> Typed:
    """Intrinsic of `meet`; addresses are integers."""

    def generate(
        _context: BaseContext, builder: ir.IRBuilder, _signature: Signature, values: Sequence[ir.Value]
    ) -> ir.Value:
        words, places, n, offset, result = values
        first = builder.add(words, builder.shl(offset, _i64(3)))

        def line_at(k: object) -> ir.Value:
            address = builder.add(places, builder.shl(k, _i64(3)))
            place = builder.load(builder.inttoptr(address, _i64.as_pointer()))
            line = builder.inttoptr(builder.add(first, builder.shl(place, _i64(3))), _line.as_pointer())
            return builder.load(line, align=8)

        left = _cgutils.alloca_once(builder, _line)
        k = _cgutils.alloca_once_value(builder, _i64(0))
        builder.store(ir.Constant(_line, [-1] * LINE_WORDS), left)
        ask, four, one, test, done = (builder.append_basic_block(name) for name in ("ask", "four", "one", "test", "done"))
        builder.branch(ask)
        builder.position_at_end(ask)
        rest = builder.sub(n, builder.load(k))
        several = builder.icmp_signed(">=", rest, _i64(AT_ONCE))
        some = builder.append_basic_block("some")
        builder.cbranch(several, four, some)
        builder.position_at_end(some)
        builder.cbranch(builder.icmp_signed(">", rest, _i64(0)), one, done)
        for block, n_lines in ((four, AT_ONCE), (one, 1)):
            builder.position_at_end(block)
            at, line = builder.load(k), builder.load(left)
            for i in range(n_lines):
                line = builder.and_(line, line_at(builder.add(at, _i64(i))))
            builder.store(line, left)
            builder.store(builder.add(at, _i64(n_lines)), k)
            builder.branch(test)
        builder.position_at_end(test)
        builder.cbranch(builder.icmp_unsigned("==", _any(builder, builder.load(left)), ir.IntType(8)(0)), done, ask)
        builder.position_at_end(done)
        line = builder.load(left)
        builder.store(line, builder.inttoptr(result, _line.as_pointer()), align=8)
        return builder.zext(_any(builder, line), _i64)

    return types.int64(types.int64, types.int64, types.int64, types.int64, types.int64), generate


def _any(builder: ir.IRBuilder, line: ir.Value) -> ir.Value:
    """A bit for each word of a line that is not zero, i8."""
    there = builder.icmp_unsigned("!=", line, ir.Constant(_line, [0] * LINE_WORDS))
    return builder.bitcast(there, ir.IntType(8))


prefetch: Any = _prefetch
"""`prefetch(address)`: start to load the cache line at an address, without waiting for it."""
meet: Any = _meet
"""`meet(words, places, n, offset, result)`, all integers: combines, with `and`, the lines that begin at the words places[k]
+ offset, k < n, until no bit is left, and writes the result to the eight words at `result`.  Returns, as i64, a bit for each
of these words that is not zero.

`words`, `places` (i64) and `result` are addresses (`array.ctypes.data`).
"""
