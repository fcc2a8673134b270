"""Changes from rows to ids, to a file, over the wire."""

from __future__ import annotations

import hashlib
import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_machine import Naive, change_rows
from random_rows import random_event, random_subscription
from small_changes import row, small_table
from strategies import subscriptions

from mpi_match.arrays.strings import Strings
from mpi_match.changes.changes import Changes
from mpi_match.changes.live_table import Refusal
from mpi_match.changes.log import ChangeLog
from mpi_match.changes.stream import ChangeStream, StampedChanges
from mpi_match.commands import match
from mpi_match.commands.inspect import inspect_file, inspect_lines
from mpi_match.engines import EngineError, open_engine
from mpi_match.events.event_table import save_events
from mpi_match.events.events import Events
from mpi_match.ingest.rows.judge import ChangeRow, EventForm, change_of_row, event_of_row, subscription_filters
from mpi_match.matches.file import MatchesFile, MatchesWriter
from mpi_match.matches.matches import Matches
from mpi_match.model import Change, Filter, ModelError, area, make_event, make_filter, match_naive
from mpi_match.storage import Reader, StorageError, Writer
from mpi_match.table.table import Table
from mpi_match.verify.verify import VerifiedFiles, verify


@given(found=subscriptions(max_filters=6, max_constraints=3), rows=st.lists(change_rows(), max_size=12))
def test_a_log_is_what_its_rows_say(found: list[Filter], rows: list[ChangeRow]) -> None:
    table = Table.from_filters(found)
    refused: list[Refusal] = []
    stream = ChangeLog.of(table, rows, refused).stream(table)
    naive, done = Naive(found), set()
    for place in sorted(range(len(rows)), key=lambda i: rows[i].before_event):
        if naive.apply(rows[place]):
            done.add(place)
    assert {item.place for item in refused} == set(range(len(rows))) - done
    engine = open_engine("reference", stream.table, live=True)
    judged = [make_event({}), make_event({}, (0, 0)), make_event({"a": 1, "b": "ab"}, (3, 4))]
    naive = Naive(found)
    for event in range(-1, 7):  # before all of them, then after each stamp
        for place, change in enumerate(rows):
            if place in done and change.before_event == event:
                naive.apply(change)
        some = stream.within(max(event, 0), event + 1)
        if event < 0:
            assert len(some) == 0
        engine.update(through_the_wire(some, stream))
        answers = engine.match(Events.of(judged).encode(stream.table.vocabulary))
        assert answers.n_ids == stream.n_interfaces == len(stream.labels)
        found_labels = [[stream.labels[i].decode() for i in answers[e]] for e in range(len(judged))]
        assert [sorted(one) for one in found_labels] == [sorted(match_naive(naive.filters, e)) for e in judged]


def through_the_wire(stamped: StampedChanges, stream: ChangeStream[Table]) -> Changes:
    """The same changes after a round trip through the wire form, with other bytes behind them."""
    wire = stamped.to_wire()
    longer = np.concatenate([wire, np.full(8, 255, np.uint8)])
    received = StampedChanges.from_wire(longer, stream.table.vocabulary)
    assert_equal(received, stamped)
    return received.changes


def assert_equal(one: StampedChanges, two: StampedChanges) -> None:
    assert np.array_equal(one.before_event, two.before_event)
    for field in ("kind", "target", "area", "row", "interface", "n_filters", "n_interfaces"):
        a, b = (np.asarray(getattr(each.changes, field)) for each in (one, two))
        assert a.dtype == b.dtype
        assert np.array_equal(a, b, equal_nan=a.dtype == np.float64)
    tables = [each.changes.added for each in (one, two)]
    assert [t is None for t in tables] == [len(tables[0] or ()) == 0] * 2 if tables[0] is None else tables[1] is not None
    if tables[0] is not None and tables[1] is not None:
        assert list(tables[0].faults()) == []
        stripped = [[item._replace(id=None) for item in each.iter_filters()] for each in tables if each is not None]
        assert stripped[0] == stripped[1]


@pytest.fixture
def table() -> Table:
    return small_table()


