"""Compile what most tests need, before them: by several processes at once, none of which another test waits for, and without
the tracing of coverage, with which Numba takes half as long again.  Code that is there already takes some seconds.

    python tests/support/compile_code.py
"""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

from mpi_match.engines import open_engine
from mpi_match.table.table import Table
from mpi_match.workloads.scenarios import SCENARIOS

ENGINES = (("keyed", False), ("twophase", False), ("keyed", True), ("sff", False), ("betree", False))
"""Engines, and whether for tables that change; what takes longest comes first."""


def main() -> None:
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), multiprocessing.get_context("spawn")) as processes:
        done = [processes.submit(compile_engine, name, live) for name, live in ENGINES]
        for each in done:
            each.result()


def compile_engine(name: str, live: bool) -> None:
    """Compile an engine, for a small table."""
    open_engine(name, Table.from_subscriptions(SCENARIOS["clcb"].scaled(100).subscriptions()), live=live)


if __name__ == "__main__":
    main()
