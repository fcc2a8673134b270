"""The journal: what is whole in it is believed, what is not is matched again, and answers of other inputs never mix."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
import zlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpi_match.arrays import Array
from mpi_match.cluster import ClusterError
from mpi_match.cluster import journal as journal_module
from mpi_match.cluster import output as output_module
from mpi_match.cluster.extents import Extents
from mpi_match.cluster.journal import Journal
from mpi_match.cluster.output import Output
from mpi_match.exits import exit_code_of
from mpi_match.glance import glance, glance_lines
from mpi_match.journal_file import Identity, IncompleteError, JournalFile, Kind, Stretch, gaps, head_bytes, journal_of
from mpi_match.matches import MatchesFile
from mpi_match.run_manifest import manifest_of, read_manifest, write_manifest
from mpi_match.storage import StorageError, temporary_of
from mpi_match.strings import Strings

N_EVENTS, N_IDS = 60, 300
IDENTITY = Identity("filter", N_IDS, N_EVENTS, "a" * 64, "b" * 64, "")


def answers(start: int, stop: int) -> tuple[Array, Array]:
    """Event e has the ids e, e + 1, ... up to e % 4 of them: counts and ids in the types that 300 ids have."""
    counts = np.arange(start, stop) % 4
    ids = [event + k for event, count in zip(range(start, stop), counts, strict=True) for k in range(count)]
    return counts.astype(np.uint16), np.array(ids, np.uint16)


def kept_in(path: Path) -> list[tuple[Stretch, list[int], list[int]]]:
    file = JournalFile.look(path)
    return [
        (record.events, *(array.tolist() for array in file.answers(record)))
        for record in file.records
        if record.kind != Kind.SET_ASIDE
    ]


def write(path: Path, stretches: list[tuple[int, int]], *, resume: bool = False, identity: Identity = IDENTITY) -> None:
    with Journal(path, identity, resume=resume) as journal:
        for start, stop in stretches:
            journal.append(start, *answers(start, stop))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "matches.h5.journal"


@pytest.fixture
def ungrouped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every append is a record."""
    monkeypatch.setattr(journal_module, "GROUP_BYTES", 0)


def note_where(patch: pytest.MonkeyPatch) -> None:
    """All answers are long ones, and chunks have 32 counts or ids."""
    patch.setattr(output_module, "LONG_BYTES", 0)
    patch.setattr("mpi_match.storage.column.CHUNK_BYTES", 64)


