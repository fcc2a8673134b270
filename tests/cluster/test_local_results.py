"""Answers that workers write themselves: they read as one file, and a run is resumed from them."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import pytest
from lasting import lasting
from mpirun import DRIVER, FLAGS, MPIRUN, execute, launch, needs_mpirun, said
from run_inputs import Inputs

from mpi_match.commands.export import export
from mpi_match.commands.inspect import inspect_file
from mpi_match.journal.reader import RunIdentity
from mpi_match.matches.file import MatchesFile, MatchesWriter
from mpi_match.matches.part_index import Parts
from mpi_match.storage import parts_directory
from mpi_match.verify.verify import VerifiedFiles, verify


def rewritten(output: Path, path: Path) -> bytes:
    """The answers of an output, rewritten as one file of the master."""
    found = MatchesFile.load(output)
    stated = {key: found.attributes[key] for key in ("table_digest", "events_digest")}
    with MatchesWriter(path, found.matches.n_ids, found.labels, found.attributes["unit"], **stated) as writer:
        writer.append(found.matches)
    return path.read_bytes()


def ranks_in(directory: Path) -> list[str]:
    """The ranks with parts in the directory; none if it does not exist."""
    names = [path.stem for path in directory.iterdir()] if directory.exists() else []
    assert len({name.split("-")[0] for name in names}) <= 1  # parts of one run
    return sorted({name.split("-")[2] for name in names})


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize(
    ("ranks", "options", "writers"),
    [
        (1, "batch=100", []),
        (3, "batch=17 feed=shared schedule=static", ["1", "2"]),
        *lasting((2, "batch=1 feed=file", ["1"]), (4, "batch=17 schedule=static", ["1", "2", "3"])),
    ],
)
def test_answers_that_workers_write_read_as_one_file(
    ranks: int, options: str, writers: list[str], inputs: Inputs, expected: bytes, tmp_path: Path
) -> None:
    output = tmp_path / "matches.h5"
    files = (inputs.table, inputs.events, output, "engine=counting", "results=local", *options.split())
    done = execute(launch(ranks, *files))
    assert done.returncode == 0, done.stderr
    assert said(done) == ""
    assert rewritten(output, tmp_path / "whole.h5") == expected
    assert json.loads(done.stdout)["matches"] == MatchesFile.load(output).matches.n_matches
    directory = parts_directory(output)
    assert ranks_in(directory) == writers
    assert verify(VerifiedFiles(inputs.table, inputs.events, output)).difference is None
    assert export(output, tmp_path / "m.jsonl") == export(tmp_path / "whole.h5", tmp_path / "whole.jsonl")
    assert (tmp_path / "m.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert inspect_file(output, 300)["first"] == inspect_file(tmp_path / "whole.h5", 300)["first"]
    again = execute(launch(ranks, *files))
    assert again.returncode == 0, again.stderr
    assert rewritten(output, tmp_path / "again.h5") == expected
    assert ranks_in(directory) == writers


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


def _identity(content: bytes, directory: Path) -> RunIdentity:
    (directory / "expected.h5").write_bytes(content)
    attributes = MatchesFile.load(directory / "expected.h5").attributes
    return RunIdentity(**{field.name: attributes.get(field.name, "") for field in dataclasses.fields(RunIdentity)})


@pytest.mark.mpi
@needs_mpirun
def test_parts_that_the_master_does_not_see_are_refused(inputs: Inputs, tmp_path: Path) -> None:
    """One path that is another directory on each rank, as it may be on several hosts."""
    hosts = [tmp_path / "master", tmp_path / "worker"]
    for host in hosts:
        parts_directory(host / "matches.h5").mkdir(parents=True)
    files = (inputs.table, inputs.events, "/proc/self/cwd/matches.h5", "engine=counting", "results=local")
    rank = [sys.executable, "-m", "mpi4py", DRIVER, *files]
    master, worker = (["-n", 1, "--wdir", host, *rank] for host in hosts)
    done = execute([str(each) for each in (MPIRUN, *FLAGS, *master, ":", *worker)])
    assert done.returncode == 1
    assert "the part of rank 1 is not visible on the master's host" in said(done)
    assert len(said(done).splitlines()) == 1
