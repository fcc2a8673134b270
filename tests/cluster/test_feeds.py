"""Sources of events and parts of the output, without MPI."""

from __future__ import annotations

import errno
import os
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mpi_match.arrays.strings import Strings
from mpi_match.cluster import ClusterError
from mpi_match.cluster.batches import BatchRanges
from mpi_match.cluster.distribution.shard import Shard
from mpi_match.cluster.engine_runner import ShardsHeld
from mpi_match.cluster.execution import THREADED, WITHOUT_THREADS, Execution
from mpi_match.cluster.messages import Matched, Received
from mpi_match.cluster.prefetch import Expected
from mpi_match.engines import Engine
from mpi_match.events.batch import EventBatch
from mpi_match.journal.reader import EventRange, JournalFile, RunIdentity
from mpi_match.matches.file import MatchesFile
from mpi_match.matches.matches import Matches
from mpi_match.matches.part_index import Parts, PartWriter, write_index
from mpi_match.storage import StorageError, parts_directory
from mpi_match.table.table import Table


def test_a_wire_form_has_the_width_of_events_if_it_was_known() -> None:
    batch = EventBatch(np.array([7, 9, 9, 12], np.uint32), np.arange(5, dtype=np.uint32), None, 1)
    assert "widest" not in vars(EventBatch.from_wire(batch.to_wire()))
    assert batch.widest == 3
    received = EventBatch.from_wire(batch.to_wire())
    assert vars(received)["widest"] == 3
    assert received[:2].widest == 2  # of these two events, not of the batch


# Answers in parts

IDENTITY = RunIdentity("interface", 300, 10, "a" * 64, "b" * 64, "")


def part_of(path: Path, *records: tuple[int, list[list[int]]], identity: RunIdentity = IDENTITY) -> Path:
    """A part with answers: the first event of each record, and the ids of its events."""
    with PartWriter(path, identity) as part:
        for start, found in records:
            matches = Matches.of(found, 300)
            part.append(EventRange(start, start + len(found)), matches.counts, matches.ids)
    return path


ANSWERS = [[i, i + 250] if i % 3 else [] for i in range(10)]


def index_of(directory: Path, *parts: Path) -> Path:
    path = directory / "matches.h5"
    n_matches = sum(map(len, ANSWERS))
    write_index(path, "matches", IDENTITY, Strings.of(()), n_matches, {part.name: part.stat().st_size for part in parts})
    return path


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """Two parts; events 2 to 6 were answered twice."""
    directory = parts_directory(tmp_path / "matches.h5")
    directory.mkdir()
    first = part_of(directory / "1-rank-1.answers", (6, ANSWERS[6:8]), (2, ANSWERS[2:6]))
    return [first, part_of(directory / "1-rank-2.answers", (0, ANSWERS[:2]), (2, ANSWERS[2:6]), (8, ANSWERS[8:]))]


def test_parts_are_read_in_the_order_of_events(parts: list[Path], tmp_path: Path) -> None:
    assert MatchesFile.load(index_of(tmp_path, *parts)).matches == Matches.of(ANSWERS, 300)
    assert Parts(parts[:1], IDENTITY).unanswered() == [EventRange(0, 2), EventRange(8, 10)]


def test_parts_that_are_missing_damaged_or_others_are_refused(parts: list[Path], tmp_path: Path) -> None:
    index, whole = index_of(tmp_path, *parts), parts[1].read_bytes()
    parts[1].unlink()
    with pytest.raises(StorageError, match=r"its part .*1-rank-2.answers is missing; an index must travel with"):
        MatchesFile.load(index)
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 16
        parts[1].write_bytes(damaged)
        with pytest.raises(StorageError):
            MatchesFile.load(index)
    parts[1].write_bytes(whole[:-1])
    with pytest.raises(StorageError, match=r"1-rank-2.answers: is damaged: .* bytes are valid, expected"):
        MatchesFile.load(index)
    parts[1].unlink()
    part_of(parts[1], (0, ANSWERS[:2]), (2, ANSWERS[2:6]), (8, ANSWERS[8:]), identity=replace(IDENTITY, n_ids=299))
    with pytest.raises(StorageError, match="holds answers for other inputs: n ids found 299, expected 300"):
        MatchesFile.load(index)
    parts[1].write_bytes(whole)
    with pytest.raises(StorageError, match="no answers for the events 0 to 2 in its parts"):
        MatchesFile.load(index_of(tmp_path, parts[0]))


