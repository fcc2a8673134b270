"""Atomic files: temporary names cannot be guessed, and no link redirects a write."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from mpi_match.cli.main import commands
from mpi_match.lab.bench.report import append_json
from mpi_match.storage import StorageError, WriteError, Writer, append_to, atomic_write, streamed_write, temporary_of


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file that no output may reach."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    return victim


def test_a_link_with_a_guessed_name_leads_no_output_to_its_target(tmp_path: Path, victim: Path) -> None:
    """The name once consisted of the output's name and the process number only."""
    (tmp_path / "subs.jsonl").write_text('{"interface": "desk", "constraints": [["temp", ">", 30]]}\n')
    (tmp_path / "events.jsonl").write_text('{"temp": 31}\n')
    matches, rows = tmp_path / "m.h5", tmp_path / "m.jsonl"
    for output in (matches, rows):
        output.with_name(f".{output.name}.{os.getpid()}.writing").symlink_to(victim)
    inputs = [str(tmp_path / name) for name in ("subs.jsonl", "events.jsonl")]
    for arguments in (["match", *inputs, "-o", str(matches)], ["export", str(matches), "-o", str(rows)]):
        assert CliRunner().invoke(commands, arguments).exit_code == 0
    assert victim.read_text() == "precious"
    assert rows.read_text() == '{"event": 0, "interfaces": ["desk"]}\n'


def test_a_link_in_the_place_of_a_temporary_file_is_refused(
    tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even with a known name, nothing is written through the link."""
    monkeypatch.setattr("mpi_match.storage.atomic_file.secrets.token_hex", lambda _: "0")
    path = tmp_path / "file"
    temporary_of(path).symlink_to(victim)
    with pytest.raises(WriteError, match=r"file: cannot be written: File exists"), atomic_write(path) as temporary:
        temporary.write_text("x")
    with pytest.raises(StorageError, match=r"file: cannot be written: .*exists"), Writer(path, "table") as writer:
        writer.array("a", np.arange(3))
    given = tmp_path / "given"
    given.symlink_to(victim)
    with pytest.raises(StorageError, match=r"file: cannot be written: .*exists"), Writer(path, "table", given) as writer:
        writer.array("a", np.arange(3))
    assert victim.read_text() == "precious"
    assert not path.exists()


def test_an_output_that_grows_replaces_a_link(tmp_path: Path, victim: Path) -> None:
    path = tmp_path / "rejects.jsonl"
    for place in (path.symlink_to, path.hardlink_to):
        path.unlink(missing_ok=True)
        place(victim)
        with os.fdopen(streamed_write(path), "w") as file:
            file.write("x")
        assert (path.read_text(), path.is_symlink()) == ("x", False)
    assert victim.read_text() == "precious"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["rejects.jsonl", "victim"]


def test_an_output_that_grows_may_be_a_pipe_or_an_open_file(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    link = tmp_path / "out"
    link.symlink_to(f"/proc/self/fd/{writer}")
    for path in (Path(f"/proc/self/fd/{writer}"), link, Path("/dev/null")):
        os.write(descriptor := streamed_write(path), b"x")
        os.close(descriptor)
    os.close(writer)
    assert os.read(reader, 10) == b"xx"
    os.close(reader)
    assert link.is_symlink()


def test_no_output_is_added_to_through_a_link(tmp_path: Path, victim: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.symlink_to(victim)
    with pytest.raises(WriteError, match=r"records\.jsonl: cannot be written: it is a link, which is not followed"):
        append_json(path, [{"scenario": "ccm"}])
    with pytest.raises(WriteError, match="it is a link"):
        append_to(path)
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_what_a_full_disk_says_names_the_file(number: int, tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(WriteError) as caught, atomic_write(path):
        raise OSError(number, os.strerror(number))
    assert str(caught.value) == f"{path}: cannot be written: {os.strerror(number)}"
    assert caught.value.exit_code == 1
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError), atomic_write(path):
        (tmp_path / "input").read_bytes()


def test_no_two_temporary_names_are_equal(tmp_path: Path) -> None:
    assert len({temporary_of(tmp_path / "file") for _ in range(100)}) == 100
