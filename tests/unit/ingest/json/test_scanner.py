"""The scanner of lines against `rows`: same events, ids and rejects for any bytes, and few flagged lines."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from event_lines import (
    BAD,
    BLANK,
    FORM,
    FORMS,
    GOOD,
    JUDGED_GOOD,
    NAMED_LATER,
    SCRIPTS,
    VOCABULARY,
    WITH_EVERY_STRING,
    mutated,
    mutated_lines,
)
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from nested_event_lines import nested_line, nested_vocabulary
from strategies import json_lines

from mpi_match.arrays.strings import Strings
from mpi_match.compute import parallel
from mpi_match.events.batch import EventBatch
from mpi_match.events.events import Events
from mpi_match.ingest.batches.event_queue import EventQueue
from mpi_match.ingest.codes import atoms
from mpi_match.ingest.codes.code_tables import hashed, n_atoms_of
from mpi_match.ingest.files import blocks
from mpi_match.ingest.files.blocks import LineBlock, read_blocks
from mpi_match.ingest.json import event_scanner, to_codes
from mpi_match.ingest.json.event_scanner import EventScanner, ScannedEvents, ThreadArrays
from mpi_match.ingest.json.text import SCRATCH_BYTES
from mpi_match.ingest.rows import judge
from mpi_match.ingest.rows.judge import PLAIN, EventForm, Reject, event_of_row, names_of, read_rows
from mpi_match.ingest.rows.to_json import event_rows
from mpi_match.lab.workloads.files import LOCATION
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.model import ModelError, make_filter
from mpi_match.table.table import Table
from mpi_match.table.vocabulary import Vocabulary


def judged(path: Path, form: EventForm, vocabulary: Vocabulary) -> tuple[Events, EventBatch, Strings, list[Reject]]:
    """The result of `rows` for a file."""
    rejects: list[Reject] = []
    events = list(read_rows([path], lambda row: event_of_row(row, form, names_of(vocabulary, form)), rejects))
    flat = Events.of(events)
    ids = Strings.of(("" if event is None else event.id or "").encode() for event in events)
    return flat, flat.encode(vocabulary), ids, rejects


def scanned(path: Path, form: EventForm, vocabulary: Vocabulary) -> tuple[list[ScannedEvents], list[Reject]]:
    rejects: list[Reject] = []
    scanner = EventScanner(vocabulary, form)
    return [scanner.scan(block, rejects) for block in read_blocks([path])], rejects


def assert_as_judged(path: Path, form: EventForm = PLAIN, vocabulary: Vocabulary = VOCABULARY) -> list[ScannedEvents]:
    flat, expected, ids, expected_rejects = judged(path, form, vocabulary)
    found, rejects = scanned(path, form, vocabulary)
    assert rejects == expected_rejects
    batch = EventBatch.concat([each.batch for each in found]) if found else expected[:0]
    assert np.array_equal(batch.offsets, expected.offsets), first_difference(path, batch, expected)
    assert np.array_equal(batch.attributes, expected.attributes), first_difference(path, batch, expected)
    assert batch.attributes.dtype == expected.attributes.dtype
    assert batch.fingerprint == expected.fingerprint
    assert (batch.location is None) == (expected.location is None)
    if batch.location is not None and expected.location is not None:
        assert batch.location.tobytes() == expected.location.tobytes()
    assert (batch.rejected is None) == (expected.rejected is None)
    if batch.rejected is not None and expected.rejected is not None:
        assert np.array_equal(batch.rejected, expected.rejected)
    assert any(each.located for each in found) == (flat.location is not None)
    assert any(each.identified for each in found) == (flat.ids is not None)
    if form.id is None:
        assert all(each.ids is None for each in found)
    elif found:
        assert list(Strings.concat([each.ids for each in found if each.ids is not None])) == list(ids)
    return found


def first_difference(path: Path, batch: EventBatch, expected: EventBatch) -> str:
    lines = [line for _, _, line in judge.read_lines([path])]
    for i in range(min(len(batch), len(expected))):
        a, b = batch[i : i + 1].attributes.tolist(), expected[i : i + 1].attributes.tolist()
        if a != b:
            return f"row {i}: {lines[i]!r}: {a} is not {b}"
    return f"{len(batch)} rows are not {len(expected)}"


def lines_file(tmp_path: Path, lines: Iterable[bytes]) -> Path:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"\n".join(lines))
    return path


@pytest.mark.untraced
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ends_with_a_line_feed", [True, False])
def test_every_kind_of_line(form: EventForm, ends_with_a_line_feed: bool, tmp_path: Path) -> None:
    content = [line for kind in (GOOD, BLANK, BAD, BLANK, JUDGED_GOOD, GOOD) for line in kind]
    found = assert_as_judged(lines_file(tmp_path, [*content, *([b""] if ends_with_a_line_feed else [])]), form)
    assert sum(each.batch.n_events for each in found) == len(content) - 2 * len(BLANK)


def test_what_is_flagged(tmp_path: Path) -> None:
    for lines, n_flagged in ((GOOD, 0), (JUDGED_GOOD, len(JUDGED_GOOD)), (BLANK, 0)):
        found, rejects = scanned(lines_file(tmp_path, lines), FORM, VOCABULARY)
        assert (sum(each.n_flagged for each in found), rejects) == (n_flagged, [])


@pytest.mark.untraced
def test_mutated_lines(tmp_path: Path) -> None:
    for form, n in ((PLAIN, 30_000), (FORM, 50_000), (NAMED_LATER, 20_000)):
        found = assert_as_judged(lines_file(tmp_path, mutated_lines(n, seed=n)), form)
        rejected = sum(len(each.batch.rejected) for each in found if each.batch.rejected is not None)
        assert 0.2 * n < rejected < 0.8 * n, "the corpus should be of both kinds"


@pytest.mark.untraced
@pytest.mark.parametrize("seed", range(8))
def test_nested_lines_and_all_operators(seed: int, tmp_path: Path) -> None:
    generator = random.Random(seed)
    forms = [*FORMS, EventForm(("a.b", "x.y"), "a.c"), EventForm(None, "id")]
    for _ in range(3):
        lines = [nested_line(generator) for _ in range(400)]
        lines += [mutated(generator, lines) for _ in range(200)]
        found = assert_as_judged(lines_file(tmp_path, lines), generator.choice(forms), nested_vocabulary(generator))
        assert sum(each.n_flagged for each in found) < 400


VIEWED = [
    ["a", "contains i", "STRASSE"],
    ["a", "any = i", "ÉTÉ"],
    ["a", "any in net", ["10.0.0.0/8", "2001:db8::/32"]],
    ["a", "in net", "::/0"],
    ["a", "any before", "2020-01-01"],
    ["b", "at", "2020-01-01T00:00:00.000000001Z"],
    ["c.b", "at", "2020-01-01T00:00:00.000000001Z"],
    ["only", "any suffix i", "x"],
]
VIEWED_LINES = [
    b'{"a": "Hauptstra\\u00dfe", "b": "2020-01-01T00:00:00.000000001Z", "only": "AX"}',
    '{"a": ["Été", "10.1.2.3", "2001:DB8::1", 3, "2019-05-05", "été"], "only": [1, null, true]}'.encode(),
    b'{"a": ["::1", "::1"], "b": ["2020-01-01T00:00:00.000000001Z"], "only": ["x", "X"]}',
    b'{"c": [{"b": "2020-01-01T01:00:00.000000001+01:00"}, {"b": 2}], "only": []}',
    b'{"a": "10.0.0.256", "only": "2020-02-30"}',
    b'{"a": "", "only": [""]}',
    b'{"a": "10.0.0.1\\t", "only": "\\u0058"}',
]


def test_lines_with_views_are_not_flagged(tmp_path: Path) -> None:
    for wanted in [VIEWED, *([each] for each in VIEWED)]:
        vocabulary = Table.from_filters([make_filter("i", [each]) for each in wanted]).vocabulary
        found = assert_as_judged(lines_file(tmp_path, VIEWED_LINES), PLAIN, vocabulary)
        assert sum(each.n_flagged for each in found) == 0


def test_lines_with_patterns_are_not_flagged(tmp_path: Path) -> None:
    """Also where a literal belongs to several patterns, or stands in several elements, and where there is none."""
    on = [["wildcard", "*ab?"], ["wildcard", "x*ab*"], ["wildcard", "?"], ["wildcard i", "*AB"], ["contains", "ab"]]
    on += [["regexp", "^ab|b$"], ["regexp", "(?i)xA+b"], ["regexp", "[0-9]"], ["regexp", "[a-z]{70}q"], ["suffix", "ab"]]
    texts = ["ab", "xab", "abc", "AB", "xaab", "7", "", "é", "ab" * 40 + "q", "abab xab", "x" * 69 + "q", "Xa\\tb"]
    lines = [json.dumps({"a": text}).encode() for text in texts]
    lines += [json.dumps({"a": [*texts[k:], *texts[:k]][:5]}).encode() for k in range(len(texts))]
    for some in ([""], ["any "], ["", "any "]):
        for wanted in [on, *([each] for each in on)]:
            filters = [make_filter("i", [["a", any_ + op, operand]]) for op, operand in wanted for any_ in some]
            found = assert_as_judged(lines_file(tmp_path, lines), PLAIN, Table.from_filters(filters).vocabulary)
            assert sum(each.n_flagged for each in found) == 0


def test_every_string_of_a_line_is_scanned(tmp_path: Path) -> None:
    """Strings at any depth, with escapes and beside names, also of names that stand twice; names are no strings."""
    on = [
        ["contains i", "NAME"],
        ["=", "x"],
        ["suffix", "\t"],
        ["regexp", "^[0-9]+$"],
        ["in net", "::/0"],
        ["prefix i", "é"],
    ]
    lines = [
        b'{"name": "x", "a": {"b": ["x", ["Name"], {"c": "\\t"}, 1, null]}}',
        b' {"a" : "first name" , "a" : "X", "b": {}, "c": [] } ',
        '{"É": "É", "e": "\\u00c9tude", "f": "::1", "g": "x\\"name\\":"}'.encode(),
        *(b"{}", b'{"name": 1, "n\\u0061me": true}', b'{"a": ["", "7", "42"], "id": "42"}', b'{"k": "%s"}' % (b"x" * 300)),
    ]
    for form in (PLAIN, EventForm(None, "id")):
        for wanted in [on, *([each] for each in on)]:
            vocabulary = Table.from_filters([make_filter("i", [["*", *each]]) for each in wanted]).vocabulary
            found = assert_as_judged(lines_file(tmp_path, lines), form, vocabulary)
            assert sum(each.n_flagged for each in found) == 0
    bad = [b'{"a": "\\ud800"}', b'{"a": "b"} {}', b'{"a": "b"', b'["a"]']
    assert sum(each.n_flagged for each in assert_as_judged(lines_file(tmp_path, bad), PLAIN, vocabulary)) == len(bad)


def test_views_of_texts_beyond_the_scratch_are_judged(tmp_path: Path) -> None:
    vocabulary = Table.from_filters([make_filter("i", [["a", "contains i", "Q"]])]).vocabulary
    lines = [b'{"a": "%s"}' % ("\u023a" * (SCRATCH_BYTES // 3 + more)).encode() for more in (0, 1)]
    found = assert_as_judged(lines_file(tmp_path, lines), PLAIN, vocabulary)
    assert sum(each.n_flagged for each in found) == 1


@pytest.mark.untraced
def test_lists_of_the_shortest_texts_with_views_have_room(tmp_path: Path) -> None:
    wanted = [["a", "any = i", ""], ["a", "any = i", "a"], ["a", "any =", ""], ["a", "any in net", "::"], ["a", "exists"]]
    wanted += [["*", "= i", ""], ["*", "= i", "a"], ["*", "=", ""], ["*", "in net", "::"]]
    vocabulary = Table.from_filters([make_filter("i", [each]) for each in wanted]).vocabulary
    lines = [b'{"a":[%s]}' % b",".join([text] * 5000) for text in (b'""', b'"A"', b'"::"')]
    found = assert_as_judged(lines_file(tmp_path, lines), PLAIN, vocabulary)
    assert sum(each.n_flagged for each in found) == 0


@pytest.mark.untraced
@pytest.mark.parametrize("vocabulary", [VOCABULARY, WITH_EVERY_STRING])
def test_bytes_are_read_as_tokens_are(vocabulary: Vocabulary) -> None:
    """A GPU goes byte by byte."""
    generator = random.Random(11)
    tables = hashed(vocabulary, FORM)
    work = ThreadArrays(2**16, n_atoms_of(tables), 2**12)
    lines = [*GOOD, *BAD, *JUDGED_GOOD, *mutated_lines(3000, seed=5), *(nested_line(generator) for _ in range(1000))]
    scanner, n_good = EventScanner(vocabulary, FORM, 1), 0
    for line in lines:
        if len(line) >= 2**16 or not judge.trimmed(line):
            continue
        data = np.frombuffer(bytearray(line + b"\n"), np.uint8)
        n = to_codes.scan_single_row(data.ctypes.data, 0, tables.address, work.address)
        scanned = scanner.scan(LineBlock(data, "", 1), [])
        assert (n < 0) == (scanned.n_flagged > 0), line
        if n >= 0:
            n_good += 1
            assert work.arrays[to_codes.PACKED_ATTRIBUTES][:n].tolist() == scanned.batch.attributes.tolist(), line
    assert n_good > 1000


def test_any_number_of_points_in_a_name(tmp_path: Path) -> None:
    for n in (2, 64, 65, 300):
        name = ".".join("abc"[k % 3] for k in range(n + 1))
        vocabulary = Table.from_filters([make_filter("i", [[name, "=", 1]])]).vocabulary
        row: Any = 1
        for part in reversed(name.split(".")):
            row = {part: row}
        half = name[: len(name) // 4 * 2 + 1]
        halves = {half: {name[len(half) + 1 :]: 1}}
        lines = [json.dumps(each).encode() for each in (row, halves, {name: 1}, {name: 1, **row}, {"a": 1})]
        found = assert_as_judged(lines_file(tmp_path, lines), PLAIN, vocabulary)
        assert sum(each.n_flagged for each in found) == (1 if n <= 64 else len(lines))


@settings(max_examples=examples(150))
@given(lines=st.lists(json_lines | st.binary(max_size=30), max_size=12), form=st.sampled_from(FORMS))
def test_any_lines(lines: list[bytes], form: EventForm, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert_as_judged(lines_file(tmp_path_factory.mktemp("lines"), lines), form)


@pytest.mark.parametrize("name", ["ccm", "ccm-strings", "ccm-zipf1", "ccm-wide", "debs2009", "clcb", "clcb-zipf"])
@pytest.mark.parametrize("escaped", [True, False])
def test_events_of_workloads_are_not_flagged(name: str, escaped: bool, tmp_path: Path) -> None:
    scenario = SCENARIOS[name].scaled(2000)
    form = EventForm(LOCATION) if scenario.area else PLAIN
    n_events = 400 if name == "debs2009" else 2000
    made = event_rows(scenario.events(n_events, 3), form)
    path = lines_file(tmp_path, (json.dumps(row, ensure_ascii=escaped).encode() for row in made))
    found = assert_as_judged(path, form, Table.from_subscriptions(scenario.subscriptions(3)).vocabulary)
    assert sum(each.n_flagged for each in found) == 0
    assert sum(each.batch.n_events for each in found) == n_events


@pytest.mark.untraced
def test_other_scripts_and_escapes_are_not_flagged(tmp_path: Path) -> None:
    generator = random.Random(7)

    def made() -> Iterator[bytes]:
        for i in range(10_000):
            row: dict[str, Any] = {
                generator.choice(SCRIPTS): i,
                "city": generator.choice(SCRIPTS),
                "temp": generator.random(),
            }
            row |= {
                "name": {"first": generator.choice(SCRIPTS), generator.choice(SCRIPTS): 1},
                "on": generator.gauss(0, 1e-9),
            }
            row |= {
                "x": generator.uniform(-180, 180),
                "y": generator.uniform(-90, 90),
                "id": f"{generator.choice(SCRIPTS)}-{i}",
            }
            yield json.dumps(row, ensure_ascii=generator.random() < 0.5).encode()

    found = assert_as_judged(lines_file(tmp_path, made()), FORM)
    assert sum(each.n_flagged for each in found) <= 1


def test_rows_with_atoms_and_judged_rows_keep_their_order(tmp_path: Path) -> None:
    vocabulary = Table.from_filters(
        [
            make_filter("i", [[name, op, text]])
            for name in "abc"
            for op in ("suffix", "contains")
            for text in ("x", "xy", "y")
        ]
    ).vocabulary
    generator = random.Random(3)

    def made() -> Iterator[str]:
        for _ in range(3000):
            texts = {
                name: "".join(generator.choices("xyz", k=generator.randrange(5))) for name in generator.sample("abcd", 3)
            }
            yield json.dumps(texts | ({"e": float("nan")} if generator.random() < 0.3 else {}))

    found = assert_as_judged(lines_file(tmp_path, (line.encode() for line in made())), PLAIN, vocabulary)
    assert 0 < sum(each.n_flagged for each in found) < 3000


@pytest.mark.parametrize("alphabet", ["a", "ab", "abcdé"])
@pytest.mark.parametrize("row_bytes", [0, 100, 1000, 2**22])
def test_atoms_that_begin_and_end_alike(
    alphabet: str, row_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most strings satisfy many atoms, more than there are bytes in the line."""
    monkeypatch.setattr(atoms, "TRIE_ROW_BYTES", row_bytes)
    generator = random.Random(len(alphabet))

    def text(most: int) -> str:
        return "".join(generator.choices(alphabet, k=generator.randint(0, most)))

    written = {(name, op, text(9)) for _ in range(300) for name in ("s", "t") for op in ("suffix", "contains")}
    vocabulary = Table.from_filters([make_filter("i", [list(atom)]) for atom in sorted(written)]).vocabulary
    lines = [json.dumps({"s": text(30), "t": text(12), "u": text(3)}).encode() for _ in range(1000)]
    found = assert_as_judged(lines_file(tmp_path, lines), PLAIN, vocabulary)
    assert found[0].batch.widest > (15 if len(alphabet) < 3 else 5)
    assert sum(each.n_flagged for each in found) == 0


