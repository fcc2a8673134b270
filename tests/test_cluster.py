"""Runs of one and of several ranks, by subprocess: the same bytes from all of them, and one line when there are none."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_machine import Naive
from mpirun import DRIVER, FLAGS, MPIRUN, TESTS, TIMEOUT_S, alone, environment, execute, launch, needs_mpirun, said
from random_tables import random_subscriptions

from mpi_match.answer_parts import Parts
from mpi_match.arrays import Array
from mpi_match.batch import EventBatch
from mpi_match.change_log import ChangeLog
from mpi_match.change_stream import StampedChanges
from mpi_match.changes import Change, Changes
from mpi_match.cluster import FEEDS, ClusterError, RunOptions
from mpi_match.cluster.changing import match_changing
from mpi_match.cluster.feed import Buffers, InOrder, ReadAhead
from mpi_match.cluster.journal import Journal
from mpi_match.cluster.matcher import Matched, Matcher, Received, ShortMatcher
from mpi_match.cluster.round_trips import RoundTrips
from mpi_match.cluster.shares import has_own_core
from mpi_match.cluster.write_behind import MOST_WAITING, WriteBehind
from mpi_match.engines import open_engine
from mpi_match.event_table import BLOCK_EVENTS, EventTable, save_events
from mpi_match.events import Events
from mpi_match.export import export
from mpi_match.glance import glance
from mpi_match.journal_file import Identity, journal_of
from mpi_match.live_table import Refusal
from mpi_match.matches import Matches, MatchesFile, MatchesWriter
from mpi_match.model import Area, Type, covers, make_filter
from mpi_match.rows import ChangeRow
from mpi_match.storage import Reader, StorageError, Writer, parts_directory
from mpi_match.strings import Strings
from mpi_match.table import Table
from mpi_match.verify import verify
from mpi_match.vocabulary import Vocabulary

KEPT = ["matches.h5.journal", "matches.h5.run.json"]
"""What a run leaves that did not end well, if it had answers."""


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Compiled files, and the table and events in them."""

    table: Path
    events: Path
    filters: list[Any]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """A small table that has every type and areas, and 300 events."""
    directory = tmp_path_factory.mktemp("cluster")
    filters, events = random_subscriptions(7, n_filters=400, n_events=300, areas=0.3, sizes=(0, 3))
    table = Table.from_filters(filters)
    table.save(directory / "table.h5")
    save_events(Events.of(events), directory / "events.h5", table.vocabulary)
    return Inputs(directory / "table.h5", directory / "events.h5", filters)


