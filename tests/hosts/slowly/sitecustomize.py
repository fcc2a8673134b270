"""With this directory in PYTHONPATH, the engine `counting` takes a fifth of a second longer for a batch.

A run that is interrupted has to last, and a machine with few cores needs time for the interruption.  A directory with the name
`hold` in PYTHONPATH makes it certain: while it exists, each worker waits before its 11th batch.
"""

import os
import sys
import time
from itertools import count
from typing import Any

from mpi_match.engines.counting import Counting

HELD_FROM, HELD_S = 10, 100.0
"""The number of batches that a worker answers before it waits, and the longest time that it waits."""

_match = Counting.match
_batches = count()
_hold = next((path for path in sys.path if os.path.basename(path) == "hold"), None)


def _match_slowly(*arguments: Any, **options: Any) -> Any:
    time.sleep(0.2)
    end = time.monotonic() + HELD_S
    if next(_batches) >= HELD_FROM and _hold is not None:
        while os.path.isdir(_hold) and time.monotonic() < end:
            time.sleep(0.1)
    return _match(*arguments, **options)


Counting.match = _match_slowly  # type: ignore[method-assign]
