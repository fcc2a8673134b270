"""Sixty events and their answers, and a run that writes them: what the tests of the journal and the output share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mpi_match.arrays.csr import Array
from mpi_match.arrays.strings import Strings
from mpi_match.cluster.batches import BatchRanges
from mpi_match.cluster.results import output as output_module
from mpi_match.cluster.results.output import Output
from mpi_match.journal.reader import EventRange, JournalFile, Kind, RunIdentity

N_EVENTS, N_IDS = 60, 300
IDENTITY = RunIdentity("filter", N_IDS, N_EVENTS, "a" * 64, "b" * 64, "")


def answers(start: int, stop: int) -> tuple[Array, Array]:
    """Event e has the ids e, e + 1, ... up to e % 4 of them: counts and ids in the types that 300 ids have."""
    counts = np.arange(start, stop) % 4
    ids = [event + k for event, count in zip(range(start, stop), counts, strict=True) for k in range(count)]
    return counts.astype(np.uint16), np.array(ids, np.uint16)


def kept_in(path: Path) -> list[tuple[EventRange, list[int], list[int]]]:
    """The events with answers in a journal, their counts and ids."""
    file = JournalFile.look(path)
    return [
        (record.events, *(array.tolist() for array in file.answers(record)))
        for record in file.records
        if record.kind != Kind.SET_ASIDE
    ]


def reference_all(patch: pytest.MonkeyPatch) -> None:
    """All answers are long ones, and chunks have 32 counts or ids."""
    patch.setattr(output_module, "LONG_ANSWER_BYTES", 0)
    patch.setattr("mpi_match.storage.column.CHUNK_BYTES", 64)


def run(path: Path, size: int, *, until: int | None = None, aside: tuple[int, ...] = (), **how: bool) -> int:
    """Answer the remaining events in batches of a size, except the batches `aside`; raise before batch `until`."""
    with Output(path, IDENTITY, Strings.of(()), **{"resume": True, "journalled": True, **how}) as output:
        extents = BatchRanges(output.unanswered, size)
        for batch in range(extents.n_batches):
            if batch == until:
                raise ZeroDivisionError
            extent = EventRange(*extents.of(batch))
            if batch in aside:
                output.set_aside(extent)
            else:
                output.write(extent.start, *answers(*extent))
        output.finish()
        output.write_manifest({})
    return output.n_resumed
