"""The records of the harnesses that break runs: what was done, when, with which commit, command, machine and MPI.

`worker_kills`, `master_kills`, `host_kills` and `what_survives` write them; `results.py` makes the pages.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS.parent), str(TESTS), str(TESTS / "support")]

from mpirun import MPIRUN

from mpi_match.environment.machine import command, commit, machine

Record = dict[str, Any]


def mpi_version() -> str:
    """The first line of the launcher's description of itself that has a number."""
    said = subprocess.run([str(MPIRUN), "--version"], capture_output=True, text=True, check=True).stdout
    return next(line.strip() for line in said.splitlines() if any(map(str.isdigit, line)))


def record(what: str, began: float, **found: Any) -> Record:
    """What was done since `began` (on the monotonic clock), and what came of it."""
    return {
        "what": what,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "command": command(),
        "machine": machine(),
        "mpi": mpi_version(),
        "minutes": round((time.monotonic() - began) / 60, 1),
        **found,
    }


def write(found: Record, path: Path | None) -> None:
    """Print a record as a line, and append it to a file."""
    line = json.dumps(found) + "\n"
    sys.stdout.write(line)
    if path is not None:
        with path.open("a", encoding="utf-8") as records:
            records.write(line)
