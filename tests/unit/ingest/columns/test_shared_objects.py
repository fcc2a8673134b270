"""Columns of objects that refer to few strings, against the same entries as rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpi_match import make_batch, make_table
from mpi_match.ingest.columns import frames
from mpi_match.ingest.columns.shared_objects import shared_objects

N = 5000
CITIES = [f"città {k}" for k in range(40)]


def column(*objects: object, seed: int = 1) -> np.ndarray:
    found = np.empty(N, object)
    found[:] = [objects[k] for k in np.random.default_rng(seed).integers(0, len(objects), N)]
    return found


def test_objects_are_numbered_as_they_first_occur() -> None:
    entries = column(*CITIES, None)
    found = shared_objects(entries)
    assert found is not None
    numbers, firsts = found
    assert all(entries[first] is entry for first, entry in zip(firsts[numbers], entries, strict=True))
    assert numbers[firsts].tolist() == list(range(41))
    assert shared_objects(np.array([f"own {k}" for k in range(N)], object)) is None
    assert shared_objects(entries[: N // 2]) is None


@pytest.mark.parametrize("other", ["Milan", None, 3, float("nan"), True, np.str_("Rome"), ["Milan"], {"x": 3}])
def test_columns_mean_what_their_entries_mean(other: Any) -> None:
    filters = [["city", "=", CITIES[3]], ["city", "prefix", "Mi"], ["city", "null"], ["city", "exists"], ["city", ">", 2]]
    table = make_table([{"interface": f"{k}", "constraints": [each]} for k, each in enumerate(filters)])
    columns = {"city": column(*CITIES, other), "temp": np.arange(N)}
    rows = [{"city": city, "temp": temp} for city, temp in zip(columns["city"], columns["temp"].tolist(), strict=True)]
    found, expected = make_batch(table, columns), make_batch(table, rows)
    assert np.array_equal(found.offsets, expected.offsets)
    assert np.array_equal(found.attributes, expected.attributes)


def test_few_strings_become_a_dictionary_without_a_copy_of_each() -> None:
    pandas = pytest.importorskip("pandas")
    pyarrow = pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({"city": column(*CITIES, None), "other": column(*CITIES, seed=2)})
    reader = frames.reader_of_columns({name: frame[name] for name in frame}, N)
    assert reader is not None
    batch = reader.read_next_batch()
    assert all(pyarrow.types.is_dictionary(field.type) for field in batch.schema)
    assert {name: values.to_pylist() for name, values in zip(frame, batch.columns, strict=True)} == frame.to_dict("list")
