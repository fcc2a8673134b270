"""Plain files of lines, read and scanned ahead of matching by threads, each a range at a time.

A GPU scans faster than a core reads.  Threads of a CPU that scan a range each do not wait for one another, whereas threads
that share a block do, and the events of earlier ranges are matched at the same time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from mpi_match.cluster.prefetch import ReadAhead, n_readers
from mpi_match.cluster.signals import held
from mpi_match.ingest.files.ranges import CPU_RANGE_BYTES, GPU_RANGE_BYTES, ranges_of
from mpi_match.ingest.json.event_scanner import LineScanner, ScannedEvents
from mpi_match.ingest.rows.judge import Rejects
from mpi_match.ingest.rows.rejects import HeldRejects
from mpi_match.storage.range_read import Memory

READING_THREADS = 8
"""Threads that read for a GPU, if there are cores for them: with more, they wait for one another at Python's lock."""

Progress = Callable[[str], AbstractContextManager[Callable[[int, int], None]]]
"""`with progress("events") as step: step(done, total)`"""


class Ahead(NamedTuple):
    """The settings of reading ahead: the number of threads that read and scan, and the bytes of a range."""

    threads: int
    range_bytes: int

    @property
    def most_ranges(self) -> int:
        """Ranges that threads may be ahead: more than twice the number of threads, so that no thread waits for the one with
        the oldest range.  A scanned range has released the memory of its lines."""
        return 2 * self.threads + 1


def ahead_of_gpu() -> Ahead:
    """The settings for a GPU."""
    return Ahead(n_readers(READING_THREADS), GPU_RANGE_BYTES)


def ahead_of_cpu(threads: int | None) -> Ahead:
    """The settings for a number of threads that match.  With None, which means one for each core, as many threads read as
    there are cores; otherwise half as many as match, which leaves cores to other programs."""
    cores = len(os.sched_getaffinity(0))
    return Ahead(cores if threads is None or threads >= cores else max(threads // 2, 1), CPU_RANGE_BYTES)


class _Scanned(NamedTuple):
    """The events of a range; its rejected rows and its lines, which are numbered from 0."""

    events: list[ScannedEvents]
    bad: HeldRejects
    n_lines: int


@contextmanager
def scanned_ahead(
    files: Sequence[Path],
    scanner: LineScanner,
    memory: Memory,
    rejects: Rejects,
    progress: Progress | None,
    how: Ahead,
) -> Iterator[Iterator[ScannedEvents]]:
    """The events of plain files, in the order of their paths, range by range; `scanner` is one that threads share.

    Parameters: `memory` allocates memory for lines; `progress` is called with MiB.  Raises FileChanged, OSError.
    """
    ranges = [each for file in sorted(files) for each in ranges_of(file, how.range_bytes)]
    total = sum(each.stop - each.start for each in ranges)

    def scan(which: int) -> _Scanned:
        read, bad = ranges[which].read(memory), HeldRejects()
        return _Scanned([scanner.scan(block, bad) for block in read.blocks], bad, read.n_lines)

    def numbered(step: Callable[[int, int], None]) -> Iterator[ScannedEvents]:
        first_line = done = 0
        for which, lines in enumerate(ranges):
            with held():
                feed.want(range(which, min(which + how.most_ranges, len(ranges))))
                found = feed.take(which)
            first_line = 1 if lines.start == 0 else first_line
            for part in found.bad.parts:
                rejects.extend(part.placed(str(lines.path.absolute()), first_line + part.lines))
            first_line += found.n_lines
            yield from found.events
            done += lines.stop - lines.start
            step(done >> 20, total >> 20)

    with (
        ReadAhead(scan, ThreadPoolExecutor(how.threads, "scan")) as feed,
        progress("MiB of events") if progress is not None else nullcontext(lambda *_: None) as step,
    ):
        yield numbered(step)
