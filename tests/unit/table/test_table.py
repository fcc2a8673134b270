"""The constraint table: a lossless round trip, independence of input order, and refusal of every invalid file."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import CASES, filters_of
from hypothesis import given
from hypothesis import strategies as st
from random_tables import SHAPES, Shape, random_subscriptions
from strategies import filters, subscriptions
from table_cases import content, example_filters, filters_of_integers

from mpi_match.arrays.csr import Array
from mpi_match.arrays.strings import Strings
from mpi_match.model import Filter, Op, Type, make_filter
from mpi_match.operators import Form
from mpi_match.storage import FilePart, Reader, StorageError, Writer, parts_directory, write_index
from mpi_match.table import constraints
from mpi_match.table import subscriptions as subscription_columns
from mpi_match.table.conditions import decompose
from mpi_match.table.kinds import kind_of
from mpi_match.table.subscriptions import Subscriptions
from mpi_match.table.table import Table, _order_of, load_vocabulary


def contents(items: Any) -> list[Any]:
    return sorted((content(item) for item in items), key=repr)


# Round trips.


@given(subscriptions())
def test_a_table_holds_the_filters_it_was_made_of(found: list[Filter]) -> None:
    table = Table.from_filters(found)
    assert contents(table.iter_filters()) == contents(found)
    assert table.n_filters == len(found)
    assert [table.label(i) for i in range(table.n_interfaces)] == sorted({f.interface for f in found}, key=str.encode)


LIMITS = (
    (constraints, "ENCODED_AT_ONCE", 7),
    (subscription_columns, "HASHED_AT_ONCE", 7),
    (constraints, "FEW", 0),
    (constraints, "MANY", 0),
    (constraints, "ROW_BITS", 0),
)


@pytest.mark.parametrize("limit", [*(name for _, name, _ in LIMITS), "all"])
def test_a_large_table_is_made_like_a_small_one(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many blocks, values, pairs of a name and a value, and rows too wide to be sorted as numbers."""
    found = [*random_subscriptions(5, Shape(n_filters=300))[0], *example_filters(), *example_filters()]
    table = Table.from_filters(found)
    for module, name, value in LIMITS:
        if limit in (name, "all"):
            monkeypatch.setattr(module, name, value)
    assert Table.from_filters(found) == table


def test_filters_of_one_interface_are_ordered_by_the_whole_content_key() -> None:
    keys = np.random.default_rng(1).integers(0, 3, (500, 2)).astype(np.uint64) << np.uint64(60)
    for interface in (np.zeros(500, np.int64), np.arange(500) % 7):
        order = _order_of(interface, keys)
        ordered = np.column_stack([interface, keys])[order].tolist()
        assert sorted(order.tolist()) == list(range(500))
        assert ordered == sorted(ordered)


def test_all_cases_survive() -> None:
    found = [item for case in CASES for item in filters_of(case)]
    kept = [each for item in Table.from_filters(found).iter_filters() for each in decompose(item)]
    assert set(contents(kept)) == set(contents(each for item in found for each in decompose(item)))


@pytest.mark.parametrize(
    "found",
    [
        pytest.param([], id="empty"),
        pytest.param([make_filter("i")], id="no names"),
        pytest.param(example_filters(), id="example"),
        pytest.param(filters_of_integers(), id="integers"),
        pytest.param(random_subscriptions(3, Shape(n_filters=800))[0], id="random"),
        pytest.param(random_subscriptions(4, replace(SHAPES["one interface each"], n_filters=800))[0], id="many labels"),
    ],
)
def test_a_file_is_the_table_in_memory(found: list[Filter], table_path: Path) -> None:
    table = Table.from_filters(found)
    table.save(table_path)
    loaded = Table.load(table_path)
    assert loaded == table
    assert [name for name, _ in loaded.arrays()] == [name for name, _ in table.arrays()]
    assert load_vocabulary(table_path).digest == table.vocabulary.digest
    assert contents(loaded.iter_filters()) == contents(found)