ROWS = [
    '{"before_event": 9, "remove_interface": "mobile-7"}',
    '{"before_event": 0, "move": "walk", "area": [9.3, 45.5, 1]}',
    '{"before_event": 7, "add": {"interface": "mobile-9", "constraints": [["temp", ">", 35]], "id": 12}}',
    '{"before_event": 7, "add": {"interface": "desk", "filters": [{"area": [0, 0, 1], "id": "x"}, '
    '{"constraints": [["wind", "not in", [1, 2]], ["city", "contains", "la"]], "area": [1, 1, 1], "id": "x"}]}}',
    '{"before_event": 7, "remove": 12}',
    '{"before_event": 8, "move": "x", "area": [5, 5, 2]}',
    '{"before_event": 10, "consolidate": true}',
]


@pytest.fixture
def log(table: Table) -> ChangeLog:
    refused: list[Refusal] = []
    found = ChangeLog.of(table, [row(text, stamped=True) for text in ROWS], refused)
    assert refused == []
    return found


def test_the_columns_of_a_log(log: ChangeLog, table: Table) -> None:
    assert log.before_event.tolist() == [0, 7, 7, 7, 7, 8, 8, 9, 10]
    assert log.kind.tolist() == [0, 1, 1, 1, 2, 0, 0, 3, 4]
    assert log.target.tolist() == [1 if table.filter(1).id else 2, 3, 4, 5, 3, 4, 5, 1, 0]
    assert log.area.tolist() == [[9.3, 45.5, 1], [5, 5, 2], [5, 5, 2]]
    assert log.interface.tolist() == [2, 0, 0]
    assert [label.decode() for label in log.labels] == ["mobile-9"]
    assert log.added.filter(1).area == area([0, 0, 1])


def test_a_log_survives_its_file(log: ChangeLog, table: Table, tmp_path: Path) -> None:
    log.save(tmp_path / "changes.h5")
    again = ChangeLog.load(tmp_path / "changes.h5")
    assert again.table_digest == log.table_digest == table.digest
    for (name, one), (_, two) in zip(log.arrays(), again.arrays(), strict=True):
        assert one.dtype == two.dtype, name
        assert np.array_equal(one, two), name
    stream = again.stream(table)
    assert list(stream.table.iter_filters()) == list(table.iter_filters())
    assert stream.table.vocabulary.digest != table.vocabulary.digest
    assert [(event, len(changes)) for event, changes in stream.changes.runs()] == [(0, 1), (7, 4), (8, 2), (9, 1), (10, 1)]
    for start, stop in ((0, 0), (0, 7), (0, 8), (7, 8), (8, 100), (10, 20)):
        through_the_wire(stream.within(start, stop), stream)


def test_a_log_without_new_operands_leaves_the_vocabulary_alone(table: Table) -> None:
    same = make_filter("desk", [["temp", ">=", 25], ["city", "=", "Mi"]])
    stream = ChangeLog.of(table, [ChangeRow(Change.ADD, filters=(same,))], []).stream(table)
    assert stream.table is table
    added = stream.changes.changes.added
    assert added is not None
    assert list(added.iter_filters()) == [same._replace(interface="", constraints=same.constraints[::-1])]


def test_a_log_without_changes(table: Table, tmp_path: Path) -> None:
    ChangeLog.of(table, [], []).save(tmp_path / "changes.h5")
    stream = ChangeLog.load(tmp_path / "changes.h5").stream(table)
    assert stream.table is table
    assert (len(stream.changes), stream.n_filters, stream.labels.slice(0, 2)) == (0, 3, [b"desk", b"mobile-7"])
    assert list(through_the_wire(stream.within(0, 10), stream).kind) == []
    assert list(stream.changes.runs()) == []


def test_changes_for_another_table_are_refused(log: ChangeLog) -> None:
    with pytest.raises(StorageError, match="compiled for another table; compile them again for this one"):
        log.stream(Table.from_filters([make_filter("desk", [["temp", "<", 21]])]))


