"""The input of a measurement: a table and encoded events, from a published scenario or from files."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from mpi_match.engines import Engine
from mpi_match.engines.ccm.published import published_batch
from mpi_match.engines.keyed.tag_sets.index import MANY_SETS
from mpi_match.errors import OptionError
from mpi_match.events.batch import EventBatch
from mpi_match.events.event_table import EventTable
from mpi_match.events.signatures import event_signatures
from mpi_match.ingest.batches.offer import RowsOffer
from mpi_match.ingest.batches.open import open_events
from mpi_match.ingest.batches.scan_lines import BatchScanner
from mpi_match.ingest.rows.judge import PLAIN, EventForm
from mpi_match.lab.workloads.sampling import Moves
from mpi_match.lab.workloads.scenarios import DRAWN_AT_ONCE, Scenario, TagScenario
from mpi_match.model import Event, Filter
from mpi_match.storage import Reader, StorageError
from mpi_match.table.schema import TABLE
from mpi_match.table.table import Table, load_vocabulary
from mpi_match.table.tag_sets import first_sets

log = logging.getLogger(__name__)

WARM_UP_FILTERS, WARM_UP_EVENTS = 2_000, 200
MOST_KEPT = 8
"""The most workloads that are kept; small tables also have filters as objects, for the naive matcher."""


class WorkloadFiles(NamedTuple):
    """A table and events in files: an event table, or JSON lines, whose `form` is as in `run`."""

    table: Path
    events: Path
    form: EventForm = PLAIN

    @property
    def name(self) -> str:
        """The name of the workload in results."""
        return f"{self.table.name} with {self.events.name}"

    @property
    def n_events(self) -> int:
        """The number of events in the files.  Raises StorageError, ModelError, OSError."""
        return _known(self)[0]

    @property
    def digest(self) -> str:
        """SHA-256 of the contents of the files.  Raises StorageError, ModelError, OSError."""
        return _known(self)[1]


@lru_cache(maxsize=8)
def _known(files: WorkloadFiles) -> tuple[int, str]:
    """The number of events and the digest of the files, once known."""
    with open_events(files.events, load_vocabulary(files.table), files.form) as events:
        if not len(events):
            raise StorageError(f"{files.events}: holds no events")
        n_events, of_events = len(events), events.digest
    with Reader(files.table, TABLE) as reader:
        of_table = str(reader.attributes["digest"])
    return n_events, hashlib.sha256(f"{of_table} {of_events}".encode()).hexdigest()


Source = Scenario | WorkloadFiles
"""The source of a workload: a scenario or files."""


@dataclass(frozen=True)
class Workload:
    """A table and encoded events.

    table_s   seconds of encoding the subscriptions, or of loading the table
    draw_s    seconds of drawing the subscriptions; 0 for files
    encode_s  seconds of encoding the events; 0 for an event table that is encoded for this table
    small     makes a small table and events of the same kind, with which engines compile
    raw       the events of some numbers as they were published; None for a rejected row
    judged    verdicts of the judges, by judge and event numbers
    moves     the first n moves of interfaces, for a seed (`Scenario.moves`); None without areas
    lines     reads the rows of files, for a batch's size, a number of threads and an engine; returns a function for each
              batch that scans it in memory as the engine does; None for scenarios and event tables
    published makes the events as they were published (`ccm.published`); None for files
    """

    name: str
    seed: int
    table: Table
    table_s: float
    events: EventBatch
    encode_s: float
    small: Callable[[], tuple[Table, EventBatch]]
    raw: Callable[[Sequence[int]], list[Event | None]]
    moves: Callable[[int, int], Moves] | None = None
    lines: Callable[[int, int | None, Engine], list[Callable[[], EventBatch]]] | None = None
    published: Callable[[], EventBatch] | None = None
    judged: dict[tuple[str, tuple[int, ...]], list[list[str]]] = field(default_factory=dict)
    draw_s: float = 0.0

    @classmethod
    def of(cls, source: Source, n_events: int, seed: int, beside: Workload | None = None) -> Workload:
        """Make or read the table and the first `n_events` events.  Raises StorageError, ModelError, OSError.

        The table is that of `beside`, if there is one.
        """
        if isinstance(source, WorkloadFiles):
            return _of_files(source, n_events, seed)
        return _drawn(source, n_events, seed, beside)

    @cached_property
    def filters(self) -> list[Filter]:
        """The table's filters as objects, for the naive matcher."""
        return list(self.table.iter_filters())

    def events_for(self, engine: Engine) -> EventBatch:
        """All events as an engine reads them.  Raises OptionError for files that an engine would read as published."""
        if not engine.reads_published:
            return self.events
        if self.published is None:
            raise OptionError(f"{self.name}: events of files are encoded, and {engine.name} is to read them as published")
        return self._as_published

    @cached_property
    def _as_published(self) -> EventBatch:
        assert self.published is not None
        return self.published()


