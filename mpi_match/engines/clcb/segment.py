"""A segment: filters of CLCB on the GPU, with the launches that match them and the copies that move them.

An engine has one segment for its table; filters added later go into further segments (`clcb.updates`).  The filters of a
segment are numbered, and its arrays are in the order of these numbers:

    filters   u32 [k n]   the ids, then a word of each filter's Bloom filter of names (two words if it has 64 bits)
    areas     f64 [3 n]   x, y and radius of each filter, or three columns; ANYWHERE for a filter without an area, NOWHERE
                          for a removed one
    rows, words           CCM's table (`ccm.layout`), without areas

`ccm.bloom` defines the bits that a name sets.

**Moves.**  An area is 24 bytes at an address computed from the filter's number, so moving it is one small copy (or three, of
columns), in constant time.  A filter is removed by moving it to NOWHERE.  Many moves at once are copied together, and
kernels write them.  If a filter moves more than once, the last move must win; stamps decide this: each move has a higher
number than all moves before, and a filter's stamp is the highest number of its moves.

    stamp    stamps[filter] = max(stamps[filter], number of the move)       a thread per move
    place    areas[filter] = circle, if stamps[filter] is still its number  a thread per move
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.engines.ccm.bloom import filter_names
from mpi_match.engines.ccm.kernel import MAX_ATTRIBUTES
from mpi_match.engines.ccm.layout import ccm_rows
from mpi_match.engines.clcb.kernels import (
    CLCB_BLOCK,
    ROWS_AHEAD,
    Marks,
    SegmentArrays,
    cont_kernel,
    counter_words,
    loc_kernel,
)
from mpi_match.engines.clcb.options import ClcbVariant
from mpi_match.engines.entries import can_serve
from mpi_match.errors import EngineError
from mpi_match.gpu.intrinsics import WARP
from mpi_match.gpu.kernels import Argument, DeviceArray, Gpu, Kernel, KernelLaunch, PinnedBuffer, Rows, Stream, cuda, kernel
from mpi_match.gpu.step_times import StepTimes
from mpi_match.gpu.upload import Upload
from mpi_match.table.table import Table

BLOCKS_PER_MULTIPROCESSOR = 4
"""Blocks of a launch along x and y together, per multiprocessor: as many as it runs at once with `CLCB_REGISTERS`.  Each
block reads its events' input once for all its filters or rows."""
ANYWHERE, NOWHERE = (0, 0, np.inf), (np.nan, np.nan, np.nan)
"""The area of a filter without one, and that of a removed filter: x, y, radius."""
FEW_MOVES = 8
"""Most moves that are copied one by one."""
MOVES_UNDER_WAY = 1024
"""Most moves whose copies may be in progress."""


def filter_columns(table: Table, ids: Array, variant: ClcbVariant) -> tuple[Array, Array]:
    """The arrays `filters` and `areas` of a segment, for filters with these ids."""
    names = filter_names(table, variant.bloom_bits, variant.bloom_hashes)
    areas = np.full((table.n_filters, 3), ANYWHERE)
    areas[table.filters.area_filter] = table.filters.area
    return np.concatenate([ids.astype(np.uint32), names.reshape(-1)]), areas


