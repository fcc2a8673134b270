"""Memory shared by all ranks of a host: one of them fills it, then all map it.

    leader    memory file: reserve, append ...  ─►  map
    others                                          map, read-only, through /proc of the leader

It has no name in any file system (memfd), so the system frees it with the last process that maps it, however that ends, and
the limit of /dev/shm does not apply.  An MPI window would be lost with the first rank that dies.

Linux overcommits memory: it grants the mapping, and kills a process when pages are used that it does not have.  So the
available memory is checked here before it is reserved.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
from pathlib import Path

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.cluster.options import ClusterError
from mpi_match.cluster.transport.topology import Topology
from mpi_match.environment.memory import left_bytes

_FLAGS = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
SPARE_BYTES = 2**28
"""Memory left to other processes."""
STEP_BYTES = 2**26
"""Bytes reserved at a time where the total is unknown."""


def protect(memory: Array) -> None:
    """Let this process only read mapped memory from now on, whatever NumPy's flags say: writing to it ends the process."""
    start, n_bytes = ctypes.c_void_p(memory.ctypes.data), ctypes.c_size_t(memory.nbytes)
    if memory.nbytes and ctypes.CDLL(None).mprotect(start, n_bytes, mmap.PROT_READ):
        raise ClusterError("shared memory cannot be protected against writing")


class HostMemory:
    """Memory of a host while it is filled; messages name its content (`what`) and the alternative (`instead`).

    Constructed by all ranks; each method's docstring names the ranks that call it.
    """

    def __init__(self, topology: Topology, what: str, instead: str) -> None:
        self._topology, self._what, self._instead = topology, what, instead
        self._descriptor = os.memfd_create(f"mpi-match {what}", _FLAGS) if topology.leads_node else -1
        self._reserved = self._written = 0

    def reserve(self, n_bytes: int) -> None:
        """Leader: reserve `n_bytes` in all at once; a lack of memory is an error here, not a SIGBUS at the first access.

        Raises ClusterError when the host lacks the memory.
        """
        more = n_bytes - self._reserved
        if more <= 0:
            return
        left = left_bytes()
        if more > left - SPARE_BYTES:
            raise ClusterError(
                f"no memory for {self._what}: {n_bytes:,} bytes to be shared on this host, "
                f"{max(left + self._reserved - SPARE_BYTES, 0):,} can be had; {self._instead}"
            )
        try:
            os.posix_fallocate(self._descriptor, self._reserved, more)
        except OSError as error:
            is_limit = error.errno == errno.EFBIG
            instead = "raise the limit of file sizes (ulimit -f), which shared memory has too" if is_limit else self._instead
            raise ClusterError(f"no memory for {self._what}: {n_bytes:,} bytes: {error.strerror}; {instead}") from error
        self._reserved = n_bytes

    def append(self, values: Array) -> None:
        """Leader: append contiguous values, reserving memory for them.  Raises ClusterError."""
        if self._written + values.nbytes > self._reserved:
            self.reserve(max(self._written + values.nbytes, self._reserved + STEP_BYTES))
        left = memoryview(values.reshape(-1).view(np.uint8).data)
        while left:
            n = os.pwrite(self._descriptor, left, self._written)
            left, self._written = left[n:], self._written + n

    def map(self, n_bytes: int, *, finished: bool = False) -> Array:
        """All: u8[n_bytes], the same memory on all ranks of the host.  Raises Ended.

        Only the leader may write, and no rank may after `finished`.  Then the mapping is writable and only the NumPy array
        is not, because some GPU drivers pin writable mappings only.  A rank that does not hold the data (`Topology.among`)
        gets an empty array.
        """
        node, leads = self._topology.node, self._topology.leads_node
        if leads:
            fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)  # else a rank could be killed by SIGBUS
        path = "" if node is None else node.bcast(f"/proc/{os.getpid()}/fd/{self._descriptor}")
        try:
            memory = self._topology.ranks.agree(f"mapping {self._what}", lambda: self._mapped(Path(path), n_bytes, finished))
            if finished:
                memory.flags.writeable = False
            return memory
        finally:
            if leads:
                os.close(self._descriptor)

    def _mapped(self, path: Path, n_bytes: int, finished: bool) -> Array:
        if n_bytes == 0 or not self._topology.holds:
            return np.empty(0, np.uint8)
        if self._topology.leads_node:
            return np.frombuffer(mmap.mmap(self._descriptor, n_bytes), np.uint8)
        try:
            mine = os.open(path, os.O_RDWR if finished else os.O_RDONLY)
        except OSError as error:
            raise ClusterError(
                f"cannot map {self._what} at {path} ({error.strerror}); "
                "run the ranks of a host as one user, in one container"
            ) from error
        try:
            access = mmap.ACCESS_WRITE if finished else mmap.ACCESS_READ
            return np.frombuffer(mmap.mmap(mine, n_bytes, access=access), np.uint8)
        finally:
            os.close(mine)