@pytest.fixture(scope="module")
def expected(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The answers of a run of this process."""
    output = tmp_path_factory.mktemp("alone") / "matches.h5"
    done = execute(alone(inputs.table, inputs.events, output, "engine=counting", "batch=1000"))
    assert done.returncode == 0, done.stderr
    return output.read_bytes()


def leftovers(output: Path) -> list[str]:
    """Files in the output's directory whose name holds the output's."""
    return sorted(path.name for path in output.parent.iterdir() if output.name in path.name)


# The same bytes


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize(
    ("ranks", "options"),
    [
        (1, "batch=17"),
        (2, "batch=1"),
        (2, "batch=1 credits=1"),
        (3, "batch=16 schedule=static"),
        (2, "batch=1000 schedule=static"),
        (3, "batch=17 schedule=dynamic"),
        (3, "batch=64 schedule=static credits=1"),
        (5, "batch=7 schedule=dynamic credits=2"),
        (5, "batch=31 schedule=static"),
        (3, "batch=100 piece_bytes=64"),
        (1, "batch=100 feed=file"),
        (2, "batch=1 feed=file"),
        (3, "batch=17 feed=file"),
        (1, "batch=100 feed=shared"),
        (2, "batch=1 feed=shared"),
        (4, "batch=31 feed=shared schedule=static"),
        (3, "batch=100 feed=shared piece_bytes=64"),
        (3, "batch=17 feed=shared placement=shard"),
        (5, "batch=31 feed=file placement=hybrid groups=2"),
        (4, "batch=31 feed=file schedule=static credits=1"),
    ],
)
def test_any_ranks_batch_size_schedule_and_feed_give_the_same_bytes(
    ranks: int, options: str, inputs: Inputs, expected: bytes, tmp_path: Path
) -> None:
    output = tmp_path / "matches.h5"
    done = execute(launch(ranks, inputs.table, inputs.events, output, "engine=counting", *options.split()))
    assert done.returncode == 0, done.stderr
    assert said(done) == ""
    assert output.read_bytes() == expected
    summary = json.loads(done.stdout)
    assert (summary["events"], summary["workers"], summary["engine"]) == (300, max(1, ranks - 1), "counting")
    if ranks == 1:
        assert summary["round_trip_us"] is None
    else:
        assert 0 < summary["round_trip_us"]["p50"] <= summary["round_trip_us"]["p99"] < 1e6 * summary["wall_s"]
    assert leftovers(output) == ["matches.h5", "matches.h5.run.json"]


@pytest.mark.mpi
@needs_mpirun
def test_the_command_line_gives_the_same_bytes(inputs: Inputs, expected: bytes, tmp_path: Path) -> None:
    output = tmp_path / "matches.h5"
    files = ("--table", inputs.table, "--events", inputs.events, "-o", output)
    command = ("-m", "mpi4py", "-m", "mpi_match", "run")
    done = execute(launch(3, *files, "--engine", "counting", "--batch", 64, "--json", python=command))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["workers"] == 2
    assert output.read_bytes() == expected


def test_the_answers_are_those_of_the_naive_matcher(inputs: Inputs, expected: bytes, tmp_path: Path) -> None:
    path = tmp_path / "matches.h5"
    path.write_bytes(expected)
    rows = list(MatchesFile.load(path).rows())
    assert len(rows) == 300
    with EventTable(inputs.events, Table.load(inputs.table).vocabulary) as events:
        for i in range(0, 300, 10):
            assert rows[i] == covers(inputs.filters, events.event(i))
    assert any(rows)


@pytest.mark.mpi
@needs_mpirun
def test_filters_instead_of_interfaces(inputs: Inputs, tmp_path: Path) -> None:
    outputs = [tmp_path / f"{ranks}.h5" for ranks in (1, 3)]
    for ranks, output in zip((1, 3), outputs, strict=True):
        done = execute(launch(ranks, inputs.table, inputs.events, output, "engine=counting", "batch=50", "filters=1"))
        assert done.returncode == 0, done.stderr
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
    found = MatchesFile.load(outputs[0])
    assert found.attributes["unit"] == "filter"
    assert found.matches.n_matches > 0


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize("feed", FEEDS)
def test_events_compiled_for_another_table_are_encoded_again(
    feed: str, inputs: Inputs, expected: bytes, tmp_path: Path
) -> None:
    other = Table.from_filters([make_filter("x", [["n3", ">", 1]])])
    with EventTable(inputs.events, other.vocabulary) as events:
        save_events(events.raw_part(0), tmp_path / "events.h5", other.vocabulary)
    output = tmp_path / "matches.h5"
    done = execute(launch(3, inputs.table, tmp_path / "events.h5", output, "engine=counting", "batch=50", f"feed={feed}"))
    assert done.returncode == 0, done.stderr
    assert said(done) == f"{tmp_path / 'events.h5'} was compiled for another table: its events are encoded again on the way"
    assert MatchesFile.load(output).matches == _matches(expected, tmp_path)


def _matches(content: bytes, directory: Path) -> Any:
    (directory / "expected.h5").write_bytes(content)
    return MatchesFile.load(directory / "expected.h5").matches


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize("feed", FEEDS)
def test_no_events_no_answers(feed: str, inputs: Inputs, tmp_path: Path) -> None:
    save_events(Events.of([]), tmp_path / "events.h5", Table.load(inputs.table).vocabulary)
    output = tmp_path / "matches.h5"
    done = execute(launch(2, inputs.table, tmp_path / "events.h5", output, "engine=counting", f"feed={feed}"))
    assert done.returncode == 0, done.stderr
    assert MatchesFile.load(output).matches.n_events == 0


@pytest.mark.mpi
@needs_mpirun
def test_workers_of_a_host_share_one_read_only_copy_of_the_table(inputs: Inputs, tmp_path: Path) -> None:
    done = execute(launch(4, inputs.table, inputs.events, tmp_path / "matches.h5", "engine=whereabouts"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["device"].startswith("3 x read-only memory ")  # one memory, by its inode


def test_alone_needs_no_mpi(inputs: Inputs, expected: bytes, tmp_path: Path) -> None:
    output = tmp_path / "matches.h5"
    script = f"""
import sys
sys.modules["mpi4py"] = None  # as if it were not installed
sys.path.insert(0, {str(TESTS)!r})
from cluster_driver import main
sys.exit(main([{str(inputs.table)!r}, {str(inputs.events)!r}, {str(output)!r}, "engine=counting"]))
"""
    done = execute([sys.executable, "-c", script], SLURM_NTASKS="8", SLURM_JOB_ID="1")  # a shell inside an allocation
    assert done.returncode == 0, done.stderr
    assert output.read_bytes() == expected


# Answers that workers write themselves


def rewritten(output: Path, path: Path) -> bytes:
    """The answers of a file, as one that the master has written."""
    found = MatchesFile.load(output)
    stated = {key: found.attributes[key] for key in ("table_digest", "events_digest")}
    with MatchesWriter(path, found.matches.n_ids, found.labels, found.attributes["unit"], **stated) as writer:
        writer.append(found.matches)
    return path.read_bytes()


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize(
    ("ranks", "options", "parts"),
    [
        (1, "batch=100", []),
        (2, "batch=1 feed=file", ["1-rank-1.answers"]),
        (3, "batch=100 feed=shared schedule=static", ["1-rank-1.answers", "1-rank-2.answers"]),
        (4, "batch=17 schedule=static", ["1-rank-1.answers", "1-rank-2.answers", "1-rank-3.answers"]),
    ],
)
def test_answers_that_workers_write_read_as_one_file(
    ranks: int, options: str, parts: list[str], inputs: Inputs, expected: bytes, tmp_path: Path
) -> None:
    output = tmp_path / "matches.h5"
    files = (inputs.table, inputs.events, output, "engine=counting", "results=local", *options.split())
    done = execute(launch(ranks, *files))
    assert done.returncode == 0, done.stderr
    assert said(done) == ""
    assert rewritten(output, tmp_path / "whole.h5") == expected
    assert json.loads(done.stdout)["matches"] == MatchesFile.load(output).matches.n_matches
    directory = parts_directory(output)
    assert sorted(path.name for path in directory.iterdir()) == parts if parts else not directory.exists()
    assert verify(inputs.table, inputs.events, output).difference is None
    assert export(output, tmp_path / "m.jsonl") == export(tmp_path / "whole.h5", tmp_path / "whole.jsonl")
    assert (tmp_path / "m.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert glance(output, 300)["first"] == glance(tmp_path / "whole.h5", 300)["first"]
    again = execute(launch(ranks, *files))
    assert again.returncode == 0, again.stderr
    assert rewritten(output, tmp_path / "again.h5") == expected
    assert len(list(directory.iterdir())) == len(parts) if parts else True


@pytest.mark.mpi
@needs_mpirun
def test_a_run_goes_on_from_the_answers_that_workers_wrote(inputs: Inputs, expected: bytes, tmp_path: Path) -> None:
    output = tmp_path / "matches.h5"
    files = (inputs.table, inputs.events, output, "results=local")
    failed = execute(launch(3, *files, "engine=failing_later", "batch=7"))
    assert failed.returncode == 4
    kept = Parts(parts_directory(output).iterdir(), _identity(expected, tmp_path))
    assert 0 < kept.n_answered < 300
    assert not output.exists()
    refused = execute(launch(2, *files, "engine=counting", "batch=50"))
    assert refused.returncode == 3
    assert f"holds {kept.n_answered} of 300 events of a run that did not end; go on with --resume" in said(refused)
    done = execute(launch(2, *files, "engine=counting", "batch=50", "resume=1"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["resumed"] == kept.n_answered
    assert rewritten(output, tmp_path / "whole.h5") == expected
    index, kept_parts = output.read_bytes(), set(parts_directory(output).iterdir())
    assert kept_parts
    again = execute(launch(2, *files, "engine=counting", "resume=1"))
    assert again.returncode == 0, again.stderr
    assert "holds the answers already; there is nothing left to do" in said(again)
    assert json.loads(again.stdout)["resumed"] == 300
    assert (output.read_bytes(), set(parts_directory(output).iterdir())) == (index, kept_parts)


def _identity(content: bytes, directory: Path) -> Identity:
    (directory / "expected.h5").write_bytes(content)
    attributes = MatchesFile.load(directory / "expected.h5").attributes
    return Identity(**{field.name: attributes.get(field.name, "") for field in dataclasses.fields(Identity)})


@pytest.mark.mpi
@needs_mpirun
def test_parts_that_the_master_does_not_see_are_refused(inputs: Inputs, tmp_path: Path) -> None:
    """One path that leads each rank to a directory of its own, as it may on several hosts."""
    hosts = [tmp_path / "master", tmp_path / "worker"]
    for host in hosts:
        parts_directory(host / "matches.h5").mkdir(parents=True)
    files = (inputs.table, inputs.events, "/proc/self/cwd/matches.h5", "engine=counting", "results=local")
    rank = [sys.executable, "-m", "mpi4py", DRIVER, *files]
    master, worker = (["-n", 1, "--wdir", host, *rank] for host in hosts)
    done = execute([str(each) for each in (MPIRUN, *FLAGS, *master, ":", *worker)])
    assert done.returncode == 1
    assert "what rank 1 writes there is not to be seen on the master's host" in said(done)
    assert len(said(done).splitlines()) == 1


# Changes


@dataclasses.dataclass(frozen=True)
class Changing:
    """Compiled files of a table that changes, and what the naive matcher, who does one change after the other, answers."""

    table: Path
    events: Path
    changes: Path
    answers: list[list[str]]
    n_refused: int


@pytest.fixture(scope="module")
def changing(tmp_path_factory: pytest.TempPathFactory) -> Changing:
    """60 filters, 240 events, 150 changes: several before one event, none before others, some after the last."""
    directory, rng = tmp_path_factory.mktemp("changing"), np.random.default_rng(5)
    filters, published = random_subscriptions(3, 160, 240, n_names=6, sizes=(0, 3), n_interfaces=9, areas=0.5)
    named = [item._replace(id=f"f{i}") for i, item in enumerate(filters)]
    present, coming = named[:60], named[60:]
    rows = []
    for stamp in sorted(rng.integers(0, 250, 150).tolist()):
        target = f"f{rng.integers(100)}"
        kind = Change(int(rng.choice(4, p=(0.35, 0.4, 0.2, 0.05))))
        if kind is Change.ADD:
            rows.append(ChangeRow(kind, filters=(coming[int(rng.integers(100))],), before_event=stamp))
        elif kind is Change.REMOVE_INTERFACE:
            rows.append(ChangeRow(kind, str(rng.integers(9)), before_event=stamp))
        else:
            circle = Area(*rng.integers(-20, 20, 2).tolist(), 8.0) if kind is Change.MOVE else None
            rows.append(ChangeRow(kind, target, circle, before_event=stamp))
    table = Table.from_filters(present)
    table.save(directory / "table.h5")
    save_events(Events.of(published), directory / "events.h5", table.vocabulary)
    refused: list[Refusal] = []
    ChangeLog.of(table, rows, refused).save(directory / "changes.h5")

    naive, answers, left = Naive(present), [], list(rows)
    for number, event in enumerate(published):
        while left and left[0].before_event <= number:
            naive.apply(left.pop(0))
        answers.append(covers(naive.filters, event))
    return Changing(*(directory / f"{name}.h5" for name in ("table", "events", "changes")), answers, len(refused))


def test_the_changes_make_a_difference(changing: Changing, tmp_path: Path) -> None:
    with Reader(changing.changes, "changes") as reader:
        stamps, kinds = reader.array("changes/before_event"), reader.array("changes/kind")
    assert set(kinds.tolist()) == set(Change)
    assert len(np.unique(stamps)) < len(stamps)
    assert changing.n_refused < 100
    done = execute(alone(changing.table, changing.events, tmp_path / "m.h5", "engine=counting"))
    assert done.returncode == 0, done.stderr
    still = [sorted(row, key=str.encode) for row in MatchesFile.load(tmp_path / "m.h5").rows()]
    assert sum(a != b for a, b in zip(still, changing.answers, strict=True)) > 100


@pytest.fixture(scope="module")
def expected_with_changes(changing: Changing, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The answers of one process, which are those of the naive matcher."""
    output = tmp_path_factory.mktemp("alone") / "matches.h5"
    files = (changing.table, changing.events, output, f"changes={changing.changes}")
    done = execute(alone(*files, "engine=reference", "batch=1000"))
    assert done.returncode == 0, done.stderr
    assert (
        said(done)
        == f"{changing.events} was not compiled for what the changes ask for: its events are encoded again on the way"
    )
    found = MatchesFile.load(output)
    assert [sorted(row, key=str.encode) for row in found.rows()] == changing.answers
    with pytest.raises(StorageError, match="its table changed during the run; name the changes"):
        verify(changing.table, changing.events, output)
    for judge in ("naive", "counting"):
        verdict = verify(changing.table, changing.events, output, sample=0, judge=judge, changes_path=changing.changes)
        assert (verdict.difference, verdict.matches) == (None, sum(map(len, changing.answers)))
    return output.read_bytes()


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize(
    ("ranks", "options"),
    [
        (1, "batch=1"),
        (1, "batch=50"),
        (2, "batch=1 credits=1"),
        (2, "batch=1000 schedule=static"),
        (3, "batch=1"),
        (3, "batch=7 schedule=static"),
        (4, "batch=17"),
        (4, "batch=64 piece_bytes=64"),
        (3, "batch=17 feed=file"),
        (2, "batch=1 feed=file"),
        (3, "batch=17 feed=shared"),
    ],
)
def test_every_event_sees_the_changes_before_it_and_no_others(
    ranks: int, options: str, changing: Changing, expected_with_changes: bytes, tmp_path: Path
) -> None:
    output = tmp_path / "matches.h5"
    files = (changing.table, changing.events, output, f"changes={changing.changes}")
    done = execute(launch(ranks, *files, "engine=reference", *options.split()))
    assert done.returncode == 0, done.stderr
    assert output.read_bytes() == expected_with_changes


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize("options", ["batch=5", "batch=20 schedule=static"])
def test_a_batch_that_is_sent_again_sees_the_changes_before_it_and_no_others(
    options: str, changing: Changing, expected_with_changes: bytes, tmp_path: Path
) -> None:
    """Every other worker has made later changes by then, which cannot be undone."""
    output = tmp_path / "matches.h5"
    files = (changing.table, changing.events, output, f"changes={changing.changes}")
    done = execute(launch(4, *files, "engine=pausing_reference", "deadline=2", *options.split()))
    assert done.returncode == 0, said(done)
    assert "they are given to another worker too" in said(done)
    assert output.read_bytes() == expected_with_changes


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize("ranks", [1, 3])
def test_a_run_with_changes_goes_on_between_what_its_journal_holds(
    ranks: int, changing: Changing, expected_with_changes: bytes, tmp_path: Path
) -> None:
    output = tmp_path / "matches.h5"
    output.write_bytes(expected_with_changes)
    whole = MatchesFile.load(output)
    digests = [whole.attributes[f"{name}_digest"] for name in ("table", "events", "changes")]
    with Journal(journal_of(output), Identity("interface", whole.matches.n_ids, 240, *digests), resume=False) as journal:
        for start, stop in [(0, 31), (60, 64), (200, 233)]:
            first, last = whole.matches.offsets[start], whole.matches.offsets[stop]
            journal.append(start, whole.matches.counts[start:stop], whole.matches.ids[first:last])
    output.unlink()
    files = (changing.table, changing.events, output, f"changes={changing.changes}")
    done = execute(launch(ranks, *files, "engine=reference", "batch=7", "resume=1"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["resumed"] == 68
    assert output.read_bytes() == expected_with_changes


@given(stamps=st.lists(st.integers(0, 12), max_size=8).map(sorted), n_events=st.integers(1, 10))
def test_a_batch_is_matched_up_to_each_event_that_sees_something_new(stamps: list[int], n_events: int) -> None:
    stamps = [stamp for stamp in stamps if stamp < n_events]
    table = Table.from_filters([make_filter("a", [], [0, 0, 1])])
    told: list[int] = []

    class Recorder:
        """Answers every event with how many changes it has seen, in ids."""

        def update(self, changes: Changes) -> None:
            told.extend(changes.area[:, 0].astype(int).tolist())

        def match(self, batch: EventBatch, *, filters: bool) -> Matches:
            return Matches.from_counts(np.full(len(batch), len(told)), np.zeros(len(batch) * len(told), np.int64), 99)

    n = len(stamps)
    moves = Changes.of(
        np.full(n, Change.MOVE, np.uint8), np.zeros(n, np.uint32), np.repeat(np.arange(n), 3).reshape(n, 3), [], None, 1, 1
    )
    batch = EventBatch(np.zeros(n_events + 1, np.uint32), np.zeros(0, np.uint32), None, table.vocabulary.fingerprint)
    found = match_changing(Recorder(), batch, StampedChanges(np.array(stamps, np.int64), moves), filters=False)  # type: ignore[arg-type]
    assert found.counts.tolist() == [sum(stamp <= event for stamp in stamps) for event in range(n_events)]
    assert told == list(range(n))


@pytest.mark.mpi
@needs_mpirun
def test_answers_have_one_type_also_before_the_change_that_makes_it_wider(tmp_path: Path) -> None:
    table, events, changes, output = (tmp_path / f"{name}.h5" for name in ("table", "events", "changes", "matches"))
    there = Table.from_filters([make_filter(str(i), [["n3", "exists"]]) for i in range(255)])
    there.save(table)
    save_events(plain_events(6), events, there.vocabulary)
    one_more = ChangeRow(Change.ADD, filters=(make_filter("the 256th", [["n3", "exists"]]),), before_event=4)
    ChangeLog.of(there, [one_more], []).save(changes)
    done = execute(launch(2, table, events, output, f"changes={changes}", "engine=reference", "batch=2"))
    assert done.returncode == 0, done.stderr
    assert MatchesFile.load(output).matches.counts.tolist() == [255] * 4 + [256] * 2


def test_an_added_filter_outlives_the_buffer_that_it_came_in() -> None:
    table = Table.from_filters([make_filter("a", [["n3", "<", 3]])])
    events = plain_events(6).encode(table.vocabulary).to_wire()
    rows = [ChangeRow(Change.ADD, filters=(make_filter("b", [["n3", ">", 3]]),))]
    changes = ChangeLog.of(table, rows, []).stream(table).within(0, 1).to_wire()
    matcher = ShortMatcher(lambda: open_engine("reference", table, live=True), table.vocabulary, filters=False)
    matcher.engine()
    answers = []
    for told in (changes, np.empty(0, np.uint8)):
        matcher.put(Received(0, 0, False, told, lambda: EventBatch.from_wire(events), None))
        matched = matcher.get()
        assert matched is not None
        assert matched.error is None
        answers.append((matched.counts.tolist(), matched.ids.tolist()))
        changes[:] = 255
    assert answers == [([1, 1, 1, 0, 1, 1], [0, 0, 0, 1, 1])] * 2


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize(
    ("engine", "code", "words"),
    [
        ("counting", 5, "engine 'counting' serves tables that do not change"),
        ("reference", 3, "changes.h5: the changes were compiled for another table"),
    ],
)
def test_changes_that_cannot_be_made_are_one_line(
    engine: str, code: int, words: str, changing: Changing, inputs: Inputs, tmp_path: Path
) -> None:
    table, events = (changing.table, changing.events) if code == 5 else (inputs.table, inputs.events)
    output = tmp_path / "matches.h5"
    done = execute(launch(2, table, events, output, f"changes={changing.changes}", f"engine={engine}"))
    assert done.returncode == code
    assert words in said(done).splitlines()[-1]
    assert leftovers(output) == []


# Round trips


@given(st.lists(st.floats(1e-7, 1e3), min_size=1, max_size=200))
def test_percentiles_of_round_trips_are_right_to_half_a_per_cent(seconds: list[float]) -> None:
    trips = RoundTrips()
    for each in seconds:
        trips.add(each)
    for percent in (1, 50, 99, 100):
        exact = np.percentile(seconds, percent, method="inverted_cdf")
        assert trips.percentile(percent) == pytest.approx(exact, rel=0.006)


def test_no_round_trips_have_no_percentiles() -> None:
    assert RoundTrips().in_us() is None


# Cores


@pytest.mark.parametrize(
    ("cores", "expected"),
    [
        ([{0, 1}, {0, 1}], [True, True]),  # two ranks that may both run anywhere on two cores
        ([{0, 1}, {0, 1}, {0, 1}], [False, False, False]),
        ([{0}, {0}, {1, 2}], [False, False, True]),  # bound, two of them to the same core
    ],
)
def test_a_rank_keeps_a_core_busy_only_if_none_is_left_without(cores: list[set[int]], expected: list[bool]) -> None:
    given_cores = [frozenset(each) for each in cores]
    assert [has_own_core(rank, given_cores) for rank in range(len(cores))] == expected


# Reading ahead


def test_looking_for_an_answer_ends_in_time() -> None:
    """Workers look for some microseconds at a time; one look that waits for an answer would leave MPI without a driver."""
    table, nothing = Table.from_filters([]), np.empty(0, np.uint8)
    matcher = Matcher(lambda: open_engine("counting", table), table.vocabulary, filters=False)
    answer = Matched(Received(0, 0, False, nothing, lambda: EventBatch(nothing, nothing, None, 0), None), nothing, nothing)

    def look() -> None:
        for _ in range(100_000):  # SimpleQueue waits for ever once in some ten thousand times
            matcher._done.put(answer)
            assert matcher.get() is answer
            assert matcher.get(1e-9) is None

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    looking.join(TIMEOUT_S)
    assert not looking.is_alive()


def test_batches_are_read_once_in_the_order_asked_for() -> None:
    read: list[int] = []
    with ReadAhead(lambda batch: read.append(batch) or batch * 10, 1) as feed:  # type: ignore[func-returns-value]
        feed.want([0, 1, 2])
        feed.want([1, 2, 3])
        assert [feed.take(batch) for batch in (1, 0, 2, 3)] == [10, 0, 20, 30]
        assert read == [0, 1, 2, 3]
        feed.want([4])
        while not feed.is_ready(4):
            time.sleep(0.001)


def test_what_reading_raises_is_raised_where_the_batch_is_taken() -> None:
    with ReadAhead(lambda batch: 1 // batch) as feed:
        feed.want([0, 1])
        assert feed.take(1) == 1
        with pytest.raises(ZeroDivisionError):
            feed.take(0)


def test_with_no_thread_a_batch_is_read_when_it_is_asked_for() -> None:
    read: list[int] = []
    with ReadAhead(lambda batch: read.append(batch) or 1 // batch, 0) as feed:  # type: ignore[func-returns-value]
        feed.want([2, 0])
        assert read == [2, 0]
        assert feed.is_ready(0)
        assert feed.take(2) == 0
        with pytest.raises(ZeroDivisionError):
            feed.take(0)


@given(st.permutations(range(8)), st.lists(st.booleans(), min_size=40, max_size=40))
def test_what_ends_in_any_order_is_given_on_in_that_of_beginning(order: list[int], ends: list[bool]) -> None:
    in_order, begun, given_on, rest = InOrder[int](), 0, [], list(order)
    for end in ends:
        ready = [number for number in rest if number < begun]
        if end and ready:
            rest.remove(ready[0])
            given_on += in_order.end(ready[0], -ready[0])
            assert given_on == [-i for i in range(min([*rest, 8]))]
        elif begun < 8:
            in_order.begin(begun)
            begun += 1


# Writing behind


@pytest.mark.parametrize("threaded", [True, False])
def test_what_is_put_is_written_in_order(threaded: bool) -> None:
    written: list[int] = []
    with WriteBehind(written.append, threaded=threaded) as answers:
        for i in range(100):
            answers.put(i)
        answers.finish()
        assert written == list(range(100))


def test_whoever_puts_waits_when_much_is_waiting() -> None:
    may_write, put = threading.Event(), []
    with WriteBehind(lambda _: may_write.wait(TIMEOUT_S)) as answers:

        def put_all() -> None:
            for i in range(2 * MOST_WAITING):
                answers.put(i)
                put.append(i)

        putting = threading.Thread(target=put_all)
        putting.start()
        putting.join(0.2)
        assert putting.is_alive()
        assert len(put) <= MOST_WAITING + 1  # and the one that is being written
        may_write.set()
        putting.join(TIMEOUT_S)
        answers.finish()
    assert len(put) == 2 * MOST_WAITING


@pytest.mark.parametrize("threaded", [True, False])
def test_what_writing_raises_reaches_whoever_puts_and_nothing_is_written_after_it(threaded: bool) -> None:
    written: list[int] = []

    def write(i: int) -> None:
        if i == 3:
            raise StorageError("disk full")
        written.append(i)

    def put_all() -> None:
        with WriteBehind(write, threaded=threaded) as answers:
            for i in range(1000):
                answers.put(i)
            answers.finish()

    with pytest.raises(StorageError, match="disk full"):
        put_all()
    assert written == [0, 1, 2]


def test_leaving_without_finishing_drops_what_waits() -> None:
    written: list[int] = []
    begun, may_write = threading.Event(), threading.Event()

    def write(i: int) -> None:
        begun.set()
        may_write.wait(TIMEOUT_S)
        written.append(i)

    def interrupted() -> None:
        with WriteBehind(write) as answers:
            for i in range(5):
                answers.put(i)
            begun.wait(TIMEOUT_S)
            threading.Timer(0.2, may_write.set).start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert written == [0]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5000)), max_size=80))
def test_buffers_are_large_enough_aligned_and_no_more_than_were_needed_at_once(steps: list[tuple[bool, int]]) -> None:
    buffers, taken, most = Buffers(), [], 0
    for give, n_bytes in steps:
        if give and taken:
            buffers.give(taken.pop(0))
            continue
        buffer = buffers.take(n_bytes)
        assert len(buffer) >= n_bytes
        assert buffer.ctypes.data % 8 == 0
        assert all(buffer is not other for other in taken)
        taken.append(buffer)
        most = max(most, len(taken))
        assert len(taken) + len(buffers) <= most


# One line and an exit code


def damage(source: Path, path: Path, what: str) -> Path:
    """A copy of a table with something wrong."""
    if what == "missing":
        return path
    if what == "another version":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("mpi_match.storage.FORMAT_VERSION", 99)
            Table.from_filters([]).save(path)
        return path
    content = source.read_bytes()
    if what == "not HDF5":
        content = b"interface,constraints\n" * 100
    elif what == "truncated":
        content = content[: len(content) // 2]
    path.write_bytes(content)
    return path


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("missing", "no such file"),
        ("not HDF5", "not a readable HDF5 file"),
        ("truncated", "truncated"),
        ("another version", "format_version found 99, expected 1"),
    ],
)
def test_a_table_that_cannot_be_used_is_one_line_and_exit_code_3(
    what: str, words: str, inputs: Inputs, tmp_path: Path
) -> None:
    table, output = damage(inputs.table, tmp_path / "table.h5", what), tmp_path / "matches.h5"
    done = execute(launch(3, table, inputs.events, output, "engine=counting"))
    assert done.returncode == 3
    assert words in said(done)
    assert said(done).startswith(str(table))
    assert len(said(done).splitlines()) == 1
    assert leftovers(output) == []


