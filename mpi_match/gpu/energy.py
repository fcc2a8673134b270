"""Reads the energy that a GPU has used, as the driver counts it (NVML)."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

JOULES_PER_MILLIJOULE = 1e-3


def gpu_joules(uuid: str) -> float | None:
    """Joules that a GPU has used since its driver was loaded; None if the driver does not count them."""
    nvml = _nvml()
    if nvml is None:
        return None
    try:
        return float(nvml.device_get_total_energy_consumption(nvml.device_get_handle_by_uuid(uuid))) * JOULES_PER_MILLIJOULE
    except Exception:  # each error of NVML is a class of its own: the GPU is too old, or counts for no one but root
        return None


@cache
def _nvml() -> Any:
    """The library of the driver, initialised, or None without one.  The package comes with that for GPUs."""
    try:
        nvml = import_module("cuda.bindings.nvml")
        nvml.init_v2()
    except Exception:
        return None
    return nvml
