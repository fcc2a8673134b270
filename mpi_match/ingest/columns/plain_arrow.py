"""Converts types of Arrow that hold values of another type in a special form to that type.

bool8                              booleans
uuid                               their text
json                               its text
fixed_shape_tensor                 lists
run-end encoded                    their values
list_view, large_list_view         lists
string_view, dictionary of it      strings, because most functions of pyarrow do not take it
"""

from __future__ import annotations

import uuid

import pyarrow as pa
import pyarrow.compute as pc

_BOOL8, _UUID, _JSON, _TENSOR = (
    getattr(pa, name, ()) for name in ("Bool8Type", "UuidType", "JsonType", "FixedShapeTensorType")
)
"""The types that not all versions of pyarrow have."""


def plain_type(type_: pa.DataType) -> pa.DataType:
    """The type of `plain_array`."""
    if isinstance(type_, pa.RunEndEncodedType):
        return plain_type(type_.value_type)
    if isinstance(type_, _BOOL8):
        return pa.bool_()
    if isinstance(type_, _UUID):
        return pa.string()
    if isinstance(type_, (_JSON, _TENSOR) if _JSON and _TENSOR else ()):
        return type_.storage_type
    if type_ == pa.string_view():
        return pa.large_string()
    if pa.types.is_dictionary(type_) and type_.value_type == pa.string_view():
        return pa.dictionary(type_.index_type, pa.large_string())
    if pa.types.is_list_view(type_) or pa.types.is_large_list_view(type_):
        return pa.large_list(type_.value_type)
    return type_


def plain_array(array: pa.Array) -> pa.Array:
    """The values of an array in their own type; the array itself if its type is plain."""
    type_ = array.type
    if isinstance(type_, pa.RunEndEncodedType):
        return plain_array(pc.run_end_decode(array))
    if isinstance(type_, _BOOL8):
        return array.storage.cast(pa.bool_())
    if isinstance(type_, _UUID):
        return pa.array(
            [None if each is None else str(uuid.UUID(bytes=each)) for each in array.storage.to_pylist()], pa.string()
        )
    plain = plain_type(type_)
    if plain is type_:
        return array
    if isinstance(type_, pa.BaseExtensionType):
        return array.storage
    if type_ == pa.string_view():
        return array.cast(plain)
    if pa.types.is_dictionary(type_):
        return pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(plain.value_type))
    return pa.array(array.to_pylist(), plain)  # of list_view; pyarrow's own cast breaks on nulls


def without_views(type_: pa.DataType) -> pa.DataType:
    """The type with strings and bytes in place of views of them, in lists, structs and maps too."""
    types = pa.types
    if type_ in (pa.string_view(), pa.binary_view()):
        return pa.large_string() if type_ == pa.string_view() else pa.large_binary()
    if types.is_struct(type_):
        return pa.struct([field.with_type(without_views(field.type)) for field in type_])
    if types.is_map(type_):
        return pa.map_(without_views(type_.key_type), without_views(type_.item_type))
    for is_kind, make in ((types.is_list, pa.list_), (types.is_large_list, pa.large_list)):
        if is_kind(type_):
            return make(type_.value_field.with_type(without_views(type_.value_type)))
    if types.is_fixed_size_list(type_):
        return pa.list_(type_.value_field.with_type(without_views(type_.value_type)), type_.list_size)
    return type_
