"""Functions that only compiled code calls, for tests."""

from __future__ import annotations

from typing import Any

import numba


def compiled_alone(function: Any) -> Any:
    """The same function, compiled so that Python can call it."""
    return numba.njit(function.py_func)
