"""A run is killed at any moment and resumed: no answer is lost, duplicated, or reported without being there.

What a process leaves that is killed is what the output's directory holds at that moment.  So a run is watched: before each
line of the product that it comes to, its directory is looked at, and whenever that has changed, it is one more state to go
on from; and where a file has grown, so is one in which half of that was written.  A state is put into a directory, and a run
with batches of another size goes on there; which may be watched as well, for runs that die one after the other.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest
from small_outputs import answers

import mpi_match
from mpi_match.arrays.strings import Strings
from mpi_match.cli.errors import exit_code_of
from mpi_match.cluster import ClusterError
from mpi_match.cluster.batches import BatchRanges
from mpi_match.cluster.messages import Written
from mpi_match.cluster.results import journal as journal_module
from mpi_match.cluster.results import output as output_module
from mpi_match.cluster.results.output import Output
from mpi_match.cluster.results.worker_output import LocalOutput
from mpi_match.journal.manifest import read_manifest
from mpi_match.journal.reader import EventRange, RunIdentity, is_bare, journal_of
from mpi_match.matches.file import MatchesFile
from mpi_match.matches.part_index import Parts, PartWriter, parts_beside
from mpi_match.storage import Column, StorageError, parts_directory

N_EVENTS, N_IDS = 42, 300
IDENTITY = RunIdentity("filter", N_IDS, N_EVENTS, "a" * 64, "b" * 64, "")
NO_LABELS = Strings.of(())
PRODUCT = str(Path(mpi_match.__file__).parent)
COMPLETE = ["matches.h5", "matches.h5.run.json"]

Safe = Callable[[int], None]
"""Called with the number of events whose answers are synced."""
State = dict[str, bytes]
Run = Callable[[Path, int, Safe], None]


def journalled(path: Path, size: int, safe: Safe) -> None:
    """Batches of `size` events to the file and its journal, which is synced at every third."""
    with Output(path, IDENTITY, NO_LABELS, resume=True, journalled=True) as output:
        assert output._journal is not None
        extents = BatchRanges(output.unanswered, size)
        for batch in range(extents.n_batches):
            start, stop = extents.of(batch)
            output.write(start, *answers(start, stop))
            if batch % 3 == 1:
                output._journal.sync()
                safe(output.n_answered)
        output.finish()
        output.write_manifest({})


def local(path: Path, size: int, safe: Safe) -> None:
    """Batches of `size` events, written to three parts of two workers in turn."""
    with LocalOutput(path, IDENTITY, NO_LABELS, resume=True) as output, ExitStack() as stack:
        parts = {
            each: stack.enter_context(PartWriter(output.places.part(*each), IDENTITY)) for each in [(1, 0), (1, 1), (2, 0)]
        }
        extents = BatchRanges(output.unanswered, size)
        for batch in range(extents.n_batches):
            (rank, number), part = list(parts.items())[batch % len(parts)]
            events = EventRange(*extents.of(batch))
            counts, ids = answers(*events)
            part.append(events, counts, ids)
            part.sync()
            output.wrote(events, len(ids), rank, Written(number, part.end))
            safe(output.n_answered)
        output.finish()
        output.write_manifest({})


RUNS = pytest.mark.parametrize("run", [journalled, local])


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers of six events are long or not; chunks have 32 counts or ids; no sync is triggered by the clock."""
    monkeypatch.setattr(output_module, "LONG_ANSWER_BYTES", 32)
    monkeypatch.setattr(journal_module, "GROUP_BYTES", 40)
    monkeypatch.setattr(journal_module, "SYNC_S", 1000.0)
    monkeypatch.setattr("mpi_match.storage.column.CHUNK_BYTES", 64)


class Moment(NamedTuple):
    """The content of a directory at a moment, and the number of events reported as synced."""

    state: State
    n_safe: int


def state_of(directory: Path) -> State:
    """The names and bytes of all files in a directory."""
    return {str(each.relative_to(directory)): each.read_bytes() for each in sorted(directory.rglob("*")) if each.is_file()}


def put(state: State, directory: Path) -> Path:
    """Restore such a directory; returns the path of the output in it."""
    shutil.rmtree(directory, ignore_errors=True)
    for name, content in state.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    directory.mkdir(exist_ok=True)
    return directory / "matches.h5"


def moments(run: Run, path: Path, size: int, n_safe: int = 0) -> list[Moment]:
    """The distinct states of a run in order; `n_safe` events were answered before."""
    found: list[Moment] = []

    def is_safe(n: int) -> None:
        nonlocal n_safe
        n_safe = n

    def look(frame: FrameType, event: str, _: Any) -> Any:
        state = state_of(path.parent) if event == "line" else None
        if state is not None and (not found or (state, n_safe) != found[-1]):
            found.append(Moment(state, n_safe))
        return look

    before = sys.gettrace()
    sys.settrace(lambda frame, *_: look if frame.f_code.co_filename.startswith(PRODUCT) else None)
    try:
        run(path, size, is_safe)
    finally:
        sys.settrace(before)
    return found