@pytest.mark.mpi
@needs_mpirun
def test_two_workers_share_a_gpu_where_that_is_allowed(inputs: Inputs, tmp_path: Path) -> None:
    output = tmp_path / "matches.h5"
    done = execute(launch(3, inputs.table, inputs.events, output, "engine=one_gpu", "share_gpus=1"))
    assert done.returncode == 0, said(done)
    assert output.exists()


@pytest.mark.mpi
@needs_mpirun
def test_workers_take_the_gpus_of_the_map(inputs: Inputs, tmp_path: Path) -> None:
    files = (inputs.table, inputs.events, tmp_path / "matches.h5")
    done = execute(launch(4, *files, "engine=numbered", "gpu_map=3,1,0"), CUDA_VISIBLE_DEVICES="4,5,6,7")
    assert done.returncode == 0, said(done)
    taken = json.loads(done.stdout)["device"].split(", ")
    assert sorted(each.split(" GPU ")[1] for each in taken) == ["0 of 4,5,6,7", "1 of 4,5,6,7", "3 of 4,5,6,7"]


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ("engine=counting schedule=sometimes", 2, "schedule is 'sometimes'; there is: dynamic, static"),
        ("engine=nonsense", 5, "unknown engine 'nonsense'"),
        ("engine=refusing", 5, "this table is not for me; use reference (and 1 more ranks)"),
        ("engine=one_gpu", 5, "ranks 1 and 2 are on the same GPU of"),
        ("engine=counting gpu_map=0", 2, "--gpu-map has GPUs for 1 workers of a host, but there are more here"),
    ],
)
def test_a_run_that_cannot_start_is_one_line(options: str, code: int, words: str, inputs: Inputs, tmp_path: Path) -> None:
    output = tmp_path / "matches.h5"
    done = execute(launch(3, inputs.table, inputs.events, output, *options.split()))
    assert done.returncode == code
    assert words in said(done)
    assert len(said(done).splitlines()) == 1
    assert leftovers(output) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"placement": "everywhere"}, "placement is 'everywhere'; there is: replicate, shard, hybrid"),
        ({"results": "local", "placement": "shard"}, "with placement 'shard' no worker has a whole answer"),
        ({"results": "nowhere"}, "results is 'nowhere'; there is: master, local"),
        ({"feed": "carrier pigeon"}, "feed is 'carrier pigeon'; there is: master, shared, file"),
        ({"credits": 0}, "credits is 0; it must be at least 1"),
        ({"batch": -1}, "batch is -1; it must be at least 1"),
        ({"threads": 0}, "threads is 0; it must be at least 1"),
        ({"deadline": 0.0}, "deadline is 0; it must be more than 0 seconds"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=re.escape(words)) as caught:
        RunOptions(tmp_path / "table.h5", tmp_path / "events.h5", tmp_path / "matches.h5", **options).check()
    assert caught.value.exit_code == 2