def damaged(log: ChangeLog, name: str, value: Any) -> dict[str, Any]:
    found = dict(log.arrays())
    found[name] = np.asarray(value, found[name].dtype)
    return found


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("changes/kind", [0, 1, 1, 1, 9, 0, 0, 3, 4], "changes/kind holds 9, expected one of 0, 1, 2, 3, 4"),
        ("changes/target", [1, 3, 4, 5, 3, 4, 5], "changes/target has 7 rows, expected 9"),
        ("changes/kind", [0, 1, 1, 1, 2, 2, 0, 3, 4], "do not fit changes/kind"),
        ("changes/before_event", [0, 7, 7, 7, 6, 8, 8, 9, 10], "changes/before_event is not sorted"),
        ("changes/before_event", [-1, 7, 7, 7, 7, 8, 8, 9, 10], "changes/before_event holds -1"),
        ("changes/area", [[1, 2, -3]] * 3, "circle that is none"),
        ("interfaces/offsets", [0, 2], "interfaces/offsets does not fit"),
        ("added/filters/size", [1, 0, 9], "do not add up"),
        ("changes/target", [1, 3, 4, 5, 3, 4, 5, 1, 7], "changes/target is not 0 where changes/kind is 4"),
        ("changes/target", [1, 3, 5, 4, 3, 4, 5, 1, 0], "ids that follow"),
        ("changes/target", [4, 3, 4, 5, 3, 4, 5, 1, 0], "before it is added"),
        ("changes/target", [0, 3, 4, 5, 3, 4, 5, 1, 0], "without an area is moved"),
        ("changes/target", [1, 3, 4, 5, 3, 4, 5, 3, 0], "unknown interface"),
        ("changes/interface", [2, 0, 3], "unknown interface"),
    ],
)
def test_a_file_that_is_no_log_is_refused(
    log: ChangeLog, table: Table, tmp_path: Path, name: str, value: Any, fault: str
) -> None:
    with Writer(tmp_path / "changes.h5", "changes") as writer:
        writer.attribute("table", log.table_digest)
        for key, count in log.counts().items():
            writer.attribute(key, count)
        for key, array in damaged(log, name, value).items():
            writer.array(key, array)
    with pytest.raises(StorageError, match=f"{fault}.*compile .* again"):
        ChangeLog.load(tmp_path / "changes.h5").stream(table)


def test_a_file_says_what_it_is(log: ChangeLog, tmp_path: Path) -> None:
    log.save(tmp_path / "changes.h5")
    with Reader(tmp_path / "changes.h5", "changes") as reader:
        assert {key: reader.attributes[key] for key in ("n_changes", "n_added", "n_moves", "table")} == {
            **{"n_changes": 9, "n_added": 3, "n_moves": 3},
            "table": log.table_digest,
        }
    with pytest.raises(StorageError, match="holds 'changes', expected 'table'"):
        Table.load(tmp_path / "changes.h5")


