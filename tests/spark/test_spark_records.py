"""Filters as Arrow batches: the round trip is lossless, and a batch's content keys do not depend on its neighbours."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from event_lines import BAD, BLANK, FORM, GOOD, JUDGED_GOOD, VOCABULARY, mutated_lines
from hypothesis import given
from hypothesis import strategies as st
from strategies import filters

from mpi_match.ingest.json.encode_events import EventsEncoder
from mpi_match.ingest.json.subscription_scanner import SubscriptionScanner
from mpi_match.model import Filter
from mpi_match.table.constraints import encode
from mpi_match.table.subscriptions import Subscriptions
from mpi_match.table.table import Table

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pa = pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from spark_prep import arrow_records, held_events, parcels, subscriptions  # noqa: E402
from spark_prep import events as spark_events  # noqa: E402
from spark_prep.arrow_lines import joined_lines  # noqa: E402
from spark_prep.arrow_records import ConstraintColumns, filter_records  # noqa: E402
from spark_prep.column_lines import lines_of_columns  # noqa: E402
from spark_prep.events import EventPartWriter, EventTarget  # noqa: E402
from spark_prep.part_files import PartFiles  # noqa: E402


@given(st.lists(filters(), max_size=8), st.integers(0, 8))
def test_a_filter_has_the_same_key_in_every_batch(found: list[Filter], cut: int) -> None:
    whole = Subscriptions.of(found).content_keys
    pieces = [Subscriptions.of(piece).content_keys for piece in (found[:cut], found[cut:])]
    assert np.array_equal(whole, np.concatenate(pieces))


@given(st.lists(filters(), min_size=1, max_size=8))
def test_records_sort_as_the_table_does_and_hold_everything(found: list[Filter]) -> None:
    records = pa.Table.from_batches([filter_records(Subscriptions.of(found))])
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


LINE = pa.binary()
LINES = [
    b'{"interface": "a", "filters": [{"constraints": [["x", "=", 1]]}, {"area": [0, 0, 1], "id": 7}]}',
    b"",
    b'{"interface": "b", "constraints": [["s", "prefix", "p"], ["s", "in", ["b", "a"]], ["y", "exists"]], "id": "\\u00e9"}',
    b'{"interface": "c", "predicate": "x > 1 or y > 2"}',
    b'{"interface": "d", "constraints": [["x", "?", 1]]}',
    b'\xef\xbb\xbf {"interface": 4, "constraints": []} \r',
    b"\xff",
]


COUNTS = ("rows", "bad", "filters", "constraints", "hidden", "presence", "residues")


def records_of(rows: list[Any], few_rows: int, monkeypatch: pytest.MonkeyPatch, type_: Any = LINE) -> list[dict[str, Any]]:
    """The counts, filters and bad rows of lines, or of rows of columns, in two batches, in an order of their own."""
    monkeypatch.setattr(subscriptions, "FEW_ROWS", few_rows)
    batches = [
        pa.RecordBatch.from_pydict(
            {"value": pa.array(part, type_), "file": ["f"] * len(part), "block": [0] * len(part), "position": place}
        )
        for part, place in ((rows, range(len(rows))), (rows[::-1], range(50, 50 + len(rows))))
    ]
    found: list[dict[str, Any]] = []
    counts: Counter[str] = Counter()
    for record in (row for batch in parcels.records_of(subscriptions.parsed(iter(batches))) for row in batch.to_pylist()):
        counts.update(
            {name: record.pop(name) or 0 for name in ("rows", "bad", "filters", "constraints", "hidden", "presence")}
        )
        if record["parcel"] is None:
            found.append(record)
        else:
            found += parcels.opened(record["parcel"], arrow_records.FILTER).to_pylist()
    for row in found:  # those of a filter have no order
        row["constraints"] = sorted(row.get("constraints") or (), key=repr)
    return [dict(counts), *sorted(found, key=repr)]


def test_scanned_records_are_those_of_judged_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = records_of(LINES, 10**9, monkeypatch)
    assert (judged[0]["rows"], judged[0]["bad"]) == (2 * (len(LINES) - 1), 4)
    assert records_of(LINES, -1, monkeypatch) == judged
    with monkeypatch.context() as patched:
        patched.setattr(parcels, "PARCEL_BYTES", 1)
        assert records_of(LINES, -1, patched) == judged
    assert records_of([*LINES, b"{" + b" " * 2**24 + b"}"], -1, monkeypatch) == records_of(
        [*LINES, b"{" + b" " * 2**24 + b"}"], 10**9, monkeypatch
    )


OPERANDS = {
    **{"number": pa.float64(), "single": pa.float32(), "whole": pa.int64(), "text": pa.string(), "flag": pa.bool_()},
    **{"texts": pa.list_(pa.string()), "numbers": pa.list_(pa.float64()), "when": pa.timestamp("us"), "nothing": pa.null()},
}
CONSTRAINTS = pa.list_(pa.struct([("name", pa.string()), ("op", pa.string()), *OPERANDS.items()]))
CIRCLE = pa.struct([("x", pa.float64()), ("y", pa.float64()), ("r", pa.float64())])
FILTER = pa.struct(
    [
        *(("constraints", CONSTRAINTS), ("area", pa.list_(pa.float64())), ("tags", pa.list_(pa.string()))),
        ("where", pa.string()),
    ]
)
COLUMNS = pa.struct(
    [
        *(("interface", pa.string()), ("constraints", CONSTRAINTS), ("area", CIRCLE), ("id", pa.int64())),
        *(("tags", pa.list_(pa.string())), ("predicate", pa.string()), ("filters", pa.list_(FILTER))),
        ("where", pa.string()),
    ]
)


def constraints_of(*found: tuple[str | None, str | None, dict[str, Any]] | None) -> list[dict[str, Any] | None]:
    return [None if each is None else {"name": each[0], "op": each[1], **each[2]} for each in found]


SCANNED_COLUMNS: list[list[Any]] = [
    [("n", ">", {"number": 30.0}), ("s", "in", {"texts": ["b", 'a"\n\\\t\r', "é"]}), ("y", "exists", {})],
    [("s", "prefix", {"text": "M"}), ("s", "suffix", {"text": "n"}), ("s", "contains", {"text": ""})],
    [("n", "between", {"numbers": [-1.5, 1e20]}), ("w", "=", {"whole": 2**53 + 1}), ("f", "=", {"single": 0.1})],
    [("n", "=", {"number": -0.0}), ("n", "!=", {"number": 5e-324}), ("b", "=", {"flag": True}), ("t", "has", {"text": "a"})],
]
JUDGED_COLUMNS: list[list[Any]] = [
    [(None, "n", {"text": "exists"})],
    [("n", None, {"number": 1.0})],
    [("n", "=", {"number": float("nan")})],
    [("n", "=", {"number": 1.0, "text": "a"})],
    [("n", "in", {"texts": ["a", None]})],
    [("n", "=", {"when": 1})],
    [("a\x01", "exists", {})],
    [("n", "=", {})],
    [None],
]


FILTERS_JUDGED: list[list[Any]] = [[], [None], [{}], [{"area": [1.0]}], [{"area": None}]]


def test_rows_of_columns_are_scanned_as_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    plain: list[dict[str, Any]] = [
        {"interface": f"i{i}", "constraints": constraints_of(*each)} for i, each in enumerate(SCANNED_COLUMNS)
    ]
    plain += [
        {"interface": "a", "id": 7, "area": {"x": 1.0, "y": -0.0, "r": 1e-7}},
        {"interface": 'b"', "tags": ["gpu", "é", "\n"], "constraints": []},
        {"interface": "p", "predicate": 'n > 3 or s = \'é"\' and \t"a b" exists', "id": 1},
        {"interface": "w", "where": ' {"or": [["n", ">", 3], {"not": ["s", "contains", ["\\u00e9", "\\"x"]]}]} ', "id": 1},
        {"interface": "w", "where": '["n", ">", 3]', "constraints": []},
        {"interface": "w", "where": "n > 3 and not s = 'a'"},
        {"interface": "w", "filters": [{"where": '{"not": ["n", ">", 3]}'}]},
        {"interface": "c", "filters": [{"area": [0.0, 0.0, 1.0]}, {"constraints": plain[0]["constraints"], "tags": ["x"]}]},
    ]
    odd: list[dict[str, Any]] = [{"interface": "z", "constraints": constraints_of(*each)} for each in JUDGED_COLUMNS]
    odd += [
        *({"interface": None, "constraints": []}, {"interface": "z"}, {"interface": "z", "predicate": "n >"}),
        *({"interface": "z", "filters": found} for found in FILTERS_JUDGED),
        *({"interface": "z", "area": {"x": x, "y": 1.0, "r": -1.0}} for x in (None, 1.0)),
        {"interface": "z", "tags": ["a", None]},
        {"interface": "z", "predicate": "n > 3", "constraints": []},
        *(
            {"interface": "z", "where": text}
            for text in ('{"not": ["n", ">", 3]}, "id": "7"', '{"not": ["n", ">", 3]', "n >", "[]")
        ),
        {"interface": "z", "where": "n > 3", "predicate": "n > 3"},
        {"interface": "z", "where": '["n", ">", 3]', "predicate": "n > 3"},
        {"interface": "z", "filters": [{"where": "n > 3"}]},
        {"interface": "z", "id": 1, "filters": [{"constraints": []}]},
    ]
    assert records_of([*plain, *odd], -1, monkeypatch, COLUMNS) == records_of([*plain, *odd], 10**9, monkeypatch, COLUMNS)
    for rows, is_judged in ((plain, False), (odd, True)):
        lines = lines_of_columns(pa.array(rows, COLUMNS)).to_pylist()
        flagged = SubscriptionScanner().scan(
            np.frombuffer(b"".join(line + b"\n" for line in lines), np.uint8), of_columns=True
        )
        assert [line for line, _ in flagged] == list(range(len(rows)) if is_judged else [])


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
        writer = EventPartWriter(target)
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
