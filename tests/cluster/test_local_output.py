"""The master's side of answers that workers write, without workers: which parts count, and which are kept."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from mpi_match.arrays.csr import Array
from mpi_match.arrays.strings import Strings
from mpi_match.cluster.messages import Written
from mpi_match.cluster.results import worker_output as local_output_module
from mpi_match.cluster.results.output import Output
from mpi_match.cluster.results.worker_output import LocalOutput, PartPlaces
from mpi_match.journal.manifest import manifest_of, read_manifest
from mpi_match.journal.reader import EventRange, RunIdentity
from mpi_match.matches.file import MatchesFile
from mpi_match.matches.part_index import Parts, PartWriter, parts_beside
from mpi_match.storage import StorageError, parts_directory

N_EVENTS = 60
IDENTITY = RunIdentity("filter", 300, N_EVENTS, "a" * 64, "b" * 64, "")
NO_LABELS = Strings.of(())


def answers(events: EventRange) -> tuple[Array, Array]:
    """The only id of each event is its number."""
    return np.ones(events.n_events, np.uint16), np.arange(*events, dtype=np.uint16)


def append(part: PartWriter, *events: EventRange) -> None:
    for each in events:
        part.append(each, *answers(each))
    part.sync()


def opened(path: Path, *, resume: bool = True) -> LocalOutput:
    return LocalOutput(path, IDENTITY, NO_LABELS, resume=resume)


def run(path: Path, size: int, *, until: int = N_EVENTS, resume: bool = True) -> int:
    """One worker answers the unanswered events in batches of `size`, and the run ends before event `until`."""
    with opened(path, resume=resume) as output, PartWriter(output.places.part(1), IDENTITY) as part:
        for stretch in output.unanswered:
            for start in range(stretch.start, min(stretch.stop, until), size):
                events = EventRange(start, min(start + size, stretch.stop))
                append(part, events)
                output.wrote(events, events.n_events, 1, Written(0, part.end))
        if until == N_EVENTS:
            output.finish()
            output.write_manifest({})
        return output.n_resumed


def check(path: Path) -> None:
    assert MatchesFile.load(path).matches.ids.tolist() == list(range(N_EVENTS))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "matches.h5"


def test_late_answers_of_a_worker_of_a_lost_run_do_not_count(path: Path) -> None:
    """The worker has not detected yet that its master is gone, and its batches differ from those of the resumed run."""
    run(path, 10, until=30)
    late = PartPlaces(parts_directory(path), 1, IDENTITY).part(1)
    size = late.stat().st_size
    run(path, 30)
    part = PartWriter.__new__(PartWriter)
    part.path, part.end, part._synced, part._descriptor = late, size, size, os.open(late, os.O_RDWR)
    append(part, EventRange(30, 40))
    assert late.stat().st_size > size
    check(path)


def test_parts_without_a_whole_head_are_empty(path: Path) -> None:
    run(path, 10, until=30)
    whole = PartPlaces(parts_directory(path), 1, IDENTITY).part(1).read_bytes()
    for number, length in enumerate((0, 1, 40, 100)):
        PartPlaces(parts_directory(path), 1, IDENTITY).part(2, number).write_bytes(whole[:length])
    assert run(path, 7) == 30
    check(path)
    assert sorted(parts_beside(path)) == ["1-rank-1.answers", "2-rank-1.answers"]


def test_a_run_that_was_killed_when_its_index_was_in_place_is_complete(path: Path) -> None:
    run(path, 10)
    left = PartPlaces(parts_directory(path), 1, IDENTITY).part(2)
    with PartWriter(left, IDENTITY) as part:
        append(part, EventRange(0, 10))
    before = path.stat().st_mtime_ns
    assert run(path, 10) == N_EVENTS
    assert path.stat().st_mtime_ns == before
    assert not left.exists()


def test_an_index_without_its_parts_is_no_output(path: Path) -> None:
    run(path, 10)
    PartPlaces(parts_directory(path), 1, IDENTITY).part(1).unlink()
    assert run(path, 10) == 0
    check(path)


def test_a_refused_run_keeps_the_manifest_of_the_last_one(path: Path) -> None:
    run(path, 10, until=30)
    with pytest.raises(StorageError, match="holds 30 of 60 events of a run that did not end; go on with --resume"):
        run(path, 10, resume=False)
    said = read_manifest(path)
    assert said is not None
    assert (said["state"], said["answered"]) == ("incomplete", 30)


def test_results_master_does_not_restart_a_run_with_parts(path: Path) -> None:
    """Neither with --resume, nor beside a running one."""
    run(path, 10, until=30)
    for resume in (True, False):
        with (
            pytest.raises(
                StorageError, match="holds answers of a run with --results local that did not end; go on with that"
            ),
            Output(path, IDENTITY, NO_LABELS, resume=resume, journalled=True),
        ):
            pytest.fail("it began")
    assert run(path, 10) == 30


@pytest.mark.parametrize("answered", [0, 30])
def test_results_local_does_not_restart_a_run_with_a_journal(path: Path, answered: int) -> None:
    with Output(path, IDENTITY, NO_LABELS, resume=True, journalled=True) as output:
        output.write(0, *answers(EventRange(0, answered)))
        with pytest.raises(StorageError, match="journal: of a run with --results master that did not end; go on with that"):
            run(path, 10)


def test_parts_are_removed_with_their_index(path: Path) -> None:
    run(path, 10)
    with Output(path, IDENTITY, NO_LABELS, resume=False, journalled=True) as output:
        output.write(0, *answers(EventRange(0, N_EVENTS)))
        check(path)
        output.finish()
        output.write_manifest({})
    check(path)
    assert not parts_directory(path).exists()


def test_answers_that_were_not_synced_are_overwritten(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    part_path = path.with_name("1-rank-1.answers")
    with PartWriter(part_path, IDENTITY) as part:
        append(part, EventRange(0, 10))
        size = part_path.stat().st_size
        monkeypatch.setattr(os, "fdatasync", fail)
        with pytest.raises(StorageError, match="cannot be written: Input/output error"):
            append(part, EventRange(10, 20))
        monkeypatch.undo()
        assert part.end == size
        append(part, EventRange(20, 30))
    assert [each.record.events for each in Parts([part_path], IDENTITY).in_order] == [(0, 10), (20, 30)]


def test_leftovers_are_removed_before_other_runs_may_begin(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def remove_parts(*_: object, **__: object) -> None:
        with pytest.raises(StorageError, match="another run is writing this output"):
            run(path, 10)
        tried.append(1)

    monkeypatch.setattr(local_output_module, "remove_parts", remove_parts)
    run(path, 10, until=0)
    assert tried == [1]


def test_half_written_files_of_killed_runs_are_removed(path: Path) -> None:
    for name in (".matches.h5.999999.writing", ".matches.h5.run.json.999999.writing"):
        path.with_name(name).touch()
    run(path, 10)
    assert sorted(each.name for each in path.parent.iterdir()) == ["matches.h5", "matches.h5.parts", manifest_of(path).name]