@pytest.fixture(params=["copied", "noted"])
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are copied to the journal, as short ones are, or it is noted there where they are."""
    if request.param == "noted":
        note_where(monkeypatch)


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> None:
    note_where(monkeypatch)


# What is written is what is read.


@pytest.mark.parametrize("group", [0, 20, 2**18])
def test_answers_come_back_however_they_were_grouped(group: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "GROUP_BYTES", group)
    write(path, [(0, 7), (7, 8), (8, 8), (8, 40), (50, 55)])
    found = kept_in(path)
    for events, counts, ids in found:
        assert [counts, ids] == [array.tolist() for array in answers(*events)]
    assert gaps((events for events, _, _ in found), N_EVENTS) == [(40, 50), (55, 60)]
    assert len(found) == {0: 4, 20: 4, 2**18: 2}[group]


def test_the_bytes_are_those_of_the_format_page(path: Path) -> None:
    """Read here from the words of FORMAT.md, with nothing of ours."""
    write(path, [(0, 5)])
    with Journal(path, IDENTITY, resume=True) as journal:
        journal.set_aside(Stretch(5, 9))
    content = path.read_bytes()
    assert content.startswith(b"mpi-match journal\n")
    version, length, crc = struct.unpack_from("<III", content, 18)
    text = content[30 : 30 + length]
    assert (version, zlib.crc32(text)) == (1, crc)
    assert json.loads(text) == {
        "unit": "filter",
        "n_ids": 300,
        "n_events": 60,
        "table_digest": "a" * 64,
        "events_digest": "b" * 64,
        "changes_digest": "",
    }
    at = 30 + length
    crc, kind, start, n_events, n_ids = struct.unpack_from("<Iiqqq", content, at)
    assert (kind, start, n_events, n_ids) == (1, 0, 5, 6)
    end = at + 32 + 2 * 5 + 2 * 6
    assert crc == zlib.crc32(content[at + 4 : end])
    assert np.frombuffer(content, "<u2", 11, at + 32).tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 3, 4, 5]
    crc, *words = struct.unpack_from("<Iiqqq", content, end)
    assert words == [2, 5, 4, 0]
    assert crc == zlib.crc32(content[end + 4 :])
    assert len(content) == end + 32


def test_a_journal_without_answers_is_not_kept(path: Path) -> None:
    write(path, [])
    assert not path.exists()


def test_the_disk_has_answers_before_the_run_ends(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "SYNC_S", 0.01)
    with Journal(path, IDENTITY, resume=False) as journal:
        journal.append(0, *answers(0, 3))
        for _ in range(1000):
            if JournalFile.look(path).n_answered:
                break
            signal.sigtimedwait([], 0.01)
        assert JournalFile.look(path).n_answered == 3


# However it ends, what is whole is believed.


def test_every_torn_end_is_cut(path: Path, ungrouped: None, caplog: pytest.LogCaptureFixture) -> None:
    stretches = [(0, 7), (7, 20), (20, 21), (30, 60)]
    write(path, stretches)
    whole, records = path.read_bytes(), kept_in(path)
    ends = [record.at - 32 for record in JournalFile.look(path).records] + [len(whole)]
    for length in range(ends[0], len(whole) + 1):
        path.write_bytes(whole[:length])
        n_whole = sum(end <= length for end in ends[1:])
        assert kept_in(path) == records[:n_whole]
        assert JournalFile.look(path).n_torn == length - ends[n_whole]
        write(path, stretches[n_whole:], resume=True)
        assert path.read_bytes() == whole
    assert "bytes are torn and are left out" in caplog.text


def test_a_changed_bit_ends_what_is_believed(path: Path, ungrouped: None) -> None:
    write(path, [(start, start + 5) for start in range(0, 60, 5)])
    whole, records, rng = path.read_bytes(), kept_in(path), random.Random(1)
    first = JournalFile.look(path).records[0].at - 32
    for _ in range(500):
        damaged = bytearray(whole)
        at = rng.randrange(first, len(whole))
        damaged[at] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        found = kept_in(path)
        assert found == records[: len(found)]
        assert len(found) <= (at - first) // (32 + 2 * 5)


def test_zeros_at_the_end_are_no_record(path: Path) -> None:
    """What a file system may leave after a power cut."""
    write(path, [(0, 7)])
    n_bytes = path.stat().st_size
    with path.open("ab") as handle:
        handle.write(bytes(1000))
    found = JournalFile.look(path)
    assert (found.n_answered, found.end, found.n_torn) == (7, n_bytes, 1000)


def test_no_event_is_answered_twice(path: Path, ungrouped: None) -> None:
    for second in [(0, 10), (9, 11), (3, 4), (0, 60), (0, 1)]:
        path.unlink(missing_ok=True)
        write(path, [(0, 10), second, (20, 30)])
        assert [events for events, _, _ in kept_in(path)] == [(0, 10)]


def test_an_interrupted_write_is_written_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, [(0, 5)])
    with Journal(path, IDENTITY, resume=True) as journal:
        journal.append(5, *answers(5, 20))
        real, calls = os.pwrite, 0

        def interrupted(descriptor: int, data: bytes, at: int) -> int:
            nonlocal calls
            calls += 1
            if calls == 2:
                raise KeyboardInterrupt
            return real(descriptor, data[:11], at)

        monkeypatch.setattr(journal_module.os, "pwrite", interrupted)
        with pytest.raises(KeyboardInterrupt):
            journal.sync()
        monkeypatch.undo()
    assert [(events, counts) for events, counts, _ in kept_in(path)] == [
        (each, answers(*each)[0].tolist()) for each in [(0, 5), (5, 20)]
    ]


def test_answers_that_could_not_be_written_are_not_counted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Journal(path, IDENTITY, resume=False) as journal:
        journal.append(0, *answers(0, 5))
        journal.sync()
        journal.append(5, *answers(5, 20))
        monkeypatch.setattr(journal_module.os, "pwrite", full)
    monkeypatch.undo()
    assert journal.n_answered == JournalFile.look(path).n_answered == 5


def test_a_run_that_has_kept_nothing_is_not_called_incomplete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def fail() -> None:
        with Output(tmp_path / "matches.h5", IDENTITY, Strings.of(()), resume=True, journalled=True) as output:
            monkeypatch.setattr(journal_module.os, "pwrite", full)
            output.write(0, *answers(0, 5))
            output.write(5, *answers(5, 20))

    monkeypatch.setattr(journal_module, "GROUP_BYTES", 40)
    with pytest.raises(ClusterError, match="No space left on device") as caught:
        fail()
    assert caught.value.exit_code == 1
    assert list(tmp_path.iterdir()) == []


# Whose it is.


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"table_digest": "c" * 64}, f"table digest found {'a' * 64}, expected {'c' * 64}"),
        ({"events_digest": "c" * 64}, f"events digest found {'b' * 64}, expected {'c' * 64}"),
        ({"changes_digest": "c" * 64}, f"changes digest found none, expected {'c' * 64}"),
        ({"unit": "interface"}, "unit found filter, expected interface"),
        ({"n_ids": 7}, "n ids found 300, expected 7"),
    ],
)
def test_answers_of_other_inputs_are_refused(change: dict[str, str | int], words: str, path: Path) -> None:
    write(path, [(0, 5)])
    before = path.read_bytes()
    with pytest.raises(StorageError) as caught:
        write(path, [], resume=True, identity=replace(IDENTITY, **change))  # type: ignore[arg-type]
    assert f"holds 5 of 60 events of a run that did not end, but of other inputs: {words}; remove it" in str(caught.value)
    assert path.read_bytes() == before


def test_answers_are_not_thrown_away_unasked(path: Path) -> None:
    write(path, [(0, 5)])
    with pytest.raises(StorageError, match="go on with --resume, or remove it to begin anew"):
        write(path, [])
    assert len(kept_in(path)) == 1


def test_two_runs_do_not_write_one_output(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "LOCK_S", 0.3)
    with Journal(path, IDENTITY, resume=False) as journal:
        journal.append(0, *answers(0, 5))
        with pytest.raises(StorageError, match="another run is writing this output"):
            write(path, [], resume=True)
    assert len(kept_in(path)) == 1


def test_who_waits_for_a_lock_does_not_get_a_file_that_is_removed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else would see that it is locked."""
    first = Journal(path, IDENTITY, resume=False)
    first.__enter__()
    real, n_tries = journal_module.fcntl.flock, 0

    def flock(*arguments: int) -> None:
        nonlocal n_tries
        n_tries += 1
        if n_tries == 2:  # the file is open, and the first one comes to its end
            first.remove()
            first.__exit__(None, None, None)
        real(*arguments)

    monkeypatch.setattr(journal_module.fcntl, "flock", flock)
    with Journal(path, IDENTITY, resume=True) as journal:
        journal.append(0, *answers(0, 5))
        with pytest.raises(StorageError, match="another run is writing this output"):
            write(path, [])
    assert len(kept_in(path)) == 1


