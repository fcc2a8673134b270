"""Atoms of long texts, which are read at eight places at once, by the scanner of events and by the naive matcher."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from mpi_match.engines import open_engine
from mpi_match.ingest.codes import atoms
from mpi_match.ingest.codes.code_tables import JOINED_ROOT, NO_ENTRY, SCALARS, hashed
from mpi_match.ingest.codes.element_atoms import BEGINNINGS_ROOT, ELEMENT_RECORDS
from mpi_match.ingest.files.blocks import LineBlock
from mpi_match.ingest.json.event_scanner import EventScanner
from mpi_match.ingest.rows.judge import PLAIN, event_of_passed, names_of
from mpi_match.model import Event, Filter, constraint, match_naive
from mpi_match.table.table import Table

_OPS = ("contains", "suffix")


def _random(generator: random.Random, n: int) -> str:
    return "".join(generator.choices("ab", k=n))


_ROW = 32  # bytes of a row of texts of six different bytes


@pytest.mark.untraced
@pytest.mark.parametrize("row_bytes", [2**24, 60 * _ROW, 9 * _ROW, 2 * _ROW, _ROW, 0])
@pytest.mark.parametrize("most", [1, 3, 9, 40])
def test_atoms_of_long_texts(most: int, row_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Atoms of up to `most` bytes end everywhere in texts, also where two stretches meet, however few states have rows."""
    monkeypatch.setattr(atoms, "TRIE_ROW_BYTES", row_bytes)
    generator = random.Random(most)
    operands = sorted({_random(generator, generator.randint(0, most)) for _ in range(40)} | {"a" * most, "c", 'cdd"}'})
    filters = [
        Filter(f"{k}{op}", (constraint(name, op, each),))
        for k, each in enumerate(operands)
        for op in _OPS
        for name in ("s", "t")
        if name == "s" or (len(each) > 1 and (len(each) + len(op)) % 3 > 0)
    ]
    texts = [_random(generator, n) for n in (*range(70), *(generator.randrange(70, 400) for _ in range(150)))]
    for k in range(0, len(texts), 2):
        place = generator.randint(0, len(texts[k]))
        texts[k] = texts[k][:place] + "\n" + texts[k][place:] + generator.choice(("", "c", "cb"))
    texts[1::2] = ["ddc" + text for text in texts[1::2]]  # after some, the line goes on as an operand does
    events = [{"s": text, "t": text[::-1]} for text in texts]
    table = Table.from_filters(filters)
    lines = b"".join(json.dumps(event).encode() + b"\n" for event in events)
    found = EventScanner(table.vocabulary, PLAIN, 1).scan(LineBlock(np.frombuffer(lines, np.uint8), "", 1), [])
    assert found.n_flagged == 0
    assert len(table.vocabulary.atoms) > len(filters) // 2
    for event, answer in zip(events, open_engine("counting", table).match(found.batch).labels(table.labels), strict=True):
        assert answer == match_naive(filters, Event(event)), event


@pytest.mark.parametrize("name", ["few", "*"])
def test_every_trie_has_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name with thousands of long operands leaves rows to others; `*` has most, beginnings have none."""
    monkeypatch.setattr(atoms, "TRIE_ROW_BYTES", 2**12)
    generator = random.Random(0)
    many = [constraint("many", "contains", _random(generator, 30)) for _ in range(300)]
    many += [constraint("others", "any prefix", _random(generator, 30)) for _ in range(300)]
    rare = constraint(name, "contains", "abbabbaaab")
    arrays = hashed(Table.from_filters([Filter("f", (each,)) for each in (*many, rare)]).vocabulary, PLAIN).arrays
    n_rows, contained = len(arrays[atoms.ROW_PLACES]), arrays[atoms.CONTAINED]
    ends = np.flatnonzero((contained != atoms.NO_ATOM) & (arrays[atoms.STATE_DEPTHS] == 10))
    assert len(contained) > 20 * n_rows
    assert len(ends) == 1
    assert ends[0] < n_rows
    of_beginnings = arrays[ELEMENT_RECORDS][:, BEGINNINGS_ROOT].max()
    edges = arrays[atoms.EDGES]
    children = edges[edges[:, 0] >> 8 == of_beginnings, 1] >> 1
    assert len(children) == 2
    assert children.min() >= n_rows


@pytest.mark.untraced
@pytest.mark.parametrize("others", [[], [("*", "suffix", "a")], [("*", "contains", "a")]])
def test_all_strings_as_one_text(others: list[tuple[str, str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Strings are found in no two neighbours together, in any case, also if they fill the memory for folded ones."""
    monkeypatch.setattr("mpi_match.ingest.json.event_scanner.SCRATCH_BYTES", 300)
    wanted = [
        *[("*", "contains i", each) for each in ("aB", "bba", "\u00e4a", "aabbaabb", "b\\b")],
        *[("s", "contains i", each) for each in ("ab", "aab")],
        *[("t.u", "= i", each) for each in ("B", "aba")],
        *others,
    ]
    filters = [Filter(str(k), (constraint(*each),)) for k, each in enumerate(wanted)]
    table, generator = Table.from_filters(filters), random.Random(3)
    is_apart = hashed(table.vocabulary, PLAIN).arrays[SCALARS][JOINED_ROOT] == NO_ENTRY
    assert is_apart == bool(others)

    def text() -> str:
        return "".join(generator.choices("abABb\u00c4\\\n", k=generator.choice((0, 1, 2, 3, 9, 70))))

    names = ("p", "s", "q", "t", "aab")
    events = [
        {name: {"u": text(), "v": [text(), [text()]]} if name == "t" else text() for name in generator.sample(names, 4)}
        for _ in range(400)
    ]
    lines = b"".join(json.dumps(event, ensure_ascii=k % 2 == 0).encode() + b"\n" for k, event in enumerate(events))
    found = EventScanner(table.vocabulary, PLAIN, 1).scan(LineBlock(np.frombuffer(lines, np.uint8), "", 1), [])
    assert found.n_flagged == 0
    answers = open_engine("counting", table).match(found.batch).labels(table.labels)
    for event, answer in zip(events, answers, strict=True):
        assert answer == match_naive(filters, event_of_passed(event, PLAIN, names_of(table.vocabulary, PLAIN))), event
