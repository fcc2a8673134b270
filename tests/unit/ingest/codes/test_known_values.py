"""Values that come again, in one scanner, by the naive matcher: what they gave before is what they give."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from mpi_match.compute.compile_cache import jit
from mpi_match.engines import open_engine
from mpi_match.ingest.codes import known_values
from mpi_match.ingest.codes.atoms import ATOMS_FOUND
from mpi_match.ingest.codes.known_values import KNOWN_VALUE, MOST_KNOWN_ATOMS, MOST_KNOWN_BYTES, NEW_VALUE, SEEN_VALUE
from mpi_match.ingest.files.blocks import LineBlock
from mpi_match.ingest.json.event_scanner import EventScanner
from mpi_match.ingest.rows.judge import PLAIN, event_of_passed, names_of
from mpi_match.model import Filter, constraint, match_naive
from mpi_match.table.table import Table

_ALL_64 = 2**64 - 1


@jit
def _slot_of(text: int, n: int, entry: int, known: int) -> tuple[int, int]:
    return known_values.slot_of_value((text, 0, n), entry, known)


@jit
def _keep(slot: int, known: int, text: int, n: int, entry: int, attributes: int, found: int) -> None:
    known_values.keep_value((slot, known), (text, 0, n), entry, (attributes, 1, 3), (found, 0, found))


def _matched(wanted: list[tuple[Any, ...]], events: list[dict[str, Any]]) -> list[list[str]]:
    """The labels of the filters that each event matches, all in one block of lines, as the naive matcher has them."""
    filters = [Filter(str(k), (constraint(*each),)) for k, each in enumerate(wanted)]
    table = Table.from_filters(filters)
    lines = b"".join(json.dumps(event, ensure_ascii=k % 2 == 0).encode() + b"\n" for k, event in enumerate(events))
    found = EventScanner(table.vocabulary, PLAIN, 1).scan(LineBlock(np.frombuffer(lines, np.uint8), "", 1), [])
    assert found.n_flagged == 0
    answers = open_engine("counting", table).match(found.batch).labels(table.labels)
    naive: dict[str, list[str]] = {}
    for event, answer in zip(events, answers, strict=True):
        key = json.dumps(event)
        if key not in naive:
            naive[key] = match_naive(filters, event_of_passed(event, PLAIN, names_of(table.vocabulary, PLAIN)))
        assert answer == naive[key], event
    return answers


@pytest.mark.untraced
@pytest.mark.parametrize("of_all", [[], ["contains i"], ["contains i", "suffix"]])
def test_values_that_come_again(of_all: list[str]) -> None:
    """Every view and operator on texts, values of several attributes and in lists, of any length; and all strings."""
    generator = random.Random(7)
    wanted: list[tuple[Any, ...]] = [("*", op, each) for op in of_all for each in ("aB", "ba\\", "\u00e4a", "c", "0.1")]
    for name in ("s", "t.u"):
        wanted += [
            (name, op, each) for op in ("contains", "contains i", "suffix", "prefix i", "= i") for each in ("a", "bA", "")
        ]
        wanted += [(name, "regexp", "a[bc]+a"), (name, "wildcard i", "*a?b*"), (name, "in net", "10.0.0.0/8")]
        wanted += [(name, "before", "2026-11-26"), (name, "=", "ab"), (name, ">", "b"), (name, "any contains", "ab")]
    texts = ["".join(generator.choices("abABc\u00c4\\\n", k=generator.randint(0, 12))) for _ in range(30)]
    texts += ["a" * (MOST_KNOWN_BYTES + k - 1) + "b" for k in (-1, 0, 1)] + [
        "10.0.0.1",
        "2026-11-25",
        "12.0.0.1",
        "2026-11-27",
    ]

    def value() -> Any:
        return generator.choices(texts, k=3) if generator.random() < 0.2 else generator.choice(texts)

    _matched(wanted, [{"s": value(), "t": {"u": value(), "v": value()}, "w": value()} for _ in range(1500)])


@pytest.mark.untraced
def test_more_values_than_slots() -> None:
    """Values take each other's slots."""
    generator = random.Random(3)
    wanted = [("s", "contains", "17"), ("s", "suffix i", "Y3"), ("*", "contains i", "V25")]
    answers = _matched(wanted, [{"s": f"v{generator.randrange(6000)}y3"} for _ in range(30_000)])
    assert {"0", "2"} <= {label for answer in answers for label in answer}


