"""Untrusted files: each is refused in one line, or is valid by the format page and means the same to all readers."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import h5py
import hostile_datasets
import hostile_run
import numpy as np
import pytest
from click.testing import CliRunner, Result
from hostile_files import Originals

from mpi_match.cli.main import commands

MUTANTS = int(os.environ.get("HOSTILE_MUTANTS", "100"))
"""Number of mutants; with more than 2,500, each one is read in all ways, otherwise one in ten."""


@pytest.mark.parametrize("mutants", [MUTANTS, pytest.param(10 * MUTANTS, marks=pytest.mark.lasting)])
def test_mutants_are_refused_or_are_what_the_format_page_says(mutants: int) -> None:
    """Structure, values and storage changed at random, checksums made good again (`hostile_datasets`, `hostile_journals`).

    No traceback, no hang, no crash, nothing accepted against the page or refused that is valid, no two readers that differ.
    """
    faults: list[dict[str, object]] = []
    counts = hostile_run.summary(hostile_run.outcomes(0, mutants, every=1 if mutants > 2500 else 10), faults.append)
    assert not faults, faults[:5]
    assert counts["refused"] + counts["read"] == mutants
    assert counts["refused"] > mutants / 2
    assert counts["read"] > mutants / 10


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with valid files."""
    directory = tmp_path_factory.mktemp("originals")
    Originals(directory)
    return directory


@pytest.fixture
def here(originals: Path, tmp_path: Path) -> Path:
    """A copy of these files for changes."""
    return Path(shutil.copytree(originals, tmp_path / "here"))


def mpi_match(*arguments: str | Path) -> Result:
    return CliRunner().invoke(commands, list(map(str, arguments)))


def refused(path: Path, *arguments: str | Path) -> str:
    """The last line of a command that was given an invalid file."""
    result = mpi_match(*(arguments or ("inspect", path)))
    assert (result.exit_code, type(result.exception)) == (3, SystemExit), result.output
    assert len(result.stderr.splitlines()) == 1
    assert path.name in result.stderr
    return result.stderr


def test_the_originals_are_valid(originals: Path) -> None:
    for path in (*sorted(originals.glob("*.h5")), originals / "run.h5.journal"):
        assert mpi_match("inspect", path).exit_code == 0, path


def link_elsewhere(file: h5py.File, name: str) -> None:
    with h5py.File(Path(file.filename).with_name("elsewhere.h5"), "w") as there:
        file.copy(name, there, "x")
    del file[name]
    file[name] = h5py.ExternalLink("elsewhere.h5", "/x")


def link_to_a_pipe(file: h5py.File, name: str) -> None:
    os.mkfifo(Path(file.filename).with_name("pipe.h5"))
    del file[name]
    file[name] = h5py.ExternalLink("pipe.h5", "/x")


def lie_in_another_file(file: h5py.File, name: str) -> None:
    values, raw = file[name][()], Path(file.filename).with_name("raw")
    raw.write_bytes(values.tobytes())
    del file[name]
    external = [(str(raw), 0, h5py.h5f.UNLIMITED)]
    file.create_dataset(name, values.shape, values.dtype, external=external).attrs.create("crc32", np.uint32(0))


def be_another_name(file: h5py.File, name: str) -> None:
    del file[name]
    file[name] = file["filters/size"]


def declare_too_much(file: h5py.File, name: str) -> None:
    del file[name]
    file.create_dataset(name, (10**9,), "u4", chunks=(2**18,)).attrs.create("crc32", np.uint32(0))


def never_write(file: h5py.File, name: str) -> None:
    shape = file[name].shape
    del file[name]
    file.create_dataset(name, shape, "u4", chunks=(4,)).attrs.create("crc32", np.uint32(0))


def compress(file: h5py.File, name: str) -> None:
    hostile_datasets.store(file, name, file[name][()], compression="gzip")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (link_elsewhere, "is a link to another file"),
        (link_to_a_pipe, "is a link to another file"),
        (lie_in_another_file, "lies in other files"),
        (be_another_name, "is another name of an object that has one"),
        (declare_too_much, "has chunks of 1,048,576 bytes, the file has"),
        (never_write, "has chunks that were never written"),
        (compress, "has a filter that is not fletcher32"),
    ],
)
def test_what_a_digest_does_not_cover_is_refused_before_it_is_read(here: Path, change: object, said: str) -> None:
    """A link to a pipe hung `inspect`; 14 KB that declared 10^9 rows took 7.3 GB."""
    path = here / "table.h5"
    with h5py.File(path, "r+") as file:
        change(file, "constraints/lo")  # type: ignore[operator]
    hostile_datasets.fix_digest(path)
    assert said in refused(path)


