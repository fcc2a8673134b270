"""`keyed` on a GPU: the CPU's index in two uploads, one event per thread, and copies that hide behind the matching.

A batch is cut into slices.  Two lanes, each a stream with its pinned and device buffers, take slices in turn, so that slice
s is copied and matched while the answers of slice s - 1 are fetched:

    lane 0   copy in 0 | match 0 | sums, scan | counts, total out |               ids out | copy in 2 | ...
    lane 1              copy in 1 | match 1 | ...                                          ids out | ...

Events in memory that the engine was told of (`pin`) are copied in from there, others by way of the lane's pinned buffers.
The number of ids is known only when a slice has been matched; its ids follow its counts when the lane comes round again,
straight to where they stay (`keyed_cuda_answers`).

Where all filters stand in the trie, the engine keeps its CPU twin on the same index.  The shortest way to a GPU and back
takes as long as a CPU core takes for several events, so batches below `FEW_EVENTS` go there, and so do batches with an event
of more attributes than a warp has room for (256).  The grid, for filters with areas and for tables that change, is on the
GPU alone, since keeping two of them would double the work of every change; events are matched there however few they are.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import NamedTuple

import numpy as np

from mpi_match.arrays import Array
from mpi_match.batch import EventBatch
from mpi_match.changes import Changes
from mpi_match.engines import EngineError, check_batch, check_changes
from mpi_match.engines._cuda import WARP, DeviceArray, DeviceBuffer, Gpu, Kernel, Mark, PinnedBuffer, PinnedPool, open_gpu
from mpi_match.engines.keyed import Keyed, consolidated
from mpi_match.engines.keyed_answers import BLOCK, SCAN_THREADS, count_dtype, count_kernel, scan_kernel, write_kernel
from mpi_match.engines.keyed_cuda_answers import Answers
from mpi_match.engines.keyed_cuda_grid import GridOnGpu
from mpi_match.engines.keyed_grid_kernel import grid_kernel
from mpi_match.engines.keyed_kernel import FILTER_IDS, INTERFACES, MASKS, WIDEST, WIDTHS, match_kernel
from mpi_match.engines.keyed_order import copy
from mpi_match.engines.keyed_wide_kernel import WIDE_WIDTHS, wide_kernel
from mpi_match.matches import Matches, id_dtype
from mpi_match.table import Table

log = logging.getLogger(__name__)

SLICE_EVENTS, SLICE_ATTRIBUTES = 2**18, 2**20
"""Most events of a slice and, about, attributes: enough that launches do not count, few enough that two lanes overlap."""
FEW_EVENTS = 64
FEW_INTERFACES = 64
"""Up to so many interfaces an answer is a bit mask."""
ROOM = 8
"""Slots for answers of an event, to begin with."""
SLOT_BYTES, LONG_SLICE_BYTES, LONG_SLICE_EVENTS = 2**30, 2**25, 2**14
"""Bytes of slots of a lane: more slots per event make shorter slices, so that ids of one leave while the next is matched.
From the second on, slices are no shorter than the third, which keeps a GPU busy, until the first."""
POOL_BYTES = 2**30
"""Most host memory that is pinned for answers which somebody has."""


class KeyedCuda:
    """The index of one table on one GPU.

    `kernel_s` is the time, in seconds, that at least one of its matching kernels ran so far: those of two lanes may overlap.
    """

    name = "keyed_cuda"

    def __init__(self, table: Table, device: int | None = None, threads: int | None = None, *, live: bool = False) -> None:
        self._gpu = open_gpu(device)
        self.device, self.gpu = self._gpu.info.name, self._gpu.info.uuid
        self._table, self._live = table, live
        self._n_filters, self._n_interfaces = table.n_filters, table.n_interfaces
        self._host_index, self._residents = consolidated(table, live=live)
        packed, lists = self._gpu.upload(self._host_index.table), self._gpu.upload(self._host_index.words)
        self._index = (packed.viewed(np.uint32), packed, lists)
        self._has_trie = len(table.filters.area) < table.n_filters
        self._grid: GridOnGpu | None = None
        self._cpu: Keyed | None = None
        if live or not self._residents.is_empty:
            self._grid = GridOnGpu(self._gpu, self._residents, table.filters.area, lists)
        else:
            self._cpu = Keyed(table, threads=threads, built=(self._host_index, self._residents))
        self._room, self._pool = ROOM, PinnedPool(POOL_BYTES)
        self._lanes = [_Lane(self._gpu, lists.dtype) for _ in range(2)]
        self.kernel_s = 0.0
        self._warm_up()

    def update(self, changes: Changes) -> None:
        """See `Engine.update`."""
        check_changes(self.name, self._live, self._table, changes)
        effects = self._residents.update(changes)
        if self._grid is not None:
            self._grid.put(effects)
        self._n_filters, self._n_interfaces = changes.n_filters, changes.n_interfaces

    @property
    def nbytes(self) -> int:
        """See `Engine.nbytes`."""
        host = (self._host_index.nbytes + self._residents.nbytes) if self._cpu is None else self._cpu.nbytes
        return host + self._gpu.n_bytes

    def _warm_up(self) -> None:
        """Load the kernels, and let every lane take its first memory, before the first batch waits for it."""
        n = len(self._lanes) * SLICE_EVENTS
        nothing = np.zeros(0, self._host_index.words.dtype)
        self.match(EventBatch(np.zeros(n + 1, np.uint32), nothing, None, self._table.vocabulary.fingerprint))
        for lane in self._lanes:
            lane.reserve(WIDTHS[0] // 2)

    def pin(self, memory: Array) -> None:
        """See `engines.pin`."""
        self._gpu.make_current()
        try:
            self._gpu.pinned_regions.hold(memory)
        except EngineError as refusal:
            log.debug("events are copied once more on their way to the GPU: %s", refusal)

    def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        """See `Engine.match`."""
        if self._cpu is not None and batch.n_events < FEW_EVENTS:
            return self._cpu.match(batch, filters=filters)
        check_batch(self._table, batch)
        widest = batch.widest
        if self._cpu is not None and widest > WIDE_WIDTHS[-1]:
            return self._cpu.match(batch, filters=filters)
        if widest > WIDEST:
            raise EngineError(
                f"an event has {widest:,} attributes; beside areas and changes keyed_cuda has room for {WIDEST:,}, use keyed"
            )
        n_ids = self._n_filters if filters else self._n_interfaces
        if not len(batch):
            return Matches.from_counts(np.zeros(0, np.int64), np.zeros(0, id_dtype(n_ids)), n_ids)
        self._gpu.make_current()
        kind = FILTER_IDS if filters else MASKS if n_ids <= FEW_INTERFACES else INTERFACES
        widths = (*WIDTHS, *WIDE_WIDTHS, WIDEST)
        variant = (next(w for w in widths if widest <= w), f"uint{8 * batch.attributes.itemsize}", kind)
        is_wide = variant[0] in WIDE_WIDTHS
        trie_kernel = wide_kernel if is_wide else match_kernel
        if self._grid is not None:
            self._grid.flush()
        answers, longest = Answers(len(batch), n_ids, self._pool), _slice_events(batch)
        plan = _Plan(
            kind,
            trie_kernel(*variant) if self._has_trie else None,
            is_wide,
            None if self._grid is None else grid_kernel(*variant),
            count_kernel(kind == MASKS),
            write_kernel(kind == MASKS, answers.id_dtype.name),
            n_ids,
        )
        free, waiting, at = [*self._lanes], deque[tuple[_Lane, EventBatch]](), 0
        clock = _Clock(free[-1])
        while at < batch.n_events or waiting:
            if at < batch.n_events and free:
                lane = free.pop()
                size = longest if kind == MASKS else min(longest, _room_for_events(self._room))
                part = batch[at : at + size]
                lane.start(part, self._index, self._grid, plan, self._room)
                waiting.append((lane, part))
                at += len(part)
                continue
            lane, part = waiting.popleft()
            most = lane.most() if kind != MASKS else 0
            if most > lane.room:
                self._room = max(self._room, 1 << (most - 1).bit_length())
                self._again(lane, part, plan, answers, clock)
            else:
                lane.finish(plan, answers)
                clock.add(lane)
            free.append(lane)
        self.kernel_s += clock.busy_s
        return answers.matches()

    def _again(self, lane: _Lane, part: EventBatch, plan: _Plan, answers: Answers, clock: _Clock) -> None:
        """Match a slice whose answers did not fit once more, in pieces that have the room."""
        room = max(1 << (lane.most() - 1).bit_length(), self._room)
        size = _room_for_events(room)
        for at in range(0, len(part), size):
            lane.start(part[at : at + size], self._index, self._grid, plan, room)
            lane.finish(plan, answers)
            clock.add(lane)


class _Clock:
    """Device time in which kernels of one lane or another ran."""

    def __init__(self, first: _Lane) -> None:
        self._start, self._until_s, self.busy_s = first.mark(), 0.0, 0.0

    def add(self, lane: _Lane) -> None:
        """Add a slice that is done; slices are added in the order in which they began."""
        start_s, end_s = lane.span(self._start)
        self.busy_s += max(end_s - max(start_s, self._until_s), 0.0)
        self._until_s = max(end_s, self._until_s)


def _slice_events(batch: EventBatch) -> int:
    """Events of a slice."""
    narrow = SLICE_ATTRIBUTES * len(batch) // max(len(batch.attributes), 1)
    return min(SLICE_EVENTS, max(narrow, SLICE_EVENTS // 16))


def _room_for_events(room: int) -> int:
    """Events of a slice with so many slots each."""
    n_bytes = 4 * room
    return min(max(LONG_SLICE_BYTES // n_bytes, LONG_SLICE_EVENTS), max(SLOT_BYTES // n_bytes, 1))


class _Plan(NamedTuple):
    """What a batch needs.

    The kind of answer; the kernels, where the trie, or the grid, has filters, and whether events are so wide that the trie's
    needs a warp for each; the number of ids.
    """

    kind: int
    trie_kernel: Kernel | None
    is_wide: bool
    grid_kernel: Kernel | None
    count_kernel: Kernel
    write_kernel: Kernel
    n_ids: int


class _Lane:
    """A stream with the buffers of one slice."""

    def __init__(self, gpu: Gpu, packed: np.dtype) -> None:
        self._stream, self._regions = gpu.stream(), gpu.pinned_regions
        inputs = {"offsets": np.dtype(np.uint32), "attributes": packed, "location": np.dtype(np.float64)}
        self._staged = {name: _both(gpu, dtype) for name, dtype in inputs.items()}
        self._found, self._sums, self._slots = gpu.buffer(np.uint64), gpu.buffer(np.uint64), gpu.buffer(np.uint32)
        self._counts = {is_mask: _both(gpu, count_dtype(is_mask)) for is_mask in (False, True)}
        self._ids = {dtype: _both(gpu, dtype) for dtype in _ID_DTYPES}
        self._total = PinnedBuffer(np.uint64)
        self._marks = Mark(), Mark()
        self.room = 0

    def mark(self) -> Mark:
        """A mark where the stream is now."""
        return Mark().record(self._stream)

    def span(self, since: Mark) -> tuple[float, float]:
        """When the slice's kernels began and ended, in seconds since a mark; it has been finished."""
        start, end = (mark.seconds_since(since) for mark in self._marks)
        return start, end

    def reserve(self, n_attributes: int) -> None:
        """Take the memory for a slice whose events have so many attributes on average."""
        for buffer in self._staged["attributes"]:
            buffer.array(SLICE_EVENTS * n_attributes)

    def start(
        self, part: EventBatch, index: tuple[DeviceArray, ...], grid: GridOnGpu | None, plan: _Plan, room: int
    ) -> None:
        """Give a slice to the GPU: all but fetching its ids."""
        n, stream = len(part), self._stream
        self.room, self._n = room, n
        events = [self._stage("offsets", part.offsets), self._stage("attributes", part.attributes)]
        location = None
        if grid is not None:
            location = self._stage("location", _NOWHERE if part.location is None else part.location)
        is_mask = plan.kind == MASKS
        found = self._found.array(n)
        slots = self._slots.array(1 if is_mask else n * room)
        n_groups = -(-n // BLOCK)
        sums = self._sums.array(n_groups + 1)
        host_counts, counts_buffer = self._counts[is_mask]
        counts = counts_buffer.array(n)
        self._marks[0].record(stream)
        shape = [n, room, plan.n_ids if is_mask else 0]
        if plan.trie_kernel is None or plan.is_wide:
            stream.zero(found)
        if plan.trie_kernel is not None:
            n_blocks = -(-n * (WARP if plan.is_wide else 1) // BLOCK)
            plan.trie_kernel.bind((n_blocks,), BLOCK, [*events, *index, found, slots, *shape])(stream)
        if plan.grid_kernel is not None and grid is not None and location is not None:
            plan.grid_kernel.bind(
                (-(-n * WARP // BLOCK),),
                BLOCK,
                [*events, location, *index[:2], *grid.arrays, found, slots, n, room, grid.n_levels],
            )(stream)
        self._marks[1].record(stream)
        plan.count_kernel.bind((n_groups,), BLOCK, [found, counts, sums, n])(stream)
        scan_kernel.bind((1,), SCAN_THREADS, [sums, n_groups])(stream)
        stream.copy_out(host_counts.array(n), counts)
        stream.copy_out(self._total.array(1), sums.part(n_groups, n_groups + 1))
        self._work = (found, counts, sums, slots)

    def _stage(self, name: str, values: Array) -> DeviceArray:
        """Bring an input to the device: as it lies in pinned memory, or by way of the lane's."""
        host_buffer, device_buffer = self._staged[name]
        flat = values.reshape(-1)
        device = device_buffer.array(max(len(flat), 1))
        if self._regions.holds(flat):
            self._stream.copy_in(device, flat)
            return device
        host = host_buffer.array(max(len(flat), 1))
        copy(host[: len(flat)], flat)
        self._stream.copy_in(device, host)
        return device

    def most(self) -> int:
        """The largest count of the slice, which may be more than there was room for."""
        self._stream.synchronize()
        return int(self._counts[False][0].array(self._n).max(initial=0))

    def finish(self, plan: _Plan, answers: Answers) -> None:
        """Add the slice to the answers."""
        self._stream.synchronize()
        host_ids, ids_buffer = self._ids[answers.id_dtype]
        ids = ids_buffer.array(int(self._total.array(1)[0]))
        if ids.size:
            found, counts, sums, slots = self._work
            plan.write_kernel.bind((-(-self._n // BLOCK),), BLOCK, [found, counts, sums, slots, ids, self._n, self.room])(
                self._stream
            )
        answers.take(self._counts[plan.kind == MASKS][0].array(self._n), ids, self._stream, host_ids)


def _both(gpu: Gpu, dtype: np.dtype) -> tuple[PinnedBuffer, DeviceBuffer]:
    """Memory for the same on the host and on the GPU."""
    return PinnedBuffer(dtype), gpu.buffer(dtype)


_ID_DTYPES = [np.dtype(each) for each in (np.uint8, np.uint16, np.uint32)]
_NOWHERE = np.full(1, np.nan)

ENGINE = KeyedCuda
