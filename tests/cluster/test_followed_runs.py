"""Runs that follow a directory: each event is answered once, in the order of commits, whenever a rank is killed."""

from __future__ import annotations

import gzip
import json
import logging
import os
import random
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from engine_names import CPU
from following import (
    answers_in,
    children_of,
    commit,
    follow,
    n_answered,
    ranks_of,
    run_until_the_writer_dies,
    start,
    supervise,
    wait_for,
)
from mpirun import OPEN_MPI, has_ulfm, needs_mpirun
from random_rows import random_event, random_subscription

from mpi_match.cluster import ClusterError, RunOptions, run
from mpi_match.cluster.follow import answer_files, arrivals
from mpi_match.cluster.follow.answer_files import AnswerFiles, answered_in
from mpi_match.cluster.follow.directory import FollowedDirectory, committed
from mpi_match.ingest.files.blocks import read_blocks
from mpi_match.ingest.rows.judge import event_of_row, parse_json, subscription_filters
from mpi_match.ingest.rows.row_files import STDIN
from mpi_match.journal.manifest import read_manifest
from mpi_match.model import Filter, ModelError, match_naive
from mpi_match.storage import FileChanged, StorageError, sync_directory
from mpi_match.table.table import Table

ROWS = 30


class Followed(NamedTuple):
    """A table, its filters, rows with the naive matcher's answers, and a directory to be followed."""

    table: Path
    filters: list[Filter]
    rows: list[bytes]
    answers: list[list[str]]
    directory: Path

    def options(self, output: Path, **more: object) -> RunOptions:
        return RunOptions(self.table, self.directory, output, follow=True, engine="keyed", file_s=0.05, **more)  # type: ignore[arg-type]


def judged(filters: list[Filter], row: bytes) -> list[str]:
    try:
        return match_naive(filters, event_of_row(parse_json(row)))
    except ModelError:
        return []


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Filter], list[bytes], list[list[str]]]:
    directory, generator = tmp_path_factory.mktemp("table"), random.Random(38)
    filters = [each for _ in range(40) for each in subscription_filters(random_subscription(generator))]
    Table.from_filters(filters).save(directory / "table.h5")
    rows = [json.dumps(random_event(generator, lists=False)).encode() for _ in range(120)]
    rows[7], rows[50] = b'{"temp": 1, "temp": 2}', b"[]"
    return directory / "table.h5", filters, rows, [judged(filters, row) for row in rows]


@pytest.fixture
def followed(table: tuple[Path, list[Filter], list[bytes], list[list[str]]], tmp_path: Path) -> Followed:
    (tmp_path / "events").mkdir()
    return Followed(*table, tmp_path / "events")


def check(output: Path, followed: Followed) -> None:
    found = answers_in(output)
    assert [each["event"] for each in found] == list(range(len(followed.rows)))
    assert [each["interfaces"] for each in found] == followed.answers


def test_files_are_matched_in_the_order_of_their_commits(followed: Followed, tmp_path: Path) -> None:
    """Also those that come while the run lasts; the rest comes with the next run."""
    output = tmp_path / "answers"
    parts = [followed.rows[at : at + ROWS] for at in range(0, 120, ROWS)]
    commit(followed.directory, "z.jsonl", [*parts[0], b"", b" "])

    def meanwhile() -> None:
        wait_for(lambda: n_answered(output) == ROWS)
        commit(followed.directory, "a.jsonl", parts[1])

    summary = follow(followed.options(output, batch=7), lambda: n_answered(output) == 2 * ROWS, meanwhile)
    assert (summary.events, summary.resumed, summary.rejected) == (2 * ROWS, 0, 2)
    assert summary.latency_us is not None
    assert summary.latency_us["p50"] > 0
    for name, rows in (("m.jsonl", parts[2]), ("b.jsonl", parts[3])):
        commit(followed.directory, name, rows)
        os.utime(followed.directory / name, (0, 0))  # the time of the last write does not count
    again = follow(followed.options(output), lambda: n_answered(output) == 4 * ROWS)
    assert (again.events, again.resumed) == (4 * ROWS, 2 * ROWS)
    check(output, followed)
    manifest = read_manifest(output)
    assert manifest is not None
    assert (manifest["state"], manifest["rejected"]) == ("complete", 2)
    rejects = [json.loads(line) for file in sorted(output.glob("rejects/*")) for line in file.read_text().splitlines()]
    assert [(Path(each["file"]).name, each["line"]) for each in rejects] == [("z.jsonl", 8), ("a.jsonl", 21)]


