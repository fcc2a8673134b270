"""With this directory in PYTHONPATH, the engine `counting` takes a fifth of a second longer for a batch.

A run that is interrupted has to last, and a machine with few cores needs time for it.  A directory named `hold`
in PYTHONPATH makes it certain: while it exists, each worker waits before its 11th batch.
"""

import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

from mpi_match.engines.counting import Counting

HELD_FROM, HELD_S = 10, 100.0
"""The number of batches that a worker answers before it waits, and the longest time that it waits."""

_match = Counting.match
_batches = count()
_hold = next((path for path in map(Path, sys.path) if path.name == "hold"), None)


def _match_slowly(*arguments: Any, **options: Any) -> Any:
    time.sleep(0.2)
    end = time.monotonic() + HELD_S
    if next(_batches) >= HELD_FROM and _hold is not None:
        while _hold.is_dir() and time.monotonic() < end:
            time.sleep(0.1)
    return _match(*arguments, **options)


Counting.match = _match_slowly  # type: ignore[method-assign]
