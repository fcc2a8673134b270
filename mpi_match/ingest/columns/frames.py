"""Encodes data frames, and other columns of one type each, for a vocabulary without an object for each event.

    a pandas frame, a dict of arrays        column by column: arrays of NumPy as they are, others through Arrow
    anything with Arrow's C interface       its record batches: pyarrow, polars, DuckDB, Spark's batches

Columns that have no single type (lists and arrays of mixed objects, objects in them), and, without pyarrow, all but arrays
of numbers, are read as rows (`ingest.columns.python`).  The events, and the reasons of bad ones, are those of rows either
way.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from mpi_match.arrays.exact import of_integers
from mpi_match.events.batch import EventBatch
from mpi_match.events.events import Events
from mpi_match.ingest.columns.python import needed_by
from mpi_match.ingest.columns.typed import ColumnChunk, TypedColumn, Validity
from mpi_match.ingest.rows.judge import EventForm, Reject, Rejects, row_text
from mpi_match.model import ModelError, Type
from mpi_match.table.vocabulary import Vocabulary

if TYPE_CHECKING:
    import pyarrow as pa


@runtime_checkable
class ArrowStream(Protocol):
    """An object that exports its columns as Arrow's C stream."""

    def __arrow_c_stream__(self, requested_schema: object = None, /) -> object: ...


@runtime_checkable
class ArrowArray(Protocol):
    """An object that exports its columns as one array of structs of Arrow's C interface."""

    def __arrow_c_array__(self, requested_schema: object = None, /) -> tuple[object, object]: ...


def _is_of_pandas(events: object) -> bool:
    """Tells whether the frame is of pandas, whose columns of NumPy's types have NaN as a number; its Arrow stream has null
    instead."""
    return any(each.__module__.partition(".")[0] == "pandas" for each in type(events).__mro__)


def has_arrow(events: object) -> bool:
    """Tells whether an object can be read through Arrow's C interface here."""
    return isinstance(events, (ArrowStream, ArrowArray)) and not _is_of_pandas(events) and find_spec("pyarrow") is not None


def reader_of(events: ArrowStream | ArrowArray) -> pa.RecordBatchReader:
    """The record batches of an object with Arrow's C interface.

    Raises ModelError for one that pyarrow does not read: a single column, or a type of polars that Arrow does not have.
    """
    import pyarrow as pa

    try:
        if isinstance(events, ArrowStream):
            return pa.RecordBatchReader.from_stream(events)
        return _reader(pa.record_batch(events))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError, ValueError) as error:
        kind = f"{type(events).__module__.partition('.')[0]}.{type(events).__name__}"
        text = str(error).partition("\n")[0]
        raise ModelError(f"pyarrow cannot read the columns of a {kind} ({text}); cast them, or give a frame") from error


def _reader(batch: pa.RecordBatch) -> pa.RecordBatchReader:
    import pyarrow as pa

    return pa.RecordBatchReader.from_batches(batch.schema, [batch])


def encode_arrow(reader: pa.RecordBatchReader, vocabulary: Vocabulary, form: EventForm, rejects: Rejects) -> EventBatch:
    """The events of record batches; bad ones go to `rejects`.  Raises ModelError for a needed column of an unusable type."""
    from mpi_match.ingest.columns.arrow import NeededColumns
    from mpi_match.ingest.columns.arrow_to_codes import ArrowEncoder  # loads Numba

    names = needed_by(vocabulary, form)
    needed = NeededColumns.of(reader.schema, names, form)
    encoder, found, first = ArrowEncoder(vocabulary, form, with_ids=False), [], 0
    for rows in reader:
        encoded, _, _, bad = encoder.encode(rows, needed)
        for row, reason, values in bad:
            rejects.append(Reject(reason, "", first + row, row_text(values)))
        found.append(encoded)
        first += len(encoded)
    return found[0] if len(found) == 1 else EventBatch.concat(found or [encoder.nothing()])


def events_of_arrow(reader: pa.RecordBatchReader, form: EventForm, rejects: Rejects) -> Events:
    """The events of record batches with all their columns; values that no attribute has are left out."""
    from mpi_match.ingest.columns.arrow import NeededColumns
    from mpi_match.ingest.columns.arrow_to_events import events_of_batch  # loads Numba
    from mpi_match.ingest.json.join_events import JoinedEvents

    needed, joined, first = NeededColumns.every(reader.schema, form), JoinedEvents(), 0
    for rows in reader:
        events, bad = events_of_batch(rows, needed, frozenset(form.names), form)
        joined.add(events)
        for row, reason in bad:
            rejects.append(Reject(reason, "", first + row, row_text(rows.slice(row, 1).to_pylist()[0])))
        first += rows.num_rows
    return joined.take()


def numbers_of(columns: Mapping[str, object], n: int, form: EventForm) -> ColumnChunk | None:
    """The n events of columns that are all arrays of numbers or booleans; None for others, and if an event may be bad."""
    if form.id is not None or not columns.keys() >= set(form.location or ()):
        return None
    found: dict[str, TypedColumn] = {}
    for name, values in columns.items():
        dtype = getattr(values, "dtype", None)
        column = _of_numbers(values) if isinstance(dtype, np.dtype) and dtype.kind in "biuf" else None
        if column is None:
            return None
        found[name] = column
    is_usable = form.location is None or _are_places(n, *(found[name] for name in form.location))
    return ColumnChunk(n, found) if is_usable else None