def test_saving_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    table = Table.from_filters(example_filters())
    table.save(tmp_path / "one.h5")
    table.save(tmp_path / "two.h5")
    assert (tmp_path / "one.h5").read_bytes() == (tmp_path / "two.h5").read_bytes()


# Nothing depends on order.


@given(subscriptions(max_filters=10), st.randoms(use_true_random=False))
def test_order_of_filters_and_constraints_leaves_no_trace(found: list[Filter], rng: random.Random) -> None:
    shuffled = [item._replace(constraints=tuple(rng.sample(item.constraints, len(item.constraints)))) for item in found]
    rng.shuffle(shuffled)
    assert Table.from_filters(shuffled) == Table.from_filters(found)


@given(st.lists(filters(), max_size=8))
def test_content_keys_tell_filters_apart_and_need_no_others(found: list[Filter]) -> None:
    keys = Subscriptions.of(found).content_keys
    for item, key in zip(found, keys, strict=True):
        assert np.array_equal(Subscriptions.of([item]).content_keys[0], key), "a key depends on other filters"
    said = [repr(content(item._replace(interface=""))) for item in found]
    distinct = {tuple(key) for key in keys.tolist()}
    assert len(distinct) == len(set(said))


def test_areas_with_alike_bits_have_keys_of_their_own() -> None:
    """Powers of two differ in few bits; a weak hash of x, y and r takes some of these circles for one another."""
    powers = [2.0**i for i in range(-3, 4)]
    found = [make_filter("i", [], [x, y, r]) for x in powers for y in powers for r in powers]
    assert len(np.unique(Subscriptions.of(found).content_keys, axis=0)) == len(found)
    assert Table.from_filters(found[::-1]) == Table.from_filters(found)


def test_the_empty_prefix_is_the_interval_of_all_strings() -> None:
    table = Table.from_filters([make_filter("i", [["x", "prefix", ""], ["x", "=", "a"], ["x", "=", 1]])])
    c = table.constraints
    row = c.form.tolist().index(Form.PREFIX)
    assert (int(c.lo[row]), int(c.hi[row])) == (4, 8), "one number, two strings: codes 2n + 2 to 2n + 2s + 2"


# How large a file is.


def large_table(n_filters: int, distinct: bool) -> Table:
    """Four numeric constraints for each filter, operands from 10,000 values or all different."""
    rng = np.random.default_rng(8)
    n = 4 * n_filters
    kinds = np.array([kind_of(Type.NUMBER, op) for op in (Op.EQ, Op.NE, Op.LT, Op.GT)], np.uint8)
    return Table.from_subscriptions(
        Subscriptions(
            labels=Strings.of(b"interface-%d" % i for i in range(10)),
            names=Strings.of(b"name-%d" % i for i in range(100)),
            strings=Strings.of(()),
            ids=Strings.of(()),
            interface=rng.integers(0, 10, n_filters),
            constraint_offsets=np.arange(0, n + 1, 4),
            area=np.full((n_filters, 3), np.nan),
            id=np.full(n_filters, -1),
            name=rng.integers(0, 100, n),
            kind=rng.choice(kinds, n),
            operand_offsets=np.arange(n + 1),
            number=rng.random(n) if distinct else rng.integers(0, 10_000, n).astype(float),
            string=np.full(n, -1),
        )
    )


@pytest.mark.parametrize("distinct", [False, True])
def test_a_constraint_takes_at_most_24_bytes(distinct: bool, table_path: Path) -> None:
    table = large_table(25_000, distinct)
    assert table.n_constraints == 100_000
    table.save(table_path)
    assert table_path.stat().st_size / table.n_constraints <= 24
    assert Table.load(table_path) == table


# Refusals: a file that is damaged, foreign, unfinished or not a table.


@pytest.fixture
def saved(table_path: Path) -> tuple[Table, Path]:
    table = Table.from_filters(example_filters())
    table.save(table_path)
    return table, table_path