class KeptWorkloads:
    """A cache of the `MOST_KEPT` workloads used last.

    While a new workload is made, the cached ones take at most `most_bytes`; with 0 only one exists at a time.  A workload
    that differs from a cached one only in its events shares its table.
    """

    def __init__(self, most_bytes: int = 0) -> None:
        self._most_bytes = most_bytes
        self._kept: dict[tuple[Source, int, int], Workload] = {}

    def of(self, source: Source, n_events: int, seed: int) -> Workload:
        """The workload, from the cache or a new one.  Raises what `Workload.of` raises."""
        key = source, n_events, seed
        found = self._kept.pop(key, None)
        if found is None:
            beside = self._beside(source, seed)
            while len(self._kept) >= MOST_KEPT or self._nbytes > self._most_bytes:
                del self._kept[next(iter(self._kept))]
            found = Workload.of(*key, beside)
        self._kept[key] = found
        return found

    def table_of(self, source: Source, n_events: int, seed: int) -> Table | None:
        """The table of a cached workload, or None."""
        found = self._kept.get((source, n_events, seed)) or self._beside(source, seed)
        return None if found is None else found.table

    def _beside(self, source: Source, seed: int) -> Workload | None:
        """A cached workload with the same filters, if any."""
        if isinstance(source, WorkloadFiles):
            return None
        same = source.of_filters, seed
        scenarios = ((each, of, kept) for (each, _, of), kept in self._kept.items() if not isinstance(each, WorkloadFiles))
        return next((kept for each, of, kept in scenarios if (each.of_filters, of) == same), None)

    @property
    def _nbytes(self) -> int:
        return sum({id(workload.table): workload.table.nbytes for workload in self._kept.values()}.values())


def _drawn(scenario: Scenario, n_events: int, seed: int, beside: Workload | None) -> Workload:
    """Make the workload of a scenario, with the table of `beside` if given; only one chunk of raw events is in memory."""
    if beside is None:
        started = time.perf_counter()
        make_table = scenario.drawn_table(seed)
        draw_s = time.perf_counter() - started
        log.info("%s filters drawn in %.2f s", f"{scenario.n_filters:,}", draw_s)
        started = time.perf_counter()
        table = make_table()
        table_s = time.perf_counter() - started
        del make_table  # and what it was made of
        log.info("%s made in %.2f s", table, table_s)
    else:
        table, table_s, draw_s = beside.table, beside.table_s, beside.draw_s
    encode_s, pieces = 0.0, []
    for chunk in scenario.event_chunks(n_events, seed):
        started = time.perf_counter()
        pieces.append(chunk.encode(table.vocabulary))
        encode_s += time.perf_counter() - started
        if isinstance(scenario, TagScenario):  # events have tags that no filter has
            pieces[-1].signatures = event_signatures(chunk.offsets, chunk.name, chunk.names)

    def small() -> tuple[Table, EventBatch]:
        n_few = MANY_SETS if isinstance(scenario, TagScenario) and scenario.n_filters >= MANY_SETS else WARM_UP_FILTERS
        few = scenario.scaled(min(n_few, scenario.n_filters))
        table = few.drawn_table(seed)()
        return table, few.events(WARM_UP_EVENTS, seed).encode(table.vocabulary)

    def raw(numbers: Sequence[int]) -> list[Event | None]:
        found: list[Event | None] = []
        for block, some in groupby(numbers, lambda i: i // DRAWN_AT_ONCE):
            first = block * DRAWN_AT_ONCE
            events = scenario.event_range(first, min(first + DRAWN_AT_ONCE, n_events), seed)
            found += [events.event(i - first) for i in some]
        return found

    def moves(n: int, of: int) -> Moves:
        return scenario.moves(n, of, subscriptions_seed=seed)

    def published() -> EventBatch:
        return published_batch(scenario.event_chunks(n_events, seed), table.vocabulary)

    events = EventBatch.concat(pieces)
    log.info("%s events encoded in %.2f s", f"{len(events):,}", encode_s)
    may_move = moves if scenario.area else None
    return Workload(
        scenario.name, seed, table, table_s, events, encode_s, small, raw, may_move, published=published, draw_s=draw_s
    )


def _of_files(files: WorkloadFiles, n_events: int, seed: int) -> Workload:
    """Read the workload of files, with all events in memory."""
    started = time.perf_counter()
    table = Table.load(files.table)
    table_s = time.perf_counter() - started
    log.info("%s loaded in %.2f s", table, table_s)
    with open_events(files.events, table.vocabulary, files.form) as opened:
        n_events, rows = min(n_events, len(opened)), None
        started = time.perf_counter()
        if isinstance(opened, EventTable):
            encoded, is_encoded = opened.batch(0, n_events), opened.encoded_for_vocabulary
        else:
            rows = RowsOffer(opened.index, files.form)
            scanner: Any = rows.scanner(table.vocabulary)
            started = time.perf_counter()  # without the compiling
            (encoded, _), is_encoded = scanner.scan(opened.batch(0, n_events)), False
        encode_s = 0.0 if is_encoded else time.perf_counter() - started
        events = EventBatch.concat([encoded])  # a copy: what is read may be the file's own memory

    def small() -> tuple[Table, EventBatch]:
        if table.is_tag_table and table.n_filters >= MANY_SETS:
            return first_sets(table, MANY_SETS), events[:WARM_UP_EVENTS]
        return table.take(np.arange(min(WARM_UP_FILTERS, table.n_filters))), events[:WARM_UP_EVENTS]

    def raw(numbers: Sequence[int]) -> list[Event | None]:
        with open_events(files.events, table.vocabulary, files.form) as opened:
            return [opened.event(i) for i in numbers]

    def lines(size: int, threads: int | None, engine: Engine) -> list[Callable[[], EventBatch]]:
        assert rows is not None
        scanner: Any = rows.scanner(table.vocabulary, threads)
        with rows.open() as opened:
            batches: list[Any] = [opened.batch(at, min(at + size, n_events)) for at in range(0, n_events, size)]
        if isinstance(scanner, BatchScanner):
            scanner.choose(engine.scanner)
            engine.pin([batch.data for batch in batches])

        def scan(batch: Any) -> EventBatch:
            return cast("EventBatch", scanner.scan(batch)[0])

        return [partial(scan, batch) for batch in batches]

    return Workload(
        files.name, seed, table, table_s, events, encode_s, small, raw, lines=lines if rows is not None else None
    )
