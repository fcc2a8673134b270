"""Compiles the code that most tests need, and archives Java's classes, before the tests run.

Several processes compile at once, and no test waits for them.  They are not traced for coverage, with which compiling takes
half as long again.  If all code is there already, this takes some seconds.

    python tests/support/compile_code.py
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from flat_lines import taken
from java_classes import archive_classes
from numba import types

from mpi_match.engines import open_engine
from mpi_match.ingest.columns.to_codes import ColumnEncoder
from mpi_match.ingest.files.csv import compile_csv
from mpi_match.ingest.files.line_pass import compile_pass
from mpi_match.ingest.json import to_codes
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


def compile_engine(name: str) -> None:
    open_engine(name, small_table())


def compile_keyed(wide: bool = False) -> None:
    """Compile `keyed`, then for tables that change as well; `wide`, for attributes of 64 bits."""
    for live in (False, True):
        open_engine("keyed", wide_table() if wide else small_table(), live=live)


def compile_readers() -> None:
    """Compile the readers of events, lines, objects and columns, of which a process translates once what they share."""
    vocabulary = small_table().vocabulary
    EventScanner(vocabulary, EventForm())
    EventsEncoder(vocabulary)
    ColumnEncoder(vocabulary)
    LineColumns(EventForm())


def compile_tested_readers() -> None:
    """Compile the readers of events, and those that only tests call by themselves."""
    compile_readers()
    to_codes.scan_single_row.compile((types.int64,) * 4)
    taken(b"{}", small_table().vocabulary)


def compile_subscriptions() -> None:
    SubscriptionScanner()


WORK: tuple[Callable[[], None], ...] = (
    compile_tested_readers,
    archive_classes,
    compile_keyed,
    compile_subscriptions,
    partial(compile_engine, "twophase"),
    partial(compile_engine, "betree"),
    partial(compile_engine, "sff"),
    compile_csv,
    compile_lines,
    compile_pass,
)
"""What takes longest comes first."""
SHIPPED: tuple[Callable[[], None], ...] = (
    compile_readers,
    compile_keyed,
    partial(compile_keyed, wide=True),
    compile_subscriptions,
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