def test_truncated_files_are_refused(saved: tuple[Table, Path]) -> None:
    _, path = saved
    whole = path.read_bytes()
    for length in [*range(0, 100, 7), *range(100, len(whole), 397), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(StorageError, match=re.escape(str(path))):
            Table.load(path)


@pytest.mark.untraced
def test_a_flipped_bit_is_refused_or_harmless(saved: tuple[Table, Path]) -> None:
    table, path = saved
    whole = path.read_bytes()
    rng = random.Random(5)
    refused = 0
    for _ in range(250):
        damaged = bytearray(whole)
        at, bit = rng.randrange(len(whole)), rng.randrange(8)
        damaged[at] ^= 1 << bit
        path.write_bytes(damaged)
        try:
            loaded = Table.load(path)
        except StorageError:
            refused += 1
        else:
            assert loaded == table, f"bit {bit} of byte {at} changed the table silently"
    assert refused > 180, "most of the file should matter"


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"none\.h5: no such file"):
        Table.load(tmp_path / "none.h5")


def test_a_file_of_another_kind_is_refused(table_path: Path) -> None:
    with Writer(table_path, "events"):
        pass
    with pytest.raises(StorageError, match="holds 'events', expected 'table'"):
        Table.load(table_path)


def rewrite(
    table: Table, path: Path, change: dict[str, Array] | None = None, drop: str = "", counts: dict[str, int] | None = None
) -> None:
    """Write a table's file with some arrays and counts replaced: sound checksums, wrong content."""
    arrays = dict(table.arrays()) | (change or {})
    with Writer(path, "table") as writer:
        for name, value in (table.counts() | (counts or {})).items():
            writer.attribute(name, value)
        for name, array in arrays.items():
            if name != drop:
                writer.array(name, array)


def test_rewriting_unchanged_is_accepted(saved: tuple[Table, Path]) -> None:
    table, path = saved
    rewrite(table, path)
    assert Table.load(path) == table


@pytest.mark.untraced
@pytest.mark.parametrize("name", [name for name, _ in Table.from_filters(example_filters()).arrays()])
def test_a_missing_array_is_refused(name: str, saved: tuple[Table, Path]) -> None:
    table, path = saved
    rewrite(table, path, drop=name)
    with pytest.raises(StorageError, match=f"is not a valid table: there is no dataset {name}; compile it again"):
        Table.load(path)


@pytest.mark.parametrize("name", [name for name, _ in Table.from_filters(example_filters()).arrays()])
def test_another_dtype_is_refused(name: str, saved: tuple[Table, Path]) -> None:
    table, path = saved
    array = dict(table.arrays())[name]
    rewrite(table, path, {name: array.astype(np.float32)})
    with pytest.raises(StorageError, match=f"'{name}' is float32, which datasets never are; make the file again"):
        Table.load(path)
    rewrite(table, path, {name: array.astype(np.uint16)})
    with pytest.raises(StorageError, match=re.escape(f"{name} is <u2, expected {array.dtype.str}")):
        Table.load(path)


@pytest.mark.parametrize("count", ["n_names", "n_constraints", "n_filters", "n_interfaces"])
def test_counts_that_lie_are_refused(count: str, saved: tuple[Table, Path]) -> None:
    table, path = saved
    rewrite(table, path, counts={count: 99})
    with pytest.raises(
        StorageError, match=f"has {table.counts()[count]} rows.*, expected 99, as the attribute {count} says"
    ):
        Table.load(path)


def swapped(array: Array, i: int, j: int) -> Array:
    found = array.copy()
    found[[i, j]] = found[[j, i]]
    return found


def with_first(array: Array, value: Any) -> Array:
    found = array.copy()
    found[0] = value
    return found


def backwards(items: Strings) -> Strings:
    return Strings.of(list(items)[::-1])


