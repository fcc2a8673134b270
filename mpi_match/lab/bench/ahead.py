"""Batches that threads scan while an engine matches those before."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from mpi_match.events.batch import EventBatch


def batches_ahead(scans: Iterable[Callable[[], EventBatch]], n_threads: int) -> Iterator[EventBatch]:
    """The batches that `scans` make, in order; each of `n_threads` threads is one batch ahead."""
    with ThreadPoolExecutor(n_threads) as threads:
        ahead: deque[Future[EventBatch]] = deque()
        for scan in scans:
            ahead.append(threads.submit(scan))
            if len(ahead) > n_threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
