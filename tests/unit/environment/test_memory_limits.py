"""Memory limits: those of the kernel, of version 1 and of version 2 of control groups, simulated in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpi_match.environment.memory import left_bytes, limit_bytes

MIB = 2**20


def machine_of(root: Path, available: int, files: dict[str, str]) -> Path:
    """A simulated /proc and /sys: available memory, and the limits of the process's cgroups."""
    written = {"proc/meminfo": f"MemTotal: 9999999 kB\nMemAvailable: {available // 1024} kB\n", **files}
    for name, text in written.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def limits(group: str, names: tuple[str, str], limit: object, used: int, cached: int = 0) -> dict[str, str]:
    stat = f"anon 5\nactive_file {cached // 4}\ninactive_file {cached - cached // 4}\n"
    return {f"{group}/{names[0]}": f"{limit}\n", f"{group}/{names[1]}": f"{used}\n", f"{group}/memory.stat": stat}


V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")
V2 = ("memory.max", "memory.current")


@pytest.mark.parametrize(
    ("cgroup", "files", "left", "limit"),
    [
        ("0::/\n", {}, 100 * MIB, 9999999 * 1024),
        ("0::/job\n", limits("sys/fs/cgroup/job", V2, 50 * MIB, 20 * MIB, 8 * MIB), 38 * MIB, 50 * MIB),
        ("0::/job\n", limits("sys/fs/cgroup/job", V2, "max", 20 * MIB), 100 * MIB, 9999999 * 1024),
        ("0::/job\n", limits("sys/fs/cgroup/job", V2, 900 * MIB, 20 * MIB), 100 * MIB, 900 * MIB),
        (
            "0::/outside/job\n",
            limits("sys/fs/cgroup", V2, 50 * MIB, 20 * MIB),
            30 * MIB,
            50 * MIB,
        ),  # in a container
        ("8:cpu:/\n4:memory:/job\n0::/\n", limits("sys/fs/cgroup/memory/job", V1, 50 * MIB, 20 * MIB), 30 * MIB, 50 * MIB),
        (  # of Slurm: a job's limit is on the group above that of the step
            "4:memory:/slurm/job_7/step_0\n",
            limits("sys/fs/cgroup/memory/slurm/job_7", V1, 50 * MIB, 20 * MIB)
            | limits("sys/fs/cgroup/memory/slurm/job_7/step_0", V1, 9223372036854771712, 10 * MIB),
            30 * MIB,
            50 * MIB,
        ),
        (
            "0::/a/b\n",
            limits("sys/fs/cgroup/a", V2, 50 * MIB, 20 * MIB) | limits("sys/fs/cgroup/a/b", V2, "max", 9 * MIB),
            30 * MIB,
            50 * MIB,
        ),
    ],
)
def test_memory_is_limited_by_kernel_and_groups(
    cgroup: str, files: dict[str, str], left: int, limit: int, tmp_path: Path
) -> None:
    machine = machine_of(tmp_path, 100 * MIB, {"proc/self/cgroup": cgroup, **files})
    assert (left_bytes(machine), limit_bytes(machine)) == (left, limit)
