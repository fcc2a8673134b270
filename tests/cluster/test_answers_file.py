"""Long answers are written once, and the journal has references to them."""

from __future__ import annotations

import errno
import os
import random
import struct
import subprocess
import sys
import time
import zlib
from contextlib import suppress
from pathlib import Path

import pytest
from mpirun import TESTS
from small_outputs import IDENTITY, N_EVENTS, answers, kept_in, run

from mpi_match.arrays.strings import Strings
from mpi_match.cluster import ClusterError
from mpi_match.cluster.results import journal as journal_module
from mpi_match.cluster.results.output import Output
from mpi_match.journal.reader import JournalFile, Kind, journal_of
from mpi_match.storage import StorageError


def test_references_have_the_bytes_of_the_format_page(tmp_path: Path, referenced: None) -> None:
    """Decoded here by the specification in docs/format.md alone."""
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


def test_answers_are_referenced_once_each_time_with_what_was_added(tmp_path: Path, referenced: None) -> None:
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


def test_answers_before_the_damage_of_a_file_are_used(tmp_path: Path, referenced: None) -> None:
    """Also when the file is truncated or missing: then its answers were not synced, and are matched again."""
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


def test_an_unreadable_file_is_not_treated_as_missing(tmp_path: Path, referenced: None) -> None:
    path, file = tmp_path / "matches.h5", tmp_path / "matches.h5.journal.1"
    with pytest.raises(ZeroDivisionError):
        run(path, 10, until=3)
    kept, content = journal_of(path).read_bytes(), file.read_bytes()
    file.unlink()
    file.mkdir()
    with pytest.raises(StorageError, match=r"journal\.1: is not a file, but a directory, a device or a pipe"):
        run(path, 10)
    file.rmdir()
    file.write_bytes(content)
    assert journal_of(path).read_bytes() == kept
    assert run(path, 10) == 30


@pytest.mark.parametrize("until", ["the next answers", "the end"])
def test_a_failed_sync_ends_the_run(
    until: str, tmp_path: Path, referenced: None, undisturbed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system reports a failed sync once, and the data may be lost; the file would look complete later."""
    path, real = tmp_path / "matches.h5", os.fdatasync

    def fail_once(descriptor: int) -> None:
        monkeypatch.setattr(os, "fdatasync", real)
        raise OSError(errno.EIO, "Input/output error")

    def end() -> None:
        with Output(path, IDENTITY, Strings.of(()), resume=True, journalled=True) as output:
            output.write(0, *answers(0, 30))
            if until == "the end":
                output.write(30, *answers(30, 60))
            monkeypatch.setattr(os, "fdatasync", fail_once)
            output._journal._thread.join()  # type: ignore[union-attr]
            if until != "the end":
                output.write(30, *answers(30, 60))
                pytest.fail("no error was raised")
            output.finish()

    monkeypatch.setattr(journal_module, "SYNC_S", 0.05)
    with pytest.raises(ClusterError, match=r"cannot be written: .*Input/output error") as caught:
        end()
    assert caught.value.exit_code == 4
    assert not path.exists()
    run(path, 60)
    assert path.read_bytes() == undisturbed


def test_a_run_that_was_killed_when_the_file_was_in_its_place_is_complete(tmp_path: Path, referenced: None) -> None:
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
from small_outputs import IDENTITY, answers, kept_in
from mpi_match.storage import column
from mpi_match.cluster.results import journal, output
from mpi_match.cluster.batches import BatchRanges
from mpi_match.arrays.strings import Strings

column.CHUNK_BYTES, output.LONG_ANSWER_BYTES, journal.SYNC_S = 64, 0, 0.003
with output.Output(Path(sys.argv[1]), IDENTITY, Strings.of(()), resume=True, journalled=True) as out:
    extents = BatchRanges(out.unanswered, int(sys.argv[2]))
    for batch in range(extents.n_batches):
        start, stop = extents.of(batch)
        out.write(start, *answers(start, stop))
        time.sleep(0.004)
    out.finish()
    out.write_manifest({})
"""


def test_a_run_that_is_killed_again_and_again_comes_to_the_same_bytes(tmp_path: Path, referenced: None) -> None:
    run(tmp_path / "whole.h5", 60)
    path, rng, kills = tmp_path / "matches.h5", random.Random(3), 0
    journal, resumed = journal_of(path), list[int]()
    for _ in range(12):
        command = [sys.executable, "-c", KILLED, str(path), str(rng.choice((1, 2, 5)))]
        before = journal.stat().st_size if journal.exists() else 400
        with subprocess.Popen(command, cwd=TESTS / "support", stderr=subprocess.DEVNULL) as process:
            while process.poll() is None and kills < 5:
                if journal.exists() and journal.stat().st_size > before:
                    time.sleep(rng.uniform(0, 0.02))
                    process.kill()
                    kills += 1
                    break
                time.sleep(0.001)
        if path.exists():  # the journal goes after the answers are in their place: a part of it may be left
            break
        resumed.append(JournalFile.look(journal).n_answered)
    assert path.read_bytes() == (tmp_path / "whole.h5").read_bytes()
    assert resumed == sorted(resumed)
    assert len(set(resumed)) > 1
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "matches.h5",
        "matches.h5.run.json",
        "whole.h5",
        "whole.h5.run.json",
    ]
