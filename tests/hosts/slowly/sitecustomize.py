"""With this directory in PYTHONPATH, the engine `counting` takes a fifth of a second longer for a batch.

A run that is to be interrupted has to last, and a machine with few cores has to have time for the interruption.
"""

import time
from typing import Any

from mpi_match.engines.counting import Counting

_match = Counting.match


def _match_slowly(*arguments: Any, **options: Any) -> Any:
    time.sleep(0.2)
    return _match(*arguments, **options)


Counting.match = _match_slowly  # type: ignore[method-assign]
