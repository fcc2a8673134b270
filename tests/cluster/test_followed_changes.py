"""Followed runs whose subscriptions change: files of changes are ordered among the files of events, each is applied once."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from followed_stream import Stream, subscription
from following import commit, follow, n_answered, ranks_of, run_until_the_writer_dies, start, wait_for
from hypothesis import given
from hypothesis import strategies as st
from live_machine import IDS, change_rows
from mpirun import OPEN_MPI, has_ulfm, needs_mpirun
from strategies import filters, subscriptions

from mpi_match.changes.live_table import LiveTable, Refusal
from mpi_match.changes.registry import Registry
from mpi_match.cluster import ClusterError, run
from mpi_match.cluster.follow.answer_files import answered_in, changes_of, commits_of
from mpi_match.cluster.follow.changes import ChangeReader, ChangingEngine, DueVersions, Version, VersionsOfTable
from mpi_match.cluster.follow.kept_changes import KeptChanges
from mpi_match.cluster.followed_files import ArrivedRanges
from mpi_match.engines import Engine, open_engine
from mpi_match.events.events import Events
from mpi_match.ingest.rows.judge import ChangeRow, EventForm, event_of_row, subscription_filters
from mpi_match.model import Change, Filter, ModelError
from mpi_match.storage import StorageError
from mpi_match.table.table import Table


def test_changes_take_effect_between_files_of_events(tmp_path: Path) -> None:
    """Also those with new operands and names, those before the first event, those that come while the run lasts, and all of
    them in a run that goes on.  Rows that cannot be done are rejected."""
    stream, output = Stream(tmp_path), tmp_path / "answers"
    stream.change_file({"remove": "s0"}, {"remove": "s0"}, {"add": subscription(10, 7, "new")})
    stream.event_file(20)
    stream.change_file({"add": subscription(11, 5)}, {"remove": "s1"})

    def meanwhile() -> None:
        wait_for(lambda: n_answered(output) == 20)
        stream.event_file(20)
        stream.change_file({"no": "change"}, {"remove": "s10"})
        stream.change_file({"add": {**subscription(10, 1), "id": "s12"}})
        stream.event_file(20)

    summary = follow(stream.options(output, batch=7), lambda: n_answered(output) == 60, meanwhile)
    assert summary.rejected == 2
    stream.check(output)
    rejects = [json.loads(line) for file in sorted(output.glob("rejects/*")) for line in file.read_text().splitlines()]
    assert [each["reason"] for each in rejects] == [
        "no filter has the id 's0'",
        "a change has one of 'move', 'add', 'remove', 'remove_interface', 'consolidate'; found none",
    ]
    with changes_of(output).open("ab") as log:  # nothing was kept anew: few bytes
        log.write(b'{"remove": "s3"}\n')  # of a run that was killed before its line in the journal
    stream.change_file({"remove": "s12"})
    stream.event_file(20)
    again = follow(stream.options(output), lambda: n_answered(output) == 80)
    assert again.resumed == 60
    stream.check(output)


def test_it_goes_on_within_a_file_before_later_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, output = Stream(tmp_path), tmp_path / "answers"
    stream.change_file({"add": subscription(10, 7, "new")})
    stream.event_file(30)
    stream.change_file({"remove": "s10"})
    stream.event_file(10)

    run_until_the_writer_dies(stream.options(output, batch=7, file_bytes=1), 2, monkeypatch)
    assert answered_in(output) == 14
    follow(stream.options(output), lambda: n_answered(output) == 40)
    stream.check(output)


def several_ids(rows: list[ChangeRow]) -> list[ChangeRow]:
    """Every second row that adds two filters gives them two ids, both of which may be those of other rows."""
    other = iter(IDS * len(rows))
    return [
        row._replace(filters=(row.filters[0], row.filters[1]._replace(id=next(other))))
        if i % 2 and len(row.filters) == 2
        else row
        for i, row in enumerate(rows)
    ]


@given(
    found=subscriptions(max_filters=6, max_constraints=2, with_conditions=True),
    rows=st.lists(change_rows(filters(max_constraints=2, with_conditions=True)), max_size=20).map(several_ids),
)
def test_kept_changes_lead_to_the_same_filters(found: list[Filter], rows: list[ChangeRow]) -> None:
    """At any time, and all of them can be done; nothing is kept of filters that came and went."""
    table = Table.from_filters(found)
    registry, live, kept = Registry(table, reuse=True), LiveTable(table), KeptChanges()
    for i, row in enumerate(rows):
        with suppress(ModelError):
            kept.add(b"%d" % i, row, registry.apply(row))
        live.apply([row], [])
        lines, refused, again = kept.lines(), list[Refusal](), LiveTable(table)
        left = [rows[int(line)] for line in lines.splitlines() if line.isdigit()]
        again.apply(left, refused)
        assert not refused
        assert again.compiled() == live.compiled()
        assert kept.n_bytes == sum(len(line) + 1 for line in lines.splitlines() if line.isdigit())
    for label in {item.interface for row in rows for item in row.filters}:
        row = ChangeRow(Change.REMOVE_INTERFACE, label)
        with suppress(ModelError):
            kept.add(b"last " + label.encode(), row, registry.apply(row))
    assert all(line.isdigit() is False or rows[int(line)].kind is not Change.ADD for line in kept.lines().splitlines())


def test_endless_changes_need_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters come and go on ever new interfaces, some of the table's move all the time; workers are told, and the answers
    of one that was taken back are those of one that was not."""
    monkeypatch.setattr("mpi_match.cluster.follow.changes.SURPLUS_BYTES", 2000)
    rows = [{**subscription(i, 9), "area": [0, 0, 1]} for i in range(4)]
    table = Table.from_filters([item for row in rows for item in subscription_filters(row)])
    reader = ChangeReader(table, b"")
    two = [ChangingEngine(table, lambda each: open_engine("keyed", each, live=True), lambda _: None) for _ in range(2)]
    labels, on_disk, most, before = dict(enumerate(f"i{i}" for i in range(4))), b"", 0, b""
    for i in range(300):
        text = [
            {"add": subscription(10 + i, 9)},
            {"move": f"s{i % 4}", "area": [i, 0, 1]},
            {"remove_interface": f"i{9 + i}"} if i % 2 else {"remove": f"s{9 + i}"},
        ]
        commit(tmp_path, f"{i}.jsonl", [json.dumps(each).encode() for each in text])
        version = reader.read(tmp_path / f"{i}.jsonl")
        assert len(version.rejects) == (i == 0)
        labels |= version.labels
        on_disk = version.kept.rows if version.kept.anew else on_disk + version.kept.rows
        most = max(most, len(on_disk))
        for each in two:
            each.obey(DueVersions(None, max(i - 2, 0), [(version.number, version.rows)]))
        if i % 5 == 4:
            earlier = [(version.number - 1, before), (version.number, version.rows)]
            two[0].obey(DueVersions(i - 1, i - 2, ()))
            two[0].obey(DueVersions(None, i - 2, earlier))
        before = version.rows
        batch = Events.of([event_of_row({"temp": 9, "x": 0, "y": 0}, EventForm(("x", "y")))])
        found = [each.engine.match(batch.encode(table.vocabulary)).ids.tolist() for each in two]
        assert found[0] == found[1]
        assert f"i{10 + i}" in {labels[each] for each in found[0]}
    assert most < 3000
    assert (reader._registry.n_filters, reader._registry.n_interfaces, len(labels)) == (6, 6, 6)
    assert all(each._live.registry.n_filters == 6 for each in two)
    assert ChangeReader(table, on_disk)._registry.n_filters <= 6
    numbered = ChangeReader(table, on_disk, reuse_ids=False)  # answers name filters by numbers: every change is kept
    assert not numbered.read(tmp_path / "0.jsonl").kept.anew