def test_the_output_never_overwrites_an_input(inputs: Inputs) -> None:
    before = inputs.events.read_bytes()
    done = execute(alone(inputs.table, inputs.events, inputs.events, "engine=counting"))
    assert done.returncode == 2
    assert "would overwrite an input" in done.stderr
    assert inputs.events.read_bytes() == before


@pytest.fixture(scope="module")
def plain(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, bytes]:
    """Table, 300 plain events, and the answers of engine `null` to batches of five."""
    directory = tmp_path_factory.mktemp("plain")
    save_events(plain_events(300), directory / "events.h5", Table.load(inputs.table).vocabulary)
    done = execute(alone(inputs.table, directory / "events.h5", directory / "matches.h5", "engine=null", "batch=5"))
    assert done.returncode == 0, done.stderr
    return inputs.table, directory / "events.h5", (directory / "matches.h5").read_bytes()


@pytest.mark.mpi
@needs_mpirun
def test_what_an_engine_fails_on_goes_to_another(plain: tuple[Path, Path, bytes], tmp_path: Path) -> None:
    table, events, answers = plain
    output = tmp_path / "matches.h5"
    done = execute(launch(4, table, events, output, "engine=failing", "batch=5"))
    assert done.returncode == 0, said(done)
    assert said(done).count("Traceback") == 1  # and one line for each of the others
    line = rf"rank [123] on {os.uname().nodename}, matching events \d+ to \d+: ZeroDivisionError: an engine's mistake"
    failures = [each for each in said(done).splitlines() if re.fullmatch(line, each)]
    assert 1 <= len(failures) <= 3
    assert len(set(failures)) == len(failures)
    assert output.read_bytes() == answers


