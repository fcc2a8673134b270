"""Long texts: what the scanner finds in them by vectors and from eight places at once is what Python finds."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from mpi_match import api
from mpi_match.events.events import Events
from mpi_match.ingest.files.blocks import LineBlock
from mpi_match.ingest.json.event_scanner import EventScanner
from mpi_match.ingest.rows.judge import PLAIN
from mpi_match.model import Event

LETTERS = ("ab", "abAB", 'aB"\\\n', "abÄäß€😀")
OPS = ("contains", "contains i", "suffix", "suffix i", "prefix i", "=", "= i")
PATTERNS = ("*{}*", "*{}", "{}*", "*{}*b?a*")
REGEXPS = ("{}[ab]+", "^{}", "{}$", r"\b{}", "(?i){}.*b{{3}}", "[ab]{{2}}$")


def text_of(random_: random.Random, longest: int) -> str:
    return "".join(random_.choices(random_.choice(LETTERS), k=random_.randint(0, longest)))


def rows_of(random_: random.Random, n: int, names: str) -> list[list[str]]:
    rows = []
    for _ in range(n):
        text, name = text_of(random_, random_.choice((1, 3, 8, 150))) or "a", random_.choice(names)
        quoted = "".join("\\" + each if each in '\\*?"' else each for each in text.replace("\n", "a"))
        rows += [
            [name, random_.choice(OPS), text],
            [name, random_.choice(("wildcard", "wildcard i")), random_.choice(PATTERNS).format(quoted)],
        ]
        if text.isascii() and text.isalpha():
            rows.append([name, "regexp", random_.choice(REGEXPS).format(text)])
    return rows


@pytest.mark.untraced
@pytest.mark.parametrize("seed", range(4))
def test_attributes_of_long_texts(seed: int) -> None:
    random_ = random.Random(seed)
    few = [["z", "contains", "abba"], ["z", "contains", "baab" * 30], ["y", "contains i", "ÄÄäaa"], ["x", "exists"]]
    rows = [*rows_of(random_, 60, "abc"), *few]
    table = api.make_table([{"interface": k, "constraints": [row]} for k, row in enumerate(rows)])
    scanner = EventScanner(table.vocabulary, PLAIN, 1)
    events = [{name: text_of(random_, random_.choice((70, 300, 5000))) for name in "abcxyz"} for _ in range(40)]
    events += [{"a": row[-1] + "b" * 200, "b": "a" * 77 + row[-1], "z": "ab" * 31 + row[-1] + "a"} for row in rows]
    lines = [json.dumps(event, ensure_ascii=k % 2 == 0).encode() for k, event in enumerate(events)]
    data = np.frombuffer(bytearray(b"\n".join(lines) + b"\n"), np.uint8)
    found = scanner.scan(LineBlock(data, "", 1), [])
    expected = Events.of([scanner.judge(event) for event in events]).encode(table.vocabulary)
    assert found.n_flagged == 0
    np.testing.assert_array_equal(found.batch.offsets, expected.offsets)
    np.testing.assert_array_equal(found.batch.attributes, expected.attributes)


def test_codes_of_texts_that_begin_alike() -> None:
    random_ = random.Random(5)
    texts = [
        "",
        *("a" * n + "".join(random_.choices("a\0bé", k=random_.randrange(4))) for n in range(12) for _ in range(12)),
    ]
    rows = [["t", random_.choice(("=", "<", ">=", "prefix")), text] for text in texts[::3]]
    table = api.make_table([{"interface": k, "constraints": [row]} for k, row in enumerate(rows)])
    events = [{"t": text} for text in texts]
    data = np.frombuffer(b"".join(json.dumps(event, ensure_ascii=False).encode() + b"\n" for event in events), np.uint8)
    found = EventScanner(table.vocabulary, PLAIN, 1).scan(LineBlock(data, "", 1), [])
    expected = Events.of([Event(event) for event in events]).encode(table.vocabulary)
    np.testing.assert_array_equal(found.batch.attributes, expected.attributes)
