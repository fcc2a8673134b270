"""The machine, the versions, the commit and the command of a measurement, so that it can be repeated."""

from __future__ import annotations

import csv
import importlib.metadata
import os
import platform
import re
import resource
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from mpi_match.model import Json

_HERE = Path(__file__).resolve()


def machine() -> Json:
    """`cpu` (model), `memory_gib`, and what this process may use: `cores`, and `gpus`, with name and driver of each."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30, 1),
        "gpus": _gpus(),
    }


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that affect speed; those not installed are left out."""
    found = {"python": platform.python_version()}
    for package in ("mpi-match", "numpy", "numba", "numba-cuda", "h5py", "mpi4py"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def commit() -> str | None:
    """The commit that this package was run from, with "-dirty" if tracked files differ from it; None outside a checkout.

    MPI_MATCH_COMMIT names the commit of files that were copied from a checkout.
    """
    if given := os.environ.get("MPI_MATCH_COMMIT"):
        return given
    tracked = _output("git", "-C", str(_HERE.parent), "ls-files", "--error-unmatch", _HERE.name)
    revision = _output("git", "-C", str(_HERE.parent), "rev-parse", "--short=12", "HEAD") if tracked else None
    if not revision:
        return None
    changed = _output("git", "-C", str(_HERE.parent), "status", "--porcelain", "--untracked-files=no")
    return f"{revision.strip()}-dirty" if changed and changed.strip() else revision.strip()


_SECRET_NAME = r"[\w-]*(?:password|passwd|pwd|token|secret|credential|api[_-]?key|access[_-]?key)[\w-]*"
_SECRET = re.compile(rf"({_SECRET_NAME}\s*[=:\s]\s*)[^\s,;&]+", re.IGNORECASE)
_SECRET_OPTION = re.compile(rf"-{_SECRET_NAME}", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"(://[^/\s:@]*:)[^/\s@]+(?=@)")
_LEFT_OUT = "***"


def command() -> str:
    """The command line of this process, without directories of this machine in front, and without secrets.

    It omits the word after a name like `password`, `token` or `api-key`, and the password of a URL.
    """
    program = Path(sys.argv[0])
    name = f"python -m {program.parent.name}" if program.name == "__main__.py" else program.name
    words = [_PASSWORD_IN_URL.sub(rf"\1{_LEFT_OUT}", _SECRET.sub(rf"\1{_LEFT_OUT}", word)) for word in sys.argv[1:]]
    for i, (before, word) in enumerate(pairwise(words), 1):
        if _SECRET_OPTION.fullmatch(before) and not word.startswith("-"):
            words[i] = _LEFT_OUT
    return " ".join([name, *map(shlex.quote, words)])


def origin() -> Json:
    """The origin of a measurement, for its record: `machine`, `versions`, `commit`, `command`, and the `date` in UTC."""
    date = datetime.now(UTC).isoformat(timespec="seconds")
    return {"machine": machine(), "versions": versions(), "commit": commit(), "command": command(), "date": date}


def counted(names: Iterable[str]) -> list[str]:
    """Each distinct name, with its count if that is above one."""
    return [f"{count} x {name}" if count > 1 else name for name, count in Counter(names).items()]


def place_of(record: Mapping[str, Any]) -> str:
    """The `machine`, `commit` and `date` of a record in words."""
    cards = counted(f"{gpu['name']} (driver {gpu['driver']})" for gpu in record["machine"]["gpus"])
    place = ", ".join([f"{record['machine']['cpu']}, {record['machine']['cores']} cores", *cards])
    return f"{place}; commit {record['commit'] or 'unknown'}; {record['date']}"


def resident_bytes() -> int:
    """Resident memory of this process in bytes, including shared pages; 0 on other systems than Linux."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_bytes() -> int:
    """The most resident memory that this process had so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()


def _gpus() -> list[dict[str, str]]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and not visible.strip():
        return []
    chosen = [] if visible is None else [f"--id={visible}"]
    listed = _output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", *chosen)
    rows = csv.reader((listed or "").splitlines(), skipinitialspace=True)
    return [{"name": row[0], "driver": row[1]} for row in rows if len(row) == 2]


def _output(*command: str) -> str | None:
    """Standard output of a command; None when it is missing, fails, or takes too long."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