@pytest.mark.mpi
@needs_mpirun
def test_a_run_without_a_worker_that_works_is_incomplete(plain: tuple[Path, Path, bytes], tmp_path: Path) -> None:
    table, events, _ = plain
    output = tmp_path / "matches.h5"
    done = execute(launch(4, table, events, output, "engine=broken", "batch=5"))
    assert done.returncode == 4
    assert said(done).count("Traceback") == 1
    line = (
        r"no worker is left: the events from \d+ on have no answers; "
        rf"rank [123] on {os.uname().nodename}, matching events \d+ to \d+: ZeroDivisionError: an engine's mistake"
    )
    assert re.fullmatch(line, said(done).splitlines()[-1])
    assert not output.exists()


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize("ranks", [2, 5])
def test_a_batch_that_every_engine_fails_on_is_set_aside(
    ranks: int, plain: tuple[Path, Path, bytes], tmp_path: Path
) -> None:
    table, events, _ = plain
    output = tmp_path / "matches.h5"
    done = execute(launch(ranks, table, events, output, "engine=picky", "batch=20"))
    assert done.returncode == 4
    assert said(done).count("matching events 140 to 160: ZeroDivisionError: I do not like event 150") == min(ranks - 1, 3)
    assert said(done).splitlines()[-1].startswith("no answers for the events 140 to 160")
    assert not output.exists()


