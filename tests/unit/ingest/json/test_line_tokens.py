"""Lines that are checked by vectors: refused if and only if Python's parser refuses them, wherever vectors begin."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from itertools import product

import numpy as np
import pytest

from mpi_match.ingest.files.blocks import LineBlock
from mpi_match.ingest.json.event_scanner import EventScanner
from mpi_match.ingest.rows.judge import PLAIN, Reject
from mpi_match.model import make_filter
from mpi_match.table.table import Table

VECTOR_BYTES = 64


@pytest.fixture(scope="module")
def scanner() -> EventScanner:
    return EventScanner(Table.from_filters([make_filter("i", [["t", "=", 1]])]).vocabulary, PLAIN, 1)


def sequences(parts: list[str], most: int) -> Iterable[str]:
    return ("".join(each) for n in range(1, most + 1) for each in product(parts, repeat=n))


def is_json(line: bytes) -> bool:
    def fail(text: str) -> None:
        raise ValueError(text)

    try:
        json.loads(line.decode(), parse_constant=fail)
    except ValueError:
        return False
    return True


def assert_refused_as_by_python(scanner: EventScanner, texts: Iterable[bytes]) -> None:
    """Each text stands as the value of a name behind a number of blanks, so that vectors begin at any of its bytes."""
    generator = random.Random(0)
    lines = [b'{"x": ' + b" " * generator.randrange(VECTOR_BYTES) + text + b', "t": 1}\n' for text in texts]
    rejects: list[Reject] = []
    found = scanner.scan(LineBlock(np.frombuffer(b"".join(lines), np.uint8), "", 1), rejects)
    assert [each.line for each in rejects] == [i for i, line in enumerate(lines, 1) if not is_json(line)]
    assert found.n_flagged == len(rejects), "no line was left to the judge that is JSON"


def test_tokens_in_any_order(scanner: EventScanner) -> None:
    generator, parts = random.Random(1), ["{", "}", "[", "]", ",", ":", '"a"', "1", "true ", '{"a":', "[1,"]
    longer = ["".join(generator.choices(parts, k=generator.randrange(4, 12))) for _ in range(4000)]
    assert_refused_as_by_python(scanner, [text.encode() for text in [*sequences(parts, 3), *longer]])


def test_numbers_and_literals(scanner: EventScanner) -> None:
    generator, literals = random.Random(2), ["true", "false", "null", "-12.5e+07", "123456789012", "1E5"]
    altered = [
        text[:at] + generator.choice(["", " ", "x", "e", "1", text]) + text[at + generator.randrange(2) :]
        for text in literals
        for at in range(len(text) + 1)
        for _ in range(40)
    ]
    found = [text for text in [*sequences(list("01.-+e"), 4), *altered, "7" * 200, "1" * 70 + "x"] if text.strip()]
    assert_refused_as_by_python(scanner, [text.encode() for text in found])


def test_strings(scanner: EventScanner) -> None:
    parts = ["\\", '"', "u", "00e", "é", "n", "\t", " ", "ab"]
    texts = [f'"{text}"'.encode() for text in sequences(parts, 4)]
    cut = [text.replace("é".encode(), bad) for text in texts[::3] for bad in (b"\xc3", b"\xa9", b"\xed\xa0\x80")]
    assert_refused_as_by_python(scanner, [*texts, *cut])


def test_strings_longer_than_a_vector(scanner: EventScanner) -> None:
    generator = random.Random(4)
    parts = ["", "\\", "\\\\", "\\n", "\\q", "\\u00e9", "\\u00e", "é", "\t", '"', '", "', "日本"]
    texts = ['"' + "a" * generator.randrange(130) + part + "b" * n + '"' for part in parts for n in range(55, 150)]
    assert_refused_as_by_python(scanner, [text.encode() for text in texts])


def test_nested_values_of_any_depth(scanner: EventScanner) -> None:
    generator = random.Random(3)
    texts = []
    for _ in range(300):
        kinds = generator.choices("[{", k=generator.randrange(1, 200))
        opened = "".join("[1, " if kind == "[" else '{"a": 1, "b": ' for kind in kinds)
        closed = ["]" if kind == "[" else "}" for kind in reversed(kinds)]
        if generator.random() < 0.5:
            closed[generator.randrange(len(closed))] = generator.choice(["]", "}", "", "]]", ",2]"])
        texts.append((opened + "0" + "".join(closed)).encode())
    assert_refused_as_by_python(scanner, texts)


def test_a_form_feed_behind_a_row_is_left_to_the_judge(scanner: EventScanner) -> None:
    rejects: list[Reject] = []
    found = scanner.scan(LineBlock(np.frombuffer(b'{"t": 1} \x0c\n{"x": \x0c 1}\n', np.uint8), "", 1), rejects)
    assert (found.n_flagged, found.batch.offsets.tolist(), [each.line for each in rejects]) == (2, [0, 1, 1], [2])
