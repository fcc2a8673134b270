"""The rows of the README's table of results, from records of `mpi-match bench -o` (tests/test_docs.py compares them).

    python tests/bench/results_rows.py tests/bench/records/two-cores.jsonl

Prints one row for each record, then the commands that they were measured with; records of `end_to_end.py` have rows of
another form and state their own command.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

COLUMNS = "| scenario | filters | engine | device | events a second | kernels alone | index built in | commit |"


def row_of(record: dict[str, Any]) -> str:
    """One record as a row under COLUMNS."""
    device = record["device"]
    if device.startswith("cpu"):
        device = f"{device.removeprefix('cpu, ')} of {record['machine']['cpu']}"
    kernels = record.get("kernel_events_per_s")
    cells = [
        f"`{record['scenario']}`",
        f"{record['n_filters']:,}",
        f"`{record['engine']}`",
        device,
        _rate(record["events_per_s"]),
        _rate(kernels) if kernels else "",
        f"{record['build_s']:.2f} s",
        f"`{record['commit']}`",
    ]
    return f"| {' | '.join(cells)} |"


RUN_COLUMNS = "| scenario | events | workers | feed | results | events a second | commit |"


def run_row_of(record: dict[str, Any]) -> str:
    """One record of `end_to_end.py` as a row under RUN_COLUMNS; ValueError for one whose answers were not verified."""
    if not record["verified"]["verified"]:
        raise ValueError(f"the answers of {record['command']} were not right")
    rate = {key: f"{value / 1e6:.1f}" for key, value in record["events_per_s"].items()}
    spread = f"{rate['median']} M ({rate['min']} to {rate['max']})"
    how = f"{record['workers']} | {record.get('feed', 'master')} | {record.get('results', 'master')}"
    return f"| `{record['scenario']}` | {record['events']:,} | {how} | {spread} | `{record['commit']}` |"


def runs_in(path: Path) -> list[dict[str, Any]]:
    """The records of `end_to_end.py` in a file of records."""
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    return [record for record in records if record.get("what") == "end to end"]


def command_of(record: dict[str, Any]) -> str:
    """The command of a record, without the name of the file that it was written to."""
    return re.sub(r"^python -m mpi_match\b", "mpi-match", re.sub(r" (-o|--output) \S+", "", record["command"]))


def records_in(path: Path) -> list[dict[str, Any]]:
    """The results of `bench` in a file of records; other benches write there as well."""
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    return [record for record in records if "us_per_event" in record]


def _rate(events_per_s: float) -> str:
    """Three digits that count: `1.16 M`, `882 k`, `45.1`."""
    scale, unit = next((s, u) for s, u in ((1e6, " M"), (1e3, " k"), (0, "")) if events_per_s >= s)
    scale = scale or 1
    digits = 3 - len(f"{events_per_s / scale:.0f}")
    return f"{events_per_s / scale:.{max(digits, 0)}f}{unit}"


if __name__ == "__main__":
    found = [record for path in sys.argv[1:] for record in records_in(Path(path))]
    lines = [COLUMNS, *map(row_of, found), "", *(f"$ {command}" for command in dict.fromkeys(map(command_of, found)))]
    runs = [run_row_of(record) for path in sys.argv[1:] for record in runs_in(Path(path))]
    sys.stdout.write("\n".join([*lines, "", RUN_COLUMNS, *runs] if runs else lines) + "\n")
