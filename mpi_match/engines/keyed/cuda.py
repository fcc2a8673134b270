"""The engine `keyed_cuda`, on a GPU: the CPU's index in two uploads, one event per thread, and copies that overlap with
matching.

Batches are cut into slices that take turns on the GPU (`cuda_pipeline`), so that one slice is matched while the answers of
another are fetched (`cuda_slot`, `cuda_results`).  The slices may belong to one batch or to several, if the next one is
begun before the previous one is ended.

A large table of tag sets has its own index (`tag_sets.index`), which a warp searches for each event.

If all filters are in the trie or are tag sets, the engine also keeps the engine `keyed` on the same index.  A round trip to
a GPU takes as long as a CPU core takes for several events.  So `keyed` matches small batches, and batches with an event of
more attributes than fit a warp (256).  The grid, for filters with areas and for changing tables, is on the GPU alone, since
two copies would double the work of every change; the GPU then matches all events.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.changes.changes import Changes
from mpi_match.compute.compile_cache import compile_once
from mpi_match.compute.compile_parts import Part
from mpi_match.engines.base import Engine, Pending, check_batch, ended, in_turn, match_all, updating
from mpi_match.engines.entries import can_serve
from mpi_match.engines.keyed.bitmap.rows import LINE_FILTERS
from mpi_match.engines.keyed.cpu import Keyed, consolidated
from mpi_match.engines.keyed.cuda_bitmap import BitmapOnGpu
from mpi_match.engines.keyed.cuda_grid import GridOnGpu, Lists
from mpi_match.engines.keyed.cuda_pipeline import FIRST_EVENTS, PIPELINE_SLOTS, SLICE_EVENTS, Batches, Begun
from mpi_match.engines.keyed.cuda_results import Answers
from mpi_match.engines.keyed.cuda_slot import PipelineSlot, SlicePlan
from mpi_match.engines.keyed.index.filter_rows import too_large
from mpi_match.engines.keyed.index.postings import may_be_long
from mpi_match.engines.keyed.kernels.bitmap import bitmap_kernel
from mpi_match.engines.keyed.kernels.compact import count_kernel, write_kernel
from mpi_match.engines.keyed.kernels.grid_search import grid_kernel
from mpi_match.engines.keyed.kernels.tag_sets import MOST_WARPS, TAG_WIDTHS, TagSetArrays, tag_set_kernel
from mpi_match.engines.keyed.kernels.trie_group import WIDTHS, group_kernel
from mpi_match.engines.keyed.kernels.trie_thread import (
    FILTER_IDS,
    INTERFACES,
    MASKS,
    WIDEST,
    IndexArrays,
    match_kernel,
)
from mpi_match.engines.keyed.kernels.trie_warp import WIDE_WIDTHS, wide_kernel
from mpi_match.engines.keyed.tag_sets.index import TagSetIndex
from mpi_match.engines.sharing import Turns
from mpi_match.errors import EngineError
from mpi_match.events.batch import EventBatch
from mpi_match.gpu.event_batch import GpuBatch
from mpi_match.gpu.event_scanner import LEAST_GPU_BYTES, GpuEventScanner
from mpi_match.gpu.extended_events import EventExtender
from mpi_match.gpu.kernels import Kernel, PinnedPool, open_gpu
from mpi_match.gpu.line_scanner import scan_rows_part
from mpi_match.ingest.json.event_scanner import EventScanner, LineScanner
from mpi_match.ingest.rows.judge import EventForm
from mpi_match.matches.matches import Matches, id_dtype
from mpi_match.table.table import Table

log = logging.getLogger(__name__)

CPU_EVENTS, CPU_LINES = 64, 1024
"""Events, or lines, below which the CPU matches a batch.  The limit in lines is for tables with most filters in a bitmap: it
counts the lines of all events, since a GPU reads them all at once."""
LOADED_ANSWERS = 2**22
"""Most answers of the batch of empty events that loads the kernels; the batch has at least `CPU_EVENTS` events, even if they
have more answers."""
FEW_INTERFACES = 64
"""Most interfaces of a table for which an answer is a bit mask."""
POOL_BYTES = LINE_POOL_BYTES = 2**30
"""Most bytes of pinned host memory for answers in use, and for lines."""


class KeyedCuda(Engine):
    """The index of one table on one GPU.

    `begin` does not wait for batches begun earlier: see `Engine.begin`.
    """

    name = "keyed_cuda"
    takes_changes = compiles = places = True
    _sharing: Turns

    def __init__(self, table: Table, device: int | None = None, threads: int | None = None, *, live: bool = False) -> None:
        self._gpu = open_gpu(device)
        self.device, self.gpu = self._gpu.info.name, self._gpu.info.uuid
        self._table, self._live = table, live
        self._n_filters, self._n_interfaces = table.n_filters, table.n_interfaces
        self._pool = PinnedPool(POOL_BYTES)
        self._line_pool = PinnedPool(LINE_POOL_BYTES, self._gpu.pinned_regions)
        self._sharing = Turns(self, on_gpu=True)
        self._extender = EventExtender(self._gpu, table.vocabulary.packed_dtype)
        self._kernel_s = 0.0  # of dropped pipelines
        self._new_pipeline()
        self._grid: GridOnGpu | None = None
        self._bitmap: BitmapOnGpu | None = None
        self._cpu: Keyed | None = None
        self._few, self._may_be_long = CPU_LINES, False
        self._sets = None if live else self._tag_sets(table, threads)
        if self._sets is None:
            self._build(table, threads, live=live)
        self._load_kernels()

    def _new_pipeline(self) -> None:
        self._pipeline_slots = [PipelineSlot(self._gpu, self._table.vocabulary.packed_dtype) for _ in range(PIPELINE_SLOTS)]
        self._batches = Batches(self._pipeline_slots)

    def renew(self) -> None:
        """Make a new pipeline; batches already begun end in the old one."""
        self._gpu.make_current()
        with suppress(Exception):
            self._batches.drain()
        self._kernel_s = self.kernel_s
        self._new_pipeline()

    def _tag_sets(self, table: Table, threads: int | None) -> TagSetArrays | None:
        """Upload the index of a large table of tag sets; None for another table.  The CPU keeps the index, too."""
        sets = TagSetIndex.of(table)
        if sets is None:
            return None
        self._cpu = Keyed(table, threads=threads, sets=sets)
        facts = np.array([sets.shortest[0], table.vocabulary.shift, len(sets.always), len(sets.interface)], np.int64)
        arrays = (sets.tag, sets.records, sets.directory, sets.bits, sets.interface, sets.always, facts)
        return TagSetArrays(*(self._gpu.upload(array) for array in arrays))

    def _build(self, table: Table, threads: int | None, *, live: bool) -> None:
        """Build the index and the arrays that a search needs."""
        self._host_index, self._live_filters, bitmap = consolidated(table, live=live)
        packed, lists = self._gpu.upload(self._host_index.table), self._gpu.upload(self._host_index.words)
        self._index = IndexArrays(packed.viewed(np.uint32), packed, lists)
        self._may_be_long = live or may_be_long(table)
        bins, shift = self._live_filters.bins, table.vocabulary.shift
        self._bitmap = None if bins is None else BitmapOnGpu(self._gpu, bitmap, bins, shift)
        n_in_bitmap = 0 if bitmap is None else len(bitmap.filters)
        if 2 * n_in_bitmap > table.n_filters:
            self._few = CPU_LINES // max(n_in_bitmap // LINE_FILTERS, 1)
        self._has_trie = len(table.filters.area) + n_in_bitmap < table.n_filters
        if live or not self._live_filters.is_empty:
            self._grid = GridOnGpu(
                self._gpu,
                self._live_filters,
                table.filters.area,
                Lists(lists, len(self._host_index.words)),
                self._bitmap,
                live=live,
            )
        else:
            self._cpu = Keyed(table, threads=threads, built=(self._host_index, self._live_filters, bitmap))

    @classmethod
    def serves(cls, table: Table) -> str | None:
        return too_large(table)

    @classmethod
    def compiled_apart(cls, packed: str) -> Sequence[Part]:
        kernels = Part(f"keyed_kernels-{packed}", f"{__name__}:{compile_kernels.__name__}", packed)
        return (kernels, *Keyed.compiled_apart(packed))

    @classmethod
    def compiled_for_lines(cls, packed: str, form: EventForm) -> Sequence[Part]:
        return (scan_rows_part(packed, form),)

    @updating
    def update(self, changes: Changes) -> None:
        self._gpu.make_current()
        self._batches.drain()  # they are matched with the grid as it is before the changes
        effects = self._live_filters.update(changes)
        if self._grid is not None:
            self._grid.put(effects)
        self._n_filters, self._n_interfaces = changes.n_filters, changes.n_interfaces

    @property
    def has_bitmap(self) -> bool:
        """Tells whether the table has filters in a bitmap."""
        return self._bitmap is not None

    @property
    def kernel_s(self) -> float:
        """Seconds so far in which at least one matching kernel ran; kernels of several slices may overlap."""
        return self._kernel_s + self._batches.clock.busy_s

    @property
    def nbytes(self) -> int:
        host = (self._host_index.nbytes + self._live_filters.nbytes) if self._cpu is None else self._cpu.nbytes
        return host + self._gpu.n_bytes

    def _load_kernels(self) -> None:
        """Load the kernels and allocate each slot's initial memory, so that the first batch does not wait for them."""
        n = FIRST_EVENTS + (len(self._pipeline_slots) - 1) * SLICE_EVENTS
        nothing, fingerprint = np.zeros(0, self._table.vocabulary.packed_dtype), self._table.vocabulary.fingerprint
        one = self.match(EventBatch(np.zeros(2, np.uint32), nothing, None, fingerprint))
        if n_answers := len(one.ids):  # every event without attributes matches these filters
            n = min(n, max(LOADED_ANSWERS // n_answers, CPU_EVENTS))
        self.match(EventBatch(np.zeros(n + 1, np.uint32), nothing, None, fingerprint))
        for slot in self._pipeline_slots:
            slot.reserve(FIRST_EVENTS * WIDTHS[0] // 2)

    def pin(self, memory: Sequence[Array]) -> None:
        self._gpu.make_current()
        for each in memory:
            try:
                self._gpu.pinned_regions.hold(each)
            except EngineError as refusal:
                log.debug("events take an extra copy on their way to the GPU: %s", refusal)

    def extended(self, batch: EventBatch, found: Matches, attribute_of: Array) -> EventBatch:
        if not isinstance(batch, GpuBatch):
            return super().extended(batch, found, attribute_of)
        self._gpu.make_current()
        return self._extender.extended(batch, found, attribute_of)

    def placed(self, batch: EventBatch) -> EventBatch:
        self._gpu.make_current()
        return self._extender.placed(batch)

    def host_memory(self, n_bytes: int) -> Array:
        if n_bytes < LEAST_GPU_BYTES:
            return np.empty(n_bytes, np.uint8)
        self._gpu.make_current()
        found = self._line_pool.take(n_bytes, np.uint8)
        return np.empty(n_bytes, np.uint8) if found is None else found

    def scanner(self, scanner: LineScanner) -> LineScanner:
        if not isinstance(scanner, EventScanner):
            return scanner
        self._gpu.make_current()
        return GpuEventScanner(self._gpu, scanner)

    def warm_up(self, example: Callable[[], EventBatch | None], *, filters: bool = False) -> None:
        """Match one batch more than there are slots, and keep all answers until the end."""
        if (batch := example()) is not None:
            with suppress(EngineError):
                _ = list(match_all(self, [batch] * (PIPELINE_SLOTS + 1), filters=filters))

    def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        return ended(self.begin(batch, filters=filters))

    def begin(self, batch: EventBatch, *, filters: bool = False) -> Matches | Pending:
        check_batch(self._table, batch)
        if self._cpu is not None and (batch.n_events < min(CPU_EVENTS, self._few) or batch.widest > WIDE_WIDTHS[-1]):
            return self._cpu.match(batch, filters=filters)
        if batch.widest > WIDEST:
            raise EngineError(
                f"an event has {batch.widest:,} attributes; keyed_cuda takes at most {WIDEST:,} in tables with areas "
                f"or changes; {can_serve('any attributes')}"
            )
        return self._begin(batch, filters=filters)

    @in_turn
    def _begin(self, batch: EventBatch, filters: bool) -> Matches | Pending:
        """Begin a batch on the GPU."""
        widest = batch.widest
        n_ids = self._n_filters if filters else self._n_interfaces
        if not len(batch):
            return Matches.from_counts(np.zeros(0, np.int64), np.zeros(0, id_dtype(n_ids)), n_ids)
        self._gpu.make_current()
        kind = FILTER_IDS if filters else MASKS if n_ids <= FEW_INTERFACES else INTERFACES
        widths = (*WIDTHS, *WIDE_WIDTHS, WIDEST)
        packed = self._table.vocabulary.packed_dtype.name
        variant = (next(w for w in widths if widest <= w), packed, kind, self._may_be_long)
        is_wide = self._sets is not None or variant[0] in WIDE_WIDTHS
        if self._sets is not None:
            trie: Kernel | None = tag_set_kernel(next(w for w in TAG_WIDTHS if widest <= w), packed, kind)
        else:
            search = wide_kernel if is_wide else group_kernel if variant[0] in WIDTHS else match_kernel
            trie = search(*variant) if self._has_trie else None
        if self._grid is not None:
            self._grid.flush()
        answers = Answers(len(batch), n_ids, self._pool)
        plan = SlicePlan(
            kind,
            trie,
            is_wide,
            1 if self._sets is None else MOST_WARPS,
            None if self._bitmap is None else bitmap_kernel(*variant[1:]),
            None if self._grid is None else grid_kernel(*variant),
            count_kernel(kind == MASKS, answers.count_dtype.name),
            write_kernel(kind == MASKS, answers.count_dtype.name, answers.id_dtype.name),
            answers.count_dtype,
            n_ids,
            self._index if self._sets is None else self._sets,
            self._bitmap,
            self._grid,
        )
        return _Begun(self, self._batches.begin(batch, plan, answers))

    def end(self, begun: Begun) -> Matches:
        """The answer of a begun batch."""
        return self._sharing.take(self, KeyedCuda._end, begun)

    def _end(self, begun: Begun) -> Matches:
        self._gpu.make_current()
        return begun.end()


def compile_kernels(packed: str) -> None:
    """Compile the kernels that most tables need, for attributes of dtype `packed`, or load them."""
    with compile_once(f"keyed_kernels-{packed}", 4):
        _ = open_gpu()
        width = WIDTHS[0]
        for kernel in (group_kernel(width, packed, MASKS, False), grid_kernel(width, packed, MASKS, False)):
            kernel.load()


class _Begun(NamedTuple):
    """A begun batch, as `begin` returns it."""

    engine: KeyedCuda
    batch: Begun

    def end(self) -> Matches:
        return self.engine.end(self.batch)
