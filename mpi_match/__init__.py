"""mpi-match: content-based publish/subscribe matching on a GPU cluster.

Millions of subscriptions are compiled once into a flat table; a master rank keeps worker ranks busy with batches of events;
the answer is, for every event, the set of interfaces it must be delivered to.

    the words        model           event, constraint, filter, ...; the naive matcher that defines all answers
    what comes in    rows            JSON rows, bad ones set aside
                     plain_rows      the way back
                     columns         events as arrays
                     workloads       the published scenarios, generated
                     places          where their filters, events and moves are
    the table        draft           subscriptions as they were written
                     vocabulary      from values to small integers
                     constraints     encoded, by name
                     filter_columns  what it keeps of a filter besides its constraints
                     table           all of it, in memory and in HDF5
                     table_arrays    its arrays, by their names in a file
                     table_check     what a table from a file must hold to be used
                     large_table     one that is read in ranges of its filters
    as it changes    changes         areas move, filters come and go
                     recoding        from one code space into a larger one
                     register        who is there, by the names people gave
                     live_table      what is in it now
                     change_log      changes on disk
                     change_stream   changes on their way to workers
    the events       events          as they were published
                     batch           encoded, as they travel
                     event_table     on disk
    the answers      matches         for every event its interfaces
                     answer_parts    those that workers have written themselves
                     journal_file    those of a run that has not ended
                     run_manifest    how the last run ended
    flat arrays      arrays          lists of lists
                     strings         byte strings
                     chains          lists that grow and shrink, when there are millions
                     parted          a dictionary and a list of millions
                     storage         the only door to HDF5; FORMAT.md has the files in words
    engines          engines         one interface, many ways to the same answers
    the cluster      cluster         master, workers, and who gets which batch
                     standing        what the master knows of a run, for who watches it
    measuring        experiments     engines on scenarios, answers checked
                     scaling         runs with more and more workers
                     scaling_report  their tables
                     mpirun          how runs to be measured are launched
                     machine         where and with what it was measured
                     program         which program it was: a digest of its sources
                     report          tables and plots
    watching         watch           a run looked at while it goes on
                     live_view       what a terminal shows of it
                     screen          drawn in place
                     run_report      as JSON lines
                     run_figure      as a figure
    in Python        api             tables, batches and answers without MPI and Spark
                     live_matcher    the same while subscriptions come and go
    on the terminal  cli             the command mpi-match
                     exits           how a command ends
                     terminal        what people see
                     workload_files  a scenario as files
                     local           rows matched on this machine
                     glance          what is in a file
                     verify          answers against the naive matcher
                     replay          a table as it was at an event
                     export          answers as JSON lines or Parquet
                     doctor          what is missing on a machine

The Spark stage is a package of its own, `spark_prep`.  The names below are what a notebook needs; `mpi_match.api` says how.
They are imported when first used, so `import mpi_match` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "make_table": "api",
    "load_table": "api",
    "make_events": "api",
    "make_batch": "api",
    "match": "api",
    "LiveMatcher": "live_matcher",
    "open_engine": "engines",
    "EngineError": "engines",
    "Table": "table",
    "Events": "events",
    "EventBatch": "batch",
    "Matches": "matches",
    "MatchesFile": "matches",
    "StorageError": "storage",
    "ModelError": "model",
    "make_filter": "model",
    "make_event": "model",
    "covers": "model",
    "Reject": "rows",
}
"""Module of each public name."""

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("mpi-match")
    except PackageNotFoundError:
        return "unknown (a source tree that is not installed)"


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
