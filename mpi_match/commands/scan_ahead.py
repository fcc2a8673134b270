"""Plain files of lines, read and scanned ahead of matching by threads: for a GPU, which scans faster than a core reads."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from mpi_match.ingest.checked_blocks import Memory
from mpi_match.ingest.event_scanner import LineScanner, ScannedEvents
from mpi_match.ingest.line_ranges import LineRange, ranges_of
from mpi_match.ingest.rows import Reject, Rejects

READING_THREADS, SCANNED_AHEAD = 8, 17
"""Threads that read and scan, if there are cores for them, and ranges that they may be ahead: more than twice as many, so
that no thread waits for the one with the oldest range.  A range that is scanned has no more memory of the host."""

Progress = Callable[[str], AbstractContextManager[Callable[[int, int], None]]]
"""`with progress("events") as step: step(done, total)`"""


class _Scanned(NamedTuple):
    """The events of a range; its rejected rows and its lines, which are numbered from 0."""

    events: list[ScannedEvents]
    bad: list[Reject]
    n_lines: int


@contextmanager
def scanned_ahead(
    files: Sequence[Path], scanner: LineScanner, memory: Memory, rejects: Rejects, progress: Progress | None
) -> Iterator[Iterator[ScannedEvents]]:
    """The events of plain files, in the order of their paths, range by range; `scanner` is one that threads share.

    Parameters: `memory` gives that for lines; `progress` is called with MiB.  Raises FileChanged, OSError.
    """
    ranges = [each for file in sorted(files) for each in ranges_of(file)]
    total = sum(each.stop - each.start for each in ranges)

    def scan(lines: LineRange) -> _Scanned:
        read, bad = lines.read(memory), list[Reject]()
        return _Scanned([scanner.scan(block, bad) for block in read.blocks], bad, read.n_lines)

    def numbered(step: Callable[[int, int], None]) -> Iterator[ScannedEvents]:
        ahead: deque[Future[_Scanned]] = deque()
        n_asked = first_line = done = 0
        for lines in ranges:
            while n_asked < len(ranges) and len(ahead) < SCANNED_AHEAD:
                ahead.append(threads.submit(scan, ranges[n_asked]))
                n_asked += 1
            found = ahead.popleft().result()
            first_line = 1 if lines.start == 0 else first_line
            for reject in found.bad:
                rejects.append(reject._replace(line=first_line + reject.line))
            first_line += found.n_lines
            yield from found.events
            done += lines.stop - lines.start
            step(done >> 20, total >> 20)

    threads = ThreadPoolExecutor(min(READING_THREADS, len(os.sched_getaffinity(0))), "scan")
    try:
        with progress("MiB of events") if progress is not None else nullcontext(lambda *_: None) as step:
            yield numbered(step)
    finally:
        threads.shutdown(cancel_futures=True)