def test_kept_changes_are_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the run is killed at each step of that; a file that does not count is removed."""
    monkeypatch.setattr("mpi_match.cluster.follow.changes.SURPLUS_BYTES", 0)
    stream, output = Stream(tmp_path), tmp_path / "answers"

    def go(number: int) -> None:
        stream.change_file({"remove": f"s{number - 1}"}, {"add": subscription(number, number % 12, "new")})
        stream.event_file(10)

    for number in range(10, 16):
        go(number)
    run_until_the_writer_dies(stream.options(output, batch=7, file_bytes=1), 5, monkeypatch)
    (kept,) = output.glob(".journal/changes-*.jsonl")
    assert kept.stat().st_size < 200
    go(16)
    own = os.fsync

    def fail(descriptor: int) -> None:  # the file of changes is written, its line in the journal is not
        if Path(f"/proc/self/fd/{descriptor}").readlink() == commits_of(output):
            raise OSError("killed")
        own(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr("mpi_match.cluster.follow.answer_files.os.fsync", fail)
        with pytest.raises(StorageError, match="killed"):
            run(stream.options(output, batch=7, file_bytes=1))
    go(17)
    follow(stream.options(output, batch=7, file_bytes=1), lambda: n_answered(output) == len(stream.answers))
    stream.check(output)
    (kept,) = output.glob(".journal/changes-*.jsonl")
    assert kept.stat().st_size < 200


def test_a_table_in_parts_and_other_directories_are_refused(tmp_path: Path) -> None:
    stream, output = Stream(tmp_path), tmp_path / "answers"
    with pytest.raises(ClusterError, match="no --changes with --placement shard"):
        run(stream.options(output, placement="shard"))
    with pytest.raises(ClusterError, match="is that of events or answers"):
        run(stream.options(output, changes=stream.events))
    with pytest.raises(ClusterError, match="changes: is a directory, whose files a run with --follow takes"):
        run(stream.options(output, follow=False))


def test_a_worker_goes_back_to_an_earlier_version(tmp_path: Path) -> None:
    """As far as it was not told to keep."""
    table = Table.from_filters(subscription_filters(subscription(0, 3)))
    reader, versions = ChangeReader(table, b"", reuse_ids=False), list[Version]()
    for number, row in enumerate([{"add": subscription(1, 5)}, {"remove": "s0"}, {"add": subscription(2, 1, "new")}]):
        commit(tmp_path, f"{number}.jsonl", [json.dumps(row).encode()])
        versions.append(reader.read(tmp_path / f"{number}.jsonl"))
    opened = list[Table]()

    def open_table(table: Table) -> Engine:
        opened.append(table)
        return open_engine("keyed", table, live=True)

    changing = ChangingEngine(table, open_table, lambda vocabulary: None, reuse_ids=False)

    def answers() -> list[int]:
        batch = Events.of([event_of_row({"temp": 9, "new": 9})]).encode(opened[-1].vocabulary)
        return sorted(changing.engine.match(batch).ids.tolist())

    def obey(back: int | None, keep: int, some: slice) -> list[int]:
        due = DueVersions(back, keep, [(each.number, each.rows) for each in versions[some]])
        changing.obey(DueVersions.from_wire(due.to_wire()))
        return answers()

    assert obey(None, 0, slice(0, 2)) == [1]
    assert obey(None, 1, slice(2, 3)) == [1, 2]
    assert obey(2, 1, slice(0)) == [1]
    assert obey(1, 1, slice(0)) == [0, 1]
    assert obey(None, 1, slice(1, 3)) == [1, 2]
    with pytest.raises(ClusterError, match="was kept"):
        obey(0, 1, slice(0))


def test_a_worker_without_batches_gets_changes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the master forgets them."""
    from mpi_match.cluster.follow import changes as module

    monkeypatch.setattr(module, "LAGGING_BYTES", 100)
    ranges = ArrivedRanges(0)
    versions = VersionsOfTable(ranges, (1, 2, 3), None)
    versions.lost(3)
    for number in range(1, 9):
        versions.add([Version(number, b"x" * 40, {})])
        ranges.written_version = number
        assert versions.due_with(1, number) == (False, DueVersions(None, number, [(number, b"x" * 40)]))
        for worker, due in versions.overdue():
            assert worker == 2
            assert [each for each, _ in due.rows] == list(range(number - 2, number + 1))
            assert len(due.to_wire()) % np.dtype(np.int64).itemsize == 0
        assert len(versions._rows) <= 3


