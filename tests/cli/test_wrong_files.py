"""Wrong files of every kind for every command: one line that names the file, exit code 3, no file changed."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import h5py
import pytest
from command_line import mpi_match, only_line
from mpirun import TESTS, TIMEOUT_S

FILES = {
    "run --table": (["run", "--table", "?", "--events", "events.h5", "-o", "o.h5"], "table"),
    "run --changes": (["run", "--table", "table.h5", "--events", "events.h5", "--changes", "?", "-o", "o.h5"], "changes"),
    "verify --table": (["verify", "--table", "?", "--events", "events.h5", "--matches", "matches.h5"], "table"),
    "verify --matches": (["verify", "--table", "table.h5", "--events", "events.h5", "--matches", "?"], "matches"),
    "export": (["export", "?", "-o", "o.jsonl"], "matches"),
    "inspect": (["inspect", "?"], None),
    "inspect --filter": (["inspect", "?", "--filter", "0"], "table"),
}
"""Commands with a placeholder for a file, and the required kind (None: any kind of the project)."""
WRONG = {
    "missing": "no such file",
    "empty": "is not a readable HDF5 file: it does not begin as one",
    "a directory": "is not a readable HDF5 file: Is a directory",
    "rows": "rows are for `mpi-match match`, or for `mpi-match compile` first",
    "packed rows": "rows are for `mpi-match match`, or for `mpi-match compile` first",
    "text": "is not a readable HDF5 file: it does not begin as one",
    "cut": "is not a readable HDF5 file: truncated file",
    "another's": "is HDF5 but not a file of mpi-match",
}
OTHER_WORDS = {("run --changes", "a directory"): "is a directory, whose files a run with --follow takes"}

EVENTS = {
    "run --events": ["run", "--table", "table.h5", "--events", "?", "-o", "o.h5"],
    "verify --events": ["verify", "--table", "table.h5", "--events", "?", "--matches", "matches.h5"],
    "export --events": ["export", "matches.h5", "--events", "?", "-o", "o.jsonl"],
}
"""Commands that take events in any form: what is no HDF5 file are lines."""
NO_EVENTS = {
    "missing": {"": "no such file"},
    "a directory": {"": "no JSON lines, CSV, Parquet or Arrow in this directory"},
    "empty": {"run --events": "holds no event"},
    "text": {"run --events": "holds no usable event, its only row is rejected; text, line 1: not JSON"},
    "packed rows": {"": "is packed by gzip; give it a name that ends in .gz"},
    "rows": {"export --events": "holds rows: which attribute is the id? (--id)"},
    "cut": {"": "is not a readable HDF5 file: truncated file"},
    "another's": {"": "is HDF5 but not a file of mpi-match"},
}
"""What is said, by command; under no command's name what all say."""


