"""A run that cannot write its output reports it in one line, and keeps its answers so far."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from mpirun import TESTS
from small_outputs import IDENTITY, answers, run

from mpi_match.arrays.strings import Strings
from mpi_match.cluster import ClusterError
from mpi_match.cluster.results.output import Output
from mpi_match.journal.manifest import manifest_of, read_manifest, write_manifest
from mpi_match.journal.reader import JournalFile, journal_of
from mpi_match.storage import StorageError, temporary_of


def test_an_output_that_is_a_directory_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(StorageError, match="taken: cannot be written: it is a directory"):
        run(tmp_path / "taken", 10)
    (tmp_path / "matches.h5.journal").mkdir()
    with pytest.raises(StorageError, match="journal: cannot be written: Is a directory"):
        run(tmp_path / "matches.h5", 10)
    with pytest.raises(StorageError, match="does not exist; create it first"):
        run(tmp_path / "nowhere" / "matches.h5", 10)


def test_a_removed_directory_ends_the_run_in_one_line(tmp_path: Path, kept: None) -> None:
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


def test_a_removed_directory_is_not_reported_to_keep_answers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
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


def test_a_manifest_is_written_atomically(tmp_path: Path) -> None:
    path = tmp_path / "matches.h5"
    write_manifest(path, {"state": "complete"})
    manifest_of(path).write_text(manifest_of(path).read_text()[:10])
    assert read_manifest(path) is None
    with pytest.raises(StorageError, match="cannot be written"):
        write_manifest(tmp_path / "nowhere" / "matches.h5", {})
    manifest_of(path).write_bytes(b"\xff\xfe")
    assert read_manifest(path) is None


def test_an_output_name_too_long_for_its_manifest_is_refused_before_any_work(tmp_path: Path) -> None:
    longest = os.pathconf(tmp_path, "PC_NAME_MAX")
    for length in range(longest - 40, longest + 1):
        path = tmp_path / ("x" * length)
        with (
            suppress(ClusterError, StorageError),
            Output(path, IDENTITY, Strings.of(()), resume=True, journalled=True) as output,
        ):
            output.write(0, *answers(0, 60))
            output.finish()
            output.write_manifest({})
        room = len(temporary_of(manifest_of(path)).name) <= longest
        assert sorted(tmp_path.iterdir()) == ([path, manifest_of(path)] if room else [])
        for each in tmp_path.iterdir():
            each.unlink()


FULL = """
import resource, signal, sys
from pathlib import Path
from small_outputs import IDENTITY, answers
from mpi_match.cluster import ClusterError
from mpi_match.cluster.results import journal
from mpi_match.cluster.results.output import Output
from mpi_match.arrays.strings import Strings

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
def test_a_full_disk_is_one_line_and_keeps_the_answers_so_far(
    limit: int, full: str, n_answered: int, tmp_path: Path, undisturbed: bytes
) -> None:
    """Simulated by a limit on the size of files, which the journal or the file of matches reaches first."""
    path = tmp_path / "matches.h5"
    script = [sys.executable, "-c", FULL, str(path), str(limit)]
    for _ in range(2):
        done = subprocess.run(script, cwd=TESTS / "support", check=False, capture_output=True, text=True)
        name = f"{path}.{full}".rstrip(".")
        assert (done.returncode, done.stdout) == (0, f"4 {name}: cannot be written: File too large\n")
        assert f"{path} is incomplete: {n_answered} of 60 events are answered and kept" in done.stderr
        assert JournalFile.look(journal_of(path)).n_answered == n_answered
        assert not path.exists()
    assert run(path, 60) == n_answered
    assert path.read_bytes() == undisturbed


LONG_ANSWERS = """
from mpi_match.cluster.results import output
from mpi_match.storage import column
output.LONG_ANSWER_BYTES, column.CHUNK_BYTES = 0, 64
"""


def test_a_full_disk_keeps_referenced_answers(tmp_path: Path, referenced: None, undisturbed: bytes) -> None:
    path = tmp_path / "matches.h5"
    script = [sys.executable, "-c", LONG_ANSWERS + FULL, str(path), "2200"]
    done = subprocess.run(script, cwd=TESTS / "support", check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"4 {path}: cannot be written: File too large\n")
    n_answered = JournalFile.look(journal_of(path)).n_answered
    assert 30 < n_answered < 60
    assert f"{path} is incomplete: {n_answered} of 60 events are answered and kept" in done.stderr
    assert run(path, 7) == n_answered
    assert path.read_bytes() == undisturbed