def test_a_name_that_stands_twice() -> None:
    """Its second value adds no atoms to those of the first, and is not kept so."""
    pair = '"s": "a long text that comes again"'
    table = Table.from_filters([Filter("i", (constraint("s", "contains", "long"),))])
    lines = np.frombuffer((f"{{{pair}, {pair}}}\n" + 9 * f"{{{pair}}}\n").encode(), np.uint8)
    found = EventScanner(table.vocabulary, PLAIN, 1).scan(LineBlock(lines, "", 1), [])
    assert found.n_flagged == 1
    assert open_engine("counting", table).match(found.batch).labels(table.labels) == [[], *[["i"]] * 9]


def test_many_atoms() -> None:
    """A value with more atoms than a slot has room for."""
    wanted = [("s", "contains", "a" * k) for k in range(1, MOST_KNOWN_ATOMS + 3)]
    answers = _matched(wanted, [{"s": "a" * (k % 20)} for k in range(200)])
    assert max(map(len, answers)) == len(wanted)


@pytest.mark.untraced
def test_a_value_is_kept_when_it_comes_twice() -> None:
    """Values with the same hash are told apart by their bytes."""
    first, second = _of_one_hash()
    known, found = known_values.known_values(), np.zeros(64, np.int64)
    texts = [np.frombuffer(bytearray(text + bytes(64)), np.uint8) for text in (first, second)]
    attributes = np.arange(10, dtype=np.uint64)
    places = [text.ctypes.data for text in texts]
    slot, state = _slot_of(places[0], 8, 5, known.ctypes.data)
    assert state == NEW_VALUE
    assert _slot_of(places[0], 8, 5, known.ctypes.data) == (slot, SEEN_VALUE)
    _keep(slot, known.ctypes.data, places[0], 8, 5, attributes.ctypes.data, found.ctypes.data)
    assert found[ATOMS_FOUND] == 0
    assert _slot_of(places[0], 8, 5, known.ctypes.data) == (slot, KNOWN_VALUE)
    assert _slot_of(places[0], 8, 6, known.ctypes.data)[1] == NEW_VALUE
    assert _slot_of(places[0], 7, 5, known.ctypes.data)[1] == NEW_VALUE
    assert _slot_of(places[1], 8, 5, known.ctypes.data) == (slot, NEW_VALUE)
    assert _slot_of(places[1], 8, 5, known.ctypes.data) == (slot, SEEN_VALUE)


def _of_one_hash() -> tuple[bytes, bytes]:
    """Two texts of eight bytes that have the same hash for entry 5: the lowest bit of each hash is set."""
    mix, low = 0x9E3779B97F4A7C15, pow(0x9E3779B97F4A7C15, -1, 2**64)
    begin = (5 << 8 | 8) * mix & _ALL_64
    generator = random.Random(0)
    while True:
        text = bytes(generator.choices(range(97, 123), k=8))
        word = (begin ^ int.from_bytes(text, "little")) * mix & _ALL_64
        word ^= word >> 32
        hash_ = (word ^ word >> 29) * mix & _ALL_64
        mixed = (hash_ ^ 1) * low & _ALL_64
        mixed ^= mixed >> 29 ^ mixed >> 58
        mixed ^= mixed >> 32
        other = ((mixed * low & _ALL_64) ^ begin).to_bytes(8, "little")
        if other.isascii():
            return text, other
