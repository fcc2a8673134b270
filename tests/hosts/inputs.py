"""Inputs of runs on several hosts, and their expected answers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from random_tables import Shape, random_subscriptions

from mpi_match.cluster import RunOptions
from mpi_match.cluster.local_run import run_alone
from mpi_match.events.event_table import save_events
from mpi_match.events.events import Events
from mpi_match.journal.reader import journal_of
from mpi_match.table.table import Table

SLOWLY = Path(__file__).with_name("slowly")
"""A directory for PYTHONPATH, with a `sitecustomize`."""
SOME_ANSWERS_BYTES = 4096
"""A journal of this size holds more than its head, and less than all answers."""


@dataclass(frozen=True)
class Inputs:
    """A table, events, and the answers of a run of one process."""

    table: Path
    events: Path
    expected: bytes

    @classmethod
    def made_in(cls, directory: Path, n_events: int = 300) -> Inputs:
        """Events on 400 filters of every type, with areas."""
        filters, events = random_subscriptions(7, Shape(n_filters=400, n_events=n_events, areas=0.3, sizes=(0, 3)))
        table = Table.from_filters(filters)
        options = RunOptions(directory / "table.h5", directory / "events.h5", directory / "matches.h5", engine="counting")
        table.save(options.table)
        save_events(Events.of(events), options.events, table.vocabulary)
        run_alone(options)
        return cls(options.table, options.events, options.output.read_bytes())


def wait_for_answers(output: Path) -> None:
    """Wait until some answers of the run that writes `output` are in its journal."""
    journal, end = journal_of(output), time.monotonic() + 60
    while not journal.exists() or journal.stat().st_size < SOME_ANSWERS_BYTES:
        assert time.monotonic() < end, f"no answers in {journal}"
        time.sleep(0.05)
