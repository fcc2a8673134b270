"""Lines scanned on a GPU are the events, rejects and answers of the scanner of the CPU, which `rows` judges."""

from __future__ import annotations

import numpy as np
import pytest
from deferred_lines import MORE, OF_TEXTS, UNCERTAIN, log_lines
from event_lines import GOOD, JUDGED_GOOD, mutated_lines

from mpi_match import make_table
from mpi_match.engines import open_engine
from mpi_match.gpu.kernels import open_gpu
from mpi_match.gpu.line_scanner import GpuLineScanner
from mpi_match.ingest.files.blocks import LineBlock
from mpi_match.ingest.json.event_scanner import EventScanner
from mpi_match.ingest.rows.judge import PLAIN, EventForm, Reject
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.matches.matches import Matches
from mpi_match.model import make_filter
from mpi_match.table.table import Table

LOCATED = EventForm(("x", "y"))
ON_ATOMS = Table.from_filters(
    [make_filter(word, [["city", "contains", word]]) for word in ("Mi", "lan", "🦀", "日")]
    + [make_filter(word, [["city", "suffix", word], ["temp", "<", 30]]) for word in ("ilan", "🦀", "me")]
)

OF_STRINGS = Table.from_subscriptions(SCENARIOS["ccm-strings"].scaled(2000).subscriptions(0))


def block(lines: list[bytes]) -> LineBlock:
    return LineBlock(np.frombuffer(bytearray(b"".join(line + b"\n" for line in lines)), np.uint8), "file", 1)


@pytest.mark.gpu
@pytest.mark.parametrize("form", [PLAIN, LOCATED], ids=["plain", "located"])
@pytest.mark.parametrize("kind", ["good", "judged", "mutated"])
@pytest.mark.parametrize("table", [ON_ATOMS, OF_STRINGS], ids=["atoms", "strings"])
def test_events_rejects_and_answers(kind: str, form: EventForm, table: Table) -> None:
    plain = [line for line in GOOD if b'"id": 123' not in line]
    lines = {
        "good": plain * 3000,
        "judged": (plain * 300 + JUDGED_GOOD[:4]) * 10,
        "mutated": mutated_lines(30_000, seed=3),
    }[kind]
    engine, on_cpu = open_engine("keyed_cuda", table), EventScanner(table.vocabulary, form)
    rejects: list[Reject] = []
    expected_rejects: list[Reject] = []
    found, expected = engine.scanner(on_cpu).scan(block(lines), rejects), on_cpu.scan(block(lines), expected_rejects)
    assert found.n_on_gpu == (0 if kind == "mutated" else len(expected.batch)), "many lines are flagged: the CPU scans all"
    assert rejects == expected_rejects
    assert (found.n_flagged > 0) == (kind != "good")
    for name in ("offsets", "attributes", "location", "rejected"):
        a, b = getattr(found.batch, name), getattr(expected.batch, name)
        assert (a is None) == (b is None), name
        assert a is None or a.tobytes() == b.tobytes(), name
    assert engine.match(found.batch) == engine.match(expected.batch)
    assert len(found.batch) < 1000 or engine.match(found.batch[7:999]) == engine.match(expected.batch[7:999])


@pytest.mark.gpu
@pytest.mark.parametrize("form", [PLAIN, LOCATED], ids=["plain", "located"])
def test_deferred_texts(form: EventForm) -> None:
    """Lines of which a GPU flags many are scanned there again, their texts by other threads."""
    plain = [line for line in GOOD if b'"id": 123' not in line]
    lines = [*plain * 20, *MORE * 10, *log_lines(20_000, seed=2), *UNCERTAIN[:2]]
    engine, on_cpu = open_engine("keyed_cuda", OF_TEXTS), EventScanner(OF_TEXTS.vocabulary, form)
    found, expected = engine.scanner(on_cpu).scan(block(lines), []), on_cpu.scan(block(lines), [])
    assert found.n_on_gpu == len(expected.batch)
    assert found.n_flagged == expected.n_flagged
    for name in ("offsets", "attributes"):
        assert np.array_equal(getattr(found.batch, name), getattr(expected.batch, name))
    assert engine.match(found.batch) == engine.match(expected.batch)
    mutated = mutated_lines(30_000, seed=4)
    scanner = GpuLineScanner(open_gpu(), OF_TEXTS.vocabulary, form)
    assert scanner.defer_texts()
    buffers, expected = scanner.buffers(), on_cpu.scan(block(mutated), [])
    rows = scanner.scan(block(mutated).data, buffers)
    of_rows, is_flagged = np.diff(expected.batch.offsets), np.zeros(rows.n_rows, bool)
    is_flagged[rows.flagged] = True
    assert np.count_nonzero(is_flagged) <= expected.n_flagged + 10
    fetched = scanner.fetched(rows, buffers)
    assert np.array_equal(np.diff(fetched.offsets), np.where(is_flagged, 0, of_rows))
    assert np.array_equal(fetched.attributes, expected.batch.attributes[np.repeat(~is_flagged, of_rows)])


@pytest.mark.gpu
def test_conditions_on_lines() -> None:
    """All stages of a table with conditions are matched on the GPU, where the events stay."""
    others = {"and": [["log", "contains i", "public"], {"not": ["tags", "any contains", "x"]}]}
    words = ("mi", "run", "x", "\u00e9t")
    table = make_table([{"interface": word, "where": {"or": [["city", "contains i", word], others]}} for word in words])
    lines = log_lines(20_000, seed=3)
    engine, on_cpu = open_engine("keyed_cuda", table), EventScanner(table.vocabulary, PLAIN)
    found = engine.scanner(on_cpu).scan(block(lines), [])
    assert found.batch.is_on_gpu
    expected = open_engine("keyed", table).match(on_cpu.scan(block(lines), []).batch)
    assert expected.n_matches > 10_000
    begun = engine.begin(found.batch)
    assert not isinstance(begun, Matches)
    assert begun.end() == engine.match(found.batch) == expected
    of_filters = open_engine("keyed", table).match(on_cpu.scan(block(lines), []).batch, filters=True)
    assert engine.match(found.batch, filters=True) == of_filters