class Segment:
    """The filters of a table on the GPU.

    `table` has the interface of each of its filters (its labels are not used) and their initial areas; `ids` are the
    filters' ids.  A word has 2^`runs_log` runs, as many as the options and the width of its counts allow.  `put(filter,
    circle)` moves a filter: the constant-time update of the paper.
    """

    def __init__(self, gpu: Gpu, stream: Stream, table: Table, ids: Array, variant: ClcbVariant) -> None:
        nowhere = replace(table.filters, area_filter=table.filters.area_filter[:0], area=table.filters.area[:0])
        base = ccm_rows(replace(table, filters=nowhere), "clcb", by_filter=True)
        uploads = [Upload(gpu, (base.rows, base.words))]  # in parallel with the rest of the set-up
        filters, areas = filter_columns(table, ids, variant)
        uploads.append(Upload(gpu, [filters]))
        self.table, self.ids, self.n_filters = table, ids, table.n_filters
        self.runs_log = min(base.counter_log, variant.runs.bit_length() - 1)
        self._variant = variant
        self._longest_run = base.longest_run
        self._columns = variant.areas == "columns"
        self._uploads = uploads
        self._areas = gpu.upload(np.ascontiguousarray(areas.T) if self._columns else areas)
        self._gpu, self._stream = gpu, stream
        width = 1 if self._columns else 3
        self._places = Rows(stream, self._areas, width, MOVES_UNDER_WAY)
        self.put: Callable[[int, Array], None] = self._put_columns if self._columns else self._places.put
        self._stamps: DeviceArray | None = None
        self._next_stamp = 1
        self._moves = [(PinnedBuffer(dtype), gpu.buffer(dtype)) for dtype in (np.uint32, np.float64)]

    def launches(
        self,
        events: DeviceArray,
        counters: DeviceArray,
        interfaces: DeviceArray,
        n_attributes: int,
        n_events: int,
        steps: StepTimes,
    ) -> Callable[[int, int, int], None]:
        """Return a function `launch(first, n_events, run)` that launches Loc and Cont; arguments as for `loc_kernel`.

        Events have up to `n_attributes` attributes; a launch has up to `n_events` events.  Raises EngineError for more than
        MAX_ATTRIBUTES.
        """
        if n_attributes > MAX_ATTRIBUTES:
            raise EngineError(
                f"an event has {n_attributes} attributes; clcb takes at most {MAX_ATTRIBUTES}; {can_serve('any attributes')}"
            )
        (rows, words), (filters,) = (upload.on_device for upload in self._uploads)
        arrays = SegmentArrays(filters, rows, words)
        rest = (events, Marks(counters, interfaces), self.n_filters, 0, n_events, 0)
        groups = self._variant.groups
        loc = spread(loc_kernel(self._variant), self._gpu, self.n_filters, (arrays, self._areas, *rest))
        items = -(-self._longest_run // WARP) if groups else self._longest_run
        cont = spread(cont_kernel(groups), self._gpu, items, (arrays, *rest), max(n_attributes, 1), n_events)
        for upload in self._uploads:  # after the kernels, which are loaded meanwhile
            upload.wait()

        def launch(first: int, n_events: int, run: int) -> None:
            for name, bound, at in (("Loc", loc, 5), ("Cont", cont, 4)):
                steps.at(self._stream, name)
                for offset, value in enumerate((first, n_events, run)):
                    bound.set(at + offset, value)
                bound(self._stream)

        return launch

    @cached_property
    def by_interface(self) -> tuple[Array, Array]:
        """The filters ordered by interface, and their interfaces in this order."""
        interface = self.table.filters.interface
        order = np.argsort(interface, kind="stable")
        return order, interface[order]

    def areas(self) -> Array:
        """f64[n, 3]: the present areas."""
        found = np.empty(3 * self.n_filters)
        self._stream.copy_out(found, self._areas)
        self._stream.synchronize()
        return found.reshape(3, -1).T if self._columns else found.reshape(-1, 3)

    def zero(self, counters: DeviceArray) -> None:
        """Zero the counters; with reset=loc only the flags of groups, which follow the counters of each word."""
        if self._variant.reset == "memset":
            self._stream.zero(counters)
        elif self._variant.groups:
            n_words = counter_words(self.n_filters)
            for first in range(0, counters.size if n_words else 0, n_words or 1):
                self._stream.zero(counters.part(first + self.n_filters, first + n_words))

    def _put_columns(self, filter_id: int, circle: Array) -> None:
        """Move a filter whose x, y and radius are in columns."""
        for column, value in enumerate(circle.reshape(-1)):
            self._places.put(column * self.n_filters + filter_id, value)

    def move(self, filters: Array, circles: Array) -> None:
        """Move filters (by number, in order, perhaps repeated) to new circles f64[n, 3]; NOWHERE removes a filter."""
        if len(filters) > FEW_MOVES:
            self._move_many(filters, circles)
            return
        for filter_id, circle in zip(filters.tolist(), circles, strict=True):
            self.put(filter_id, circle)

    def _move_many(self, filters: Array, circles: Array) -> None:
        if self._stamps is None:
            self._stamps = self._gpu.buffer(np.int64).array(self.n_filters)
            self._stream.zero(self._stamps)
        self._stream.synchronize()  # copies of the pinned arrays may be in progress
        arrays = []
        for (host_buffer, device_buffer), values in zip(self._moves, (filters, circles.reshape(-1)), strict=True):
            host, device = host_buffer.array(len(values)), device_buffer.array(len(values))
            host[:] = values
            self._stream.copy_in(device, host)
            arrays.append(device)
        n = len(filters)
        spread(stamp_kernel, self._gpu, n, (self._stamps, arrays[0], self._next_stamp, n))(self._stream)
        strides = (1, self.n_filters) if self._columns else (3, 1)
        spread(place_kernel, self._gpu, n, (self._areas, self._stamps, *arrays, self._next_stamp, n, *strides))(self._stream)
        self._next_stamp += n


def spread(kernel: Kernel, gpu: Gpu, n: int, args: Sequence[Argument], y: int = 1, z: int = 1) -> KernelLaunch:
    """Bind a kernel to a grid whose x axis covers n items, and whose other axes have `y` and `z` blocks."""
    most = max(gpu.info.n_multiprocessors * BLOCKS_PER_MULTIPROCESSOR // y, 1)
    return kernel.bind((min(max(-(-n // (CLCB_BLOCK * ROWS_AHEAD)), 1), most), y, z), CLCB_BLOCK, args)


@kernel("void(int64[::1], uint32[::1], int64, int64)")
def stamp_kernel(stamps: Array, filters: Array, first_stamp: int, n: int) -> None:
    """Set the stamp of each filter to the number of its last move.  One thread per move (a thread may take several).

    `stamps` i64[n_filters]: highest number of a move of each filter; `filters` u32[n]: the filter of each move.  Move i has
    number `first_stamp` + i, higher than all before.
    """
    i = np.int64(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
    while i < n:
        cuda.atomic.max(stamps, np.int64(filters[i]), first_stamp + i)
        i += cuda.gridDim.x * cuda.blockDim.x


@kernel("void(float64[::1], int64[::1], uint32[::1], float64[::1], int64, int64, int64, int64)")
def place_kernel(
    areas: Array,
    stamps: Array,
    filters: Array,
    circles: Array,
    first_stamp: int,
    n: int,
    filter_stride: int,
    item_stride: int,
) -> None:
    """Copy the circles f64[3 n] of the last moves to `areas` f64[3 n_filters].  Launched after `stamp_kernel`, with its
    arguments.

    Component k of the circle of filter f is at index `filter_stride` f + `item_stride` k.
    """
    i = np.int64(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
    while i < n:
        filter_id = np.int64(filters[i])
        if stamps[filter_id] == first_stamp + i:
            for k in range(3):
                areas[filter_stride * filter_id + item_stride * k] = circles[3 * i + k]
        i += cuda.gridDim.x * cuda.blockDim.x
