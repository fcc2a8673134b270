"""The hook that reports compilation: the command line sets `show`; if it is not set, compilation is only logged.

Does not load Numba.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

FunctionsDone = Callable[[], int]
"""Returns the number of functions compiled so far."""
Show = Callable[[FunctionsDone, int], AbstractContextManager[object]]

show: Show | None = None
"""Context manager, `show(done, total)`, that is entered while about `total` functions are compiled; None: none."""
