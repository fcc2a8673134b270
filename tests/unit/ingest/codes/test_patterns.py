"""Expressions that ignore case: their literals are those of the folded text."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from mpi_match.engines import open_engine
from mpi_match.ingest.codes.patterns import Literals, literals_of
from mpi_match.ingest.files.blocks import LineBlock
from mpi_match.ingest.json.event_scanner import EventScanner
from mpi_match.ingest.rows.judge import PLAIN, event_of_row, names_of
from mpi_match.model import Filter, Json, constraint, match_naive
from mpi_match.operators import Op
from mpi_match.table.table import Table


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"(?i)Task\s+failed for user", Literals([b"failed for user"], False, True)),
        (r"a(?i:Kelvin).", Literals([b"akelvin"], False, True)),
        (r"Task\s+failed", Literals([b"failed"], False)),
        (r"(?i)[A-Z]{3}", Literals([b""], True)),
        (r"\(?id", Literals([b"id"], False, True)),
    ],
)
def test_literals_without_regard_to_case(pattern: str, expected: Literals) -> None:
    assert literals_of(Op.REGEXP, pattern.encode()) == expected


@pytest.mark.untraced
@pytest.mark.parametrize(("name", "op"), [("t", "regexp i"), ("t", "any regexp i"), ("*", "regexp i")])
def test_texts_in_any_case(name: str, op: str) -> None:
    """Characters beyond ASCII whose folding is ASCII, a literal that folding makes longer or shorter, and others."""
    generator = random.Random(len(op))
    words = ["task", "mass", "Kelvin", "stück", "Ⱥb", "lot"]
    patterns = [rf"{generator.choice(words)}\s+{generator.choice(words)}[0-9]" for _ in range(12)] + [r"\bmass\b", "[0-9]k$"]
    filters = [Filter(f"{k}", (constraint(name, op, each),)) for k, each in enumerate(patterns)]
    filters += [Filter(f"cased {k}", (constraint("t", "regexp", each),)) for k, each in enumerate(patterns)]
    forms = (str.upper, str.lower, str.title, lambda text: text.replace("k", "\u212a").replace("s", "\u017f"))
    texts = ["7k", "7\u212a", "a\u017fmass"]
    for _ in range(300):
        text = f"{generator.choice(words)} {generator.choice(words)}{generator.choice('7 ')}{generator.choice(words)}"
        texts.append(generator.choice(forms)(text) + "." * generator.randrange(40))
    rows: list[Json] = [{"t": text if k % 2 else [text, "none"]} for k, text in enumerate(texts)]
    table = Table.from_filters(filters)
    lines = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    found = EventScanner(table.vocabulary, PLAIN, 1).scan(LineBlock(np.frombuffer(lines, np.uint8), "", 1), [])
    assert found.n_flagged == 0
    answers = open_engine("counting", table).match(found.batch).labels(table.labels)
    names = names_of(table.vocabulary, PLAIN)
    for row, answer in zip(rows, answers, strict=True):
        assert answer == match_naive(filters, event_of_row(row, PLAIN, names)), row
    assert sum(any(not each.startswith("cased") for each in answer) for answer in answers) > 20
