"""The start of every task in its Python worker.

A worker that Spark uses again collects garbage after each task.  With all modules of this package imported, and Numba's, one
collection takes 50 ms, which is more than most tasks of a small job.  Objects of modules live as long as the process, so
they are taken out of the collector's sight (`gc.freeze`): the collection then takes none.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from functools import wraps

import pyarrow as pa
from pyspark import TaskContext

Run = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function of `mapInArrow`: the batches of a partition, those of the result."""

_n_modules = 0


def freeze_modules() -> None:
    """Take what is alive out of the garbage collector's sight, if this process runs tasks and has imported modules since
    the last time.

    It happens a few times in the life of a process.  Other objects are freed as before, unless they are alive at that moment
    and later garbage in a cycle.
    """
    global _n_modules
    if TaskContext.get() is not None and len(sys.modules) > _n_modules:
        _n_modules = len(sys.modules)
        gc.freeze()


def in_task(run: Run) -> Run:
    """The function `run`, for `mapInArrow`."""

    @wraps(run)
    def begun(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_modules()
        return run(batches)

    return begun
