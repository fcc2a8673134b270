"""Asks whether this machine has an NVIDIA driver, before the driver's bindings are loaded.

The bindings take a tenth of a second to load, and most machines on which an engine is chosen have no driver.
"""

from __future__ import annotations

import ctypes
import os

from mpi_match.errors import EngineError

LIBRARY = "libcuda.so.1"
"""The driver's library."""
SIMULATED: bool = os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0")
"""Tells whether kernels run as Python; Numba reads the same variable."""


def require_driver() -> None:
    """Raise EngineError, in one line, if the driver's library cannot be loaded; the simulator needs none."""
    if SIMULATED:
        return
    try:
        ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise EngineError(f"no usable GPU on this machine: {error}; use --engine keyed") from None
