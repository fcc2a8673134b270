"""Typed rows as published events: column by column as `event_of_columns` judges them row by row."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="the extra `arrow` is not installed")

import pyarrow.parquet as pq  # noqa: E402

from mpi_match.api import make_table  # noqa: E402
from mpi_match.engines import open_engine  # noqa: E402
from mpi_match.events.events import Events  # noqa: E402
from mpi_match.ingest.batches.published_events import read_events  # noqa: E402
from mpi_match.ingest.columns.arrow import NeededColumns  # noqa: E402
from mpi_match.ingest.columns.arrow_to_events import (  # noqa: E402
    all_columns,
    event_of_columns,
    events_of_batch,
)
from mpi_match.ingest.columns.frames import events_of_arrow  # noqa: E402
from mpi_match.ingest.json.join_events import JoinedEvents  # noqa: E402
from mpi_match.ingest.rows.judge import PLAIN, EventForm  # noqa: E402
from mpi_match.model import Event, ModelError  # noqa: E402

NOW = datetime.datetime(2024, 5, 1, 12, 30)
REQUIRED = frozenset({"n", "lists", "s.deep", "x", "y", "id"})
FORM = EventForm(("x", "y"), "id")
NUMBERS = [0.0, -0.0, 1.5, float("nan"), float("inf")]
INTEGERS = [0, -7, 2**53, 2**53 + 1, -(2**60)]
TEXTS = ["", "Milan", "é", "a\0b", "x" * 40]
DECIMALS = [Decimal("19.99"), Decimal(3), Decimal(2**53 + 1)]
WHOLE = [Decimal(3), Decimal(2**53 + 1), Decimal(2**64)]


def column(generator: random.Random, values: list[Any], n: int, type_: Any) -> Any:
    """Some of the values, and nulls; a slice of a longer array."""
    before = generator.randrange(10)
    nulls = generator.choice((0.0, 0.3, 0.9))
    made = [None if generator.random() < nulls else generator.choice(values) for _ in range(before + n)]
    return pa.array(made, type_).slice(before)


def batch_of(seed: int, n: int = 60) -> Any:
    generator = random.Random(seed)

    def lists(values: list[Any]) -> list[Any]:
        return [[], *([generator.choice(values) for _ in range(generator.randrange(4))] for _ in range(8))]

    good = [7, 2**53]
    columns = {
        "n": column(generator, WHOLE if seed % 2 else WHOLE[:2], n, pa.decimal128(20, 0)),
        "other": column(generator, INTEGERS, n, pa.int64()),
        "small": column(generator, [0, 1, 200], n, pa.uint8()),
        "f": column(generator, NUMBERS, n, pa.float64()),
        "half": column(generator, [0.5, 2.0], n, pa.float32()),
        "on": column(generator, [True, False], n, pa.bool_()),
        "city": column(generator, TEXTS, n, generator.choice((pa.string(), pa.large_string(), pa.string_view()))),
        "coded": column(generator, TEXTS, n, pa.string()).dictionary_encode(),
        "price": column(generator, DECIMALS, n, pa.decimal128(20, 2)),
        "nothing": pa.nulls(n),
        "s": column(generator, [{"deep": 1, "text": "Milan"}, {"deep": None, "text": "x"}, {"deep": 2**60}], n, None),
        "lists": column(generator, lists([*good, *([None, 2**60] if seed % 2 else [])]), n, pa.list_(pa.int64())),
        "texts": column(generator, lists([*TEXTS, None]), n, generator.choice((pa.list_, pa.large_list))(pa.string())),
        "pairs": column(generator, [[1.5, float("nan")], [-0.0, None]], n, pa.list_(pa.float64(), 2)),
        "bits": column(generator, lists([True, False]), n, pa.list_(pa.bool_())),
        "x": column(generator, [1.5, 2.0, *([float("inf")] if seed % 3 else [])], n, pa.float64()),
        "id": column(generator, ["a", "b", ""], n, pa.string()) if seed % 4 else column(generator, good, n, pa.int64()),
    }
    columns["y"] = columns["x"] if seed % 5 else column(generator, [1.5], n, pa.float64())
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def judged(batch: Any, form: EventForm) -> tuple[Events, list[tuple[int, str]]]:
    events: list[Event | None] = []
    bad = []
    for at, row in enumerate(batch.to_pylist()):
        try:
            events.append(event_of_columns(row, form, REQUIRED))
        except ModelError as error:
            events.append(None)
            bad.append((at, str(error)))
    return Events.of(events), bad


@pytest.mark.parametrize("seed", range(12))
def test_columns_are_the_events_of_their_rows(seed: int) -> None:
    batch, form = batch_of(seed), FORM if seed % 3 else PLAIN
    expected, expected_bad = judged(batch, form)
    columns = all_columns(batch.schema)
    assert columns is not None
    events, bad = events_of_batch(batch, columns, REQUIRED, form)
    assert (bad, events.left_out) == (expected_bad, expected.left_out)
    assert 0 < len(bad) < batch.num_rows or seed % 2 == 0
    joined = JoinedEvents()
    joined.add(events)
    found, wanted = dict(joined.take().arrays()), dict(expected.arrays())
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype, name
        assert found[name].tobytes() == array.tobytes(), name


def test_names_that_structs_and_columns_share_are_left_to_rows() -> None:
    batch = pa.RecordBatch.from_pylist([{"a.b": 1, "a": {"b": 2}}])
    assert all_columns(batch.schema) is None
    with pytest.raises(ModelError, match=r"two columns have the name 'a\.b'"):
        NeededColumns.every(batch.schema, PLAIN)


UNREAD: dict[str, Any] = {
    "timestamp": pa.array([NOW, None, NOW, None]),
    "dictionary of dates": pa.array([NOW.date(), None, None, NOW.date()]).dictionary_encode(),
    "bytes": pa.array([b"x", b"", None, None]),
    "map": pa.array([[("k", 1)], None, [], None], pa.map_(pa.string(), pa.int64())),
    "duration": pa.array([datetime.timedelta(1), None, None, None]),
    "dates in structs": pa.array([{"at": NOW.date()}, None, {"at": None}, {"at": None}]),
    "times in lists": pa.array([[NOW], [], None, [None]]),
    "none there": pa.array([None] * 4, pa.binary()),
}
"""Columns of types that attributes do not have."""


@pytest.mark.parametrize("kind", UNREAD)
def test_values_that_no_attribute_has_are_left_out_and_nulls_are_not(kind: str, tmp_path: Path) -> None:
    """Columns of other types were left out as a whole, their nulls too, so `null` could not be asked of them."""
    columns = pa.table({"n": [1, 2, 3, 4], "x": UNREAD[kind]})
    rows = [event_of_columns(row, PLAIN, frozenset()) for row in columns.to_pylist()]
    expected = Events.of(rows)
    left_out = dict(expected.left_out) | ({"x.": 1} if kind == "map" else {})  # a table must not ask for its keys
    pq.write_table(columns, tmp_path / "events.parquet")
    of_file = read_events([tmp_path / "events.parquet"], PLAIN, frozenset(), [])
    for found in (events_of_arrow(columns.to_reader(), PLAIN, []), of_file):
        assert found.left_out == left_out
        assert [found.event(i) for i in range(4)] == [expected.event(i) for i in range(4)]
    assert bool(expected.left_out) == (kind != "none there")
    if not expected.left_out:
        table = make_table([{"interface": "null", "constraints": [["x", "null"]]}])
        answers = open_engine("counting", table).match(of_file.encode(table.vocabulary)).labels(table.labels)
        assert [*answers] == [["null"]] * 4