def test_thousands_of_atoms_in_a_row(tmp_path: Path) -> None:
    generator = random.Random(4)
    words = {"".join(generator.choices("ab", k=generator.randint(1, 14))) for _ in range(6000)}
    vocabulary = Table.from_filters([make_filter("i", [["s", "contains", word]]) for word in sorted(words)]).vocabulary
    lines = [json.dumps({"s": "".join(generator.choices("ab", k=3000)), "t": 1}).encode() for _ in range(20)]
    found = assert_as_judged(lines_file(tmp_path, lines), PLAIN, vocabulary)
    assert found[0].batch.widest > 1000


@pytest.mark.untraced
def test_a_wide_vocabulary(tmp_path: Path) -> None:
    """Attributes of 64 bits."""
    table = Table.from_filters([make_filter("i", [["temp", "=", i], ["city", "=", f"w{i}"]]) for i in range(40_000)])
    assert table.vocabulary.shift == 32
    generator = random.Random(2)
    content = [
        json.dumps({"temp": generator.randrange(-10, 80_010) / 2, "city": f"w{generator.randrange(50_000)}"}).encode()
        for _ in range(5000)
    ]
    assert_as_judged(lines_file(tmp_path, content), PLAIN, table.vocabulary)


def test_without_names(tmp_path: Path) -> None:
    for filters in ([], [make_filter("i")], [make_filter("i", [["a", "exists"]])]):
        assert_as_judged(lines_file(tmp_path, [b"{}", *GOOD, *BAD]), FORM, Table.from_filters(filters).vocabulary)


