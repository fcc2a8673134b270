"""Common mistakes: each is refused in one line before any work is done, and no file is replaced."""

from __future__ import annotations

import gzip
import json
import os
import stat
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from mpi_match import api, model
from mpi_match.cli.main import commands
from mpi_match.ingest.rows import judge
from mpi_match.storage import StorageError, atomic_write, check_output

SUBSCRIPTION, EVENT = '{"interface": "desk", "constraints": [["temp", ">", 30]]}\n', '{"temp": 31}\n'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory, which is the current one, with a file of each kind that commands read, a directory and a pipe."""
    monkeypatch.chdir(tmp_path)
    Path("subs.jsonl").write_text(SUBSCRIPTION)
    Path("events.jsonl").write_text(EVENT)
    Path("directory").mkdir()
    os.mkfifo("pipe")
    table = api.make_table([json.loads(SUBSCRIPTION)])
    table.save("table.h5")
    mpi_match("match", "subs.jsonl", "events.jsonl", "-o", "matches.h5", "--engine", "reference")
    return tmp_path


def mpi_match(*arguments: str) -> Result:
    return CliRunner().invoke(commands, arguments)


def state_of(directory: Path) -> dict[str, bytes | None]:
    """The content of each file by name; None for other entries."""
    return {item.name: item.read_bytes() if item.is_file() else None for item in directory.iterdir()}


RUN = ["run", "--table", "table.h5", "--events", "events.jsonl", "-o"]
MATCH = ["match", "subs.jsonl", "events.jsonl", "--engine", "reference", "-o"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([*MATCH, "directory"], 3, "directory: cannot be written: it is a directory"),
        (
            ["run", "--table", "table.h5", "--events", "events.jsonl", "-o", "pipe"],
            3,
            "pipe: cannot be written: it is a device",
        ),
        ([*MATCH, "pipe.csv"], 3, "pipe.csv: cannot be written: it is a device or a pipe"),
        ([*MATCH, "no/m.h5"], 3, "no/m.h5: the directory no does not exist"),
        ([*MATCH, "subs.jsonl/m.h5"], 3, "the directory subs.jsonl is not a directory"),
        ([*MATCH, "subs.jsonl"], 3, "subs.jsonl: is an input and would be overwritten"),
        ([*MATCH, "m", "--rejects", "m"], 3, "m: is another output of this command too"),
        ([*MATCH, "m.jsonl", "--rejects", "m.jsonl"], 3, "m.jsonl: is another output of this command too"),
        ([*MATCH, ""], 2, "the name is empty"),
        (["match", "table.h5", "events.jsonl", "-o", "m.h5"], 3, "table.h5: is an HDF5 file, not JSON lines"),
        (["match", "subs.jsonl", "packed.jsonl.gz", *MATCH[3:], "m.h5"], 3, "packed.jsonl.gz: is not a whole gzip file"),
        (["match", "subs.jsonl", "cut.jsonl.gz", *MATCH[3:], "m.h5"], 3, "cut.jsonl.gz: is not a whole gzip file"),
        (["export", "matches.h5", "-o", "directory.jsonl"], 3, "directory.jsonl: cannot be written: it is a directory"),
        (["export", "matches.h5", "-o", "pipe.csv"], 3, "pipe.csv: cannot be written: it is a device or a pipe"),
        (["export", "matches.h5", "-o", "no/m.jsonl"], 3, "no/m.jsonl: the directory no does not exist"),
        (["export", ""], 2, "the name is empty"),
        (["inspect", ""], 2, "the name is empty"),
        (["inspect", "half.h5"], 3, "half.h5: is not a readable HDF5 file: truncated file"),
        (["inspect", "directory"], 3, "directory: is not a readable HDF5 file: Is a directory"),
        (["generate", "ccm", "-o", "subs.jsonl"], 3, "subs.jsonl: not a directory"),
        (["generate", "ccm", "-o", "w", "--filters", "4294967296"], 2, "4294967296 is not in the range"),
        (["bench", "ccm", "-o", "no/r.jsonl"], 3, "no/r.jsonl: the directory no does not exist"),
        (["bench", "ccm", "--plot", "figure.xyz"], 2, "'figure.xyz' does not end in .png, .svg or .pdf"),
        (["plot", "subs.jsonl", "-o", "figure"], 2, "'figure' does not end in .png, .svg or .pdf"),
    ],
)
def test_it_is_refused_and_nothing_is_touched(here: Path, arguments: list[str], code: int, said: str) -> None:
    Path("half.h5").write_bytes(Path("table.h5").read_bytes()[:5000])
    Path("directory.jsonl").mkdir()
    os.mkfifo("pipe.csv")
    Path("packed.jsonl.gz").write_text(EVENT)
    Path("cut.jsonl.gz").write_bytes(gzip.compress(EVENT.encode() * 1000)[:40])
    before = state_of(here)
    result = mpi_match(*arguments)
    assert (result.exit_code, type(result.exception)) == (code, SystemExit), result.output
    assert said in result.stderr.splitlines()[-1]
    assert code == 2 or len(result.stderr.splitlines()) == 1
    assert state_of(here) == before
    assert stat.S_ISFIFO(Path("pipe").stat().st_mode)


def test_too_little_memory_is_one_line(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_much(*_: object) -> None:
        raise MemoryError("Unable to allocate 3.00 TiB for an array")

    monkeypatch.setattr("mpi_match.commands.inspect.inspect_file", too_much)
    result = mpi_match("inspect", "table.h5")
    assert result.exit_code == 1
    assert result.stderr == "mpi-match: there is not enough memory: Unable to allocate 3.00 TiB for an array\n"


def test_an_output_is_no_name_of_an_input(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("x")
    os.link(tmp_path / "in", tmp_path / "hard")
    (tmp_path / "soft").symlink_to("in")
    for name in ("in", "hard", "soft", "./in"):
        with pytest.raises(StorageError, match="is an input and would be overwritten"):
            check_output(tmp_path / name, [tmp_path / "in"])
    check_output(tmp_path / "out", [tmp_path / "in", tmp_path / "missing"])
    check_output(Path("/dev/null"), streamed=True)


def test_a_file_is_replaced_atomically(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(IsADirectoryError), atomic_write(path) as temporary:
        assert temporary.write_text("half") == tmp_path.write_text("no file")
    assert path.read_text() == "old"
    with atomic_write(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_integers_of_thousands_of_digits_are_bad_values() -> None:
    line = '{"interface": 1, "constraints": [["a", "=", ' + "9" * 5000 + "]]}"
    with pytest.raises(model.ModelError, match="an integer of thousands of digits"):
        judge.subscription_filters(judge.parse_json(line))
    with pytest.raises(model.ModelError, match="not between -2\\^63 and"):
        model.value_of(10**5000)


@pytest.mark.parametrize("raw", [Fraction(1, 3), Fraction(2**54 + 1, 2), np.longdouble("4.1")], ids=str)
def test_no_number_is_rounded(raw: object) -> None:
    with pytest.raises(model.ModelError, match="that has no exact double is not rounded"):
        model.value_of(raw)
    table = api.make_table([model.make_filter("i", [["a", "exists"]])])
    with pytest.raises(model.ModelError, match=r"^event 1: attribute 'a': .*that has no exact double is not rounded"):
        api.make_batch(table, {"a": np.array([1, raw], np.longdouble if isinstance(raw, np.longdouble) else object)})


@pytest.mark.parametrize(
    "raw", [Fraction(9, 2), np.float32(4.5), np.longdouble(4.5), np.longdouble("nan"), np.float16("inf")]
)
def test_values_that_are_doubles_are_accepted(raw: np.floating | Fraction) -> None:
    type_, value = model.value_of(raw)
    assert (type_, type(value)) == (model.Type.NUMBER, float)
    assert value == raw or value != value
    wide = np.array([raw, None, 1], object) if isinstance(raw, Fraction) else np.array([raw, 1])
    assert api.make_events({"a": wide}).number[0] == raw or value != value


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([{1: 2}], "event 0: a name must be a string, found int 1"),
        ([{1: {"a": 2}}], "event 0: a name must be a string, found int 1"),
        ([{"a": {1: 2}}], "event 0: a name must be a string, found int 1"),
        ({"a": 3}, "column 'a': needs an array or a list of values, found int; one event is a list of one row"),
        ({"a": None}, "column 'a': needs an array or a list of values, found NoneType; one event is a list of one row"),
    ],
)
def test_events_of_wrong_types_are_refused(events: object, said: str) -> None:
    with pytest.raises(model.ModelError) as caught:
        api.make_events(events)  # type: ignore[arg-type]
    assert str(caught.value) == said
