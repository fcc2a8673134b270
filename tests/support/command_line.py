"""How tests call commands, in this process and in one of its own, and what a command said."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import IO

from click.testing import CliRunner, Result
from mpirun import TESTS, TIMEOUT_S

from mpi_match.cli.main import commands

N_FILTERS, N_EVENTS = 2_000, 300
SUBSCRIPTIONS = [
    {"interface": "hot", "constraints": [["temp", ">", 30]]},
    {"interface": "near", "constraints": [], "area": [0, 0, 5]},
    {"interface": "broken", "constraints": [["temp", ">", None]]},
]


def mpi_match(*arguments: object, code: int = 0) -> Result:
    """Run a command in this process; its result, once its exit code is as expected."""
    result = CliRunner().invoke(commands, [str(a) for a in arguments])
    assert result.exit_code == code, (result.exit_code, result.stderr, result.exception)
    return result


def in_a_process(*command: object, stdin: IO[bytes] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, which finds this tree also when it is not installed."""
    words = [str(word) for word in command]
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
    return subprocess.run(words, stdin=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=True, env=environment)


def only_line(result: Result) -> str:
    """The one line that a command said on standard error."""
    assert "Traceback" not in result.stderr
    (line,) = result.stderr.splitlines()
    return line


def run_in(directory: Path, output: str, *flags: object, code: int = 0) -> Result:
    files = ["--table", directory / "table.h5", "--events", directory / "events.h5", "-o", directory / output]
    return mpi_match("run", *files, "--engine", "counting", *flags, code=code)


def verify_in(directory: Path, *flags: object, matches: str = "matches.h5", code: int = 0) -> Result:
    files = ["--table", directory / "table.h5", "--events", directory / "events.h5", "--matches", directory / matches]
    return mpi_match("verify", *files, *flags, code=code)
