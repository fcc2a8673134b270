"""A rank of `tests/test_cluster.py`: calls `cluster.run` as the command line does, with engines made for the test.

    python -m mpi4py cluster_driver.py TABLE EVENTS OUTPUT key=value ...

Prints one JSON line on rank 0; an expected error is one line on standard error, and its exit code.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np

from mpi_match import engines
from mpi_match.arrays import offsets_of
from mpi_match.batch import EventBatch
from mpi_match.cluster import ClusterError, RunOptions, run
from mpi_match.engines import EngineError
from mpi_match.matches import Matches, id_dtype
from mpi_match.storage import StorageError
from mpi_match.table import Table


class Null:
    """Answers every event with as many ids as it has attributes, at once: what is left is the way there and back."""

    name = "null"
    device = "nothing"
    nbytes = 0

    def __init__(self, table: Table, device: int | None = None, threads: int | None = None) -> None:
        self._n_ids = table.n_interfaces

    def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        n = batch.n_events // 2
        offsets = offsets_of(np.repeat((1, 0), (n, batch.n_events - n)))
        return Matches(offsets, np.zeros(n, id_dtype(self._n_ids)), self._n_ids)


class Failing(Null):
    """Fails on the batch that holds the event that has no attributes."""

    name = "failing"

    def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        if (np.diff(batch.offsets) == 0).any():
            raise ZeroDivisionError("an engine's mistake")
        return super().match(batch, filters=filters)


class Refusing(Null):
    """Cannot be opened."""

    name = "refusing"

    def __init__(self, table: Table, device: int | None = None, threads: int | None = None) -> None:
        raise EngineError("this table is not for me; use reference")


class Slow(Null):
    """Takes its time."""

    name = "slow"

    def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        time.sleep(0.2)
        return super().match(batch, filters=filters)


def main(arguments: list[str]) -> int:
    for engine in (Null, Failing, Refusing, Slow):
        module = types.ModuleType(f"mpi_match.engines.{engine.name}")
        module.ENGINE = engine  # type: ignore[attr-defined]
        sys.modules[module.__name__] = module
        engines.ENGINES = (*engines.ENGINES, engine.name)
    table, events, output, *rest = arguments
    given: dict[str, Any] = dict(each.split("=", 1) for each in rest)
    numbers = {key: int(value) for key, value in given.items() if value.isdecimal()}
    try:
        summary = run(RunOptions(Path(table), Path(events), Path(output), **{**given, **numbers}))
    except ClusterError as error:
        if not error.quiet:
            print(error, file=sys.stderr)
        return error.exit_code
    except (StorageError, EngineError) as error:
        print(error, file=sys.stderr)
        return 3 if isinstance(error, StorageError) else 5
    if summary is not None:
        print(json.dumps(dataclasses.asdict(summary)))
    return 0


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    sys.exit(main(sys.argv[1:]))