def disorders(table: Table) -> dict[str, tuple[dict[str, Array], str]]:
    """Arrays that no writer produces, and the text of the refusal."""
    v, c, f = table.vocabulary, table.constraints, table.filters
    rows = ("kind", "lo", "hi", "filter")
    two = dict(zip(rows, (c.kind, c.lo, c.hi, c.filter_id), strict=True))
    names, labels = backwards(v.names), backwards(table.labels)
    huge = 2**32 - 1
    return {
        "constraints": ({f"constraints/{n}": swapped(a, 1, 2) for n, a in two.items()}, "constraints are not sorted"),
        "filters": ({"filters/interface": f.interface[::-1]}, "filters/interface is not sorted"),
        "names": ({"names/data": names.data, "names/offsets": names.offsets}, "names/offsets and its data are not sorted"),
        "labels": (
            {"interfaces/data": labels.data, "interfaces/offsets": labels.offsets},
            "interfaces/offsets and its data are not sorted",
        ),
        "numbers": ({"numbers/values": v.numbers[::-1]}, "numbers/values is not sorted"),
        "no residues": ({"numbers/residues": np.zeros(3, np.int16)}, "numbers/residues holds no residue"),
        "residues": ({"numbers/residues": np.ones(3, np.int16)}, "numbers/residues has a number that is not the residue"),
        "wide residues": ({"numbers/residues": np.ones(3, np.int64)}, "numbers/residues is <i8, expected <i2"),
        "short residues": ({"numbers/residues": np.ones(2, np.int16)}, "numbers/residues has 2 rows, expected 3"),
        "NaN": ({"numbers/values": np.append(v.numbers[:-1], np.nan)}, "numbers/values holds NaN"),
        "strings": (
            {"strings/data": v.strings.data[::-1]},
            "strings/offsets and its data are not sorted, or not distinct, within the lists of strings/name_offsets",
        ),
        "sets": ({"sets/codes": c.set_codes[::-1]}, "sets/codes is not sorted"),
        "offsets": ({"constraints/name_offsets": c.offsets[::-1]}, "constraints/name_offsets does not fit"),
        "short column": ({"constraints/hi": c.hi[:-1]}, "constraints/hi has 7 rows, expected 8"),
        "sizes": ({"filters/size": swapped(f.size, 0, 1) + np.uint32(1)}, "constraints do not add up to filters/size"),
        "owner": (
            {"constraints/filter": with_first(c.filter_id, huge)},
            "constraints/filter holds 4,294,967,295, and there are 4",
        ),
        "interface": (
            {"filters/interface": np.sort(with_first(f.interface, huge))},
            "filters/interface holds 4,294,967,295, and there are 2",
        ),
        "area": ({"filters/area_filter": np.array([9], np.uint32)}, "filters/area_filter holds 9, and there are 4"),
        "id": ({"filters/id_filter": np.array([9], np.uint32)}, "filters/id_filter holds 9, and there are 4"),
        "circle": ({"filters/area": -f.area}, "a circle that is none"),
        "kind": ({"constraints/kind": with_first(c.kind, 0x3F)}, "is not a type and operator"),
        "code": ({"constraints/hi": with_first(c.hi, huge)}, "not an interval of codes"),
        "interval": ({"constraints/lo": with_first(c.lo, huge)}, "not an interval of codes, a set or an atom"),
        "set code": ({"sets/codes": np.array([1, huge], np.uint32)}, "a list of codes that are not operands of one type"),
        "presence": (
            {"constraints/kind": with_first(c.kind, 12)},
            "constraints/kind holds 12, whose rows belong to presence/filter",
        ),
        "no presence": (
            {"presence/name_offsets": 0 * c.offsets, "presence/filter": c.filter_id[:0]},
            "presence/name_offsets has no rows, so it must not be there",
        ),
        "half of presence": ({"presence/name_offsets": 0 * c.offsets}, "must be there both or not at all"),
        **disorders_of_metadata(),
        "atom": ({"atoms/op": np.array([Op.EQ], np.uint8)}, "atoms/op holds 0, expected one of 10, 11"),
    }