@pytest.fixture(scope="module")
def place(workload: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a workload, and one that is wrong in each way."""
    at = tmp_path_factory.mktemp("place")
    for name in ("table.h5", "events.h5", "matches.h5"):
        (at / name).write_bytes((workload / name).read_bytes())
    (at / "empty").touch()
    (at / "a directory").mkdir()
    (at / "rows").write_text('{"temp": 31}\n')
    (at / "packed rows").write_bytes(gzip.compress(b'{"temp": 31}\n', mtime=0))
    (at / "text").write_text("hello\n")
    (at / "cut").write_bytes((workload / "table.h5").read_bytes()[:5000])
    with h5py.File(at / "another's", "w") as file:
        file["x"] = [1, 2, 3]
    return at


def state_of(directory: Path) -> dict[str, bytes | None]:
    return {item.name: item.read_bytes() if item.is_file() else None for item in directory.iterdir()}


@pytest.mark.parametrize("what", FILES)
def test_a_wrong_file_is_one_line_and_touches_nothing(place: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.chdir(place)
    before = state_of(place)
    words, kind = FILES[what]
    for wrong, said in WRONG.items():
        line = only_line(mpi_match(*(wrong if word == "?" else word for word in words), code=3))
        assert line.startswith(f"mpi-match: {wrong}: "), line
        assert OTHER_WORDS.get((what, wrong), said) in line
    for other in {"table", "events", "matches"} - {kind} if kind else ():
        line = only_line(mpi_match(*(f"{other}.h5" if word == "?" else word for word in words), code=3))
        assert line == f"mpi-match: {other}.h5: holds '{other}', expected '{kind}'; were two files exchanged?"
    assert state_of(place) == before


@pytest.mark.parametrize("what", EVENTS)
def test_events_that_are_none_are_one_line_and_touch_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.chdir(place)
    before = state_of(place)
    for wrong, said in NO_EVENTS.items():
        if (text := said.get(what, said.get(""))) is not None:
            line = only_line(mpi_match(*(wrong if word == "?" else word for word in EVENTS[what]), code=3))
            assert line.startswith(f"mpi-match: {wrong}: "), line
            assert text in line
    for other in ("table", "matches"):
        line = only_line(mpi_match(*(f"{other}.h5" if word == "?" else word for word in EVENTS[what]), code=3))
        assert line == f"mpi-match: {other}.h5: holds '{other}', expected 'events'; were two files exchanged?"
    assert state_of(place) == before


def test_answers_to_other_events_are_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    line = only_line(mpi_match(*("rows" if word == "?" else word for word in EVENTS["verify --events"]), code=3))
    assert "was made with another file of events than rows (or other --location, --id)" in line
    words = ("export", "matches.h5", "--events", "rows", "--id", "id", "-o", "o.jsonl")
    assert "events, rows holds 1" in only_line(mpi_match(*words, code=3))
    run = ("run", "--table", "table.h5", "--events", "events.h5", "-o", "o.h5")
    assert "leave out --location, --id" in only_line(mpi_match(*run, "--id", "id", code=3))
    assert "--rejects and --strict are for files of rows" in only_line(mpi_match(*run, "--strict", code=2))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("missing", None, "missing: No such file or directory"),
        ("r.jsonl", "", "r.jsonl: holds no run's report"),
        ("r.jsonl", '{"temp": 31}\n', "r.jsonl, line 1: not a line of a run's report"),
        ("r.jsonl", '{"what": "tick"}\n', "r.jsonl, line 1: not the first line of a run's report"),
        ("r.jsonl", '{"what": "run", "format_version": 99}\n', "r.jsonl, line 1: format version 99, expected 1"),
    ],
)
def test_a_file_that_is_no_report_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, said: str
) -> None:
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / name).write_text(text)
    assert only_line(mpi_match("plot", name, code=3)) == f"mpi-match: {said}"
    assert not (tmp_path / "r.png").exists()


def test_missing_permissions_are_one_line_before_any_work(workload: Path, tmp_path: Path) -> None:
    """In a process without root's capabilities, also where root runs the tests."""
    for name in ("table.h5", "events.jsonl"):
        (tmp_path / name).write_bytes((workload / name).read_bytes())
        (tmp_path / name).chmod(0o000)
    (tmp_path / "closed").mkdir(mode=0o555)
    run = f"run --table {workload}/table.h5 --events {workload}/events.h5 --engine counting"
    said = {
        "inspect table.h5": "table.h5: Permission denied",
        "export table.h5 -o o.jsonl": "table.h5: is not a readable HDF5 file: Permission denied",
        f"match {workload}/subscriptions.jsonl events.jsonl -o o.h5": "events.jsonl: Permission denied",
        f"{run} -o closed/o.h5": "closed/o.h5: cannot be written: Permission denied",
        f"{run} -o o.h5 --report closed/r.jsonl": "closed/r.jsonl: cannot be written: Permission denied",
        f"{run} -o o.h5 --metrics closed/m.prom": "closed/m.prom: cannot be written: Permission denied",
        f"export {workload}/matches.h5 -o closed/o.jsonl": "closed/o.jsonl: cannot be written: Permission denied",
        "bench ccm -o closed/b.jsonl": "closed/b.jsonl: cannot be written: Permission denied",
        "generate ccm --filters 10 --events 5 -o closed/w": "closed/w: cannot be written: Permission denied",
    }
    script = "\n".join(f"{sys.executable} -m mpi_match {command}; echo $?" for command in said)
    ordinary = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
    words = [*ordinary, "sh", "-c", script]
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    assert done.stderr.splitlines() == [f"mpi-match: {line}" for line in said.values()]
    assert done.stdout.split() == ["3"] * len(said)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["closed", "events.jsonl", "table.h5"]
