"""How much memory this process may still take.

Linux does not refuse memory that is not there: it gives it, and kills a process when it is used.  Who takes much has to ask
before.
"""

from __future__ import annotations

from pathlib import Path


def left_bytes(root: Path = Path("/")) -> int:
    """Bytes that this process may still take: what the kernel says is available, or what its cgroup leaves, if that is less.

    Files that are only cached count as available.
    """
    lines = (root / "proc/meminfo").read_text().splitlines()
    (available,) = (1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    found = [available]
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            base = root / "sys/fs/cgroup" / controllers
            names = _V1 if controllers else _V2
            # In a container the process's own cgroup may be what it sees as the topmost.
            left = [_left_of(group, *names) for group in (base / path.lstrip("/"), base)]
            found += [n_bytes for n_bytes in left if n_bytes is not None][:1]
    return min(found)


_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")
_V2 = ("memory.max", "memory.current")


def _left_of(group: Path, limit_name: str, used_name: str) -> int | None:
    """What a cgroup leaves; None where it sets no limit or is not to be seen."""
    try:
        limit, used = ((group / name).read_text().strip() for name in (limit_name, used_name))
        words = [line.split() for line in (group / "memory.stat").read_text().splitlines()]
    except OSError:
        return None
    if limit == "max":
        return None
    return int(limit) - int(used) + sum(int(n) for name, n in words if name in ("active_file", "inactive_file"))
