"""What the scripts here share: a command whose output is one JSON object, and a record that is printed and kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from mpi_match.environment.machine import origin
from mpi_match.lab.bench.report import append_json, json_line

PYTHON = [sys.executable, "-m"]


def last_json(words: list[str]) -> dict[str, Any]:
    """Run a command in the project's root; one line of its output is an object."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    return found


def keep(record: dict[str, Any], output: Path | None) -> None:
    """Print a record, with its origin, and add it to a file of records."""
    record = {**record, **origin()}
    sys.stdout.write(json_line(record) + "\n")
    if output:
        append_json(output, [record])