def test_a_part_is_never_overwritten(parts: list[Path]) -> None:
    with pytest.raises(StorageError, match=r"1-rank-1\.answers: cannot be written: File exists"):
        PartWriter(parts[0], IDENTITY)


# Answers that a worker writes


class Sevens(Engine):
    """Answers every event with id 7."""

    name, device, nbytes = "sevens", "nothing", 0

    def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        return Matches.of([[7]] * len(batch), 300)


def batch_of(number: int, n_events: int = 5) -> Received:
    events = EventBatch(np.zeros(n_events + 1, np.uint32), np.zeros(0, np.uint32), None, 0)
    return Received(number, 0, False, np.empty(0, np.uint8), Expected(lambda: events), None)


def written(execution: Execution, numbers: list[int], *parts: PartWriter) -> dict[int, Matched]:
    """The answers to these batches."""
    table = Table.from_filters([])
    shards = ShardsHeld(Shard(0, 1, 0, 0, 0), table, lambda _: Sevens())
    runner = execution.matcher(shards, table.vocabulary, filters=False)
    matcher = execution.written(runner, parts, BatchRanges([EventRange(0, 10)], 5))
    matcher.engine()
    for number in numbers:
        matcher.put(batch_of(number))
    found: dict[int, Matched] = {}
    while len(found) < len(numbers):
        if (matched := matcher.get(0.01)) is not None:
            found[matched.received.batch] = matched
    matcher.stop(10)
    return found


@pytest.mark.parametrize("execution", [THREADED, WITHOUT_THREADS])
def test_answers_are_synced_when_they_are_returned(
    execution: Execution, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    with PartWriter(tmp_path / "1-rank-1.answers", IDENTITY) as part:
        monkeypatch.setattr(PartWriter, "sync", lambda self: synced.append(self.end))
        found = written(execution, [1, 0], part)
    assert [each.error for each in found.values()] == [None, None]
    ends = {each.written.end for each in found.values() if each.written is not None}
    assert ends
    assert ends <= set(synced)
    kept = Parts([tmp_path / "1-rank-1.answers"], IDENTITY)
    assert kept.joined()[1].tolist() == [7] * 10
    assert max(ends) == kept.ends[tmp_path / "1-rank-1.answers"]


@pytest.mark.parametrize("execution", [THREADED, WITHOUT_THREADS])
def test_a_failed_write_is_an_error_of_the_worker(
    execution: Execution, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with PartWriter(tmp_path / "1-rank-1.answers", IDENTITY) as part:
        monkeypatch.setattr(os, "pwrite", full)
        found = written(execution, [0, 1], part)
    errors = [each.error for each in found.values()]
    assert [(type(error), getattr(error, "exit_code", 0)) for error in errors] == [(ClusterError, 4)] * 2
    assert str(errors[0]).endswith("1-rank-1.answers: cannot be written: No space left on device")
    assert [getattr(error, "disk_full", None) for error in errors] == [True, True], "another start would end in the same way"


def test_a_second_part_is_used_while_the_first_is_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batch 0 is not synced before batch 1 is; and a batch that comes when both parts are free goes to the first."""
    other_is_synced = threading.Event()
    paths = [tmp_path / "1-rank-1.answers", tmp_path / "1-rank-1-1.answers"]

    def sync(part: PartWriter) -> None:
        if part.path == paths[1]:
            other_is_synced.set()
        assert other_is_synced.wait(10)

    monkeypatch.setattr(PartWriter, "sync", sync)
    monkeypatch.setattr("mpi_match.cluster.results.worker_writer.TOGETHER_BYTES", 0)
    with PartWriter(paths[0], IDENTITY) as first, PartWriter(paths[1], IDENTITY) as second:
        found = written(THREADED, [0, 1], first, second)
        more = written(THREADED, [1], first, second)
    assert [found[batch].written for batch in (0, 1)] == [(0, first_end(paths[0])), (1, paths[1].stat().st_size)]
    assert [each.written for each in more.values()] == [(0, paths[0].stat().st_size)]
    assert Parts(paths, IDENTITY).joined()[1].tolist() == [7] * 10


def first_end(path: Path) -> int:
    """Where the first record of a part ends."""
    records = JournalFile.look(path).records
    return records[1].at - 32 if len(records) > 1 else path.stat().st_size
