"""Events and memory that workers do not have from the master's messages: what is tried without MPI."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mpi_match.batch import EventBatch
from mpi_match.cluster.host_memory import left_bytes

MIB = 2**20


def machine_of(root: Path, available: int, files: dict[str, str]) -> Path:
    """A pretended /proc and /sys: memory that the kernel has, the process's cgroups and what they say."""
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
    ("cgroup", "files", "left"),
    [
        ("0::/\n", {}, 100 * MIB),
        ("0::/job\n", limits("sys/fs/cgroup/job", V2, 50 * MIB, 20 * MIB, 8 * MIB), 38 * MIB),
        ("0::/job\n", limits("sys/fs/cgroup/job", V2, "max", 20 * MIB), 100 * MIB),
        ("0::/job\n", limits("sys/fs/cgroup/job", V2, 900 * MIB, 20 * MIB), 100 * MIB),
        ("0::/outside/job\n", limits("sys/fs/cgroup", V2, 50 * MIB, 20 * MIB), 30 * MIB),  # seen from within a container
        ("8:cpu:/\n4:memory:/job\n0::/\n", limits("sys/fs/cgroup/memory/job", V1, 50 * MIB, 20 * MIB), 30 * MIB),
    ],
)
def test_what_may_still_be_taken_is_what_kernel_and_cgroup_leave(
    cgroup: str, files: dict[str, str], left: int, tmp_path: Path
) -> None:
    assert left_bytes(machine_of(tmp_path, 100 * MIB, {"proc/self/cgroup": cgroup, **files})) == left


def test_a_wire_form_says_how_wide_events_are_if_that_was_known() -> None:
    batch = EventBatch(np.array([7, 9, 9, 12], np.uint32), np.arange(5, dtype=np.uint32), None, 1)
    assert "widest" not in vars(EventBatch.from_wire(batch.to_wire()))
    assert batch.widest == 3
    told = EventBatch.from_wire(batch.to_wire())
    assert vars(told)["widest"] == 3
    assert told[:2].widest == 2  # of these two events, not of the batch
