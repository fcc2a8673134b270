"""Filters as Arrow batches: the round trip is lossless, and a batch's content keys do not depend on its neighbours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from event_lines import BAD, BLANK, FORM, GOOD, JUDGED_GOOD, VOCABULARY, mutated_lines
from hypothesis import given
from hypothesis import strategies as st
from strategies import filters

from mpi_match.ingest.events_encoder import EventsEncoder
from mpi_match.model import Filter
from mpi_match.table.constraints import encode
from mpi_match.table.subscriptions import Subscriptions
from mpi_match.table.table import Table

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pa = pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from spark_prep import events as spark_events  # noqa: E402
from spark_prep import held_events, subscriptions  # noqa: E402
from spark_prep.arrow_lines import joined_lines  # noqa: E402
from spark_prep.arrow_records import ConstraintColumns, filter_records  # noqa: E402
from spark_prep.events import EventTarget, _PartWriter  # noqa: E402
from spark_prep.part_files import PartFiles  # noqa: E402


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


LINES = [
    b'{"interface": "a", "filters": [{"constraints": [["x", "=", 1]]}, {"area": [0, 0, 1], "id": 7}]}',
    b"",
    b'{"interface": "b", "constraints": [["s", "prefix", "p"], ["s", "in", ["b", "a"]], ["y", "exists"]], "id": "\\u00e9"}',
    b'{"interface": "c", "predicate": "x > 1 or y > 2"}',
    b'{"interface": "d", "constraints": [["x", "?", 1]]}',
    b'\xef\xbb\xbf {"interface": 4, "constraints": []} \r',
    b"\xff",
]


def records_of(lines: list[bytes], few_rows: int, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The records of lines in two batches, in an order of their own."""
    monkeypatch.setattr(subscriptions, "FEW_ROWS", few_rows)
    batches = [
        pa.RecordBatch.from_pydict(
            {"value": pa.array(part, pa.binary()), "file": ["f"] * len(part), "block": [0] * len(part), "position": place}
        )
        for part, place in ((lines, range(len(lines))), (lines[::-1], range(50, 50 + len(lines))))
    ]
    found = [row for batch in subscriptions._parse_batches(iter(batches)) for row in batch.to_pylist()]
    return sorted(found, key=repr)


def test_scanned_records_are_those_of_judged_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = records_of(LINES, 10**9, monkeypatch)
    assert sum(row["rows"] for row in judged) == 2 * (len(LINES) - 1)
    assert records_of(LINES, -1, monkeypatch) == judged
    assert records_of([*LINES, b"{" + b" " * 2**24 + b"}"], -1, monkeypatch) == records_of(
        [*LINES, b"{" + b" " * 2**24 + b"}"], 10**9, monkeypatch
    )


def test_scanned_events_are_those_of_judged_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bytes, and the same bad rows with their places; among them a batch that no scanner can take."""
    lines = [*GOOD, *BLANK, *BAD, *JUDGED_GOOD, *mutated_lines(600)]
    batches = [lines[:300], [*lines[300:320], b'{"a": "' + b" " * 2**24 + b'"}'], lines[320:]]
    written, bad = [], []
    monkeypatch.setattr(spark_events, "_vocabulary", lambda *_: VOCABULARY)
    monkeypatch.setattr(spark_events, "_encoder", lambda *_: EventsEncoder(VOCABULARY, threads=1))
    for few_rows in (10**9, -1, 400):
        monkeypatch.setattr(held_events, "FEW_ROWS", few_rows)
        target = EventTarget(FORM, tmp_path / "table.h5", "digest", PartFiles(str(tmp_path), "run", "events"))
        writer = _PartWriter(target)
        found = []
        for i, part in enumerate(batches):
            columns = {"value": pa.array(part, pa.binary()), "file": ["f"] * len(part), "block": [i] * len(part)}
            for records in writer.rows(pa.RecordBatch.from_pydict(columns | {"position": range(len(part))})):
                found += records.to_pylist()
        held = writer._held
        n = len(held)
        assert held.n_bad == len(found)
        made = held.write(VOCABULARY, target.files)
        assert made.rows == n > len(found) > 0
        assert len(held) == 0
        written.append((tmp_path / made.part).read_bytes())
        bad.append(found)
    assert written[0] == written[1] == written[2]
    assert bad[0] == bad[1] == bad[2]


def test_lines_of_a_column_are_joined() -> None:
    lines = joined_lines(pa.array([b"", b"a", b"bc"])[1:])
    assert lines is not None
    assert lines.tobytes() == b"a\nbc\n"
    for others in ([b"a\nb"], [b"a", None], [], ["text"], [{"a": 1}]):
        assert joined_lines(pa.array(others)) is None