@pytest.mark.parametrize(
    ("unit", "answered", "said"),
    [
        ("filter", [[1], [1, 3], []], "missing   filter 4 (desk: within 1.0 of (0.0, 0.0))"),
        ("filter", [[1], [1, 3, 4], [2]], "too much  filter 2 (not there at this event)"),
        ("interface", [[0], [0], []], "missing   mobile-9, because of filter 3 (mobile-9: temp < 30.0)"),
        ("interface", [[0], [0, 2], [1]], "too much  mobile-7, of whose 0 filters none matches"),
    ],
)
def test_verify_does_the_changes_again(tmp_path: Path, unit: str, answered: list[list[int]], said: str) -> None:
    """An event that is right, then changes; the first wrong answer is found and told in words."""
    filters = [
        *(make_filter("desk", [["temp", ">", 40]]), make_filter("desk", [["temp", "<", 20]], [0, 0, 1], "cold")),
        make_filter("mobile-7", [["temp", "exists"]], [9, 9, 1], "walk"),
    ]
    table = Table.from_filters(filters)
    order = [list(table.iter_filters()).index(item) for item in filters]
    texts = [
        '{"before_event": 1, "add": {"interface": "mobile-9", "constraints": [["temp", "<", 30]]}}',
        '{"before_event": 1, "add": {"interface": "desk", "area": [0, 0, 1]}}',
        '{"before_event": 2, "move": "walk", "area": [0, 0, 5]}',
        '{"before_event": 2, "remove_interface": "mobile-7"}',
        '{"before_event": 2, "remove_interface": "mobile-9"}',
        '{"before_event": 2, "remove_interface": "desk"}',
    ]
    log = ChangeLog.of(table, [row(text, stamped=True) for text in texts], [])
    paths = [tmp_path / f"{name}.h5" for name in ("table", "events", "matches", "changes")]
    table.save(paths[0])
    log.save(paths[3])
    save_events(Events.of([make_event({"temp": 5}, (0, 0))] * 3), paths[1], table.vocabulary)
    right = {"filter": [[order[1]], [order[1], 3, 4], []], "interface": [[0], [0, 2], []]}[unit]
    if unit == "filter":
        answered = [[order[i] if i < 3 else i for i in one] for one in answered]
        said = said.replace("filter 2", f"filter {order[2]}")
    labels = log.stream(table).labels if unit == "interface" else Strings.of(())
    with Reader(paths[3], "changes") as reader:
        digest = reader.attributes["digest"]
    for found, difference in ((right, None), (answered, said)):
        n_ids = 5 if unit == "filter" else 3
        with MatchesWriter(paths[2], n_ids, labels, unit, changes_digest=digest) as writer:
            writer.append(Matches.of(found, n_ids))
        verdict = verify(VerifiedFiles(paths[0], paths[1], paths[2], paths[3]), sample=0)
        assert (verdict.difference is None) == (difference is None)
        assert difference is None or difference in str(verdict.difference)
    with pytest.raises(StorageError, match="name the changes"):
        verify(VerifiedFiles(paths[0], paths[1], paths[2]))


def test_the_format_page_has_the_datasets_of_changes_and_the_digest_of_a_table(
    log: ChangeLog, table: Table, repository: Path
) -> None:
    page = (repository / "mpi_match" / "docs" / "format.md").read_text(encoding="utf-8")
    section = page.split("## 5. Changes")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row)} - {"table", *log.counts()}
    assert named == {name for name, _ in log.arrays() if not name.startswith("added/")} | {"added/…"}
    assert all(f"{kind.value} {kind.name.lower().replace('_interface', ' an interface')}" in section for kind in Change)
    described = page.split("## 2. Table")[1].split("### Types")[0]
    listed = re.findall(r"`([a-z]+/[a-z_]+)`", "".join(re.findall(r"^\| (`.*?) \|", described, re.MULTILINE)))
    arrays = dict(table.arrays())
    there = [name for name in listed if name in arrays]
    digest = hashlib.sha256(b"".join(f"{name} {len(arrays[name])};".encode() + arrays[name].tobytes() for name in there))
    assert digest.hexdigest() == log.table_digest


def test_changes_at_a_inspect(log: ChangeLog, tmp_path: Path) -> None:
    log.save(tmp_path / "changes.h5")
    found = inspect_file(tmp_path / "changes.h5", rows=2)
    kinds = {"move": 3, "add": 3, "remove": 1, "remove_interface": 1, "consolidate": 1}
    counts = {"changes": 9, **kinds, "new_interfaces": 1}
    assert {key: found[key] for key in counts} == counts
    assert found["first"] == [{"before_event": 0, "move": 1}, {"before_event": 7, "add": 3}]
    assert any("remove interface   1" in line for line in inspect_lines(found))


