"""Scans blocks of lines on a GPU, where their events stay for an engine on it, as `json.event_scanner` does on CPUs.

`rows` judges the lines that the kernels flag, and the good ones are inserted on the GPU.  A block with a bad line is
assembled on the host.  Ids are copied on the host, from the positions in the bytes that the kernels report.  Short blocks
and overlong lines are left to the CPU's scanner.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.events.batch import EventBatch
from mpi_match.events.events import Events
from mpi_match.gpu.event_batch import EventsOnGpu, GpuBatch
from mpi_match.gpu.kernels import Gpu
from mpi_match.gpu.line_scanner import MOST_SCANNED_BYTES, GpuLineScanner, GpuRows, ScanBuffers
from mpi_match.ingest.files.blocks import LineBlock
from mpi_match.ingest.json.event_scanner import EventScanner, ScannedEvents, with_judged
from mpi_match.ingest.json.line_judge import FlaggedLines
from mpi_match.ingest.rows.judge import Rejects
from mpi_match.texts.characters import LINE_FEED

LEAST_GPU_BYTES = 2**16
"""Bytes of the smallest block that is scanned on the GPU: the CPU scans fewer in less time than the round trip takes."""


FLAGGED_SHARE, CPU_BLOCKS = 64, 15
"""If more than one line in FLAGGED_SHARE of a block is flagged, texts are deferred (`gpu.deferred_texts`).  If they are
already, the CPU's scanner, which has more room than a GPU's thread, scans the block and the next CPU_BLOCKS ones: judging
lines one by one would take longer."""


class _Lease:
    """Prevents buffers from being reused while it exists."""


class GpuEventScanner:
    """Scans blocks of lines on a GPU, for the vocabulary and form of a CPU scanner, which it also uses.

    Its batches keep their memory on the GPU until no reference to them is left.  Several threads may scan at a time: one
    block is then copied to the GPU while another is scanned.  The CPU scans blocks of which a GPU flags many lines.
    """

    def __init__(self, gpu: Gpu, cpu: EventScanner) -> None:
        self._gpu, self._cpu = gpu, cpu
        self._lines = GpuLineScanner(gpu, cpu.vocabulary, cpu.form)
        self._free: deque[ScanBuffers] = deque()
        self._cpu_is_free = threading.Lock()
        self._n_for_cpu = 0

    def scan(self, block: LineBlock, rejects: Rejects) -> ScannedEvents:
        if block.overlong or not LEAST_GPU_BYTES <= len(block.data) <= MOST_SCANNED_BYTES:
            return self._scan_on_cpu(block, rejects)
        if self._n_for_cpu > 0:
            self._n_for_cpu -= 1
            return self._scan_on_cpu(block, rejects)
        self._gpu.make_current()
        try:
            buffers = self._free.popleft()
        except IndexError:
            buffers = self._lines.buffers()
        lease = _Lease()
        weakref.finalize(lease, self._free.append, buffers).atexit = False
        rows = self._lines.scan(block.data, buffers)
        if FLAGGED_SHARE * len(rows.flagged) > rows.n_rows and not rows.deferred and self._lines.defer_texts():
            rows = self._lines.scan(block.data, buffers)
        if FLAGGED_SHARE * len(rows.flagged) > rows.n_rows:
            self._n_for_cpu = CPU_BLOCKS
            return self._scan_on_cpu(block, rejects)
        vocabulary = self._cpu.vocabulary
        judged = self._cpu.line_judge.judged(block, [_flagged_lines(rows)])
        if judged.rejects is not None:
            rejects.extend(judged.rejects.placed(block.file, _line_numbers(block, judged.rejects.lines)))
        ids = self._lines.ids(rows, block.data, judged, buffers) if self._cpu.keeps_ids else None
        identified = rows.id_bounds is not None or any(event.id is not None for event in judged.events)
        batch: EventBatch
        if judged.rejects is not None:
            on_host = self._lines.fetched(rows, buffers)
            arrays = (on_host.offsets, on_host.attributes, on_host.location)
            batch = with_judged(arrays, judged, vocabulary)
        else:
            if judged.events:
                rows = self._lines.with_judged(rows, Events.of(judged.events).encode(vocabulary), buffers)
            events = EventsOnGpu(rows.n_rows, rows.offsets, rows.attributes, rows.location, lease)
            batch = GpuBatch(events, rows.widest, buffers.unpinned, vocabulary.fingerprint)
        return ScannedEvents(batch, ids, batch.has_location, identified, len(judged.rows), rows.n_rows)

    def _scan_on_cpu(self, block: LineBlock, rejects: Rejects) -> ScannedEvents:
        with self._cpu_is_free:
            return self._cpu.scan(block, rejects)


def _flagged_lines(rows: GpuRows) -> FlaggedLines:
    """The flagged lines, with where they end as their numbers: numbering rows requires counting line feeds."""
    starts, stops = rows.bounds.astype(np.int64).T
    return FlaggedLines(np.stack([rows.flagged.astype(np.int64), stops, starts, stops], 1), 0, 0)


def _line_numbers(block: LineBlock, stops: Array) -> Array:
    """The numbers of the lines that end at some bytes, ascending."""
    is_end = block.data[: stops[-1]] == LINE_FEED
    counts = np.add.reduceat(is_end, np.append(0, stops[:-1]), dtype=np.int64)
    found: Array = block.first_line + np.cumsum(counts)
    return found
