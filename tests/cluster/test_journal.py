"""The journal: complete records are used, events of others are matched again, and answers of other inputs never mix."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import signal
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_outputs import IDENTITY, N_EVENTS, answers, kept_in

from mpi_match.arrays.strings import Strings
from mpi_match.cluster import ClusterError
from mpi_match.cluster.batches import BatchRanges
from mpi_match.cluster.results import journal as journal_module
from mpi_match.cluster.results.journal import Journal
from mpi_match.cluster.results.output import Output
from mpi_match.journal.reader import EventRange, JournalFile, RunIdentity, gaps, head_bytes
from mpi_match.storage import FileChanged, StorageError


def write(path: Path, stretches: list[tuple[int, int]], *, resume: bool = False, identity: RunIdentity = IDENTITY) -> None:
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
    """Decoded here by the specification in docs/format.md alone."""
    write(path, [(0, 5)])
    with Journal(path, IDENTITY, resume=True) as journal:
        journal.set_aside(EventRange(5, 9))
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


def test_records_after_a_changed_bit_are_not_used(path: Path, ungrouped: None) -> None:
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
    """A file system may leave zeros after a power loss."""
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


def test_an_interrupted_write_is_overwritten(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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

        monkeypatch.setattr(os, "pwrite", interrupted)
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
        monkeypatch.setattr(os, "pwrite", full)
    monkeypatch.undo()
    assert journal.n_answered == JournalFile.look(path).n_answered == 5


def test_a_run_that_has_kept_nothing_is_not_called_incomplete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def fail() -> None:
        with Output(tmp_path / "matches.h5", IDENTITY, Strings.of(()), resume=True, journalled=True) as output:
            monkeypatch.setattr(os, "pwrite", full)
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


def test_a_journal_with_answers_is_not_removed_without_resume(path: Path) -> None:
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


def test_waiting_for_a_lock_does_not_give_a_removed_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other run would see that it is locked."""
    first = Journal(path, IDENTITY, resume=False)
    first.__enter__()
    real, n_tries = fcntl.flock, 0

    def flock(*arguments: int) -> None:
        nonlocal n_tries
        n_tries += 1
        if n_tries == 2:  # the file is open, and the first one comes to its end
            first.remove()
            first.__exit__(None, None, None)
        real(*arguments)

    monkeypatch.setattr(fcntl, "flock", flock)
    with Journal(path, IDENTITY, resume=True) as journal:
        journal.append(0, *answers(0, 5))
        with pytest.raises(StorageError, match="another run is writing this output"):
            write(path, [])
    assert len(kept_in(path)) == 1


def test_a_file_that_ends_within_its_head_is_treated_as_empty(path: Path) -> None:
    write(path, [(0, 5)])
    whole = path.read_bytes()
    for length in range(len(head_bytes(IDENTITY)) + 1):
        path.write_bytes(whole[:length])
        write(path, [(0, 5)])
        assert path.read_bytes() == whole


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"another file with the name of a journal", "is not a journal of mpi-match"),
        (b"mpi-match journal\n" + struct.pack("<III", 2, 2, 0) + b"{}", "journal version found 2, expected 1"),
        (b"mpi-match journal\n" + struct.pack("<III", 1, 2, 0) + b"{}", "its head is damaged"),
        (b"mpi-match journal\n" + struct.pack("<I", 1) + bytes(500), "its head is damaged"),
    ],
)
def test_another_file_is_not_overwritten_by_a_journal(content: bytes, words: str, path: Path) -> None:
    path.write_bytes(content)
    with pytest.raises(StorageError, match=words):
        write(path, [(0, 5)], resume=True)
    assert path.read_bytes() == content


# Batches of what is left.


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=6), st.integers(1, 12))
def test_batches_cover_the_unanswered_events_in_order(lengths: list[tuple[int, int]], size: int) -> None:
    stretches, at = [], 0
    for apart, n_events in lengths:
        stretches.append(EventRange(at + apart + 1, at + apart + 1 + n_events))
        at = stretches[-1].stop
    extents = BatchRanges(stretches, size)
    found = [extents.of(batch) for batch in range(extents.n_batches)]
    assert [event for start, stop in found for event in range(start, stop)] == [
        event for each in stretches for event in range(each.start, each.stop)
    ]
    assert all(0 < stop - start <= size for start, stop in found)
    assert len(found) == sum(-(-each.n_events // size) for each in stretches)


def test_a_file_system_without_locks_is_reported(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As NFS without lockd."""

    def flock(*_: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    write(path, [(0, 5)])
    assert caplog.messages == [
        f"{path}: cannot be locked (No locks available); make sure that no other run writes this output"
    ]
    assert JournalFile.look(path).n_answered == 5


def test_a_journal_that_its_writer_cuts_off_while_it_is_read(path: Path, ungrouped: None) -> None:
    """A mapped page behind the new end would end the process; what is gone is torn, or has changed."""
    write(path, [(0, 5), (5, 20)])
    found = JournalFile.look(path)
    os.truncate(path, found.records[1].at)
    assert len(found.answers(found.records[0])[0]) == 5
    with pytest.raises(FileChanged, match="was truncated while it was read"):
        found.answers(found.records[1])
    assert JournalFile.look(path).n_answered == 5
