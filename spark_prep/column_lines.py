"""Converts subscriptions in columns to equivalent lines of JSON, so that one scanner reads both.

Lines are made by Arrow, a column at a time; a condition in JSON is a text in them.  A row without an equivalent line, or
with a member that the scanner does not read, gets a line that the scanner flags; then the row itself is judged.  The columns
are those of `subscriptions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

_ODD = "-"
"""A value that is not JSON: its line is flagged."""
_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))


def lines_of_columns(rows: pa.StructArray) -> pa.Array:
    """binary[n]: the line of each row, without a line feed."""
    return _object(rows, _MEMBERS | {"filters": _filters}).cast(pa.binary())


def _object(rows: pa.StructArray, members: Mapping[str, Callable[[pa.Array], pa.Array]]) -> pa.Array:
    """The text of each object; null where it is null."""
    texts = []
    for name, column in zip(rows.type.names, rows.flatten(), strict=True):
        value = members.get(name, _odd)(column)
        texts.append(pc.binary_join_element_wise(_key(name, column) if name in members else pa.scalar(_ODD), value, ""))
    return _valid(rows, _enclosed("{", _listed(texts), "}"))


def _listed(texts: list[pa.Array]) -> pa.Array:
    """Texts joined side by side, without nulls; Arrow's join would leave out a row with nothing but nulls."""
    nothing = pc.if_else(pc.is_null(pc.coalesce(*texts)), pa.scalar(""), pa.scalar(None, pa.string()))
    return pc.binary_join_element_wise(*texts, nothing, ",", null_handling="skip")


def _enclosed(opening: str, texts: pa.Array, closing: str) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar(opening), texts, pa.scalar(closing), "")


def _valid(of: pa.Array, texts: pa.Array) -> pa.Array:
    """Texts where values are not null."""
    return pc.if_else(of.is_valid(), texts, pa.scalar(None, pa.string()))


def _odd(column: pa.Array) -> pa.Array:
    return _valid(column, pa.scalar(_ODD))


def _text(column: pa.Array) -> pa.Array:
    """Strings in quotes, with escapes."""
    if not pa.types.is_string(column.type):
        return _odd(column)
    for character, escape in _ESCAPES:
        column = pc.replace_substring(column, character, escape)
    return _enclosed('"', column, '"')


def _label(column: pa.Array) -> pa.Array:
    return column.cast(pa.string()) if pa.types.is_integer(column.type) else _text(column)


def _number(column: pa.Array) -> pa.Array:
    if pa.types.is_floating(column.type):
        return column.cast(pa.float64()).cast(pa.string())
    return column.cast(pa.string()) if pa.types.is_integer(column.type) else _odd(column)


def _operand(column: pa.Array) -> pa.Array:
    if pa.types.is_list(column.type):
        return _list(column, _operand)
    if pa.types.is_string(column.type):
        return _text(column)
    return column.cast(pa.string()) if pa.types.is_boolean(column.type) else _number(column)


def _list(column: pa.Array, item: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Lists of what `item` makes of their values."""
    if not pa.types.is_list(column.type):
        return _odd(column)
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])
    texts = pc.fill_null(item(column.flatten()), _ODD)
    return _valid(column, _enclosed("[", pc.binary_join(pa.ListArray.from_arrays(offsets, texts), ","), "]"))


def _constraints(column: pa.Array) -> pa.Array:
    return _list(column, _constraint)


def _constraint(column: pa.Array) -> pa.Array:
    """`[name, op, operand]` of structs; of a struct with several operands, a text that is not a constraint in JSON
    either."""
    if not pa.types.is_struct(column.type) or not {"name", "op"} <= set(column.type.names):
        return _odd(column)
    fields = dict(zip(column.type.names, column.flatten(), strict=True))
    texts = [pc.fill_null(_text(fields.pop(key)), _ODD) for key in ("name", "op")]
    return _valid(column, _enclosed("[", _listed([*texts, *map(_operand, fields.values())]), "]"))


def _area(column: pa.Array) -> pa.Array:
    if not pa.types.is_struct(column.type):
        return _list(column, _number)
    if not {"x", "y", "r"} <= set(column.type.names):
        return _odd(column)
    fields = dict(zip(column.type.names, column.flatten(), strict=True))
    texts = [pc.fill_null(_number(fields[key]), _ODD) for key in ("x", "y", "r")]
    return _valid(column, _enclosed("[", _listed(texts), "]"))


def _key(name: str, column: pa.Array) -> pa.Array | pa.Scalar:
    """The beginning of a member; `where` in text is a predicate."""
    if name != "where" or not pa.types.is_string(column.type):
        return pa.scalar(f'"{name}":')
    is_json = pc.match_substring_regex(column, r"^\s*[{\[]")
    return pc.if_else(is_json, pa.scalar('"where":'), pa.scalar('"predicate":'))


def _tags(column: pa.Array) -> pa.Array:
    return _list(column, _text)


def _filters(column: pa.Array) -> pa.Array:
    return _list(column, lambda values: _object(values, _MEMBERS) if pa.types.is_struct(values.type) else _odd(values))


_MEMBERS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "interface": _label,
    "constraints": _constraints,
    "tags": _tags,
    "predicate": _text,
    "where": _text,
    "area": _area,
    "id": _label,
}
"""The expressions that make the texts of a member.  Others give a text that is not JSON, so that rows with them are
judged."""
