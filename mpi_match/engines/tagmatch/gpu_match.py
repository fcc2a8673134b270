"""Subset matching of batches on a GPU: streams, each with an even and an odd result buffer.

A stream works in cycles.  In cycle k the kernel writes the results of job k to one buffer, and their number to the head of
the other, which still holds the results of job k - 1.  So a single copy out, whose size is known since cycle k - 1, brings
the results of job k - 1 and the number of results of job k (section 3.3.1 of the paper):

    even buffer     | n1 | results of job 0 |        | n3 | results of job 2 |
    odd buffer             | n2 | results of job 1 |        | n4 | results of job 3 |
    copied out      --------  cycle 1  ------ cycle 2 -------- cycle 3 ----

A job whose results do not fit is repeated with a larger buffer: nothing is truncated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import jit
from mpi_match.engines.tagmatch import kernel
from mpi_match.engines.tagmatch.kernel import GROUP_RESULTS, GROUP_WORDS, JOB_WORDS, match_kernel
from mpi_match.engines.tagmatch.options import MOST_QUERIES, PARTITIONED, TagMatchVariant
from mpi_match.engines.tagmatch.queues import PartitionBatches
from mpi_match.gpu.kernels import DeviceArray, Gpu, KernelLaunch, Mark, PinnedBuffer

FIRST_RESULTS = 1 << 16
"""Initial capacity of a buffer, in results."""
HEAD_WORDS = 4
"""Words of a buffer before its results; the first word is the number of results in the other buffer."""


class Job(NamedTuple):
    """The batches of one launch.

    rows     i64[b, 2]  bounds of the sets of each batch's partition; ascending
    offsets  i64[b + 1] queries of each batch
    queries  u32        numbers of the queries
    """

    rows: Array
    offsets: Array
    queries: Array


def jobs_of(batches: PartitionBatches, bounds: Array, most: int) -> Iterator[Job]:
    """Divide batches into jobs of at most `most`, each batch with a different partition, so that a set identifies its
    batch."""
    partition = batches.partition
    first, n = 0, batches.n
    while first < n:
        last = first + 1
        while last < n and last - first < most and partition[last] > partition[last - 1]:
            last += 1
        mine = partition[first:last]
        offsets = batches.offsets[first : last + 1]
        rows = np.stack([bounds[mine], bounds[mine + 1]], axis=1)
        yield Job(rows, offsets - offsets[0], batches.queries[offsets[0] : offsets[-1]])
        first = last


@jit
def _pack(rows: Array, offsets: Array, queries: Array, signatures: Array, words: Array) -> None:
    """Fill the words u64 of a job, in the layout of `kernel`."""
    begin = JOB_WORDS * len(rows)
    for batch in range(len(rows)):
        at = JOB_WORDS * batch
        words[at], words[at + 1] = rows[batch, 0], rows[batch, 1]
        words[at + 2], words[at + 3] = begin + 3 * offsets[batch], offsets[batch + 1] - offsets[batch]
    for i in range(len(queries)):
        for word in range(3):
            words[begin + 3 * i + word] = signatures[queries[i], word]


@jit
def _unpack(n: int, packed: Array, packed_bytes: Array, rows: Array, offsets: Array, queries: Array) -> Array:
    """Unpack n results into (query, set) pairs u64."""
    pairs = np.empty(n, np.uint64)
    for i in range(n):
        group, place = i // GROUP_RESULTS, i % GROUP_RESULTS
        row = np.int64(packed[GROUP_WORDS * group + 1 + place])
        batch, end = 0, len(rows)
        while end - batch > 1:
            middle = (batch + end) >> 1
            if rows[middle, 0] <= row:
                batch = middle
            else:
                end = middle
        query = queries[offsets[batch] + np.int64(packed_bytes[4 * GROUP_WORDS * group + place])]
        pairs[i] = np.uint64(query) << np.uint64(32) | np.uint64(row)
    return pairs


def _words_of(n: int) -> int:
    """Words u32 of n packed results."""
    return -(-n // GROUP_RESULTS) * GROUP_WORDS


class MatchStream:
    """A stream with its buffers.  It runs one job at a time: `begin` and `finish` return the pairs of jobs that have
    ended."""

    def __init__(self, gpu: Gpu, signatures: DeviceArray, variant: TagMatchVariant) -> None:
        self._gpu, self._signatures = gpu, signatures
        self._prefix = variant.prefix and variant.variant in PARTITIONED
        self._stream = gpu.stream()
        n_words = variant.launch * (JOB_WORDS + 3 * MOST_QUERIES)
        self._host_job, self._job = PinnedBuffer(np.uint64).array(n_words), gpu.buffer(np.uint64).array(n_words)
        self._results = PinnedBuffer(np.uint32)
        self._before, self._after = Mark(), Mark()
        self.kernel_s = 0.0
        self._running: Job | None = None
        self._finished: tuple[Job, int] | None = None  # its results, this many, are still on the GPU
        self._cycle = 0
        self._make_room(FIRST_RESULTS)

    def _make_room(self, capacity: int) -> None:
        self._capacity = capacity
        size = HEAD_WORDS + _words_of(capacity)
        self._buffers = [self._gpu.buffer(np.uint32).array(size) for _ in range(2)]
        self._launches: list[KernelLaunch] = []
        for this, other in ((0, 1), (1, 0)):
            results = self._buffers[this].part(HEAD_WORDS, size)
            counter = self._buffers[other].part(0, 1)
            arrays = (self._signatures, self._job, counter, results, results.viewed(np.uint8), capacity)
            self._launches.append(match_kernel(self._prefix).bind((1, 1), kernel.TAGMATCH_BLOCK, arrays))

    def begin(self, job: Job, signatures: Array) -> list[Array]:
        """Begin a job; returns the pairs of jobs that have ended, if any."""
        found = self._end_cycle()
        _pack(*job, signatures, self._host_job)
        self._begin_cycle(job)
        return found

    def _begin_cycle(self, job: Job) -> None:
        """Start the kernel and the copy out; the job's words are in pinned memory."""
        stream, this = self._stream, self._cycle % 2
        other, launch = self._buffers[1 - this], self._launches[this]
        n_words = JOB_WORDS * len(job.rows) + 3 * len(job.queries)
        stream.copy_in(self._job, self._host_job[:n_words])
        stream.zero(other.part(0, 1))
        most_rows = int((job.rows[:, 1] - job.rows[:, 0]).max())
        launch.resize((-(-most_rows // kernel.TAGMATCH_BLOCK), len(job.rows)))
        self._before.record(stream)
        launch(stream)
        self._after.record(stream)
        n_out = HEAD_WORDS + (_words_of(self._finished[1]) if self._finished else 0)
        stream.copy_out(self._results.array(n_out), other.part(0, n_out))
        self._running = job
        self._cycle += 1

    def _end_cycle(self) -> list[Array]:
        """Wait for the running cycle, if there is one; returns the pairs that it has copied out."""
        found: list[Array] = []
        while self._running is not None:
            self._stream.synchronize()
            self.kernel_s += self._after.seconds_since(self._before)
            job, self._running = self._running, None
            n_found = int(self._results.array(HEAD_WORDS)[0])
            if self._finished is not None:
                found.append(self._unpacked(*self._finished))
                self._finished = None
            if n_found <= self._capacity:
                self._finished = job, n_found
            else:
                self._make_room(n_found * 5 // 4)
                self._begin_cycle(job)
        return found

    def has(self, queries: range) -> bool:
        """Tells whether it has a job with one of these queries whose results have not been returned yet."""
        jobs = [self._running, self._finished and self._finished[0]]
        return any(job is not None and np.any((queries.start <= job.queries) & (job.queries < queries.stop)) for job in jobs)

    def finish(self) -> list[Array]:
        """Wait for all jobs; returns their pairs."""
        found = self._end_cycle()
        if self._finished is not None:
            n = _words_of(self._finished[1])
            source = self._buffers[(self._cycle - 1) % 2]
            self._stream.copy_out(self._results.array(HEAD_WORDS + n), source.part(0, HEAD_WORDS + n))
            self._stream.synchronize()
            found.append(self._unpacked(*self._finished))
            self._finished = None
        return found

    def forget(self) -> None:
        """Discard all jobs."""
        self._running = self._finished = None
        self._stream.synchronize()

    def _unpacked(self, job: Job, n: int) -> Array:
        packed = self._results.array(HEAD_WORDS + _words_of(n))[HEAD_WORDS:]
        pairs: Array = _unpack(n, packed, packed.view(np.uint8), *job)
        return pairs


class GpuMatcher:
    """Matches batches on one GPU with several streams; the options say how many."""

    def __init__(self, gpu: Gpu, signatures: Array, bounds: Array, variant: TagMatchVariant) -> None:
        self._bounds, self._most = bounds, variant.launch
        on_device = gpu.upload(signatures)
        self._streams = [MatchStream(gpu, on_device, variant) for _ in range(variant.streams)]
        self._next = 0

    @property
    def kernel_s(self) -> float:
        """Seconds of device time of all kernels so far; those of simultaneous streams are added up."""
        return sum(stream.kernel_s for stream in self._streams)

    def begin(self, batches: PartitionBatches, signatures: Array) -> list[Array]:
        """Begin to match batches; `signatures` u64[n, 3] of all queries.  Returns the (query, set) pairs u64 that are ready,
        of these or earlier batches."""
        found: list[Array] = []
        for job in jobs_of(batches, self._bounds, self._most):
            found += self._streams[self._next].begin(job, signatures)
            self._next = (self._next + 1) % len(self._streams)
        return found

    def forget(self) -> None:
        """Discard all begun batches."""
        for stream in self._streams:
            stream.forget()

    def finish(self, queries: range) -> list[Array]:
        """Return the remaining pairs of these queries, and some pairs of others."""
        return [pairs for stream in self._streams if stream.has(queries) for pairs in stream.finish()]
