"""What runs have survived: the records of those who break them, and the rows that the README makes of these.

    python tests/bench/survival.py tests/bench/records/two-cores-survival.jsonl

`worker_kills`, `master_kills`, `host_kills` and `what_survives` write records of one form: what was done, when, with which
commit, command, machine and MPI, and what came of it.  This prints the README's two tables (tests/test_docs.py compares
them): what happened at random moments, a row for each record; and what a run survives under which launcher, a row for each
record of `what_survives` and each set of flags, with the loss of a host from the records of `host_kills`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS.parent), str(TESTS), str(TESTS / "support")]

from mpirun import MPIRUN

from mpi_match.environment.machine import command, commit, machine

Record = dict[str, Any]


def mpi_version() -> str:
    """The first line of what the launcher says of itself that has a number."""
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


# Rows

COLUMNS = "| what happened, at random moments | how often | what came of it | commit |"
LAUNCHER_COLUMNS = "| launcher | worker killed | worker stopped for good | master killed | host lost | commit |"
STAYS = ", mpirun stays"
"""What `what_survives` says behind an outcome when the launcher had not ended in time."""
KINDS = ("workers killed", "masters killed", "hosts killed", "what survives")


def row_of(found: Record) -> str:
    """A record of kills as a row under COLUMNS."""
    match found["what"]:
        case "workers killed":
            least, most = found["workers"]
            of = (
                ""
                if found.get("placement", "replicate") == "replicate"
                else f" of a run with `--placement {found['placement']}`"
            )
            happened = f"SIGKILL to 1 to W − 1 of W workers, {least} to {most},{of} and SIGSTOP to another for up to 5 s"
            often = f"{found['kills']}, and {found['stops']} stops, in {_many(found['runs'], 'run')}"
            noticed = f"noticed after {found['noticed_ms']['p50']:.0f} ms in the middle"
            counts = (f"{found[what]} {what}" for what in ("lost", "doubled", "wrong"))
            ended = f"{_many(found['hangs'], 'hang')}, {_many(len(found['failed']), 'failure')}"
            came = f"of the events {', '.join(counts)}; {ended}; {noticed}"
        case "masters killed":
            of = f"the master of a run of {found['ranks']} ranks" if found["ranks"] > 1 else "a run of one process"
            happened = f"SIGKILL to {of}, then `--resume`"
            often = f"{found['kills']} in {_many(found['runs'], 'run')}"
            came = _same_bytes(found)
        case "hosts killed":
            happened = f"a power cut to one of {found['hosts']} hosts after the other, under `supervise`"
            often = f"{found['kills']} in {_many(found['runs'], 'run')}"
            came = _same_bytes(found)
        case other:
            raise ValueError(f"no record of kills: {other}")
    return f"| {happened} ({version_of(found)}) | {often} | {came} | `{found['commit']}` |"


def _same_bytes(found: Record) -> str:
    right = "the bytes" if found["right"] else "NOT the bytes"
    return f"{_many(found['runs'], 'time')} {right} of an undisturbed run; {_many(found['hangs'], 'hang')}"


def _many(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def version_of(found: Record) -> str:
    """Name and number of a record's MPI, as the README says it."""
    number = re.search(r"\d+(\.\d+)+", found["mpi"])
    name = "Open MPI" if "Open MPI" in found["mpi"] else "MPICH"
    return f"{name} {number[0] if number else found['mpi']}"


def launcher_rows(records: Iterable[Record]) -> Iterator[str]:
    """The rows under LAUNCHER_COLUMNS."""
    records = list(records)
    for found in (each for each in records if each["what"] == "what survives"):
        for flags in dict.fromkeys(each["flags"] for each in found["outcomes"]):
            launcher = f"with `{flags}`" if flags else version_of(found)
            cells = [cell_of(each["outcomes"]) for each in found["outcomes"] if each["flags"] == flags]
            hosts = [
                outcome
                for each in records
                if each["what"] == "hosts killed" and version_of(each) == version_of(found) and each["flags"] == flags
                for outcome in each["outcomes"]
            ]
            yield f"| {' | '.join([launcher, *cells, cell_of(hosts)])} | `{found['commit']}` |"


def cell_of(outcomes: Sequence[str]) -> str:
    """What came of one blow, several times; where it was not always the same, how often.  ¹: the launcher stayed."""
    counted = Counter(outcome.replace(STAYS, "¹") for outcome in outcomes).most_common() or [("not tried", 0)]
    return counted[0][0] if len(counted) == 1 else ", ".join(f"{n} × {outcome}" for outcome, n in counted)


def records_in(path: Path) -> list[Record]:
    """The records of these harnesses in a file; other benches may write there as well."""
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    return [each for each in records if each.get("what") in KINDS]


if __name__ == "__main__":
    there = [each for path in sys.argv[1:] for each in records_in(Path(path))]
    kills = [row_of(each) for each in there if each["what"] != "what survives"]
    sys.stdout.write("\n".join([COLUMNS, *kills, "", LAUNCHER_COLUMNS, *launcher_rows(there)]) + "\n")