@pytest.mark.parametrize("name", ["../stolen.h5", "/dev/stdin", "..", "p0.h5/"])
def test_a_part_is_a_file_in_the_directory_of_its_index(here: Path, name: str) -> None:
    path = here / "parted.h5"
    shutil.copy(here / "parted.h5.parts" / "p0.h5", here / "stolen.h5")
    with h5py.File(path, "r+") as file:
        hostile_datasets.store(file, "parts/name", np.array([name.encode(), b"p1.h5", b"p2.h5"]))
    hostile_datasets.fix_digest(path)
    assert "which is not the name of a file" in refused(path)


@pytest.mark.parametrize(
    "name", ["table.h5", "parted.h5.parts/p0.h5", "run.h5.journal", "answers.h5.parts/1-rank-1.answers"]
)
def test_a_pipe_in_the_place_of_a_file_is_refused(here: Path, name: str) -> None:
    (here / name).unlink()
    os.mkfifo(here / name)
    asked = here / name.split(".parts")[0]
    arguments: list[str | Path] = ["inspect", asked]
    if name.endswith("journal"):
        arguments = ["run", "--table", here / "table.h5", "--events", here / "events.h5", "-o", here / "run.h5", "--resume"]
    result = mpi_match(*arguments)
    assert result.exit_code == 3, result.output
    assert "pipe" in result.stderr or "is missing" in result.stderr


def edit_events(path: Path, **changes: object) -> None:
    """Change encoded columns, and the checksums of their only block."""
    with h5py.File(path) as file:
        arrays = hostile_datasets.Arrays({name: file[name][()] for name in hostile_datasets.datasets_in(file)}, {}, None)  # type: ignore[arg-type]
    for name, change in changes.items():
        arrays[f"encoded/{name}"] = change(arrays[f"encoded/{name}"])  # type: ignore[operator]
    arrays.fix_block_checksums()
    with h5py.File(path, "r+") as file:
        for name in arrays.changed:
            hostile_datasets.store(file, name, arrays[name])
    hostile_datasets.fix_digest(path)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"attributes": lambda a: a | np.uint32(0xFFFF0000)}, id="names"),
        pytest.param({"attributes": lambda a: a | np.uint32(0xFFFF)}, id="codes"),
        pytest.param({"attributes": lambda a: a[::-1].copy()}, id="order"),
        pytest.param({"offsets": lambda o: o[::-1].copy()}, id="offsets"),
    ],
)
@pytest.mark.parametrize("compared", [2**16, 0])
def test_encoded_events_that_engines_would_fall_over_are_refused(
    here: Path, changes: dict[str, object], compared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Codes and names out of range kept `keyed` in a native loop.  Also where they are beyond the events that are encoded
    again.
    """
    monkeypatch.setattr("mpi_match.events.event_table.COMPARED_EVENTS", compared)
    path = here / "events.h5"
    edit_events(path, **changes)
    said = refused(path, "run", "--table", here / "table.h5", "--events", path, "-o", here / "out.h5", "--engine", "keyed")
    assert "have offsets or names that do not ascend, or codes that their names do not have" in said
    assert not (here / "out.h5").exists()


def test_encoded_events_that_say_something_else_than_the_raw_ones_are_refused(here: Path) -> None:
    """Everything that engines assume holds, and the checksums are right; but the events are not those published."""
    path = here / "events.h5"
    edit_events(path, attributes=lambda a: np.where(a & 0xFFFF == 5, a - 1, a).astype(np.uint32))
    said = refused(path, "run", "--table", here / "table.h5", "--events", path, "-o", here / "out.h5")
    assert "the encoded columns say something else than the raw ones; compile the events again" in said


@pytest.mark.parametrize("name", ["names/data", "interfaces/data", "atoms/data", "filters/id_data", "strings/data"])
def test_what_is_no_text_is_refused(here: Path, name: str) -> None:
    path = here / "table.h5"
    with h5py.File(path, "r+") as file:
        data = file[name][()]
        data[0 if name == "names/data" else -1] = 0xFF  # the last names are those of `any OP`, which are bytes
        hostile_datasets.store(file, name, data)
    hostile_datasets.fix_digest(path)
    assert "not UTF-8" in refused(path) or "not sorted" in refused(path)
