"""docs/format.md against the code: its example, its operators, its hashes.  (Its checksums are held in `test_storage`.)"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import filters
from table_cases import content, example_filters

from mpi_match.events.events import Events
from mpi_match.model import Filter, Op, Type, make_event, matches
from mpi_match.storage import FORMAT_VERSION, Reader
from mpi_match.table.subscriptions import Subscriptions
from mpi_match.table.table import Table
from mpi_match.table.virtual_names import of_constraint


@pytest.fixture
def page(repository: Path) -> str:
    return (repository / "mpi_match" / "docs" / "format.md").read_text(encoding="utf-8")


def test_the_example_of_the_format_page_is_true(page: str, table_path: Path) -> None:
    table = Table.from_filters(example_filters())
    printed = dict(re.findall(r"^    ([a-z]+/[a-z_]+) += (.+)$", page, re.MULTILINE))
    for name, array in table.arrays():
        found = json.dumps(array.tobytes().decode() if name.endswith("data") else array.tolist())
        assert printed.pop(name, None) == found, name
    assert printed == {}, "the page prints arrays that the table does not have"
    table.save(table_path)
    with Reader(table_path, "table") as reader:
        assert f"The digest of the file is `{reader.attributes['digest']}`" in page
    assert f"that of its vocabulary `{table.vocabulary.digest}`" in page
    assert f"constraints/lo <u4 (8,) {zlib.crc32(table.constraints.lo.tobytes()):08x}\n" in page


def test_the_rows_and_the_event_of_the_format_page_are_true(page: str) -> None:
    table = Table.from_filters(example_filters())
    c = table.constraints
    rows = re.findall(r"^    (\w+) +(\d+)  (\S+) +(\d+) +(\d+) +(\d+)", page, re.MULTILINE)
    assert len(rows) == len(c)
    for i, (name, kind, op, *codes) in enumerate(rows):
        wanted = c.decode(i, table.vocabulary)
        assert (name, op) == (wanted.name, wanted.op.symbol)
        assert [int(kind), *map(int, codes)] == [c.kind[i], c.lo[i], c.hi[i], c.filter_id[i]]
    event = make_event({"city": "Milano", "temp": 25}, [9.0, 45.0])
    packed = Events.of([event]).encode(table.vocabulary).attributes
    assert "    " + " ".join(f"{attribute:08x}" for attribute in packed) + "\n" in page
    assert [i for i, item in enumerate(table.iter_filters()) if matches(item, event)] == [0, 2]
    order = [[content(f) for f in table.iter_filters()].index(content(f)) for f in example_filters()]
    assert "the filters {}, {}, {} and {}.".format(*order) in page


def test_the_operators_and_the_version_of_the_format_page_are_true(page: str) -> None:
    assert f"format version {FORMAT_VERSION}\n" in page
    for op in Op:
        shown = op.symbol if op.symbol[0].isalpha() else f"`{op.symbol}`"
        assert f"| {int(op)} | {shown} |" in page, op
    for type_ in Type:
        assert f"| {int(type_)} | {type_.name.lower()} |" in page, type_


def key_by_the_page(item: Filter) -> tuple[int, int]:
    """The content key of a filter, computed from the page alone."""
    top = 2**64

    def mix(x: int) -> int:
        x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) % top
        x = ((x ^ x >> 27) * 0x94D049BB133111EB) % top
        return x ^ x >> 31

    def bits(d: float) -> int:
        return int.from_bytes(struct.pack("<d", d + 0.0), "little")

    def key(j: int) -> int:
        salt = 0x9E3779B97F4A7C15 * (j + 1) % top

        def hashed(b: bytes) -> int:
            return int.from_bytes(hashlib.blake2b(b, digest_size=8, person=b"lane%d" % j).digest(), "little")

        total = 0
        for wanted in item.constraints:
            name, type_, op, operand = of_constraint(wanted)
            values: list[Any] = list(operand) if isinstance(operand, tuple) else [] if operand is None else [operand]
            if type_ is Type.STRING:
                values = [value.encode() for value in values]
            if op is Op.PREFIX and values[0]:
                values.append(values[0][:-1] + bytes([values[0][-1] + 1]))
            operands = 0
            for place, value in enumerate(values):
                number, text = (0.0, hashed(value)) if isinstance(value, bytes) else (float(value), 0)
                residue = value - int(number) if type(value) is int else 0
                operands += mix((mix(bits(number) ^ salt) + text + place + residue * 2**32) % top)
            kind = 96 + 4 * (op - 16) + type_ if op >= 16 else type_ * 16 + op
            total += mix((hashed(name) + mix((kind + salt) % top) + operands) % top)
        if item.area is not None:
            x, y, r = (bits(d) for d in item.area)
            total += mix((mix((mix((x + salt) % top) + y) % top) + r) % top)
        if item.id is not None:
            total += hashed(b"=" + item.id.encode())
        return mix(total % top)

    return key(0), key(1)


@given(st.lists(filters(), max_size=5))
def test_content_keys_are_what_the_format_page_says(found: list[Filter]) -> None:
    keys = Subscriptions.of(found).content_keys
    assert [tuple(key) for key in keys.tolist()] == [key_by_the_page(item) for item in found]
