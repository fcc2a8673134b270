"""Data frames and other columns, encoded for a vocabulary without an object for each event.

    a pandas frame, a dict of arrays        column by column: arrays of NumPy as they are, others through Arrow
    anything with Arrow's C interface       its record batches: pyarrow, polars, DuckDB, Spark's batches

What `columns.python` has to judge entry by entry (lists, also as entries, and columns whose elements are asked for; arrays
of mixed objects; bad values) is left to it: its events, or its error, are those of such columns.  Without pyarrow everything
but arrays of NumPy is.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.events.batch import EventBatch
from mpi_match.ingest.columns.python import columns_of_frame, needed_names
from mpi_match.ingest.columns.typed import ColumnChunk, TypedColumn, Validity
from mpi_match.ingest.rows.judge import EventForm, Reject, Rejects, row_text
from mpi_match.model import ModelError, Type
from mpi_match.table.vocabulary import Vocabulary

if TYPE_CHECKING:
    import pyarrow as pa


@runtime_checkable
class ArrowStream(Protocol):
    """What gives its columns as Arrow's C stream."""

    def __arrow_c_stream__(self, requested_schema: Any = None, /) -> object: ...


@runtime_checkable
class ArrowArray(Protocol):
    """What gives its columns as one array of structs of Arrow's C interface."""

    def __arrow_c_array__(self, requested_schema: Any = None, /) -> tuple[object, object]: ...


def is_of_pandas(events: object) -> bool:
    """Is it a data frame of pandas, in whose columns of NumPy's types NaN is a number?  In its Arrow stream it is null."""
    return type(events).__module__.partition(".")[0] == "pandas"


def has_arrow(events: object) -> bool:
    """Can it be read through Arrow's C interface here?"""
    return isinstance(events, (ArrowStream, ArrowArray)) and not is_of_pandas(events) and find_spec("pyarrow") is not None


def encode_arrow(
    events: ArrowStream | ArrowArray, vocabulary: Vocabulary, form: EventForm, rejects: Rejects | None
) -> EventBatch:
    """The events of record batches.  Raises ModelError, also for a bad event if there are no `rejects` to append it to."""
    from mpi_match.ingest.columns.arrow import NeededColumns
    from mpi_match.ingest.columns.arrow_to_codes import ArrowEncoder  # loads Numba

    reader = _reader(events)
    needed = NeededColumns.of(reader.schema, needed_names(vocabulary.attribute_names, form), form)
    encoder, found, first = ArrowEncoder(vocabulary, form, with_ids=False), [], 0
    for rows in reader:
        encoded, _, _, bad = encoder.encode(rows, needed)
        for row, reason, values in bad:
            if rejects is None:
                raise ModelError(f"event {first + row}: {reason}")
            rejects.append(Reject(reason, "", first + row, row_text(values)))
        found.append(encoded)
        first += len(encoded)
    return found[0] if len(found) == 1 else EventBatch.concat(found or [encoder.nothing()])


def _reader(events: ArrowStream | ArrowArray) -> pa.RecordBatchReader:
    import pyarrow as pa

    if isinstance(events, ArrowStream):
        return pa.RecordBatchReader.from_stream(events)
    batch = pa.record_batch(events)
    return pa.RecordBatchReader.from_batches(batch.schema, [batch])


def flat_columns(events: ArrowStream | ArrowArray) -> dict[str, Any]:
    """All columns, fields of structs under dotted names.  Raises ModelError for one name twice."""
    import pyarrow as pa

    table = _reader(events).read_all()
    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    return columns_of_frame(table)


def encode_columns(columns: Mapping[str, Any], vocabulary: Vocabulary, form: EventForm) -> EventBatch | None:
    """The events of columns by name; None where `ingest.columns.python` has to judge them."""
    from mpi_match.ingest.columns.to_codes import ColumnEncoder  # loads Numba

    needed = needed_names(vocabulary.attribute_names, form)
    named = (*(form.location or ()), *((form.id,) if form.id is not None else ()))
    if not {name.decode() for name in vocabulary.element_names}.isdisjoint(columns):
        return None
    if form.id is not None or not all(hasattr(values, "__len__") for values in columns.values()):
        return None
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1 or any(name not in columns for name in named):
        return None
    n = next(iter(lengths), 0)
    found: dict[str, TypedColumn] = {}
    for name in needed & columns.keys():
        column = _of_array(columns[name])
        if column is None:
            return None
        found[name] = column
    if form.location is not None and not _are_places(n, *(found[name] for name in form.location)):
        return None
    return ColumnEncoder(vocabulary, form.location).encode(ColumnChunk(n, found))


def _are_places(n: int, x: TypedColumn, y: TypedColumn) -> bool:
    """Do all events with an x or a y have a location?"""
    there = x.is_present(n)
    finite = np.isfinite(x.numbers(n)) & np.isfinite(y.numbers(n))
    return np.array_equal(there, y.is_present(n)) and np.array_equal(there, finite)


def _of_array(values: Any) -> TypedColumn | None:
    """The column of an array; None for what has to be judged entry by entry."""
    validity = None
    if isinstance(values, np.ma.MaskedArray):
        validity, values = Validity(np.packbits(~np.ma.getmaskarray(values), bitorder="little"), 0), values.data
    dtype = getattr(values, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
        return _of_numbers(np.asarray(values), validity)
    if validity is not None or isinstance(values, (list, tuple)) or find_spec("pyarrow") is None:
        return None
    return _of_arrow(values)


def _of_numbers(array: Array, validity: Validity | None) -> TypedColumn | None:
    if array.ndim != 1 or array.itemsize > 8:
        return None
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype.kind == "b":
        return TypedColumn(Type.BOOLEAN, array.view(np.uint8), None, validity)
    if array.dtype.kind in "iu" and array.itemsize == 8:
        from mpi_match.ingest.columns.exact_integers import are_exact  # loads Numba

        return TypedColumn(Type.NUMBER, array.view(np.int64), None, validity) if are_exact(array) else None
    return TypedColumn(Type.NUMBER, array.astype(np.float64, copy=False), None, validity)


def _of_arrow(values: Any) -> TypedColumn | None:
    import pyarrow as pa

    from mpi_match.ingest.columns.arrow import is_scalar, typed_column

    is_stream = isinstance(values, ArrowStream) and not is_of_pandas(values)
    try:
        made = pa.chunked_array(values) if is_stream else pa.array(values, from_pandas=False)
        array = made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made
    except (pa.ArrowException, TypeError, ValueError):
        return None
    if not isinstance(array, pa.Array) or not is_scalar(array.type):
        return None
    try:
        column, wrong = typed_column(array)
    except pa.ArrowInvalid:
        return None
    return None if wrong is not None and wrong.any() else column