def test_a_file_that_ends_within_its_head_is_as_good_as_none(path: Path) -> None:
    write(path, [(0, 5)])
    whole = path.read_bytes()
    for length in range(len(head_bytes(IDENTITY)) + 1):
        path.write_bytes(whole[:length])
        write(path, [(0, 5)])
        assert path.read_bytes() == whole


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"something else that somebody has called so", "is not a journal of mpi-match"),
        (b"mpi-match journal\n" + struct.pack("<III", 2, 2, 0) + b"{}", "journal version found 2, expected 1"),
        (b"mpi-match journal\n" + struct.pack("<III", 1, 2, 0) + b"{}", "its head is damaged"),
        (b"mpi-match journal\n" + struct.pack("<I", 1) + bytes(500), "its head is damaged"),
    ],
)
def test_what_is_no_journal_is_left_alone(content: bytes, words: str, path: Path) -> None:
    path.write_bytes(content)
    with pytest.raises(StorageError, match=words):
        write(path, [(0, 5)], resume=True)
    assert path.read_bytes() == content


# Batches of what is left.


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=6), st.integers(1, 12))
def test_batches_cover_what_is_left_in_order(lengths: list[tuple[int, int]], size: int) -> None:
    stretches, at = [], 0
    for apart, n_events in lengths:
        stretches.append(Stretch(at + apart + 1, at + apart + 1 + n_events))
        at = stretches[-1].stop
    extents = Extents(stretches, size)
    found = [extents.of(batch) for batch in range(extents.n_batches)]
    assert [event for start, stop in found for event in range(start, stop)] == [
        event for each in stretches for event in range(each.start, each.stop)
    ]
    assert all(0 < stop - start <= size for start, stop in found)
    assert len(found) == sum(-(-each.n_events // size) for each in stretches)


# Runs that are taken up again.


def run(path: Path, size: int, *, until: int | None = None, aside: tuple[int, ...] = (), **how: bool) -> int:
    """Answer what is left in batches of a size, but for the batches `aside`; end by an exception before batch `until`."""
    with Output(path, IDENTITY, Strings.of(()), **{"resume": True, "journalled": True, **how}) as output:
        extents = Extents(output.unanswered, size)
        for batch in range(extents.n_batches):
            if batch == until:
                raise ZeroDivisionError
            extent = Stretch(*extents.of(batch))
            if batch in aside:
                output.set_aside(extent)
            else:
                output.write(extent.start, *answers(*extent))
        output.finish()
        output.attest({})
    return output.n_resumed


@pytest.fixture
def undisturbed(tmp_path: Path) -> bytes:
    run(tmp_path / "undisturbed.h5", 60)
    return (tmp_path / "undisturbed.h5").read_bytes()


@settings(max_examples=25)
@given(
    steps=st.lists(st.tuples(st.integers(1, 15), st.integers(0, 6), st.sets(st.integers(0, 5)), st.booleans()), max_size=4)
)
def test_a_run_that_ends_again_and_again_comes_to_the_same_bytes(
    steps: list[tuple[int, int, set[int], bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whether answers are copied to the journal or it is noted where they are, one run this way and the next the other."""
    directory = tmp_path_factory.mktemp("again")
    with pytest.MonkeyPatch.context() as patch:
        note_where(patch)
        come_to_the_same_bytes(steps, directory, patch)


def come_to_the_same_bytes(steps: list[tuple[int, int, set[int], bool]], directory: Path, patch: pytest.MonkeyPatch) -> None:
    whole, path = directory / "whole.h5", directory / "matches.h5"
    run(whole, 60)
    answered = 0
    for size, until, aside, noted in steps:
        patch.setattr(output_module, "LONG_BYTES", 0 if noted else 2**14)
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
    kept = JournalFile.look(journal_of(path))
    assert kept.set_aside() == kept.unanswered() == [(20, 30), (40, 50)]
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


def test_what_is_complete_is_not_done_again(tmp_path: Path, undisturbed: bytes) -> None:
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


def test_a_run_that_begins_takes_the_word_of_the_last_one_back(tmp_path: Path, undisturbed: bytes) -> None:
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


# Long answers are written once, and the journal notes where they are.


def test_where_answers_are_in_the_bytes_of_the_format_page(tmp_path: Path, noted: None) -> None:
    """Read here from the words of FORMAT.md, with nothing of ours."""
    path = tmp_path / "matches.h5"
    with pytest.raises(ZeroDivisionError):
        run(path, 40, until=1)
    content, file = journal_of(path).read_bytes(), (tmp_path / "matches.h5.journal.1").read_bytes()
    at = 30 + struct.unpack_from("<I", content, 22)[0]
    crc, kind, start, n_events, n_ids = struct.unpack_from("<Iiqqq", content, at)
    assert (kind, start, n_events, n_ids) == (3, 0, 40, 60)
    assert crc == zlib.crc32(content[at + 4 :])
    number, before, after, ids_before, ids_after, *sizes = struct.unpack_from("<7I2q", content, at + 32)
    assert (number, before, ids_before, sizes) == (1, 0, 0, [1, 1, 16, 56])
    extents = struct.unpack_from("<4q", content, at + 76)
    assert extents[1::2] == (64, 64)
    rest = content[at + 108 :]
    counts, ids = (file[first : first + 64] + more for first, more in zip(extents[::2], (rest[:16], rest[16:]), strict=True))
    assert (after, ids_after) == (zlib.crc32(counts), zlib.crc32(ids))
    expected = answers(0, 40)
    assert [counts, ids] == [array.tobytes() for array in expected]


def test_answers_are_noted_once_and_in_what_they_have_grown_by(tmp_path: Path, noted: None) -> None:
    path = tmp_path / "matches.h5"
    with suppress(ZeroDivisionError), Output(path, IDENTITY, Strings.of(()), resume=False, journalled=True) as output:
        assert output._journal is not None
        for start in range(0, 50, 5):
            output.write(start, *answers(start, start + 5))
            if start % 10 == 5:
                output._journal.sync()
        raise ZeroDivisionError
    assert [events for events, _, _ in kept_in(journal_of(path))] == [(start, start + 10) for start in range(0, 50, 10)]
    for events, counts, ids in kept_in(journal_of(path)):
        assert [counts, ids] == [array.tolist() for array in answers(*events)]


def test_of_a_damaged_file_is_believed_what_comes_before(tmp_path: Path, noted: None) -> None:
    """Also when it is cut off, or is not there at all: then its answers were not on the disk, and are matched again."""
    whole, path = tmp_path / "whole.h5", tmp_path / "matches.h5"
    run(whole, 60)
    file, rng = tmp_path / "matches.h5.journal.1", random.Random(2)
    for _ in range(30):
        with suppress(ZeroDivisionError), Output(path, IDENTITY, Strings.of(()), resume=False, journalled=True) as output:
            assert output._journal is not None
            for start in range(0, 60, 10):
                output.write(start, *answers(start, start + 10))
                output._journal.sync()
            raise ZeroDivisionError
        content = bytearray(file.read_bytes())
        records = JournalFile.look(journal_of(path)).records
        assert [record.kind for record in records] == [Kind.PLACED] * 6
        how = rng.choice(("flip", "cut", "remove"))
        if how == "flip":
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        file.write_bytes(content if how == "flip" else content[: rng.randrange(len(content))])
        if how == "remove":
            file.unlink()
        n_answered = JournalFile.look(journal_of(path)).n_answered
        assert n_answered in range(0, 70, 10)
        assert n_answered < 60 or how != "remove"
        assert run(path, 7) == n_answered
        assert path.read_bytes() == whole.read_bytes()
        assert not list(tmp_path.glob("matches.h5.journal*"))
        path.unlink()


def test_a_file_that_is_there_and_cannot_be_read_is_not_taken_for_lost(tmp_path: Path, noted: None) -> None:
    path, file = tmp_path / "matches.h5", tmp_path / "matches.h5.journal.1"
    with pytest.raises(ZeroDivisionError):
        run(path, 10, until=3)
    kept, content = journal_of(path).read_bytes(), file.read_bytes()
    file.unlink()
    file.mkdir()
    with pytest.raises(StorageError, match=r"journal\.1: cannot be read: Is a directory"):
        run(path, 10)
    file.rmdir()
    file.write_bytes(content)
    assert journal_of(path).read_bytes() == kept
    assert run(path, 10) == 30


@pytest.mark.parametrize("until", ["the next answers", "the end"])
def test_what_the_disk_did_not_take_ends_the_run(
    until: str, tmp_path: Path, noted: None, undisturbed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so once, and what it was may be lost: a file that has it later would look whole."""
    path, real = tmp_path / "matches.h5", os.fdatasync

    def fail_once(descriptor: int) -> None:
        monkeypatch.setattr(journal_module.os, "fdatasync", real)
        raise OSError(errno.EIO, "Input/output error")

    def end() -> None:
        with Output(path, IDENTITY, Strings.of(()), resume=True, journalled=True) as output:
            output.write(0, *answers(0, 30))
            if until == "the end":
                output.write(30, *answers(30, 60))
            monkeypatch.setattr(journal_module.os, "fdatasync", fail_once)
            output._journal._thread.join()  # type: ignore[union-attr]
            if until != "the end":
                output.write(30, *answers(30, 60))
                pytest.fail("nobody was told")
            output.finish()

    monkeypatch.setattr(journal_module, "SYNC_S", 0.05)
    with pytest.raises(ClusterError, match=r"cannot be written: .*Input/output error") as caught:
        end()
    assert caught.value.exit_code == 4
    assert not path.exists()
    run(path, 60)
    assert path.read_bytes() == undisturbed


def test_a_run_that_was_killed_when_the_file_was_in_its_place_is_complete(tmp_path: Path, noted: None) -> None:
    path = tmp_path / "matches.h5"
    with pytest.raises(ZeroDivisionError):
        run(path, 10, until=5)
    journal = journal_of(path).read_bytes()
    run(path, 10)
    before = path.stat().st_mtime_ns
    journal_of(path).write_bytes(journal)
    assert run(path, 10) == N_EVENTS
    assert path.stat().st_mtime_ns == before
    assert not journal_of(path).exists()


KILLED = """
import sys, time
from pathlib import Path
from test_journal import IDENTITY, answers
from mpi_match.storage import column
from mpi_match.cluster import journal, output
from mpi_match.cluster.extents import Extents
from mpi_match.strings import Strings

column.CHUNK_BYTES, output.LONG_BYTES, journal.SYNC_S = 64, 0, 0.003
with output.Output(Path(sys.argv[1]), IDENTITY, Strings.of(()), resume=True, journalled=True) as out:
    extents = Extents(out.unanswered, int(sys.argv[2]))
    for batch in range(extents.n_batches):
        start, stop = extents.of(batch)
        out.write(start, *answers(start, stop))
        time.sleep(0.004)
    out.finish()
    out.attest({})
"""


def test_a_run_that_is_killed_again_and_again_comes_to_the_same_bytes(tmp_path: Path, noted: None) -> None:
    run(tmp_path / "whole.h5", 60)
    path, rng, kills = tmp_path / "matches.h5", random.Random(3), 0
    journal, resumed = journal_of(path), list[int]()
    for _ in range(12):
        command = [sys.executable, "-c", KILLED, str(path), str(rng.choice((1, 2, 5)))]
        before = journal.stat().st_size if journal.exists() else 400
        with subprocess.Popen(command, cwd=Path(__file__).parent, stderr=subprocess.DEVNULL) as process:
            while process.poll() is None and kills < 5:
                if journal.exists() and journal.stat().st_size > before:
                    time.sleep(rng.uniform(0, 0.02))
                    process.kill()
                    kills += 1
                    break
                time.sleep(0.001)
        if journal.exists():
            resumed.append(JournalFile.look(journal).n_answered)
        if path.exists():
            break
    assert path.read_bytes() == (tmp_path / "whole.h5").read_bytes()
    assert resumed == sorted(resumed)
    assert len(set(resumed)) > 1
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "matches.h5",
        "matches.h5.run.json",
        "whole.h5",
        "whole.h5.run.json",
    ]


# Who asks for answers that are not there.


def test_incomplete_answers_are_called_so(tmp_path: Path, kept: None) -> None:
    path = tmp_path / "matches.h5"
    with pytest.raises(ZeroDivisionError):
        run(path, 10, until=3)
    for look in (MatchesFile.load, glance):
        with pytest.raises(IncompleteError, match=r"incomplete: 30 of 60 events are answered, in matches") as said:
            look(path)
        assert exit_code_of(said.value) == 4


def test_a_journal_at_a_glance(tmp_path: Path, kept: None) -> None:
    path = tmp_path / "matches.h5"
    with pytest.raises(ZeroDivisionError):
        run(path, 10, until=3, aside=(1,))
    found = glance(journal_of(path))
    assert (found["kind"], found["events"], found["answered"]) == ("journal", 60, 20)
    assert (found["without_answer"], found["set_aside"]) == ([[10, 20], [30, 60]], [[10, 20]])
    assert "  without answer  10 to 20, 30 to 60" in list(glance_lines(found))


# Where nothing can be written.


def test_an_output_that_is_a_directory_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(StorageError, match="taken: cannot be written: it is a directory"):
        run(tmp_path / "taken", 10)
    (tmp_path / "matches.h5.journal").mkdir()
    with pytest.raises(StorageError, match="journal: cannot be written: Is a directory"):
        run(tmp_path / "matches.h5", 10)
    with pytest.raises(StorageError, match="does not exist; create it first"):
        run(tmp_path / "nowhere" / "matches.h5", 10)


def test_a_directory_that_goes_away_ends_the_run_in_one_line(tmp_path: Path, kept: None) -> None:
    directory = tmp_path / "there"
    directory.mkdir()

    def lose() -> None:
        with Output(directory / "matches.h5", IDENTITY, Strings.of(()), resume=True, journalled=True) as output:
            output.write(0, *answers(0, 60))
            directory.rename(tmp_path / "gone")
            output.finish()

    with pytest.raises(ClusterError, match=r"matches\.h5: cannot be written: .*No such file"):
        lose()
    (tmp_path / "gone").rename(directory)
    assert JournalFile.look(journal_of(directory / "matches.h5")).n_answered == 60
    assert run(directory / "matches.h5", 10) == 60


def test_of_a_directory_that_is_removed_nobody_says_that_it_keeps_something(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "there"
    directory.mkdir()
    path = directory / "matches.h5"

    def lose() -> None:
        with Output(path, IDENTITY, Strings.of(()), resume=True, journalled=True) as output:
            output.write(0, *answers(0, 60))
            shutil.rmtree(directory)
            directory.mkdir()
            journal_of(path).write_bytes(b"another's")
            output.finish()

    with pytest.raises(ClusterError, match=r"matches\.h5: cannot be written: .*No such file") as raised:
        lose()
    assert (raised.value.exit_code, caplog.text) == (1, "")
    assert journal_of(path).read_bytes() == b"another's"


def test_a_manifest_is_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "matches.h5"
    write_manifest(path, {"state": "complete"})
    manifest_of(path).write_text(manifest_of(path).read_text()[:10])
    assert read_manifest(path) is None
    with pytest.raises(StorageError, match="cannot be written"):
        write_manifest(tmp_path / "nowhere" / "matches.h5", {})
    manifest_of(path).write_bytes(b"\xff\xfe")
    assert read_manifest(path) is None


def test_a_name_that_leaves_no_room_for_that_of_the_manifest_is_refused_before_any_work(tmp_path: Path) -> None:
    longest = os.pathconf(tmp_path, "PC_NAME_MAX")
    for length in range(longest - 40, longest + 1):
        path = tmp_path / ("x" * length)
        with (
            suppress(ClusterError, StorageError),
            Output(path, IDENTITY, Strings.of(()), resume=True, journalled=True) as output,
        ):
            output.write(0, *answers(0, 60))
            output.finish()
            output.attest({})
        room = len(temporary_of(manifest_of(path)).name) <= longest
        assert sorted(tmp_path.iterdir()) == ([path, manifest_of(path)] if room else [])
        for each in tmp_path.iterdir():
            each.unlink()


FULL = """
import resource, signal, sys
from pathlib import Path
from test_journal import IDENTITY, answers
from mpi_match.cluster import ClusterError, journal
from mpi_match.cluster.output import Output
from mpi_match.strings import Strings

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
journal.GROUP_BYTES = 0
path, limit = Path(sys.argv[1]), int(sys.argv[2])
try:
    with Output(path, IDENTITY, Strings.of(()), resume=True, journalled=True) as output:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        for start in range(output.n_answered, 60, 5):
            output.write(start, *answers(start, start + 5))
        output.finish()
except ClusterError as error:
    print(error.exit_code, error)
"""


@pytest.mark.parametrize(("limit", "full", "n_answered"), [(500, "journal", 20), (900, "journal", 55), (2000, "", 60)])
def test_a_full_disk_is_one_line_and_what_was_answered_is_kept(
    limit: int, full: str, n_answered: int, tmp_path: Path, undisturbed: bytes
) -> None:
    """By a limit on the size of files, which fails the same calls; the journal reaches it first or the file of matches."""
    path = tmp_path / "matches.h5"
    script = [sys.executable, "-c", FULL, str(path), str(limit)]
    for _ in range(2):
        done = subprocess.run(script, cwd=Path(__file__).parent, check=False, capture_output=True, text=True)
        name = f"{path}.{full}".rstrip(".")
        assert (done.returncode, done.stdout) == (0, f"4 {name}: cannot be written: File too large\n")
        assert f"{path} is incomplete: {n_answered} of 60 events are answered and kept" in done.stderr
        assert JournalFile.look(journal_of(path)).n_answered == n_answered
        assert not path.exists()
    assert run(path, 60) == n_answered
    assert path.read_bytes() == undisturbed


LONG_ANSWERS = """
from mpi_match.cluster import output
from mpi_match.storage import column
output.LONG_BYTES, column.CHUNK_BYTES = 0, 64
"""


def test_a_full_disk_keeps_long_answers_where_they_are(tmp_path: Path, noted: None, undisturbed: bytes) -> None:
    path = tmp_path / "matches.h5"
    script = [sys.executable, "-c", LONG_ANSWERS + FULL, str(path), "2200"]
    done = subprocess.run(script, cwd=Path(__file__).parent, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"4 {path}: cannot be written: File too large\n")
    n_answered = JournalFile.look(journal_of(path)).n_answered
    assert 30 < n_answered < 60
    assert f"{path} is incomplete: {n_answered} of 60 events are answered and kept" in done.stderr
    assert run(path, 7) == n_answered
    assert path.read_bytes() == undisturbed