@pytest.mark.untraced
@pytest.mark.parametrize("size", [7, 64, 1000])
@pytest.mark.parametrize("packed", [False, True])
def test_blocks_and_threads_of_any_size(size: int, packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "READ_BYTES", size)
    monkeypatch.setattr(parallel, "LEAST_ROWS", size // 4 + 1)
    path = lines_file(tmp_path, [*GOOD, *BLANK, *BAD, *GOOD, *BLANK])
    if packed:
        path.with_name("events.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
        path = path.with_name("events.jsonl.gz")
    threads = numba.get_num_threads()
    try:
        for n in {1, threads}:
            numba.set_num_threads(n)
            assert_as_judged(path, FORM)
    finally:
        numba.set_num_threads(threads)


@pytest.mark.untraced
@pytest.mark.parametrize("read", [10, 100, 300, 4096])
@pytest.mark.parametrize("excess", [-1, 0, 1, 2, 50, 500])
def test_overlong_lines(read: int, excess: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of the longest length and those that are longer, first, in the middle and last."""
    longest = 300
    for module in (judge, blocks):
        monkeypatch.setattr(module, "MAX_LINE_BYTES", longest)
    monkeypatch.setattr(blocks, "READ_BYTES", min(read, longest))
    line = b'{"city": "' + b"a" * (longest + excess - 12) + b'"}'
    blanks = b" " * (longest + excess)
    content = [line, GOOD[0], blanks, line, line, b"", GOOD[1], line + b" " * 400, b" " * 20 + line, GOOD[2], line]
    for lines in (content, [*content, b""], content[1:-1], [line], [blanks]):
        found = assert_as_judged(lines_file(tmp_path, lines), FORM)
        assert all(each.batch.n_events for each in found if each.batch.rejected is not None)


@pytest.mark.parametrize("kept", [5, 30, 200, 1000])
def test_a_damaged_packed_file_is_refused_after_the_lines_before(kept: int, tmp_path: Path) -> None:
    generator = random.Random(0)
    content = b"\n".join(json.dumps({"temp": generator.random()}).encode() for _ in range(5000))
    path = tmp_path / "events.jsonl.gz"
    path.write_bytes(gzip.compress(content)[:-kept])
    read: list[bytes] = []
    with pytest.raises(ModelError, match="is not a whole gzip file"):
        read.extend(block.data.tobytes() for block in read_blocks([path]))
    expected: list[bytes] = []
    with pytest.raises(ModelError, match="is not a whole gzip file"):
        expected.extend(line for _, _, line in judge.read_lines([path]))
    assert b"".join(read).splitlines() == expected


def test_events_are_taken_in_any_portions(tmp_path: Path) -> None:
    path = lines_file(tmp_path, [*GOOD, *BAD, *GOOD])
    whole = EventBatch.concat([each.batch for each in scanned(path, FORM, VOCABULARY)[0]])
    for most in (1, 3, 1000):
        blocks, _ = scanned(path, FORM, VOCABULARY)
        queue = EventQueue(iter([*blocks, *blocks]))
        assert queue.take(0) is None
        taken = []
        while portion := queue.take(most):
            taken.append(portion)
        batch = EventBatch.concat([each for each, *_ in taken])
        assert len(batch) == 2 * len(whole)
        assert all(1 <= len(each) <= most for each, *_ in taken)
        assert np.array_equal(batch.attributes, np.concatenate([whole.attributes, whole.attributes]))
        ids = Strings.concat([each for _, each, _ in taken if each is not None])
        assert list(ids)[: len(whole)] == list(ids)[len(whole) :]
        assert queue.totals.located
        assert queue.totals.identified


def test_no_block_shares_memory_with_the_next(tmp_path: Path) -> None:
    scanner = EventScanner(VOCABULARY, FORM)
    block = LineBlock(np.frombuffer(bytearray(b"\n".join(GOOD) + b"\n"), np.uint8), "", 1)
    first = scanner.scan(block, [])
    kept = first.batch.attributes.copy()
    scanner.scan(LineBlock(np.frombuffer(bytearray(b"\n".join(GOOD[::-1]) + b"\n"), np.uint8), "", 1), [])
    assert np.array_equal(first.batch.attributes, kept)


def test_ids_that_nobody_wants_are_judged_and_not_kept() -> None:
    block = LineBlock(np.frombuffer(bytearray(b'{"id": "one"}\n{"id": [1]}\n{}\n'), np.uint8), "x", 1)
    form = EventForm(None, "id")
    found = []
    for with_ids in (True, False):
        rejects: list[Reject] = []
        scanned = EventScanner(VOCABULARY, form, 1, with_ids=with_ids).scan(block, rejects)
        assert (scanned.identified, [each.line for each in rejects]) == (True, [2])
        found.append(None if scanned.ids is None else list(scanned.ids))
    assert found == [[b"one", b"", b""], None]


@pytest.mark.skipif(numba.get_num_threads() < 2, reason="one core: there are no threads to leave alone")
def test_a_scanner_uses_no_more_threads_than_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int] = []

    def counted(n: int) -> int:
        used.append(parallel.stretches_of(n))
        return used[-1]

    monkeypatch.setattr(event_scanner, "stretches_of", counted)
    block = LineBlock(np.frombuffer(bytearray(b'{"temp": 1}\n' * 2000), np.uint8), "", 1)
    found = [EventScanner(VOCABULARY, PLAIN, threads).scan(block, []) for threads in (1, None, 1)]
    assert [n for n in used if n > 1] == [numba.get_num_threads()]
    assert {each.batch.attributes.tobytes() for each in found} == {found[0].batch.attributes.tobytes()}
