"""Standard streams that are closed, full, or no longer read: at most one line, an exit code, never a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mpirun import TESTS, TIMEOUT_S


def shell(command: str, workload: Path) -> subprocess.CompletedProcess[str]:
    """Run a command line by `sh` in the workload's directory; `$m` is mpi-match."""
    line = f"m='{sys.executable} -m mpi_match'; {command}"
    return subprocess.run(
        ["sh", "-c", line],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        cwd=workload,
        env={"PYTHONPATH": str(TESTS.parent), "PATH": "/usr/bin:/bin"},
    )


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("$m export matches.h5 >&-", "standard output: is closed"),
        ("$m export matches.h5 <&- >&-", "standard output: is closed"),
        ("$m inspect matches.h5 > /dev/full", "standard output: No space left on device"),
        ("$m --version >&-", "standard output: is closed"),
    ],
)
def test_a_failed_write_to_standard_output_is_one_line_and_code_1(workload: Path, command: str, said: str) -> None:
    done = shell(command, workload)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == f"mpi-match: {said}"
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_closed_pipe_prints_no_error(workload: Path) -> None:
    done = shell("{ $m export matches.h5; echo $? >&2; } | head -n 1", workload)
    assert done.stdout.startswith('{"event": 0, ')
    assert done.stderr.splitlines()[-1] in ("0", "1")  # 0: all of it was in the pipe before `head` was gone
    assert "Traceback" not in done.stderr
    assert "mpi-match:" not in done.stderr


def test_a_closed_standard_error_changes_nothing(workload: Path) -> None:
    done = shell("$m export matches.h5 -o closed.jsonl 2>&- && $m inspect matches.h5 2>&-", workload)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("matches.h5: matches, ")
    assert len((workload / "closed.jsonl").read_text().splitlines()) == 300


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_a_name_of_standard_output_is_not_replaced_by_a_file(workload: Path, name: str) -> None:
    """Also when it is a file: renaming would replace the name for all processes of the machine."""
    before = Path("/dev/stdout").readlink()
    done = shell(f"$m run --table table.h5 --events events.h5 --no-journal --engine counting -o {name} > out", workload)
    if name == "/dev/stdout":  # as `-`
        assert done.returncode == 2
        assert "answers go to standard output with --follow only; name a file" in done.stderr
    else:
        assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)
        assert f"{name}: cannot be written: it is a device or a pipe" in done.stderr
    assert Path("/dev/stdout").readlink() == before
