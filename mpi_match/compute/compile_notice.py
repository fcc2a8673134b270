"""Who is told that code is being compiled: the command line sets `show`, and whoever sets nothing finds it in the log.

Does not load Numba.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

FunctionsDone = Callable[[], int]
"""How many functions have been compiled so far."""
Show = Callable[[FunctionsDone, int], AbstractContextManager[object]]

show: Show | None = None
"""`with show(done, total)` around compiling about `total` functions."""
