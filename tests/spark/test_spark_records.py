"""Filters as Arrow batches: the round trip is lossless, and a batch's content keys do not depend on its neighbours."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import events, filters

from mpi_match.events.events import Events
from mpi_match.model import Event, Filter
from mpi_match.table.constraints import encode
from mpi_match.table.subscriptions import Subscriptions
from mpi_match.table.table import Table

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pa = pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from spark_prep.arrow_records import ConstraintColumns, filter_records  # noqa: E402
from spark_prep.events import joined  # noqa: E402


@given(st.lists(filters(), max_size=8), st.integers(0, 8))
def test_a_filter_has_the_same_key_in_every_batch(found: list[Filter], cut: int) -> None:
    whole = Subscriptions.of(found).content_keys
    pieces = [Subscriptions.of(piece).content_keys for piece in (found[:cut], found[cut:])]
    assert np.array_equal(whole, np.concatenate(pieces))


@given(st.lists(filters(), min_size=1, max_size=8))
def test_records_sort_as_the_table_does_and_hold_everything(found: list[Filter]) -> None:
    records = pa.Table.from_batches([filter_records(Subscriptions.of(found), [1] * len(found))])
    order = sorted(
        range(len(found)), key=lambda i: tuple(records[name][i].as_py() for name in ("interface", "key_hi", "key_lo"))
    )
    records = records.take(order)
    table = Table.from_filters(found)
    assert [table.label(int(i)).encode() for i in table.filters.interface] == records["interface"].to_pylist()
    assert [len(item) for item in records["constraints"].to_pylist()] == table.filters.size.tolist()
    assert [item for item in records["area"].to_pylist() if item] == table.filters.area.tolist()
    assert [item for item in records["id"].to_pylist() if item is not None] == list(table.filters.ids)

    rows = [{"filter": i, **item} for i, items in enumerate(records["constraints"].to_pylist()) for item in items]
    if rows:
        types = [("filter", pa.int64()), *records.schema.field("constraints").type.value_type]
        batches = [pa.RecordBatch.from_pylist(rows[at : at + 3], schema=pa.schema(types)) for at in range(0, len(rows), 3)]
        columns = ConstraintColumns.of(batches)
        vocabulary, constraints = encode(*columns)
        assert Table(vocabulary, constraints, table.filters, table.labels) == table


@given(st.lists(events(), max_size=8), st.integers(0, 8), st.integers(0, 8))
def test_events_joined_are_events_flattened_together(found: list[Event], cut: int, more: int) -> None:
    pieces = [found[:cut], found[cut : cut + more], found[cut + more :]]
    whole, parts = Events.of(found), joined([Events.of(piece) for piece in pieces if piece])
    expected, columns = dict(whole.arrays()), dict(parts.arrays())
    assert list(expected) == list(columns)
    for name, array in expected.items():
        assert array.dtype == columns[name].dtype
        assert np.array_equal(array, columns[name], equal_nan=array.dtype.kind == "f")