@pytest.mark.mpi
@needs_mpirun
def test_a_worker_that_stands_still_is_helped_out(plain: tuple[Path, Path, bytes], tmp_path: Path) -> None:
    table, events, answers = plain
    output = tmp_path / "matches.h5"
    done = execute(launch(3, table, events, output, "engine=pausing", "batch=5", "deadline=2"))
    assert done.returncode == 0, said(done)
    assert re.search(
        r"rank 1 has not answered events \d+ to \d+ within 2 s; they are given to another worker too", said(done)
    )
    assert output.read_bytes() == answers


@pytest.mark.mpi
@needs_mpirun
def test_workers_that_never_answer_are_given_up(plain: tuple[Path, Path, bytes], tmp_path: Path) -> None:
    table, events, _ = plain
    output = tmp_path / "matches.h5"
    done = execute(launch(3, table, events, output, "engine=silent", "batch=20", "deadline=1"))
    assert done.returncode == 4
    for rank in (1, 2):
        assert f"rank {rank} is lost: nothing was heard of it for more than 1 s" in said(done)
    assert said(done).splitlines()[-1] == "no worker is left: the events from 0 on have no answers"
    assert not output.exists()


def vocabulary_of(inputs: Inputs) -> Vocabulary:
    return Table.load(inputs.table).vocabulary


