"""Runs that are resumed any number of times from any point have the bytes of an uninterrupted one."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from small_outputs import IDENTITY, N_EVENTS, reference_all, run

from mpi_match.arrays.strings import Strings
from mpi_match.cli.errors import exit_code_of
from mpi_match.cluster import ClusterError
from mpi_match.cluster.results import output as output_module
from mpi_match.cluster.results.output import Output
from mpi_match.commands.inspect import inspect_file, inspect_lines
from mpi_match.journal.manifest import manifest_of, read_manifest
from mpi_match.journal.reader import IncompleteError, JournalFile, journal_of
from mpi_match.matches.file import MatchesFile
from mpi_match.storage import StorageError


@settings(max_examples=examples(25))
@given(
    steps=st.lists(st.tuples(st.integers(1, 15), st.integers(0, 6), st.sets(st.integers(0, 5)), st.booleans()), max_size=4)
)
def test_a_run_that_ends_again_and_again_comes_to_the_same_bytes(
    steps: list[tuple[int, int, set[int], bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whether answers are copied to the journal or referenced, in alternate runs."""
    directory = tmp_path_factory.mktemp("again")
    with pytest.MonkeyPatch.context() as patch:
        reference_all(patch)
        come_to_the_same_bytes(steps, directory, patch)


def come_to_the_same_bytes(steps: list[tuple[int, int, set[int], bool]], directory: Path, patch: pytest.MonkeyPatch) -> None:
    whole, path = directory / "whole.h5", directory / "matches.h5"
    run(whole, 60)
    answered = 0
    for size, until, aside, referenced in steps:
        patch.setattr(output_module, "LONG_ANSWER_BYTES", 0 if referenced else 2**14)
        with suppress(ZeroDivisionError, ClusterError):
            run(path, size, until=until, aside=tuple(aside))
        if not path.exists():
            kept = JournalFile.look(journal_of(path)).n_answered if journal_of(path).exists() else 0
            assert kept >= answered
            answered = kept
    run(path, 7)
    assert path.read_bytes() == whole.read_bytes()
    assert sorted(each.name for each in directory.iterdir() if each.name.startswith("matches")) == [
        "matches.h5",
        "matches.h5.run.json",
    ]


def test_events_set_aside_are_named_and_tried_again(tmp_path: Path, kept: None, undisturbed: bytes) -> None:
    path = tmp_path / "matches.h5"
    with pytest.raises(ClusterError, match=r"no answers for the events 20 to 30, 40 to 50: .* --resume") as caught:
        run(path, 10, aside=(2, 4))
    assert caught.value.exit_code == 4
    assert not path.exists()
    journal = JournalFile.look(journal_of(path))
    assert journal.set_aside() == journal.unanswered() == [(20, 30), (40, 50)]
    manifest = read_manifest(path)
    assert manifest is not None
    assert (manifest["state"], manifest["answered"], manifest["set_aside"]) == ("incomplete", 40, [[20, 30], [40, 50]])
    assert "no answers" in manifest["reason"]
    with pytest.raises(ClusterError):
        run(path, 20, aside=(1,))
    assert JournalFile.look(journal_of(path)).set_aside() == [(40, 50)]
    assert run(path, 3) == 50
    assert path.read_bytes() == undisturbed


def test_without_a_journal_nothing_can_be_set_aside(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="without a journal nothing is kept"):
        run(tmp_path / "matches.h5", 10, aside=(2,), journalled=False)
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_a_journal_leaves_none(tmp_path: Path, undisturbed: bytes) -> None:
    path = tmp_path / "matches.h5"
    with pytest.raises(ZeroDivisionError):
        run(path, 10, until=3, journalled=False)
    assert not journal_of(path).exists()
    run(path, 10, journalled=False)
    assert path.read_bytes() == undisturbed


def test_a_complete_output_is_not_computed_again(tmp_path: Path, undisturbed: bytes) -> None:
    path = tmp_path / "undisturbed.h5"
    manifest_of(path).unlink()  # killed between the last two steps
    before = path.stat().st_mtime_ns
    assert run(path, 10) == N_EVENTS
    assert path.stat().st_mtime_ns == before
    found = read_manifest(path)
    assert found is not None
    assert (found["state"], found["answered"]) == ("complete", 60)
    assert found["matches"] == MatchesFile.load(path).matches.n_matches
    assert run(path, 10, resume=False) == 0


def test_the_journal_is_removed_after_the_directory_is_synced(
    tmp_path: Path, undisturbed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, there = tmp_path / "matches.h5", list[bool]()

    def refuse(directory: Path) -> None:
        there.append(directory == tmp_path and path.exists() and journal_of(path).exists())
        raise StorageError(f"{directory}: cannot be written: Input/output error")

    monkeypatch.setattr(output_module, "sync_directory", refuse)
    for error in (ClusterError, StorageError):  # at its end, and at the beginning of one that finds all done
        with pytest.raises(error, match="Input/output error"):
            run(path, 10)
        assert journal_of(path).exists()
    assert there == [True, True]
    monkeypatch.undo()
    assert run(path, 10) == N_EVENTS
    assert not journal_of(path).exists()
    assert path.read_bytes() == undisturbed


def test_a_run_that_begins_removes_the_manifest_of_the_last_one(tmp_path: Path, undisturbed: bytes) -> None:
    path = tmp_path / "undisturbed.h5"
    with Output(path, IDENTITY, Strings.of(()), resume=False, journalled=True):
        assert read_manifest(path) is None


def test_files_of_killed_runs_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "matches.h5"
    (tmp_path / ".matches.h5.999999.writing").touch()
    (tmp_path / ".other.h5.999999.writing").touch()
    run(path, 10)
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        ".other.h5.999999.writing",
        "matches.h5",
        "matches.h5.run.json",
    ]


# Reading answers that are not there


def test_incomplete_answers_are_reported_as_incomplete(tmp_path: Path, kept: None) -> None:
    path = tmp_path / "matches.h5"
    with pytest.raises(ZeroDivisionError):
        run(path, 10, until=3)
    for look in (MatchesFile.load, inspect_file):
        with pytest.raises(IncompleteError, match=r"incomplete: 30 of 60 events are answered, in matches") as said:
            look(path)
        assert exit_code_of(said.value) == 4


def test_a_journal_is_inspected(tmp_path: Path, kept: None) -> None:
    path = tmp_path / "matches.h5"
    with pytest.raises(ZeroDivisionError):
        run(path, 10, until=3, aside=(1,))
    found = inspect_file(journal_of(path))
    assert (found["kind"], found["events"], found["answered"]) == ("journal", 60, 20)
    assert (found["without_answer"], found["set_aside"]) == ([[10, 20], [30, 60]], [[10, 20]])
    assert "  without answer  10 to 20, 30 to 60" in list(inspect_lines(found))
