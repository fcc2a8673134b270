"""The kind of a constraint, its type and operator in one number, and the properties in `operators` by kind."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.model import ModelError
from mpi_match.operators import OPERATORS, Form, Op, Operator, Type

KIND_SHIFT = 4
"""A constraint's kind is one byte: `type << KIND_SHIFT | op` for the operators below 16, and for those from there on
`FIRST_HIGH_KIND + 4 * (op - 16) + type`.  Compiled code has forms in the place of operators (`typed_forms`).
"""
OP_MASK = (1 << KIND_SHIFT) - 1
FIRST_HIGH_KIND = 0x60
N_KINDS = 256
"""Kinds that a byte can be."""
UNKNOWN = 255
"""The form of a number that is not a kind."""


def kind_of(type_: Type, op: Op) -> int:
    """The kind of a type and an operator."""
    return type_ << KIND_SHIFT | op if op <= OP_MASK else FIRST_HIGH_KIND + 4 * (op - OP_MASK - 1) + type_


def parts_of(kind: int) -> tuple[Type, Op]:
    """Type and operator of a kind.  Raises ModelError for a kind that is none."""
    check_kinds(np.array([kind]))
    return Type(TYPE_OF_KIND[kind]), Op(OP_OF_KIND[kind])


def kinds_where(is_one: Callable[[Operator], bool]) -> Array:
    """bool[N_KINDS], by kind: the predicate's value for its operator; False for numbers without a kind."""
    found = np.zeros(N_KINDS, bool)
    for op, record in OPERATORS.items():
        found[[kind_of(type_, op) for type_ in record.types]] = is_one(record)
    return found


def _forms() -> Array:
    found = np.full(N_KINDS, UNKNOWN, np.uint8)
    for op, record in OPERATORS.items():
        found[[kind_of(type_, op) for type_ in record.types]] = record.form
    return found


def _parts() -> tuple[Array, Array]:
    types, ops = np.zeros((2, N_KINDS), np.uint8)
    for op, record in OPERATORS.items():
        for type_ in record.types:
            types[kind_of(type_, op)], ops[kind_of(type_, op)] = type_, op
    return types, ops


_FORM = _forms()
TYPE_OF_KIND, OP_OF_KIND = _parts()
"""u8[N_KINDS] each: type and operator of each kind, 0 for numbers without a kind."""
KIND_OF_PRESENCE = np.uint8(kind_of(Type.ANY, Op.EXISTS))
"""The kind of a row that only asks for presence; no other kind sorts before it."""
IS_KIND = kinds_where(lambda record: True)
IS_ATOM, IS_LISTED = kinds_where(lambda record: record.form is Form.ATOM), kinds_where(lambda record: record.is_listed)
IS_OF_NULLS = kinds_where(lambda record: record.of_nulls)


def check_kinds(kind: Array) -> None:
    """Raise ModelError if one of these numbers u8[c] has no kind: code must not guess what its rows ask for."""
    if IS_KIND[kind].all():
        return
    wrong = int(kind[~IS_KIND[kind]][0])
    raise ModelError(f"a constraint has the kind {wrong}, which is not a type and operator of this version")


def forms_of(kind: Array) -> Array:
    """u8[c]: the form (`operators.Form`) of rows with these kinds u8[c].  Raises ModelError for an unknown kind."""
    some = kind if any(kind.strides) else kind[:1]
    check_kinds(some)
    return np.broadcast_to(_FORM[some], kind.shape)


def typed_forms(kind: Array) -> Array:
    """u8[c]: `type << KIND_SHIFT | form` of rows with these kinds u8[c], for compiled code, which knows no operators.

    Raises ModelError for an unknown kind.
    """
    return TYPE_OF_KIND[kind] << np.uint8(KIND_SHIFT) | forms_of(kind)