def plain_events(n: int) -> Events:
    """n events {"n3": i % 7}, made without making objects."""
    number: Array = (np.arange(n) % 7).astype(np.float64)
    kinds, zeros = np.full(n, Type.NUMBER, np.uint8), np.zeros(n, np.uint32)
    return Events(np.arange(n + 1), zeros, kinds, number, zeros, Strings.of([b"n3"]), Strings.of(()))


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize("feed", FEEDS)
def test_damage_met_halfway_stops_all_ranks(feed: str, inputs: Inputs, tmp_path: Path) -> None:
    events, output = tmp_path / "events.h5", tmp_path / "matches.h5"
    save_events(plain_events(3 * BLOCK_EVENTS), events, Table.load(inputs.table).vocabulary)
    with Reader(events, "events") as reader:
        at = reader.mapped("encoded/attributes").offset + 4 * (2 * BLOCK_EVENTS + 5)  # type: ignore[attr-defined]
    content = bytearray(events.read_bytes())
    content[at] ^= 1
    events.write_bytes(content)
    done = execute(launch(3, inputs.table, events, output, "engine=null", "batch=5000", f"feed={feed}"))
    assert done.returncode == 3
    *kept, reason = said(done).splitlines()
    assert "encoded events 131072 to 196608 are damaged" in reason
    assert leftovers(output) == ([] if feed == "shared" else KEPT)  # where all is read before anything is matched
    assert len(kept) == (feed != "shared")
    assert all("of 196,608 events are answered and kept in matches.h5.journal" in line for line in kept)


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize("other_table", [False, True])
def test_events_that_no_host_has_memory_for_are_refused(other_table: bool, inputs: Inputs, tmp_path: Path) -> None:
    """Known beforehand where the events are encoded, and met on the way where they are encoded again."""
    events, output = tmp_path / "events.h5", tmp_path / "matches.h5"
    save_events(plain_events(300_000), events, Table.from_filters([]).vocabulary if other_table else vocabulary_of(inputs))
    left = f"left_bytes={2**28 + 2**21}"  # some for everybody else, and some for the table
    done = execute(launch(3, inputs.table, events, output, "engine=null", "batch=1000", "feed=shared", left))
    assert done.returncode == 1
    assert "no memory for the events: " in said(done)
    assert "use --feed file or --feed master" in said(done)
    assert len(said(done).splitlines()) == 1 + other_table
    assert leftovers(output) == []


