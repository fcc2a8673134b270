"""Operands as columns hold them: texts as bytes, and numbers."""

from __future__ import annotations

from mpi_match.model import Op, Operand, Type
from mpi_match.operators import Form


def prefix_bound(prefix: bytes) -> bytes:
    """The least byte string above every string that starts with `prefix`: UTF-8 has no byte 0xff, so the last can grow."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def column_operands(type_: Type, op: Op, operand: Operand) -> tuple[list[bytes], list[float]]:
    """The operands of a constraint that are texts, and those that are numbers or booleans; one of the lists is empty.

    A prefix has its `prefix_bound` behind it, unless it is empty.
    """
    values = operand if type(operand) is tuple else () if operand is None else (operand,)
    if type_ is not Type.STRING:
        return [], list(values)  # type: ignore[arg-type]
    texts = [value.encode() for value in values]  # type: ignore[union-attr]
    if op.record.form is Form.PREFIX and texts[0]:
        texts.append(prefix_bound(texts[0]))
    return texts, []