def disorders_of_metadata() -> dict[str, tuple[dict[str, Array], str]]:
    """The same of metadata, which the table does not have."""
    right = {
        **named_pool("name", b"a", b"b"),
        "type": np.array([2, 20], np.uint8),
        **named_pool("id", b"r", b"s"),
        **named_pool("row", b'{"a":"x"}', b"{}"),
    }
    wrong: dict[str, tuple[dict[str, Array], str]] = {
        "names": (named_pool("name", b"a", b"a"), "metadata/name_offsets and its data hold a string twice"),
        "type": ({"type": np.array([2, 9], np.uint8)}, "metadata/type holds 9, expected one of 1, 2, 3, 4, 17"),
        "types": ({"type": np.array([2], np.uint8)}, "metadata/type has 1 rows, expected 2"),
        "ids": (named_pool("id", b"s", b"r"), "metadata/id_offsets and its data are not sorted, or not distinct"),
        "rows": (named_pool("row", b"{}"), "metadata/row_offsets has 1 rows and 1, expected 2"),
        "list": (
            named_pool("row", b"{}", b"[]"),
            "metadata/row_offsets and its data hold a string that is not",
        ),
        "lines": (named_pool("row", b"{}", b"{\n}"), "metadata/row_offsets and its data hold a string that is not"),
        "none": (named_pool("row", b"", b"{}"), "metadata/row_offsets and its data hold a string that is not"),
    }
    found = {f"metadata {what}": (right | change, said) for what, (change, said) in wrong.items()}
    found["metadata half"] = named_pool("id", b"r", b"s"), "must be there"
    return {what: ({f"metadata/{name}": each for name, each in of.items()}, said) for what, (of, said) in found.items()}


def named_pool(name: str, *items: bytes) -> dict[str, Array]:
    pool = Strings.of(items)
    return {f"{name}_data": pool.data, f"{name}_offsets": pool.offsets}


@pytest.mark.parametrize("what", disorders(Table.from_filters(example_filters())))
def test_arrays_out_of_order_or_range_are_refused(what: str, saved: tuple[Table, Path]) -> None:
    table, path = saved
    change, said = disorders(table)[what]
    rewrite(table, path, change)
    with pytest.raises(StorageError, match=f"is not a valid table: .*{re.escape(said)}"):
        Table.load(path)


def test_constraints_that_only_ask_for_presence_have_no_kind_and_interval(table_path: Path) -> None:
    filters = [make_filter(f"i{i}", [[f"tag-{(i * k) % 50}", "exists"] for k in (1, 2, 3, 4)]) for i in range(2000)]
    table = Table.from_filters(filters)
    table.save(table_path)
    assert Table.load(table_path) == table
    arrays = dict(table.arrays())
    assert (len(arrays["constraints/kind"]), len(arrays["presence/filter"])) == (0, 8000)
    texts = sum(arrays[name].nbytes for name in ("interfaces/data", "interfaces/offsets"))
    assert (table.nbytes - texts) / table.n_filters < 26
    again = Table.from_filters(
        [*table.iter_filters(), make_filter("more", [["tag-1", ">", 3], ["tag-1", "exists"], ["z", "absent"]])]
    )
    _, offsets, owners = again.constraints.split()
    assert (len(again.constraints), offsets[-1], len(owners)) == (8003, 8001, 8001)
    again.save(table_path)
    loaded = Table.load(table_path)
    assert [getattr(loaded.constraints, name).tolist() for name in ("offsets", "kind", "lo", "hi", "filter_id")] == [
        getattr(again.constraints, name).tolist() for name in ("offsets", "kind", "lo", "hi", "filter_id")
    ]
    assert not list(loaded.faults())


# Parts.


