"""The bitmaps of `keyed_cuda` in GPU memory: the table's, and that of filters added later (`bitmap.live_bitmap`).

Removing a filter of the table sets its place to 0.  A filter that was added later has its slot of the grid as position;
after the grid has applied its changes, `enter_kernel` reads the changed slots and writes their bits and places.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.lines import LINE_WORDS
from mpi_match.engines.keyed.bitmap.bins import Bins
from mpi_match.engines.keyed.bitmap.rows import BLOCK_FILTERS, BLOCK_LINES, Bitmap
from mpi_match.engines.keyed.grid.geometry import IN_BITMAP, LOW
from mpi_match.engines.keyed.grid.hash_grid import KEEP
from mpi_match.engines.keyed.kernels.bitmap import BitmapArrays, enter_kernel
from mpi_match.engines.keyed.kernels.compact import KEYED_BLOCK
from mpi_match.engines.keyed.kernels.grid import GridState
from mpi_match.gpu.kernels import DeviceArray, Gpu, Stream


class BitmapOnGpu:
    """The bitmaps of one table: that of its own filters, if it has a `bitmap`, and that of later filters, with these `bins`.

    places   places of the filters in the table's bitmap; None if it has none
    """

    def __init__(self, gpu: Gpu, bitmap: Bitmap | None, bins: Bins, shift: int) -> None:
        self._gpu, self._shift = gpu, shift
        columns = [gpu.upload(array) for array in bins]
        self._n_rows, self._n_blocks, self._n_later = bins.n_rows, 0, 0
        nothing = [gpu.buffer(dtype).array(0) for dtype in (np.uint64, np.uint64, np.uint32, np.uint32)]
        self._table = self._later = BitmapArrays(*columns, *nothing)
        self.places: DeviceArray | None = None
        if bitmap is not None:
            arrays = (*bitmap.rows, bitmap.places, bitmap.filters)
            self._words = gpu.upload(bitmap.words)
            self._table = BitmapArrays(*columns, *(gpu.upload(array) for array in arrays))
            self.places, self._n_blocks = self._table.places, len(bitmap.rows.summary)

    def parts(self, words: DeviceArray | None) -> Iterator[tuple[DeviceArray, BitmapArrays, int]]:
        """Yield for each bitmap: the checks of its filters, its arrays as `bitmap_kernel` takes them, and its number of
        blocks.

        `words` holds the checks of the filters in the grid.
        """
        if self._n_blocks:
            yield self._words, self._table, self._n_blocks
        if self._n_later and words is not None:
            yield words, self._later, self._n_later

    def hold(self, steps: Array, stream: Stream) -> None:
        """Make room for the slots that steps (`hash_grid.steps_of`) assign to filters with bits."""
        given = steps[((steps[:, 5] & LOW) == IN_BITMAP) & ((steps[:, 0] & KEEP) == 0), 0] & LOW
        before, n = self._n_later, -(-(int(given.max(initial=0)) + 1) // BLOCK_FILTERS) if len(given) else 0
        if n <= before:
            return
        sizes = (self._n_rows * BLOCK_LINES * LINE_WORDS, self._n_rows, BLOCK_FILTERS, BLOCK_FILTERS)
        old, grown = self._later[4:], []
        for each, size in zip(old, sizes, strict=True):
            array = self._gpu.buffer(each.dtype).array(n * size)
            stream.zero(array)
            if before:
                stream.copy_within(array.part(0, each.size), each)
            grown.append(array)
        self._later, self._n_later = BitmapArrays(*self._later[:4], *grown), n

    def enter(self, steps: DeviceArray, n: int, state: GridState, words: DeviceArray, stream: Stream) -> None:
        """Write the bits of the slots of n steps, which the grid has applied."""
        if self._n_later:
            args: list[Any] = [steps, state, words, self._later, n, self._shift]
            enter_kernel(words.dtype.name).bind((-(-n // KEYED_BLOCK),), KEYED_BLOCK, args)(stream)
