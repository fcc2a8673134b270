"""The types in signatures of Numba's intrinsics, by their names in Numba and LLVM.

@intrinsic
def name(_: object, argument: types.Type) -> Typed:             the types of argument and result
def generate(context: BaseContext, builder: ir.IRBuilder, signature: Signature, values: Sequence[ir.Value]) -> ir.Value:
...                                                     adds the instructions to the builder
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from llvmlite import ir
from numba.core.base import BaseContext
from numba.core.typing.templates import Signature

__all__ = ["BaseContext", "Signature", "Typed", "ir"]

Typed: TypeAlias = tuple[Signature, Callable[..., ir.Value]]
"""The result of an intrinsic: its signature, and the function that generates its code."""