def test_a_wire_that_is_none_is_refused(log: ChangeLog, table: Table) -> None:
    stream = log.stream(table)
    wire = stream.changes.to_wire()
    with pytest.raises(ValueError, match="less than a header"):
        StampedChanges.from_wire(wire[:8], stream.table.vocabulary)
    with pytest.raises(ValueError, match="not whole changes"):
        StampedChanges.from_wire(wire[:-8], stream.table.vocabulary)
    with pytest.raises(ValueError, match="the first word"):
        StampedChanges.from_wire(np.roll(wire, 8), stream.table.vocabulary)
    with pytest.raises(ValueError, match="another vocabulary"):
        StampedChanges.from_wire(wire, table.vocabulary)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "a change must be an object"),
        ("{}", "found none"),
        ('{"before_event": 1, "move": "a", "remove": "a"}', "found move and remove"),
        ('{"move": "a", "area": [0, 0, 1]}', "needs 'before_event'"),
        ('{"before_event": -1, "remove": "a"}', "whole number from 0"),
        ('{"before_event": 1.0, "remove": "a"}', "whole number from 0"),
        ('{"before_event": true, "remove": "a"}', "whole number from 0"),
        ('{"before_event": 1, "remove": "a", "area": [0, 0, 1]}', "'remove' has no 'area'"),
        ('{"before_event": 1, "remove": null}', "id must be a string or an integer"),
        ('{"before_event": 1, "remove_interface": 1.5}', "interface must be a string or an integer"),
        ('{"before_event": 1, "consolidate": false}', "'consolidate' must be true, found bool False"),
        ('{"before_event": 1, "move": "a"}', "needs an 'area'"),
        ('{"before_event": 1, "move": "a", "area": [0, 0, -1]}', "at least 0"),
        ('{"before_event": 1, "add": {"constraints": []}}', "needs an 'interface'"),
        ('{"before_event": 1, "add": []}', "must be an object"),
    ],
)
def test_a_row_that_is_no_change_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        row(text, stamped=True)


def test_a_change_that_takes_effect_now_has_no_stamp() -> None:
    with pytest.raises(ModelError, match="'remove' has no 'before_event'"):
        row('{"remove": "a", "before_event": 1}')


def test_an_engine_that_was_not_opened_for_changes_says_so(table: Table, log: ChangeLog) -> None:
    stream = log.stream(table)
    with pytest.raises(EngineError, match="does not change; open it with live=True"):
        open_engine("reference", stream.table).update(stream.changes.changes)
    with pytest.raises(EngineError, match="another vocabulary"):
        open_engine("reference", table, live=True).update(stream.changes.changes)


def test_rows_are_matched_without_spark_as_if_they_came_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match, "MATCHED_AT_ONCE", 7)
    generator = random.Random(4)
    published = [random_event(generator) for _ in range(60)]
    written: dict[str, list[Any]] = {"subscriptions": [random_subscription(generator) for _ in range(30)]}
    written["changes"] = [{"before_event": 5, "remove": "first"}, {"before_event": 5, "away": 1}]
    for i in range(40):
        stamp = generator.choice((0, 5, 20, 21, 59, 60, 90))
        added = {**random_subscription(generator), "id": f"id {i}"}
        if "filters" not in added:
            written["changes"].append({"before_event": stamp, "add": added})
        target = f"id {generator.randrange(i + 1)}"
        change = {"remove": target} if generator.random() < 0.5 else {"move": target, "area": [0, 0, generator.random()]}
        written["changes"].append({"before_event": stamp + generator.randrange(2), **change})
    written["changes"].append({"before_event": 30, "remove_interface": "mobile-1"})
    written["events"] = [*published[:3], ["no event"], *published[3:]]
    for name, rows in written.items():
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    form = EventForm(("x", "y"), "id")
    done = match.match_rows(
        tmp_path / "subscriptions",
        tmp_path / "events",
        tmp_path / "matches",
        match.MatchOptions(form, engine="reference"),
        changes=tmp_path / "changes",
        rejects=tmp_path / "rejects",
    )
    naive = Naive([item for row in written["subscriptions"] for item in subscription_filters(row)])
    rows = [change_of_row(row) for row in written["changes"] if "away" not in row]
    answers, refused = MatchesFile.load(tmp_path / "matches"), 0
    found = answers.matches.labels(answers.labels)
    for number, raw in enumerate([*written["events"], None]):
        now = [each for each in rows if each.before_event == number or (raw is None and each.before_event > number)]
        refused += sum(not naive.apply(each) for each in sorted(now, key=lambda each: each.before_event))
        if raw is not None:
            event = event_of_row(raw, form) if isinstance(raw, dict) else None
            assert sorted(found[number]) == sorted(match_naive(naive.filters, event)), number
    assert done.rejected == refused + 2 > 5
    kept = [json.loads(line) for line in (tmp_path / "rejects").read_text().splitlines()]
    assert {Path(row["file"]).name for row in kept} == {"changes", "events"}
    assert all(json.loads(row["row"]) == written[Path(row["file"]).name][row["line"] - 1] for row in kept)
