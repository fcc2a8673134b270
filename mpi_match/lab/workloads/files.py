"""A scenario as files: the input that all other commands read, made without any real data.

    h5       DIR/table.h5, DIR/events.h5                    compiled here, without Spark
    jsonl    DIR/subscriptions.jsonl, DIR/events.jsonl      what users write: input of `compile` and `match`

In rows the location of an event is its attributes x and y (`LOCATION`, the value of `--location`); no generated name is so
short.

Events are made and written in chunks, so their number is bounded by the disk.  Subscriptions are held in memory (about
100 bytes a filter as columns); they are never Python objects all at once.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from mpi_match.events.event_table import event_counts, save_events
from mpi_match.events.schema import EVENTS
from mpi_match.ingest.rows.judge import EventForm
from mpi_match.ingest.rows.to_json import event_rows, subscription_rows
from mpi_match.lab.workloads.scenarios import CHUNK_EVENTS, Scenario
from mpi_match.model import Json
from mpi_match.storage import FilePart, Reader, StorageError, atomic_write, parts_directory, reported, write_index
from mpi_match.table.subscriptions import Subscriptions
from mpi_match.table.table import Table
from mpi_match.table.vocabulary import Vocabulary

log = logging.getLogger(__name__)

LOCATION = ("x", "y")
"""The attributes of an event row that hold its location, in scenarios that have locations."""


def write_workload(
    scenario: Scenario,
    directory: Path,
    n_events: int,
    seed: int = 0,
    format_: str = "h5",
    progress: Callable[[int, int], None] | None = None,
    divided: bool = False,
) -> Json:
    """Write a workload's subscriptions and events into `directory`, which is created; returns what was written.

    The same scenario, counts and seed give the same rows in either format.  Seconds are given in total, and for drawing,
    making and writing a table.  `progress(done, total)` counts filters and
    events.  With `divided` an event table is an index over parts even if one file would do.  Raises StorageError, OSError.
    """
    started = time.perf_counter()
    times: dict[str, float] = {}
    if directory.exists() and not directory.is_dir():
        raise StorageError(f"{directory}: not a directory; name a directory for the workload's files")
    with reported(directory):
        directory.mkdir(parents=True, exist_ok=True)
    total = scenario.n_filters + n_events
    tell = progress or (lambda done, total: None)
    chunks = scenario.event_chunks(n_events, seed, CHUNK_EVENTS)
    if format_ == "jsonl":
        paths = directory / "subscriptions.jsonl", directory / "events.jsonl"
        drawn: Subscriptions | Table = (subscriptions := scenario.subscriptions(seed))
        _write_lines(paths[0], subscription_rows(subscriptions), lambda done: tell(done, total))
        form = EventForm(LOCATION) if scenario.area else None
        rows = (row for chunk in chunks for row in event_rows(chunk, form))
        _write_lines(paths[1], rows, lambda done: tell(scenario.n_filters + done, total))
    else:
        paths = directory / "table.h5", directory / "events.h5"
        make_table = scenario.drawn_table(seed)
        times["draw_s"] = time.perf_counter() - started
        drawn = table = make_table()
        del make_table  # and what it was made of
        times["table_s"] = time.perf_counter() - started - times["draw_s"]
        log.info("%s drawn in %.2f s, made in %.2f s", table, times["draw_s"], times["table_s"])
        began = time.perf_counter()
        table.save(paths[0])
        times["save_s"] = time.perf_counter() - began
        log.info("%s written in %.2f s, %s bytes", paths[0], times["save_s"], f"{paths[0].stat().st_size:,}")
        tell(scenario.n_filters, total)

        def told(done: int) -> None:
            tell(scenario.n_filters + done, total)

        _write_events(paths[1], scenario, n_events, seed, table.vocabulary, told, divided)
    files = {"subscriptions": str(paths[0]), "event_file": str(paths[1])}
    summary = {
        "scenario": scenario.name,
        "seed": seed,
        "filters": drawn.n_filters,
        "constraints": drawn.n_constraints,
    }
    return {**summary, "events": n_events, **files, **times, "wall_s": time.perf_counter() - started}


def kept_workload(scenario: Scenario, directory: Path, n_events: int, seed: int = 0, format_: str = "h5") -> Json:
    """Write a workload, divided, unless an earlier call wrote the same one into `directory`, as its workload.json says."""
    wanted = {"drawn_from": repr(scenario), "seed": seed, "events": n_events}
    note = directory / "workload.json"
    written: dict[str, Any] = json.loads(note.read_text(encoding="utf-8")) if note.exists() else {}
    if not wanted.items() <= written.items():
        note.unlink(missing_ok=True)  # until all is there again
        written = {**write_workload(scenario, directory, n_events, seed, format_, divided=True), **wanted}
        with atomic_write(note) as temporary:
            temporary.write_text(json.dumps(written), encoding="utf-8")
    return written


def _write_lines(path: Path, rows: Iterable[Mapping[str, object] | None], tell: Callable[[int], None]) -> None:
    """Write JSON lines atomically."""
    with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8") as handle:
        for done, row in enumerate(rows, 1):
            handle.write(json.dumps(row, ensure_ascii=False) + "\n")
            if done % 10_000 == 0:
                tell(done)


def events_of_a_part(scenario: Scenario) -> int:
    """Events in one part of a large event table: some 16 million attributes, so that few batches span two parts."""
    return CHUNK_EVENTS * max(64 // scenario.event_size[1], 1)


def repeat_events(path: Path, times: int, output: Path) -> None:
    """Write an event table that repeats another one `times` times without copying: an index that lists the same parts again.

    `path` is an index (`write_workload` with `divided`).  Both depend on the same parts from then on.  Raises StorageError,
    OSError.
    """
    link = parts_directory(output)
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(parts_directory(path), link.parent))
    with Reader(path, EVENTS) as reader:
        rows = reader.rows or []
        parts = [FilePart(s.path.name, n, str(s.attributes["digest"])) for s, n in zip(reader.sources, rows, strict=True)]
        counts = {"n_events": times * sum(rows), "vocabulary": reader.attribute("vocabulary")}
    write_index(output, EVENTS.kind, parts * times, counts)


def _write_events(
    path: Path,
    scenario: Scenario,
    n_events: int,
    seed: int,
    vocabulary: Vocabulary,
    tell: Callable[[int], None],
    divided: bool,
) -> None:
    """Write one file if the events fit into one part and need not be `divided`; otherwise several parts and their index."""
    part_events = events_of_a_part(scenario)
    if n_events <= part_events and not divided:
        save_events(scenario.events(n_events, seed), path, vocabulary)
        tell(n_events)
        return
    parts_directory(path).mkdir(exist_ok=True)
    parts, done = [], 0
    for number, chunk in enumerate(scenario.event_chunks(n_events, seed, part_events)):
        name = f"part-{number:05d}.h5"
        digest = save_events(chunk, parts_directory(path) / name, vocabulary, f"{EVENTS.kind}-part")
        parts.append(FilePart(name, chunk.n_events, digest))
        done += chunk.n_events
        tell(done)
    write_index(path, EVENTS.kind, parts, event_counts(n_events, vocabulary))
