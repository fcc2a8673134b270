"""Event tables that are altered while a run reads them: answers that may be to other events do not count."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from altering import overwrite, overwriting, truncate
from click.testing import CliRunner
from lasting import lasting
from mpirun import execute, launch, needs_mpirun, said
from run_inputs import KEPT, leftovers, plain_events

from mpi_match.cli.main import commands
from mpi_match.cli.terminal import Progress
from mpi_match.cluster import FEEDS, RunOptions, run
from mpi_match.events import schema
from mpi_match.events.event_table import event_counts, save_events
from mpi_match.ingest.rows.judge import subscription_filters
from mpi_match.matches.file import MatchesFile
from mpi_match.matches.matches import Matches
from mpi_match.storage import FileChanged, FilePart, StorageError, parts_directory, write_index
from mpi_match.table.table import Table

N_EVENTS, BATCH = 3000, 100
"""All events are in one block, whose checksum is verified with the first batch."""
TABLE = Table.from_filters(
    [each for n in range(7) for each in subscription_filters({"interface": f"i{n}", "constraints": [["n3", "=", n]]})]
)


def save(path: Path, first: int, kind: str = "events") -> str:
    """Events that match all filters in turn, from filter `first` on; the size of the file does not depend on it."""
    return save_events(plain_events(N_EVENTS + first)[first:], path, TABLE.vocabulary, kind)


@pytest.fixture
def options(tmp_path: Path) -> RunOptions:
    """Options of a run; beside its events are `other.h5`, as many other events, and `old.h5`, the same events."""
    TABLE.save(tmp_path / "table.h5")
    for name, first in (("events", 0), ("old", 0), ("other", 1)):
        save(tmp_path / f"{name}.h5", first)
    table, events, output = (tmp_path / f"{name}.h5" for name in ("table", "events", "matches"))
    return RunOptions(table, events, output, engine="counting", batch=BATCH)


def answers(options: RunOptions, name: str = "undisturbed") -> Matches:
    """The answers of an uninterrupted run."""
    output = options.output.with_name(f"{name}.h5")
    run(replace(options, output=output, progress=None, resume=False))
    return MatchesFile.load(output).matches


def touch(path: Path, other: Path) -> None:
    path.touch()


ALTERATIONS: dict[str, Callable[[Path, Path], object]] = {
    "overwritten in place": overwrite,
    "replaced": lambda path, other: other.replace(path),
    "removed": lambda path, other: path.unlink(),
    "touched": touch,
    "truncated": truncate,
}


@pytest.mark.parametrize("how", ALTERATIONS)
def test_a_run_of_one_process_is_incomplete(how: str, options: RunOptions, tmp_path: Path) -> None:
    right = answers(options)
    done: list[int] = []

    def progress(n_answered: int, n_events: int) -> None:
        if not done:
            ALTERATIONS[how](options.events, tmp_path / "other.h5")
            done.append(n_answered)

    with pytest.raises(FileChanged, match=r"events\.h5: changed while it was read") as caught:
        run(replace(options, progress=progress))
    assert caught.value.exit_code == 4
    assert leftovers(options.output) == KEPT
    # What was answered before counts.
    if not options.events.exists():
        shutil.copy(tmp_path / "old.h5", options.events)
    overwrite(options.events, tmp_path / "old.h5")
    summary = run(replace(options, resume=True))
    assert summary is not None
    assert summary.resumed == done[0]
    assert MatchesFile.load(options.output).matches == right


def test_a_process_that_reads_a_truncated_table_is_not_killed(options: RunOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own, since a mapped page that is gone ends it by SIGBUS."""
    monkeypatch.setattr(schema, "BLOCK_EVENTS", 64)
    save(options.events, 0)
    script = (
        "import os, sys; from mpi_match.events import schema; from mpi_match.events.event_table import EventTable\n"
        "from mpi_match.table.table import Table; schema.BLOCK_EVENTS = 64\n"
        "with EventTable(sys.argv[2], Table.load(sys.argv[1]).vocabulary) as events:\n"
        "    whole = events.batch(0, 100); first = [each.copy() for each in whole.columns]\n"
        "    os.truncate(sys.argv[2], 100)\n"
        "    assert all((a == b).all() for a, b in zip(first, whole.columns, strict=True))\n"
        "    try: events.batch(0, 3000)\n"
        "    except Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, options.table, options.events], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"FileChanged {options.events}: changed while it was read; ")


def test_a_run_whose_last_batch_is_altered_is_incomplete(options: RunOptions, tmp_path: Path) -> None:
    """No file is read or written after that."""

    def progress(n_answered: int, n_events: int) -> None:
        if n_answered == n_events:
            touch(options.events, options.events)

    with pytest.raises(FileChanged):
        run(replace(options, progress=progress))
    assert not options.output.exists()


def test_the_parts_of_an_index_are_checked(options: RunOptions, tmp_path: Path) -> None:
    index, directory = tmp_path / "index.h5", parts_directory(tmp_path / "index.h5")
    directory.mkdir()
    parts = [FilePart(f"p{k}.h5", N_EVENTS, save(directory / f"p{k}.h5", k, "events-part")) for k in range(2)]
    write_index(index, "events", parts, event_counts(2 * N_EVENTS, TABLE.vocabulary))
    empty = tmp_path / "empty.h5"
    empty.touch()
    for n, other in enumerate((empty, directory / "p0.h5")):
        save(directory / "p1.h5", 1, "events-part")
        progress = overwriting(directory / "p1.h5", other)
        with pytest.raises(FileChanged, match=r"p1\.h5: changed while it was read"):
            run(replace(options, events=index, output=tmp_path / f"{n}.h5", progress=progress))


def test_damage_is_distinguished_from_alteration(options: RunOptions, tmp_path: Path) -> None:
    """A file that was damaged before it was opened is bad input."""
    content = bytearray(options.events.read_bytes())
    content[-50] ^= 1
    options.events.write_bytes(content)
    with pytest.raises(StorageError, match="damaged") as caught:
        run(options)
    assert not isinstance(caught.value, FileChanged)


HOW = (("shared", "master", "empty.h5"), ("file", "local", "other.h5"))
"""The master reads the events, or each worker; the file is overwritten in place by another, or truncated."""


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize(
    ("feed", "results", "other"),
    [*HOW, *lasting(*(how for how in product(FEEDS, ("local", "master"), ("other.h5", "empty.h5")) if how not in HOW))],
)
def test_a_run_of_several_ranks_is_incomplete(
    feed: str, results: str, other: str, options: RunOptions, tmp_path: Path
) -> None:
    (tmp_path / "empty.h5").touch()
    right = answers(options)
    files = (options.table, options.events, options.output, "engine=counting", f"batch={BATCH}")
    how = (f"feed={feed}", f"results={results}")
    done = execute(launch(3, *files, *how, f"overwritten_by={tmp_path / other}"))
    assert done.returncode == 4, done.stderr
    assert said(done).count("events.h5: changed while it was read") == 1
    assert not options.output.exists()
    overwrite(options.events, tmp_path / "old.h5")
    done = execute(launch(3, *files, *how, "resume=1"))
    assert done.returncode == 0, done.stderr
    assert MatchesFile.load(options.output).matches == right


def test_the_command_reports_an_altered_table_in_one_line(
    options: RunOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overwrites = overwriting(options.events, tmp_path / "other.h5")
    monkeypatch.setattr(Progress, "__call__", lambda self, n_answered, n_events: overwrites(n_answered, n_events))
    files = ("--table", options.table, "--events", options.events, "-o", options.output)
    done = CliRunner().invoke(commands, ["run", *map(str, files), "--engine", "counting", "--batch", str(BATCH)])
    assert done.exit_code == 4
    assert done.stderr.splitlines()[-1].startswith(f"mpi-match: {options.events}: changed while it was read; ")