HOSTS = """
import sys
from pathlib import Path
import numpy as np
from mpi4py import MPI
from mpi_match.batch import EventBatch
from mpi_match.cluster import RunOptions, channel, host_memory
from mpi_match.cluster.consensus import Ended
from mpi_match.cluster.event_copy import share_events
from mpi_match.cluster.job import Job
from mpi_match.cluster.topology import Topology

*files, full, piece_bytes = sys.argv[1:]
channel.PIECE_BYTES = int(piece_bytes)
comm = MPI.COMM_WORLD
node = comm.Split(comm.rank // 2)
leaders = comm.Split(0 if node.rank == 0 else MPI.UNDEFINED)
found = Topology.find(comm)
topology = Topology(**{**vars(found), "node": node, "leaders": leaders})
if str(comm.rank // 2) == full:
    host_memory.left_bytes = lambda: 0
options = RunOptions(*map(Path, files), batch=37, feed="shared")
try:
    if comm.rank == 0:
        with Job(options) as job:
            copy = share_events(topology, job)
            expected = [job.events.batch(*job.extent(i)).to_wire() for i in range(job.n_batches)]
    else:
        copy, expected = share_events(topology, None), None
except Ended as ended:
    if comm.rank == 0:
        print(ended)
    sys.exit(0)
expected = comm.bcast(expected)
assert len(copy.starts) == len(expected) + 1
for batch, wire in enumerate(expected):
    there, published = (EventBatch.from_wire(each) for each in (copy.wire(batch), wire))
    for name in ("offsets", "attributes", "location"):
        assert np.array_equal(getattr(there, name), getattr(published, name), equal_nan=True)
    assert vars(there)["widest"] == published.widest
assert not copy.memory.flags.writeable
print("copied")
"""


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize(("full", "n_copied"), [("nobody", 6), ("0", 0), ("2", 0)])
def test_every_host_has_the_events_once(full: str, n_copied: int, inputs: Inputs, tmp_path: Path) -> None:
    """Three hosts of two ranks, pretended: ranks of one machine that do not share memory."""
    files = (inputs.table, inputs.events, tmp_path / "matches.h5")
    done = execute(launch(6, *files, full, 1000, python=("-m", "mpi4py", "-c", HOSTS)))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("copied") == n_copied
    assert done.stdout.count("no memory for the events: ") == (n_copied == 0)
    assert ("rank 4 on" in done.stdout) == (full == "2")


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize(
    ("there", "words"),
    [("nothing", "events.h5: no such file"), ("others", "is another event table here than on the master's")],
)
def test_feed_file_needs_the_same_file_on_every_host(there: str, words: str, inputs: Inputs, tmp_path: Path) -> None:
    """One path that leads each rank to a file of its own directory, as it may on several hosts."""
    output, hosts = tmp_path / "matches.h5", [tmp_path / "master", tmp_path / "worker"]
    for host in hosts:
        host.mkdir()
    shutil.copy(inputs.events, hosts[0] / "events.h5")
    if there == "others":
        save_events(plain_events(300), hosts[1] / "events.h5", Table.load(inputs.table).vocabulary)
    rank = [sys.executable, "-m", "mpi4py", DRIVER, inputs.table, "/proc/self/cwd/events.h5", output, "feed=file"]
    master, worker = (["-n", 1, "--wdir", host, *rank] for host in hosts)
    done = execute([str(each) for each in (MPIRUN, *FLAGS, *master, ":", *worker)])
    assert done.returncode == 3
    assert words in said(done)
    assert "rank 1 on " in said(done)
    assert len(said(done).splitlines()) == 1
    assert leftovers(output) == []


@pytest.mark.mpi
@needs_mpirun
def test_answers_larger_than_any_buffer_before_are_not_cut(inputs: Inputs, tmp_path: Path) -> None:
    """The engine answers the first batches with nothing and the last with every interface for every event."""
    events = tmp_path / "events.h5"
    save_events(plain_events(20_000), events, Table.load(inputs.table).vocabulary)
    outputs = [tmp_path / f"{ranks}.h5" for ranks in (1, 3)]
    for ranks, output in zip((1, 3), outputs, strict=True):
        done = execute(launch(ranks, inputs.table, events, output, "engine=growing", "batch=1000"))
        assert done.returncode == 0, done.stderr
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
    found = MatchesFile.load(outputs[0]).matches
    assert found.n_matches == 1000 * sum(i % found.n_ids + 1 for i in range(20))


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("variables", "cure"),
    [
        ({"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "0"}, "the one beside this Python"),
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "0"}, "srun --mpi=pmix"),
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "1"}, None),
    ],
)
@needs_mpirun
def test_silent_singletons_are_refused(variables: dict[str, str], cure: str | None, inputs: Inputs, tmp_path: Path) -> None:
    """Processes that were launched as three, but each of which MPI calls rank 0 of 1; only the first of them speaks."""
    output = tmp_path / "matches.h5"
    command = [sys.executable, "-m", "mpi4py", str(DRIVER), str(inputs.table), str(inputs.events), str(output)]
    done = execute(command, **variables)
    assert done.returncode == 5
    assert said(done) == "" if cure is None else cure in said(done)
    assert len(said(done).splitlines()) == (cure is not None)
    assert leftovers(output) == []


@pytest.mark.mpi
@needs_mpirun
def test_ranks_with_another_version_of_the_package_are_refused(inputs: Inputs, tmp_path: Path) -> None:
    shutil.copytree(TESTS.parent / "mpi_match", tmp_path / "mpi_match", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "mpi_match" / "batch.py").open("a") as source:
        source.write("\n_MAGIC = 0\n")
    rank = [sys.executable, "-m", "mpi4py", DRIVER, inputs.table, inputs.events, tmp_path / "matches.h5"]
    other = ["-n", 1, "env", f"PYTHONPATH={tmp_path}", *rank]
    done = execute([str(each) for each in (MPIRUN, *FLAGS, "-n", 1, *rank, ":", *other)])
    assert done.returncode == 5
    assert "have different versions of mpi_match" in said(done)
    assert len(said(done).splitlines()) == 1


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize("ranks", [1, 3])
def test_an_interrupted_run_leaves_its_journal_and_can_be_taken_up_again(ranks: int, inputs: Inputs, tmp_path: Path) -> None:
    output = tmp_path / "matches.h5"
    command = launch(ranks, inputs.table, inputs.events, output, "engine=slow", "batch=1")
    if ranks == 1:
        command = alone(inputs.table, inputs.events, output, "engine=slow", "batch=1")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as process:
        deadline = time.monotonic() + TIMEOUT_S
        while not leftovers(output) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert leftovers(output) != ["matches.h5"], "the run ended before it could be interrupted"
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode != 0
    assert leftovers(output) == KEPT
    done = execute(alone(inputs.table, inputs.events, output, "engine=null", "batch=1", "resume=1"))
    assert done.returncode == 0, done.stderr
    assert 0 < json.loads(done.stdout)["resumed"] < 300
    undisturbed = tmp_path / "undisturbed.h5"
    assert execute(alone(inputs.table, inputs.events, undisturbed, "engine=null", "batch=1")).returncode == 0
    assert output.read_bytes() == undisturbed.read_bytes()
    assert leftovers(output) == ["matches.h5", "matches.h5.run.json"]


def test_a_written_file_is_never_half_a_file(tmp_path: Path, inputs: Inputs) -> None:
    """What the interrupted run relies on: the output has its name only when it is whole."""
    with pytest.raises(KeyboardInterrupt), Writer(tmp_path / "matches.h5", "matches"):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
