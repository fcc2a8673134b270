"""Ranges of a table file equal those of the table in memory, without holding the whole table."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from random_tables import SHAPES, random_subscriptions

from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.storage import FilePart, Reader, StorageError, Writer, parts_directory, write_index
from mpi_match.table import range_reader
from mpi_match.table.range_reader import RangeReader
from mpi_match.table.table import Table

CUTS = (0, 1, 45, 45, 125, 200)


def saved(directory: Path, shape: str) -> tuple[Table, Path]:
    filters, _ = random_subscriptions(3, replace(SHAPES[shape], n_filters=200, n_events=1))
    table = Table.from_filters(filters)
    table.save(directory / "table.h5")
    return table, directory / "table.h5"


@pytest.mark.parametrize("block", [7, pytest.param(2**20, marks=pytest.mark.lasting)])
@pytest.mark.parametrize("shape", SHAPES)
def test_ranges_are_those_of_the_whole_table(
    shape: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_reader, "READ_AT_ONCE", block)
    table, path = saved(tmp_path, shape)
    with RangeReader(path) as large:
        for start, stop in pairwise(CUTS):
            assert large.part(start, stop) == table.take(np.arange(start, stop))
        for chosen in (list(range(0, 200, 3)), [0, 5, 199], []):
            assert large.some(np.array(chosen, np.int64)) == table.take(np.array(chosen, np.int64))
        assert (large.n_filters, large.n_interfaces, large.n_constraints) == (200, table.n_interfaces, table.n_constraints)
        assert large.digest == table.digest
        ids = sum(array.nbytes for name, array in table.arrays() if name.startswith("filters/id"))
        assert large.n_bytes == pytest.approx(table.nbytes - ids, abs=200 + 16)


def test_a_table_in_parts_is_read_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names in two files, cut where the constraints are, the rest in a third."""
    monkeypatch.setattr(range_reader, "READ_AT_ONCE", 50)
    table, _ = saved(tmp_path, "every type")
    index = tmp_path / "index.h5"
    parts_directory(index).mkdir()
    per_name = ("names/", "numbers/", "strings/", "atoms/", "constraints/", "presence/", "sets/")
    arrays = dict(table.arrays())
    n = table.vocabulary.n_names
    halves = [arrays_of_names(arrays, 0, n // 2), arrays_of_names(arrays, n // 2, n)]
    rest = {name: array for name, array in arrays.items() if not name.startswith(per_name)}
    parts = []
    for i, content in enumerate((*halves, rest)):
        with Writer(parts_directory(index) / f"{i}.h5", "table-part") as writer:
            writer.attribute("rows", i)
            for name, array in content.items():
                writer.array(name, array)
        parts.append(FilePart(f"{i}.h5", i, writer.digest))
    write_index(index, "table", parts, table.counts())
    assert Table.load(index) == table
    with RangeReader(index) as large:
        assert large.part(50, 150) == table.take(np.arange(50, 150))
        assert large.digest == table.digest


def arrays_of_names(arrays: dict[str, np.ndarray], first: int, last: int) -> dict[str, np.ndarray]:
    """The datasets of a range of names."""

    def run(offsets: str, *columns: str, bounds: tuple[int, int] = (first, last)) -> tuple[int, int]:
        ends = arrays[offsets][list(bounds)]
        found[offsets] = arrays[offsets][bounds[0] : bounds[1] + 1] - ends[0]
        for column in columns:
            found[column] = arrays[column][ends[0] : ends[1]]
        return int(ends[0]), int(ends[1])

    found: dict[str, np.ndarray] = {}
    run("names/offsets", "names/data")
    run("numbers/name_offsets", "numbers/values")
    run("strings/offsets", "strings/data", bounds=run("strings/name_offsets"))
    run("atoms/offsets", "atoms/data", bounds=run("atoms/name_offsets", "atoms/op"))
    run("constraints/name_offsets", *(f"constraints/{name}" for name in ("kind", "lo", "hi", "filter")))
    run("presence/name_offsets", "presence/filter")
    run("sets/offsets", "sets/codes", bounds=run("sets/name_offsets"))
    return found


def test_damage_is_found_by_whoever_reads_a_range(tmp_path: Path) -> None:
    _, path = saved(tmp_path, "every type")
    with Reader(path, "table") as reader:
        at = reader._file["constraints/lo"].id.get_chunk_info(0).byte_offset
    content = bytearray(path.read_bytes())
    content[at + 40] ^= 1
    path.write_bytes(content)
    with RangeReader(path) as large, pytest.raises(StorageError, match="'constraints/lo' is damaged"):
        large.part(0, 1)


@pytest.mark.parametrize(
    ("dataset", "row", "value", "fault"),
    [
        ("presence/filter", 5, 200, "presence/filter holds 200|constraints do not add up"),
        ("constraints/filter", 5, 200, "constraints/filter holds 200|constraints do not add up"),
        ("constraints/lo", -1, 2**31, "are not an interval of codes|refer to more"),
        ("filters/size", 100, 9, "constraints do not add up to filters/size"),
        ("filters/area_filter", 0, 399, "filters/area_filter is not sorted"),
        ("filters/interface", 110, 50, "filters/interface is not sorted"),
        ("constraints/kind", 3, 255, "which is not a type and operator|constraints are not sorted"),
        ("sets/offsets", 2, 10**6, "do not fit sets/codes|refer to more"),
    ],
)
def test_a_file_that_is_no_table_is_refused_in_one_line(
    dataset: str, row: int, value: int, fault: str, tmp_path: Path
) -> None:
    """A sound file, but an invalid table: refused by some range, as it would be as a whole."""
    table, _ = saved(tmp_path, "every type")
    path = tmp_path / "wrong.h5"
    with Writer(path, "table") as writer:
        for name, count in table.counts().items():
            writer.attribute(name, count)
        for name, array in table.arrays():
            if name == dataset:
                array = array.copy()
                array[row] = value
            writer.array(name, array)
    with pytest.raises(StorageError, match=f"wrong.h5: is not a valid table: .*({fault}).*; compile it again$"):
        read_in_ranges(path)


def read_in_ranges(path: Path) -> list[Table]:
    with RangeReader(path) as large:
        return [large.part(start, stop) for start, stop in pairwise(CUTS)]


def test_a_range_takes_the_memory_of_a_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An eighth of a table with 900,000 constraints, 12 MB of them: no allocation is as large as the table."""
    monkeypatch.setattr(range_reader, "READ_AT_ONCE", 2**14)
    table = Table.from_subscriptions(SCENARIOS["ccm"].scaled(n_filters=225_000).subscriptions(0))
    table.save(tmp_path / "table.h5")
    tracemalloc.start()
    try:
        with RangeReader(tmp_path / "table.h5") as large:
            tracemalloc.reset_peak()
            part = large.part(50_000, 50_000 + 225_000 // 8)
            _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert part.n_filters == 225_000 // 8
    assert peak < table.nbytes / 2