def encode_numbers(chunk: ColumnChunk, vocabulary: Vocabulary, form: EventForm) -> EventBatch | None:
    """The events of `numbers_of`; None if constraints ask for the elements of one of the columns."""
    if any(name.encode() in vocabulary.element_names for name in chunk.columns):
        return None
    from mpi_match.ingest.columns.to_codes import ColumnEncoder  # loads Numba

    return ColumnEncoder(vocabulary, form.location).encode(chunk)


def events_of_numbers(chunk: ColumnChunk, form: EventForm) -> Events:
    """The events of `numbers_of`, with all columns."""
    from mpi_match.ingest.columns.to_events import events_of_chunk  # loads Numba

    return events_of_chunk(chunk, list(chunk.columns), form)


def _are_places(n: int, x: TypedColumn, y: TypedColumn) -> bool:
    """Tells whether every event with an x or a y has both."""
    there = x.is_present(n)
    finite = np.isfinite(x.numbers(n)) & np.isfinite(y.numbers(n))
    return np.array_equal(there, y.is_present(n)) and np.array_equal(there, finite)


def _of_numbers(values: object) -> TypedColumn | None:
    """The column of an array of numbers or booleans; None for floats wider than doubles."""
    validity = nulls = None
    if isinstance(values, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(values)
        validity, nulls, values = Validity.of(~mask), Validity.of(mask), values.data
    array = np.asarray(values)
    if array.itemsize > 8:
        return None
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype.kind == "b":
        return TypedColumn(Type.BOOLEAN, array.view(np.uint8), None, validity, nulls)
    if array.dtype.kind in "iu" and array.itemsize == 8:
        from mpi_match.ingest.columns.exact_integers import are_exact  # loads Numba

        numbers = array.view(np.int64) if are_exact(array) else of_integers(array)
        return TypedColumn(Type.NUMBER, numbers, None, validity, nulls)
    return TypedColumn(Type.NUMBER, array.astype(np.float64, copy=False), None, validity, nulls)


def reader_of_columns(columns: Mapping[str, object], n: int) -> pa.RecordBatchReader | None:
    """The columns of n events, each of one type; None if one has to be read entry by entry, and without pyarrow."""
    if find_spec("pyarrow") is None:
        return None
    import pyarrow as pa

    arrays = []
    for values in columns.values():
        try:
            array = _arrow_of(values)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return None
        if array is None:
            return None
        arrays.append(array)
    if not arrays:
        return _reader(pa.record_batch([pa.nulls(n)], names=[""]))  # without a column it would have no rows
    return _reader(pa.record_batch(arrays, names=list(columns)))


_ONE_TYPE = (frozenset((str, type(None))), frozenset((bool, type(None))), frozenset((int, float, type(None))))
"""Types of objects that may be together in one column."""


def _shared_texts(values: np.ndarray) -> pa.Array | None:
    """An array of objects as a dictionary, if they are few strings and None."""
    import pyarrow as pa

    from mpi_match.ingest.columns.shared_objects import shared_objects  # loads Numba

    found = shared_objects(values)
    if found is None:
        return None
    numbers, firsts = found
    objects = values[firsts]
    if not set(map(type, objects)) <= {str, type(None)}:
        return None
    nulls = np.array([each is None for each in objects])
    mask = nulls[numbers] if nulls.any() else None
    return pa.DictionaryArray.from_arrays(pa.array(numbers, mask=mask), pa.array(objects, pa.string(), from_pandas=False))


def _own_texts(values: np.ndarray) -> pa.Array | None:
    """An array of objects as strings, if they are strings and None."""
    import pyarrow as pa

    from mpi_match.ingest.columns.text_objects import texts_of  # loads Numba

    if (found := texts_of(values)) is None:
        return None
    bits = None if found.is_there is None else pa.py_buffer(np.packbits(found.is_there, bitorder="little"))
    buffers = [bits, pa.py_buffer(found.texts.offsets), pa.py_buffer(found.texts.data)]
    return pa.Array.from_buffers(pa.large_string(), len(values), buffers)


def _arrow_of(values: Any) -> pa.Array | None:
    """An array or a list as a column of one type, if it is one.  Raises what pyarrow raises."""
    import pyarrow as pa

    mask, dtype = None, getattr(values, "dtype", None)
    kind = dtype.kind if isinstance(dtype, np.dtype) else ""
    if isinstance(values, np.ma.MaskedArray):
        mask, values = np.ma.getmaskarray(values), values.data
    if isinstance(values, (list, tuple)) or kind in ("O", "T"):
        values = np.asarray(values) if kind else values  # the array of pandas, not a copy
        if kind == "O" and mask is None:
            texts = _shared_texts(values)
            texts = _own_texts(values) if texts is None else texts
            if texts is not None:
                return texts
        kinds = set(map(type, values))
        if mask is not None or not any(kinds <= each for each in _ONE_TYPE):
            return None
        values = values.tolist() if kind else values
    elif kind:
        values = np.asarray(values)
        if kind not in "biufUmM" or (kind == "f" and values.itemsize > 8):
            return None
        values = values.astype(values.dtype.newbyteorder("="), copy=False)
    if isinstance(values, ArrowStream) and not _is_of_pandas(values):
        made = pa.chunked_array(values)
    else:
        made = pa.array(values, mask=mask, from_pandas=False)
    array = made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made
    return array if isinstance(array, pa.Array) else None