def test_it_goes_on_within_a_file(followed: Followed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run ends within the file: with its writer dead after three files of answers."""
    output = tmp_path / "answers"
    commit(followed.directory, "a.jsonl", followed.rows)

    run_until_the_writer_dies(followed.options(output, batch=7, file_bytes=1), 3, monkeypatch)
    assert n_answered(output) == answered_in(output) == 21
    follow(followed.options(output), lambda: n_answered(output) == 120)
    check(output, followed)


@pytest.mark.parametrize("at", ["write", "journal", "name"])
def test_a_file_of_answers_is_committed_once(
    followed: Followed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Killed before its line is in the journal, after it, and before it has its name."""
    output = tmp_path / "answers"
    commit(followed.directory, "a.jsonl", followed.rows)

    class KilledError(Exception):
        pass

    def killed(*_: object) -> None:
        raise KilledError

    if at == "write":
        monkeypatch.setattr(answer_files.Committed, "to_line", _second(answer_files.Committed.to_line, killed))
    elif at == "journal":
        monkeypatch.setattr(AnswerFiles, "_name", killed)
    else:
        monkeypatch.setattr(answer_files, "sync_directory", _second(sync_directory, killed))
    with pytest.raises(KilledError):
        run(followed.options(output))
    monkeypatch.undo()
    follow(followed.options(output), lambda: n_answered(output) == 120)
    check(output, followed)


def _second(own: object, then: object) -> object:
    """The function `own` once, and `then` from the second call on."""
    calls: Iterator[object] = iter([own])
    return lambda *given: next(calls, then)(*given)  # type: ignore[operator]


@pytest.mark.parametrize("engine", [name for name in CPU if name not in ("keyed", "duckdb")])
def test_every_engine_follows(followed: Followed, tmp_path: Path, engine: str) -> None:
    commit(followed.directory, "a.jsonl", followed.rows)
    options = replace(followed.options(tmp_path / "answers"), engine=engine)
    follow(options, lambda: n_answered(options.output) == len(followed.rows))
    check(options.output, followed)


def test_bad_input_ends_it_in_one_line(followed: Followed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "answers"
    with pytest.raises(StorageError, match="nowhere: cannot be followed: No such file or directory; create the directory"):
        run(RunOptions(followed.table, tmp_path / "nowhere", output, follow=True))
    with pytest.raises(StorageError, match=r"table\.h5: is not a directory"):
        run(RunOptions(followed.table, followed.table, output, follow=True))
    with pytest.raises(ClusterError, match="has no --feed shared"):
        run(followed.options(output, feed="shared"))
    with pytest.raises(ClusterError, match="has no --feed file for a stream"):
        run(replace(followed.options(output, feed="file"), events=STDIN))
    assert not output.exists()
    packed = followed.directory / "packed.jsonl"
    packed.write_bytes(gzip.compress(b"{}\n"))
    with pytest.raises(ClusterError, match=r"packed\.jsonl: is packed by gzip; give it a name that ends in \.gz"):
        run(followed.options(output))
    packed.unlink()
    commit(followed.directory, "a.jsonl", followed.rows)
    own = read_blocks

    def altered(paths: list[Path], form: object) -> Iterator[object]:
        yield from own(paths, form)  # type: ignore[arg-type]
        with paths[0].open("a") as file:
            file.write("{}\n")

    monkeypatch.setattr(arrivals, "read_blocks", altered)
    with pytest.raises(FileChanged, match=r"a\.jsonl: changed after it was committed, when 120 of its rows"):
        run(followed.options(output))
    manifest = read_manifest(output)
    assert manifest is not None
    assert manifest["state"] == "incomplete"


def test_another_run_does_not_go_on_in_the_same_output(followed: Followed, tmp_path: Path) -> None:
    output = tmp_path / "answers"
    commit(followed.directory, "a.jsonl", followed.rows)
    follow(followed.options(output), lambda: n_answered(output) == 120)
    with pytest.raises(StorageError, match="holds the answers of another run: its answers in is 'interfaces'"):
        run(followed.options(output, filters=True))


def test_a_listing_that_has_only_the_later_file_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = FollowedDirectory(tmp_path, 1)
    assert committed([directory]) == []
    for name in ("b.jsonl", "a.jsonl"):
        commit(tmp_path, name, [b"{}"])
        os.utime(tmp_path / name)  # another time of the inode
    own, lists = FollowedDirectory.listed, iter([lambda found: found[:0] or [max(found)]])
    monkeypatch.setattr(FollowedDirectory, "listed", lambda each: next(lists, list)(own(each)))
    assert [commit.key.name for commit in committed([directory])] == ["b.jsonl", "a.jsonl"]


def test_unfinished_files_are_left_out_and_names_may_come_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in (".x.jsonl", "_y.jsonl", "a.jsonl.writing", "b.jsonl.tmp", "c.png", "d.png"):
        (tmp_path / name).write_text("{}\n")
    (tmp_path / "e.jsonl").mkdir()
    directory = FollowedDirectory(tmp_path, 1)
    with caplog.at_level(logging.WARNING):
        assert committed([directory]) == []
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "is left out: its name does not end in" in "".join(told)
    assert "e.jsonl: is a directory" in "".join(told)
    for _ in range(2):
        commit(tmp_path, "a.jsonl", [b"{}"])
        assert [each.key.name for each in committed([directory])] == ["a.jsonl"]
        assert committed([directory]) == []
        (tmp_path / "a.jsonl").unlink()
        assert committed([directory]) == []


def test_a_file_that_replaces_a_taken_one_is_taken(tmp_path: Path) -> None:
    directory = FollowedDirectory(tmp_path, 1)
    for row in (b"{}", b'{"a": 1}', b'{"a": 20}'):  # without a listing between two files of the name
        commit(tmp_path, "a.jsonl", [row])
        (found,) = committed([directory])
        assert (found.key.name, found.key.n_bytes) == ("a.jsonl", len(row) + 1)
        assert committed([directory]) == []
    shutil.copy2(tmp_path / "a.jsonl", tmp_path / ".a")
    (tmp_path / ".a").rename(tmp_path / "a.jsonl")  # a backup that came back: the same content in another inode
    assert committed([directory]) == []
    assert committed([FollowedDirectory(tmp_path, 1, [found.key])]) == []  # as by the next run


def test_a_file_that_is_written_after_it_was_read_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpi_match.cluster.follow.directory.LIST_S", 0.0)
    monkeypatch.setattr("mpi_match.cluster.follow.directory.LOOKED_AT", 2)
    names = [f"{name}.jsonl" for name in "abcde"]
    for name in names:
        commit(tmp_path, name, [b"{}"])
    directory = FollowedDirectory(tmp_path, 1)
    assert len(committed([directory])) == len(names)
    for _ in names:
        assert committed([directory]) == []
    with (tmp_path / "d.jsonl").open("ab") as file:
        file.write(b"{}\n")
    with pytest.raises(FileChanged, match=r"d\.jsonl: changed after it was committed and read; rename files into"):
        _ = [committed([directory]) for _ in names]


@needs_mpirun
@pytest.mark.mpi
@pytest.mark.skipif(not OPEN_MPI, reason="the flags of Open MPI")
def test_no_event_is_lost_or_answered_twice_when_ranks_are_killed(followed: Followed, tmp_path: Path) -> None:
    """A worker is killed, then the master, while files come; the same command goes on, with another feed, and SIGTERM ends
    it with 0.  The table is divided: the other worker takes the part of the one that was killed."""
    output, options = tmp_path / "answers", ("--engine", "keyed", "--file-age", "0.05", "--batch", "5")
    divided = ("--placement", "hybrid", "--groups", "1", "--schedule", "static")
    by_workers = ("--feed", "file")
    parts = [followed.rows[at : at + 10] for at in range(0, 120, 10)]
    process = start(3, followed.table, followed.directory, output, *options, *divided, *by_workers)
    try:
        for number, rows in enumerate(parts[:8]):
            commit(followed.directory, f"{-number}.jsonl", rows)
            wait_for(lambda at=number: n_answered(output) >= 10 * at, process)  # type: ignore[misc]
            if number == 3 and has_ulfm():
                os.kill(ranks_of(process)[1], signal.SIGKILL)
        os.kill(ranks_of(process)[0], signal.SIGKILL)
        process.wait()
        process = start(3, followed.table, followed.directory, output, *options, *divided)
        for number, rows in enumerate(parts[8:], 8):
            commit(followed.directory, f"{-number}.jsonl", rows)
        wait_for(lambda: n_answered(output) == 120, process)
        os.kill(ranks_of(process)[0], signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
    check(output, followed)


def test_a_supervisor_goes_on_as_long_as_events_are_answered(followed: Followed, tmp_path: Path) -> None:
    """After three starts in a row that answer nothing it would end."""
    output = tmp_path / "answers"
    process = supervise(followed.table, followed.directory, output, "--engine", "keyed", "--file-age", "0.05")
    try:
        for number in range(4):
            commit(followed.directory, f"{number}.jsonl", followed.rows[30 * number : 30 * number + 30])
            wait_for(lambda at=number: n_answered(output) == 30 * at + 30, process)  # type: ignore[misc]
            run_, *_ = children_of(process.pid)
            os.kill(run_, signal.SIGTERM if number == 3 else signal.SIGKILL)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
    check(output, followed)
