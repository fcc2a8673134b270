"""Uploads arrays to the GPU in a thread while the caller continues: a table, while kernels are loaded.

    thread            copy rows ─ copy words ─ wait for the stream
    caller     Upload ─ make other arrays ─ load kernels ─ wait ─ first launch

The driver copies memory that is not pinned through pinned memory of its own, and the call returns only when it has read
everything.  So a thread makes these calls, which release Python's lock.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.gpu.kernels import Gpu


class Upload:
    """Copies of arrays, which must not change meanwhile, each in its own device memory.

    `on_device` holds the copies, to be used after `wait`.  Raises EngineError if the GPU runs out of memory.
    """

    def __init__(self, gpu: Gpu, arrays: Sequence[Array]) -> None:
        flat = [np.ascontiguousarray(array).reshape(-1) for array in arrays]
        self.on_device = [gpu.buffer(array.dtype).array(max(len(array), 1)) for array in flat]
        self._error: Exception | None = None
        self._copying: threading.Thread | None = threading.Thread(target=self._copy, args=(gpu, flat), name="upload")
        self._copying.start()

    def _copy(self, gpu: Gpu, arrays: Sequence[Array]) -> None:
        try:
            gpu.make_current()
            stream = gpu.stream()
            for to, array in zip(self.on_device, arrays, strict=True):
                stream.copy_in(to, array)
            stream.synchronize()
        except Exception as error:
            self._error = error

    def wait(self) -> None:
        """Wait until everything is copied; may be called any number of times.  Raises what copying raised."""
        if self._copying is not None:
            self._copying.join()
            self._copying = None
        if self._error is not None:
            raise self._error