def with_torn(found: list[Moment]) -> list[Moment]:
    """The same states, and before each growth of a file a state with half of it."""
    both = found[:1]
    for before, after in pairwise(found):
        for name, content in after.state.items():
            n_before = len(before.state.get(name, b""))
            if len(content) > n_before and content not in before.state.values():  # else it has got another name
                both.append(Moment({**before.state, name: content[: (n_before + len(content)) // 2]}, before.n_safe))
        both.append(after)
    return both


def n_kept(path: Path) -> int:
    """The number of answered events in the files of a run; checks the answers and the manifest."""
    said = read_manifest(path)
    assert said is None or said["state"] != "complete" or path.exists()
    if path.exists():
        found = MatchesFile.load(path).matches
        assert [found.counts.tolist(), found.ids.tolist()] == [each.tolist() for each in answers(0, N_EVENTS)]
        return N_EVENTS
    paths = [journal_of(path), *(parts_directory(path) / name for name in parts_beside(path))]
    kept = Parts([each for each in paths if each.exists() and not is_bare(each, IDENTITY)], IDENTITY)
    for record, part in kept.in_order:
        assert [each.tolist() for each in part.answers(record)] == [each.tolist() for each in answers(*record.events)]
    return kept.n_answered


def check_complete(path: Path) -> None:
    """The output and its manifest `complete` exist, and no other file."""
    assert n_kept(path) == N_EVENTS
    said = read_manifest(path)
    assert said is not None
    assert (said["state"], said["answered"]) == ("complete", N_EVENTS)
    left = [name for name in state_of(path.parent) if ".parts/" not in name]
    assert left == COMPLETE


@RUNS
def test_a_run_goes_on_from_any_moment_at_which_it_was_killed(run: Run, tmp_path: Path) -> None:
    whole = tmp_path / "whole" / "matches.h5"
    whole.parent.mkdir()
    found = with_torn(moments(run, whole, 6))
    assert len(found) > 60
    for state, n_safe in found:
        path = put(state, tmp_path / "again")
        assert n_kept(path) >= n_safe
        run(path, 5, lambda _: None)
        check_complete(path)
        if run is journalled:
            assert path.read_bytes() == whole.read_bytes()


@RUNS
def test_runs_that_are_killed_one_after_the_other_come_to_an_end(run: Run, tmp_path: Path) -> None:
    whole = tmp_path / "whole" / "matches.h5"
    whole.parent.mkdir()
    path = tmp_path / "again" / "matches.h5"
    for number, (first, n_safe) in enumerate(moments(run, whole, 6)[::20]):
        seconds = moments(run, put(first, path.parent), 8, n_safe)
        second = seconds[len(seconds) * (1 + number % 5) // 7]
        thirds = moments(run, put(second.state, path.parent), 1, second.n_safe)
        third = thirds[len(thirds) * (1 + number % 3) // 5]
        put(third.state, path.parent)
        assert n_kept(path) >= third.n_safe >= second.n_safe >= n_safe
        run(path, 6, lambda _: None)
        check_complete(path)
        if run is journalled:
            assert path.read_bytes() == whole.read_bytes()


class Refusals:
    """The k-th call that changes or syncs a file fails, and with `lasting` all later ones."""

    def __init__(self, k: int, reason: int, *, lasting: bool) -> None:
        self._k, self._reason, self._lasting = k, reason, lasting
        self.n_calls = 0

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Count and fail calls, until the patch is undone."""
        for name in ("pwrite", "ftruncate", "fdatasync", "fsync", "replace", "unlink", "rmdir"):
            patch.setattr(os, name, self._refusing(getattr(os, name), OSError(self._reason, os.strerror(self._reason))))
        patch.setattr(Column, "_write", self._refusing(Column._write, StorageError("a chunk: cannot be written")))

    def _refusing(self, call: Callable[..., Any], refusal: Exception) -> Callable[..., Any]:
        def called(*arguments: Any, **more: Any) -> Any:
            self.n_calls += 1
            if self.n_calls == self._k or (self._lasting and self.n_calls > self._k):
                raise refusal
            return call(*arguments, **more)

        return called


def code_of(run: Callable[[], None]) -> int | None:
    """The exit code of a run that may end with an expected error."""
    try:
        run()
    except (StorageError, ClusterError) as error:
        return exit_code_of(error)
    return 0


@RUNS
@pytest.mark.parametrize(("reason", "lasting"), [(errno.ENOSPC, False), (errno.EIO, True)])
def test_a_run_goes_on_from_any_call_that_failed(run: Run, reason: int, lasting: bool, tmp_path: Path) -> None:
    whole = tmp_path / "whole" / "matches.h5"
    whole.parent.mkdir()
    run(whole, 6, lambda _: None)
    k, done = 0, False
    while not done:
        k += 1
        path = put({}, tmp_path / "again")
        safe = [0]
        refusals = Refusals(k, reason, lasting=lasting)
        with pytest.MonkeyPatch.context() as patch:
            refusals.install(patch)
            code = code_of(partial(run, path, 6, safe.append))
        done = refusals.n_calls < k
        assert n_kept(path) >= max(safe[-1], code == 4)
        run(path, 7, lambda _: None)
        check_complete(path)
        if run is journalled:
            assert path.read_bytes() == whole.read_bytes()
    assert k > 25
