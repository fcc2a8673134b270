"""Energy of a timed run: of all processors of the machine (RAPL), and of the engine's GPU (NVML).

The processors' counters are files of the kernel, which on most machines only root may read.  They count everything that the
machine does meanwhile.  A counter restarts at 0 at the end of its range.  That of a GPU moves some ten times a second: its
energy is not measured in runs shorter than `LEAST_GPU_S`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from mpi_match.gpu.energy import gpu_joules

POWERCAP = Path("/sys/class/powercap")
"""The kernel's counters of energy; a package is `intel-rapl:N`, on processors of AMD too."""
JOULES_PER_MICROJOULE = 1e-6
LEAST_GPU_S = 0.3
"""Seconds of the shortest run whose energy the counter of a GPU tells, to within a third."""
Counters = dict[Path, int]
"""Microjoules of each package."""


class Joules(NamedTuple):
    """Joules of a run; None for a part that is not measured."""

    cpu: float | None
    gpu: float | None

    @property
    def whole(self) -> float | None:
        """Joules of processors and GPU together, or of the one that is measured; None without any."""
        found = [each for each in self if each is not None]
        return sum(found) if found else None


class EnergyMeter:
    """Reads the counters when it is made and on request.  `gpu` is the UUID of a GPU, None for none."""

    def __init__(self, gpu: str | None) -> None:
        self._gpu, self._started = gpu, time.perf_counter()
        self._cpu_before, self._gpu_before = package_counters(), None if gpu is None else gpu_joules(gpu)

    def spent(self) -> Joules:
        """The joules since this object was made."""
        is_long = time.perf_counter() - self._started >= LEAST_GPU_S
        now = gpu_joules(self._gpu) if self._gpu is not None and is_long else None
        of_gpu = None if now is None or self._gpu_before is None else now - self._gpu_before
        return Joules(joules_between(self._cpu_before, package_counters()), of_gpu)


def package_counters() -> Counters:
    """The counters of all packages; empty if there are none or they may not be read."""
    found: Counters = {}
    for path in sorted(POWERCAP.glob("intel-rapl:*")):
        if path.name.count(":") == 1:  # a package; its parts have two
            try:
                found[path] = int((path / "energy_uj").read_text())
            except OSError:
                return {}
    return found


def joules_between(before: Counters, after: Counters) -> float | None:
    """The joules between two readings, each counter at most once round its range; None without counters."""
    if not before or before.keys() != after.keys():
        return None
    spent = 0
    for path, first in before.items():
        last = after[path]
        spent += last - first if last >= first else last - first + int((path / "max_energy_range_uj").read_text())
    return spent * JOULES_PER_MICROJOULE
