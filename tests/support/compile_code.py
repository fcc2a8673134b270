"""Compile what most tests need, before them: by several processes at once, none of which another test waits for, and without
the tracing of coverage, with which Numba takes half as long again.  Code that is there already takes some seconds.

    python tests/support/compile_code.py
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from mpi_match.engines import open_engine
from mpi_match.ingest.columns.to_codes import ColumnEncoder
from mpi_match.ingest.files.csv import compile_csv
from mpi_match.ingest.files.line_pass import compile_pass
from mpi_match.ingest.json.encode_events import EventsEncoder
from mpi_match.ingest.json.event_scanner import EventScanner
from mpi_match.ingest.json.line_columns import LineColumns
from mpi_match.ingest.json.subscription_scanner import SubscriptionScanner
from mpi_match.ingest.rows.judge import EventForm
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.matches.json_lines import compile_lines
from mpi_match.model import Filter, constraint
from mpi_match.table.subscriptions import SubscriptionsBuilder
from mpi_match.table.table import Table


def small_table() -> Table:
    return Table.from_subscriptions(SCENARIOS["clcb"].scaled(100).subscriptions())


def wide_table() -> Table:
    """A table whose packed attributes are u64, because a name has many operands."""
    rows = SubscriptionsBuilder()
    for k in range(2**16):
        rows.add(Filter("i", (constraint("n", "=", k),)))
    return Table.from_subscriptions(rows.build())


def compile_engine(name: str, live: bool = False, wide: bool = False) -> None:
    """Compile an engine; `live`, also for tables that change; `wide`, for attributes of 64 bits."""
    open_engine(name, wide_table() if wide else small_table(), live=live)


def compile_scanner() -> None:
    EventScanner(small_table().vocabulary, EventForm())


def compile_encoders() -> None:
    """Of events that are objects, and of columns."""
    vocabulary = small_table().vocabulary
    EventsEncoder(vocabulary)
    ColumnEncoder(vocabulary)


def compile_columns() -> None:
    LineColumns(EventForm())


def compile_subscriptions() -> None:
    SubscriptionScanner()


WORK: tuple[Callable[[], None], ...] = (
    partial(compile_engine, "keyed"),
    compile_scanner,
    partial(compile_engine, "keyed", live=True),
    partial(compile_engine, "twophase"),
    partial(compile_engine, "betree"),
    compile_columns,
    compile_subscriptions,
    compile_encoders,
    partial(compile_engine, "sff"),
    compile_csv,
    compile_lines,
    compile_pass,
)
"""What takes longest comes first."""
SHIPPED: tuple[Callable[[], None], ...] = (
    *(partial(compile_engine, "keyed", live, wide) for wide in (False, True) for live in (False, True)),
    compile_scanner,
    compile_columns,
    compile_subscriptions,
    compile_encoders,
    compile_csv,
    compile_lines,
    compile_pass,
)
"""The code of first commands (`ship_code`)."""


def compile_all(work: Sequence[Callable[[], None]]) -> None:
    """Compile in as many processes as there are cores."""
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), multiprocessing.get_context("spawn")) as processes:
        done = [processes.submit(each) for each in work]
        for each in done:
            each.result()


def main() -> None:
    compile_all(WORK)


if __name__ == "__main__":
    main()
