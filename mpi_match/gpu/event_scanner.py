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
from mpi_match.ingest.json.event_scanner import EventScanner, ScannedEvents, judged_events, with_judged
from mpi_match.ingest.rows.judge import Reject, Rejects
from mpi_match.texts.characters import LINE_FEED

LEAST_GPU_BYTES = 2**16
"""Bytes of the smallest block that is scanned on the GPU: the CPU scans fewer in less time than the round trip takes."""


class _Lease:
    """Prevents buffers from being reused while it exists."""


class GpuEventScanner:
    """Scans blocks of lines on a GPU, for the vocabulary and form of a CPU scanner, which it also uses.

    Its batches keep their memory on the GPU until no reference to them is left.  Several threads may scan at a time: one
    block is then copied to the GPU while another is scanned.
    """

    def __init__(self, gpu: Gpu, cpu: EventScanner) -> None:
        self._gpu, self._cpu = gpu, cpu
        self._lines = GpuLineScanner(gpu, cpu.vocabulary, cpu.form)
        self._free: deque[ScanBuffers] = deque()
        self._cpu_is_free = threading.Lock()

    def scan(self, block: LineBlock, rejects: Rejects) -> ScannedEvents:
        if block.overlong or not LEAST_GPU_BYTES <= len(block.data) <= MOST_SCANNED_BYTES:
            with self._cpu_is_free:
                return self._cpu.scan(block, rejects)
        self._gpu.make_current()
        try:
            buffers = self._free.popleft()
        except IndexError:
            buffers = self._lines.buffers()
        lease = _Lease()
        weakref.finalize(lease, self._free.append, buffers).atexit = False
        rows = self._lines.scan(block.data, buffers)
        vocabulary = self._cpu.vocabulary
        bad: list[Reject] = []
        found = judged_events(_flagged_lines(block, rows), self._cpu.judge, block.file, bad)
        _number(bad, block, rejects)
        ids = self._lines.ids(rows, block.data, found, buffers) if self._cpu.keeps_ids else None
        identified = rows.id_bounds is not None or any(event is not None and event.id is not None for event in found)
        batch: EventBatch
        if None in found:
            on_host = self._lines.fetched(rows, buffers)
            arrays = (on_host.offsets, on_host.attributes, on_host.location)
            batch = with_judged(arrays, rows.flagged.astype(np.int64), found, vocabulary)
        else:
            if found:
                rows = self._lines.with_judged(rows, Events.of(found).encode(vocabulary), buffers)
            events = EventsOnGpu(rows.n_rows, rows.offsets, rows.attributes, rows.location, lease)
            batch = GpuBatch(events, rows.widest, buffers.unpinned, vocabulary.fingerprint)
        return ScannedEvents(batch, ids, batch.has_location, identified, len(found), rows.n_rows)


def _flagged_lines(block: LineBlock, rows: GpuRows) -> list[tuple[bytes, int]]:
    """The flagged lines, and their first bytes: numbering rows requires counting line feeds."""
    found = []
    for start, stop in rows.bounds.tolist():
        begin = start + _blank_bytes(block.data[start:stop])
        found.append((block.data[begin : stop + 1].tobytes(), begin))
    return found


def _number(bad: list[Reject], block: LineBlock, rejects: Rejects) -> None:
    """Replace the byte positions of rejected rows, which ascend, by the numbers of their lines."""
    at, number = 0, block.first_line
    for each in bad:
        number += int(np.count_nonzero(block.data[at : each.line] == LINE_FEED))
        at = each.line
        rejects.append(each._replace(line=number))


def _blank_bytes(lines: Array) -> int:
    """Number of bytes of the blank lines before a line."""
    return lines.tobytes().rfind(b"\n") + 1
