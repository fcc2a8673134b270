"""What the tests of the Spark stage write as input, and the answers in memory that they expect."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from mpi_match.events.event_table import EventTable
from mpi_match.events.events import Events
from mpi_match.table.subscriptions import SubscriptionsBuilder
from mpi_match.table.table import Table, load_vocabulary
from spark_prep import subscriptions


def in_memory(rows: Iterable[Any]) -> Table:
    builder = SubscriptionsBuilder()
    for row in rows:
        for item in subscriptions.filters_of(json.dumps(row).encode()):
            builder.add(item)
    return Table.from_subscriptions(builder.build())


def write_lines(path: Path, rows: Iterable[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def names_in(path: Path) -> set[str]:
    return {item.name for item in path.parent.iterdir()}


def read_rejects(path: Path | None) -> list[dict[str, Any]]:
    assert path is not None
    found = [json.loads(line) for file in path.glob("part-*") for line in file.read_text().splitlines()]
    return sorted(found, key=lambda row: (row["file"], row["line"]))


def assert_same_events(path: Path, table: Path, events: Events) -> None:
    vocabulary = load_vocabulary(table)
    expected = events.encode(vocabulary)
    with EventTable(path, vocabulary) as found:
        assert found.encoded_for_vocabulary
        assert len(found) == len(events)
        batch = found.batch(0, len(found))
        assert np.array_equal(batch.bounds, expected.bounds)
        assert np.array_equal(batch.attributes, expected.attributes)
        assert (batch.rejected is None) == (expected.rejected is None)
        if expected.location is None:
            assert batch.location is None
        else:
            assert batch.location is not None
            assert np.array_equal(batch.location, expected.location, equal_nan=True)
        raw = [found.event(i) for i in range(len(found))]
        assert [repr(event) for event in raw] == [repr(events.event(i)) for i in range(len(events))]
