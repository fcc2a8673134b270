"""Answers as JSON lines, byte for byte those of Python's encoder."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_match.arrays.strings import Strings
from mpi_match.compute import parallel
from mpi_match.matches.json_lines import LineWriter
from mpi_match.matches.matches import Matches

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


Rows = list[dict[str, str] | None]


def expected(
    found: list[list[int]], unit: str, labels: list[str], ids: list[str] | None, first: int, rows: Rows | None = None
) -> bytes:
    lines = []
    for number, each in enumerate(found):
        row: dict[str, object] = {"event": first + number}
        if ids is not None:
            row["id"] = ids[number] or None
        row[f"{unit}s"] = each if unit == "filter" else [labels[i] if labels else str(i) for i in each]
        if rows is not None:
            row["row"] = rows[number]
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    return "".join(lines).encode()


def written(
    found: list[list[int]],
    n_ids: int,
    unit: str,
    labels: list[str],
    ids: list[str] | None,
    first: int,
    rows: Rows | None = None,
) -> bytes:
    packed = None if ids is None else Strings.of(each.encode() for each in ids)
    texts_of = (b"" if each is None else json.dumps(each, ensure_ascii=False).encode() for each in rows or ())
    beside = None if rows is None else Strings.of(texts_of)
    writer = LineWriter(unit, Strings.of(each.encode() for each in labels))
    return b"".join(piece.tobytes() for piece in writer.lines(first, Matches.of(found, n_ids), packed, beside))


@given(data=st.data(), n_ids=st.sampled_from([1, 5, 300, 70_000]), unit=st.sampled_from(["interface", "filter", "bare"]))
def test_lines_are_those_of_json(data: st.DataObject, n_ids: int, unit: str) -> None:
    found = data.draw(st.lists(st.sets(st.integers(0, n_ids - 1), max_size=6).map(sorted), max_size=6))
    ids = data.draw(st.none() | st.lists(texts, min_size=len(found), max_size=len(found)))
    some = st.lists(st.none() | st.dictionaries(texts, texts, max_size=2), min_size=len(found), max_size=len(found))
    rows = data.draw(st.none() | some)
    first = data.draw(st.sampled_from([0, 9, 99, 10**18]))
    drawn = data.draw(st.lists(texts, min_size=3, max_size=3))
    labels = [drawn[i % 3] for i in range(n_ids)] if unit == "interface" else []
    unit = "interface" if unit == "bare" else unit
    assert written(found, n_ids, unit, labels, ids, first, rows) == expected(found, unit, labels, ids, first, rows)


def test_every_byte_that_json_escapes() -> None:
    ids = [chr(code) for code in range(1, 256)] + ['"\\\n', "\U0001f980"]
    found: list[list[int]] = [[0]] * len(ids)
    assert written(found, 1, "interface", ids[:1], ids, 0) == expected(found, "interface", ids[:1], ids, 0)


def test_interfaces_are_named_again() -> None:
    writer = LineWriter("interface", Strings.of([b"a", b"b", b"c"]))
    writer.name({0: "", 2: "long", 3: "é"})
    writer.name({})
    writer.name({2: "c"})
    (line,) = writer.lines(0, Matches.of([[0, 1, 2, 3]], 4), None)
    assert json.loads(line.tobytes()) == {"event": 0, "interfaces": ["", "b", "c", "é"]}


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_write_lines_in_order(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "stretches_of", lambda n, least: threads)
    monkeypatch.setattr("mpi_match.matches.json_lines.stretches_of", lambda n: threads)
    generator = np.random.default_rng(1)
    found = [sorted(set(generator.integers(0, 40, generator.integers(6)).tolist())) for _ in range(1000)]
    labels, ids = [f"label {i}" for i in range(40)], [str(i) if i % 3 else "" for i in range(1000)]
    assert written(found, 40, "interface", labels, ids, 5) == expected(found, "interface", labels, ids, 5)