@needs_mpirun
@pytest.mark.mpi
@pytest.mark.skipif(not OPEN_MPI, reason="the flags of Open MPI")
def test_each_event_sees_the_changes_before_it_when_ranks_are_killed(tmp_path: Path) -> None:
    """A worker is killed, then the master, while files come; the same command goes on, SIGTERM ends it with 0."""
    stream, output = Stream(tmp_path), tmp_path / "answers"
    options = ("--engine", "keyed", "--file-age", "0.05", "--batch", "5", "--changes", stream.changes)
    process = start(3, stream.table, stream.events, output, *options)

    def go(number: int) -> None:
        stream.change_file({"add": subscription(10 + number, number, "new")}, {"remove": f"s{number}"})
        stream.event_file(10)

    try:
        for number in range(8):
            go(number)
            if number % 3 == 0:
                wait_for(lambda: n_answered(output) == len(stream.answers), process)
            if number == 4 and has_ulfm():
                os.kill(ranks_of(process)[1], signal.SIGKILL)
        os.kill(ranks_of(process)[0], signal.SIGKILL)
        process.wait()
        process = start(3, stream.table, stream.events, output, *options)
        go(8)
        wait_for(lambda: n_answered(output) == len(stream.answers), process)
        os.kill(ranks_of(process)[0], signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
    stream.check(output)
