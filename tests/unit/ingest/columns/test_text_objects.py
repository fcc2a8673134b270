"""Columns of strings that are objects of their own, against their own encoding and the same entries as rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpi_match import make_batch, make_table
from mpi_match.ingest.columns import frames, text_objects
from mpi_match.ingest.columns.text_objects import Texts, texts_of

KINDS = ["", "a", "seven b", "eight by", "nine byte", "é", "città", "\u0394elta", "\U0001f600", "nul\0nul", "long " * 200]


def column(entries: list[Any]) -> np.ndarray:
    found = np.empty(len(entries), object)
    found[:] = entries
    return found


def own(n: int) -> list[str]:
    """Strings of all kinds, each an object of its own."""
    return ["".join([KINDS[k % len(KINDS)], str(k)]) for k in range(n)]


@pytest.fixture(params=["as it is", "without the layout"])
def by_each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads ASCII strings in their objects, and all by CPython's interface, as where objects look unlike those known."""
    found = text_objects._ascii_layout()
    assert found is not None
    assert found.state
    if request.param != "as it is":
        monkeypatch.setattr(text_objects, "_ascii_layout", lambda: text_objects._Layout(0, 0))


@pytest.mark.usefixtures("by_each_way")
@pytest.mark.parametrize("entries", [own(1000), KINDS, [""], [], ["x" * 10**6, *own(40)], ["y", "x" * 10**6, "z"]])
@pytest.mark.parametrize("with_nones", [False, True])
def test_texts_are_those_of_the_objects(entries: list[Any], with_nones: bool) -> None:
    entries = [None if with_nones and k % 3 == 1 else each for k, each in enumerate(entries)]
    found = texts_of(column(entries))
    assert isinstance(found, Texts)
    assert list(found.texts) == [b"" if each is None else each.encode() for each in entries]
    there = [each is not None for each in entries]
    assert all(there) if found.is_there is None else found.is_there.tolist() == there


@pytest.mark.usefixtures("by_each_way")
@pytest.mark.parametrize("other", [3, 0.5, float("nan"), True, np.str_("Rome"), b"Milan", ["Rome"], "\ud800"])
def test_other_entries_make_it_no_column_of_texts(other: Any) -> None:
    assert texts_of(column([*own(100), other, *own(3)])) is None
    assert texts_of(column(own(100))) is not None  # no error is left behind


def test_unknown_objects_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_objects, "_ascii_layout", lambda: None)
    assert texts_of(column(own(10))) is None


def test_objects_of_every_other_place() -> None:
    entries = column(own(100))
    found = texts_of(entries[::2])
    assert found is not None
    assert list(found.texts) == [each.encode() for each in entries[::2]]


@pytest.mark.parametrize("other", ["Milan", None, 3, float("nan"), np.str_("Rome"), "\ud800", {"x": 3}])
def test_columns_mean_what_their_entries_mean(other: Any) -> None:
    filters = [["city", "=", "città6"], ["city", "prefix", "Mi"], ["city", "null"], ["city", "exists"], ["city", ">", 2]]
    table = make_table([{"interface": f"{k}", "constraints": [each]} for k, each in enumerate(filters)])
    columns = {"city": column([*own(500), other])}
    bad: list[Any] = []
    bad_rows: list[Any] = []
    found = make_batch(table, columns, rejects=bad)
    expected = make_batch(table, [{"city": city} for city in columns["city"]], rejects=bad_rows)
    assert [(each.line, each.reason) for each in bad] == [(each.line, each.reason) for each in bad_rows]
    assert np.array_equal(found.offsets, expected.offsets)
    assert np.array_equal(found.attributes, expected.attributes)


def test_a_series_is_read_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = pytest.importorskip("pandas")
    made: list[Texts | None] = []

    def spy(values: np.ndarray) -> Texts | None:
        made.append(texts_of(values))
        return made[-1]

    monkeypatch.setattr(text_objects, "texts_of", spy)
    frame = pandas.DataFrame({"city": column([*own(5000), None])})
    reader = frames.reader_of_columns({"city": frame["city"]}, 5001)
    assert reader is not None
    assert isinstance(made[0], Texts)
    assert reader.read_next_batch().column(0).to_pylist() == frame["city"].tolist()
