"""Memory of this process as the kernel and control groups limit it: containers, Slurm's `--mem`, systemd.

The limit may be on the process's own group or on any group above it, in version 1 and version 2 of control groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")
_V2 = ("memory.max", "memory.current")
_ROOT = Path("/")


def limit_bytes(root: Path = _ROOT) -> int:
    """Bytes that the processes of this job may have in all: the machine's memory, or the least limit of its groups."""
    limits = [limit for group, names in _groups(root) if (limit := _number(group / names[0])) is not None]
    return min([_meminfo(root, "MemTotal"), *limits])


def left_bytes(root: Path = _ROOT) -> int:
    """Bytes that this process may still allocate: MemAvailable of the kernel, or the rest of its groups' limits, if less.

    The page cache counts as available.
    """
    left = [rest for group, names in _groups(root) if (rest := _left_of(group, *names)) is not None]
    return min([_meminfo(root, "MemAvailable"), *left])


def _meminfo(root: Path, name: str) -> int:
    lines = (root / "proc/meminfo").read_text().splitlines()
    (found,) = (1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
    return found


def _groups(root: Path) -> Iterator[tuple[Path, tuple[str, str]]]:
    """The directories of the process's memory groups and of those above them, with the names of limit and usage.

    In a container the process's own group may be mounted as the root.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            base = root / "sys/fs/cgroup" / controllers
            names = _V1 if controllers else _V2
            group = base / path.lstrip("/")
            for each in dict.fromkeys((group, *group.parents)):
                if each.is_relative_to(base):
                    yield each, names


def _left_of(group: Path, limit_name: str, used_name: str) -> int | None:
    """The rest of a group's limit; None where it has no limit or is not visible."""
    limit, used = _number(group / limit_name), _number(group / used_name)
    if limit is None or used is None:
        return None
    try:
        words = [line.split() for line in (group / "memory.stat").read_text().splitlines()]
    except OSError:
        return None
    return limit - used + sum(int(n) for name, n in words if name in ("active_file", "inactive_file"))


def _number(file: Path) -> int | None:
    """The number in a file; None where there is none ("max"), or no such file."""
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