def write_parts(table: Table, path: Path, cut: int = 2) -> list[FilePart]:
    """The table as an index over parts: names and constraints, labels and the filters before `cut`, the other filters."""
    f = table.filters
    area, named = (int(np.searchsorted(ids, cut)) for ids in (f.area_filter, f.id_filter))
    first = replace(
        f,
        size=f.size[:cut],
        interface=f.interface[:cut],
        area_filter=f.area_filter[:area],
        area=f.area[:area],
        id_filter=f.id_filter[:named],
        ids=f.ids.take(np.arange(named)),
    )
    second = replace(
        f,
        size=f.size[cut:],
        interface=f.interface[cut:],
        area_filter=f.area_filter[area:],
        area=f.area[area:],
        id_filter=f.id_filter[named:],
        ids=f.ids.take(np.arange(named, len(f.ids))),
    )
    everything = dict(table.arrays())
    without = {name: array for name, array in everything.items() if not name.startswith("filters/")}
    contents_of = {
        "part-a.h5": (table.n_constraints, without),
        "part-b.h5": (cut, dict(replace(table, filters=first).arrays())),
        "part-c.h5": (table.n_filters - cut, dict(replace(table, filters=second).arrays())),
    }
    directory = parts_directory(path)
    directory.mkdir()
    parts = []
    for name, (rows, arrays) in contents_of.items():
        with Writer(directory / name, "table-part") as writer:
            writer.attribute("rows", rows)
            for dataset, array in arrays.items():
                if name == "part-a.h5" or dataset.startswith("filters/"):
                    writer.array(dataset, array)
        parts.append(FilePart(name, rows, writer.digest))
    write_index(path, "table", parts, table.counts())
    return parts


@pytest.mark.untraced
@pytest.mark.parametrize("cut", [0, 1, 2, 3, 4])
def test_an_index_reads_as_one_file(cut: int, table_path: Path) -> None:
    table = Table.from_filters(example_filters())
    write_parts(table, table_path, cut)
    assert Table.load(table_path) == table
    assert load_vocabulary(table_path).digest == table.vocabulary.digest


def remove_part(path: Path) -> None:
    (parts_directory(path) / "part-c.h5").unlink()


def exchange_parts(path: Path) -> None:
    one, two = parts_directory(path) / "part-b.h5", parts_directory(path) / "part-c.h5"
    content_of_one = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(content_of_one)


def damage_part(path: Path) -> None:
    part = parts_directory(path) / "part-c.h5"
    part.write_bytes(part.read_bytes()[:-9])


def replace_part(path: Path) -> None:
    with Writer(parts_directory(path) / "part-c.h5", "table-part") as writer:
        writer.attribute("rows", 2)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (remove_part, "its part .*part-c.h5 is missing; an index must travel with its directory"),
        (exchange_parts, "part-b.h5: is not the part that .*table.h5 names: found digest"),
        (damage_part, "part-c.h5: is not a readable HDF5 file"),
        (replace_part, "part-c.h5: is not the part that .*table.h5 names: found digest"),
    ],
)
def test_parts_that_are_not_the_right_ones_are_refused(harm: Callable[[Path], None], said: str, table_path: Path) -> None:
    write_parts(Table.from_filters(example_filters()), table_path)
    harm(table_path)
    with pytest.raises(StorageError, match=said):
        Table.load(table_path)


def test_an_index_whose_counts_lie_is_refused(table_path: Path) -> None:
    table = Table.from_filters(example_filters())
    parts = write_parts(table, table_path)
    write_index(table_path, "table", parts, table.counts() | {"n_filters": 5})
    with pytest.raises(StorageError, match="filters/size has 4 rows, expected 5, as the attribute n_filters says"):
        Table.load(table_path)


def test_a_part_is_no_table(table_path: Path) -> None:
    write_parts(Table.from_filters(example_filters()), table_path)
    with pytest.raises(StorageError, match="holds 'table-part', expected 'table'"):
        Table.load(parts_directory(table_path) / "part-a.h5")
    with Reader(table_path, "table") as reader:
        assert reader.rows == [8, 2, 2]


def test_reserved_labels_are_those_of_parts_with_filters() -> None:
    table = Table.from_filters([make_filter("i", [{"or": [["x", "=", 1], ["y", "=", 1]]}])])
    assert not list(table.faults())
    renamed = replace(table, labels=Strings.of([table.labels[0], "\U0010ffffx".encode()]))
    assert any("begins with U+10FFFF and is not that of a part" in each for each in renamed.faults())
    with_more = replace(table, labels=Strings.of([*table.labels, ("\U0010ffff&" + "f" * 32).encode()]))
    assert any("lacks a part of conditions" in each for each in with_more.faults())
