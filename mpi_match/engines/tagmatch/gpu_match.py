"""Subset matching of batches on a GPU: threads that each take a stream with an even and an odd result buffer.

    caller     | pre-process | pre-process |   wait    | look up, reduce |      with the threads that no stream uses
    thread 0          | job 0 | job 2 | job 4 |   a thread packs a job, starts it, waits for it and unpacks its results in
    thread 1          | job 1 | job 3 | job 5 |   compiled code that calls the driver without Python's lock

A stream works in cycles.  In cycle k the kernel writes the results of job k to one buffer, and their number to the head of
the other, which still holds the results of job k - 1.  So a single copy out, whose size is known since cycle k - 1, brings
the results of job k - 1 and the number of results of job k (section 3.3.1 of the paper):

    even buffer     | n1 | results of job 0 |        | n3 | results of job 2 |
    odd buffer             | n2 | results of job 1 |        | n4 | results of job 3 |
    copied out      --------  cycle 1  ------ cycle 2 -------- cycle 3 ----

A job whose results do not fit is repeated with a larger buffer: nothing is truncated.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import jit, nested
from mpi_match.engines.tagmatch import kernel
from mpi_match.engines.tagmatch.kernel import GROUP_RESULTS, GROUP_WORDS, JOB_WORDS, match_kernel
from mpi_match.engines.tagmatch.options import MOST_QUERIES, PARTITIONED, TagMatchVariant
from mpi_match.engines.tagmatch.queues import PartitionBatches
from mpi_match.gpu.compiled_calls import (
    COPY_IN,
    COPY_OUT,
    ELAPSED,
    LAUNCH,
    RECORD,
    SET_ZERO,
    SYNCHRONIZE,
    call_at,
    driver_calls,
    words_of_launch,
)
from mpi_match.gpu.device_memory import address_of
from mpi_match.gpu.driver import words_of
from mpi_match.gpu.kernels import DeviceArray, Gpu, KernelLaunch, Mark, pinned

FIRST_RESULTS = 1 << 16
"""Initial capacity of a buffer, in results."""
HEAD_WORDS = 4
"""Words of a buffer before its results; the first word is the number of results in the other buffer."""
_FIRST_PAIRS = 1024
_STREAM, _JOB, _HOST_JOB, _RESULTS, _BEFORE, _AFTER, _ELAPSED_MS, _CAPACITY, _BLOCK, _BUFFERS, _KERNELS, _PARAMETERS = (
    *range(10),
    11,
    13,
)
"""Positions in the words of a stream: handles, addresses, the capacity, threads of a block; the last three are pairs, even
and odd."""
_STREAM_WORDS = 15


class Jobs(NamedTuple):
    """The batches of n launches, each with different partitions, so that a set identifies its batch.

    bounds   i64[n + 1] batches of each job
    rows     i64[b, 2]  bounds of the sets of each batch's partition; ascending within a job
    offsets  i64[b + 1] queries of each batch
    queries  u32        numbers of the queries
    """

    bounds: Array
    rows: Array
    offsets: Array
    queries: Array

    @property
    def n(self) -> int:
        return len(self.bounds) - 1


def jobs_of(batches: PartitionBatches, bounds: Array, most: int) -> Jobs:
    """Divide batches into jobs of at most `most`."""
    partition = batches.partition
    rows = np.stack([bounds[partition], bounds[partition + 1]], axis=1)
    return Jobs(_job_bounds(partition, most), rows, batches.offsets, batches.queries)


@jit
def _job_bounds(partition: Array, most: int) -> Array:
    """i64: the first batch of each job, and the number of batches."""
    bounds, n = np.empty(len(partition) + 1, np.int64), 0
    for batch in range(len(partition)):
        if n == 0 or batch - bounds[n - 1] == most or partition[batch] <= partition[batch - 1]:
            bounds[n] = batch
            n += 1
    bounds[n] = len(partition)
    return bounds[: n + 1]


class StreamMemory(NamedTuple):
    """The data of a stream for compiled code: its words i64, and the host memory that is copied, pinned.

    job      u64  words of a job, in the layout of `kernel`
    results  u32  a buffer of results; `results_bytes` is the same memory as u8
    elapsed  f32[1]
    """

    words: Array
    job: Array
    results: Array
    results_bytes: Array
    elapsed: Array


@nested
def _pack(jobs: Jobs, first: int, last: int, signatures: Array, words: Array) -> tuple[int, int]:
    """Fill the words u64 of the job of batches `first` to `last`, in the layout of `kernel`; returns their number, and the
    sets of the largest partition."""
    begin = JOB_WORDS * (last - first)
    most: Any = 0
    start = jobs.offsets[first]
    for batch in range(first, last):
        at = JOB_WORDS * (batch - first)
        words[at], words[at + 1] = jobs.rows[batch, 0], jobs.rows[batch, 1]
        words[at + 2] = begin + 3 * (jobs.offsets[batch] - start)
        words[at + 3] = jobs.offsets[batch + 1] - jobs.offsets[batch]
        most = max(most, np.int64(jobs.rows[batch, 1] - jobs.rows[batch, 0]))
    n = jobs.offsets[last] - start
    for i in range(n):
        query = jobs.queries[start + i]
        for word in range(3):
            words[begin + 3 * i + word] = signatures[query, word]
    return begin + 3 * n, most


@nested
def _unpack(n: int, memory: StreamMemory, jobs: Jobs, first: int, last: int, pairs: Array, n_pairs: int) -> Array:
    """Append n results of the job of batches `first` to `last` to the (query, set) pairs u64, which grow."""
    if n_pairs + n > len(pairs):
        more = np.empty(2 * (n_pairs + n), np.uint64)
        more[:n_pairs] = pairs[:n_pairs]
        pairs = more
    for i in range(n):
        group, place = i // GROUP_RESULTS, i % GROUP_RESULTS
        row = np.int64(memory.results[HEAD_WORDS + GROUP_WORDS * group + 1 + place])
        batch, end = first, last
        while end - batch > 1:
            middle = (batch + end) >> 1
            if jobs.rows[middle, 0] <= row:
                batch = middle
            else:
                end = middle
        number = np.int64(memory.results_bytes[4 * (HEAD_WORDS + GROUP_WORDS * group) + place])
        query = jobs.queries[jobs.offsets[batch] + number]
        pairs[n_pairs + i] = np.uint64(query) << np.uint64(32) | np.uint64(row)
    return pairs


def _words_of(n: int) -> int:
    """Words u32 of n packed results."""
    return -(-n // GROUP_RESULTS) * GROUP_WORDS


_words_in_code = nested(_words_of)


@nested
def _begin(calls: Array, words: Array, this: int, n_words: int, grid_x: int, grid_y: int) -> int:
    """Submit a job, and the kernel that writes its results to buffer `this`; returns an error code, 0 for none."""
    stream, none, one = words[_STREAM], np.int64(0), np.int64(1)
    error = call_at(calls[COPY_IN], (words[_JOB], words[_HOST_JOB], np.int64(8 * n_words), stream))
    error |= call_at(calls[SET_ZERO], (words[_BUFFERS + 1 - this], none, np.int64(4), stream))
    error |= call_at(calls[RECORD], (words[_BEFORE], stream))
    kernel_, parameters, x, y = words[_KERNELS + this], words[_PARAMETERS + this], np.int64(grid_x), np.int64(grid_y)
    error |= call_at(calls[LAUNCH], (kernel_, x, y, one, words[_BLOCK], one, one, none, stream, parameters, none))
    return error | call_at(calls[RECORD], (words[_AFTER], stream))


@jit
def run_jobs(
    calls: Array, memory: StreamMemory, jobs: Jobs, first: int, step: int, signatures: Array
) -> tuple[Array, int, int, int, float]:
    """Match every `step`-th job from `first` on, one after another, in a stream.

    Returns the (query, set) pairs u64; the job whose results do not fit, and their number (the number of jobs and 0 if all
    do); an error code; and the seconds that the kernels took.
    """
    words, n_jobs = memory.words, len(jobs.bounds) - 1
    pairs, n_pairs, seconds = np.empty(_FIRST_PAIRS, np.uint64), 0, 0.0
    job, before, this = first, -1, 0
    n_before: Any = np.int64(0)
    while job < n_jobs or before >= 0:
        error = 0
        n_found: Any = np.int64(0)
        if job < n_jobs:
            begin, end = jobs.bounds[job], jobs.bounds[job + 1]
            n_words, most = _pack(jobs, begin, end, signatures, memory.job)
            error |= _begin(calls, words, this, n_words, (most + words[_BLOCK] - 1) // words[_BLOCK], end - begin)
        n_out = HEAD_WORDS + _words_in_code(n_before)
        from_buffer = words[_RESULTS], words[_BUFFERS + 1 - this], np.int64(4 * n_out), words[_STREAM]
        error |= call_at(calls[COPY_OUT], from_buffer)
        error |= call_at(calls[SYNCHRONIZE], (words[_STREAM],))
        if job < n_jobs:
            error |= call_at(calls[ELAPSED], (words[_ELAPSED_MS], words[_BEFORE], words[_AFTER]))
            seconds += memory.elapsed[0] / 1e3
            n_found = np.int64(memory.results[0])
        if error != 0:
            return pairs[:n_pairs], job, 0, error, seconds
        if before >= 0:
            pairs = _unpack(n_before, memory, jobs, jobs.bounds[before], jobs.bounds[before + 1], pairs, n_pairs)
            n_pairs += n_before
        if n_found > words[_CAPACITY]:
            return pairs[:n_pairs], job, n_found, 0, seconds
        before, n_before, this = job if job < n_jobs else -1, n_found, 1 - this
        job += step
    return pairs[:n_pairs], n_jobs, 0, 0, seconds


class MatchStream:
    """A stream with its buffers, for one thread at a time."""

    def __init__(self, gpu: Gpu, signatures: DeviceArray, variant: TagMatchVariant) -> None:
        self._gpu, self._signatures = gpu, signatures
        self._prefix = variant.prefix and variant.variant in PARTITIONED
        self._stream = gpu.stream()
        n_words = variant.launch * (JOB_WORDS + 3 * MOST_QUERIES)
        self._host_job, self._job = pinned(n_words, np.uint64), gpu.buffer(np.uint64).array(n_words)
        self._marks = Mark(), Mark()
        self.kernel_s = 0.0
        self._make_room(FIRST_RESULTS)

    def _make_room(self, capacity: int) -> None:
        size = HEAD_WORDS + _words_of(capacity)
        self._buffers = [self._gpu.buffer(np.uint32).array(size) for _ in range(2)]
        results, elapsed = pinned(size, np.uint32), np.zeros(1, np.float32)
        self._launches: list[KernelLaunch] = []
        for this, other in ((0, 1), (1, 0)):
            to = self._buffers[this].part(HEAD_WORDS, size)
            counter = self._buffers[other].part(0, 1)
            arrays = (self._signatures, self._job, counter, to, to.viewed(np.uint8), capacity)
            self._launches.append(match_kernel(self._prefix).bind((1, 1), kernel.TAGMATCH_BLOCK, arrays))
        words = np.zeros(_STREAM_WORDS, np.int64)
        words[_STREAM], words[_JOB], words[_HOST_JOB] = self._stream.handle, self._job.address, address_of(self._host_job)
        words[_RESULTS], words[_ELAPSED_MS], words[_CAPACITY] = address_of(results), address_of(elapsed), capacity
        words[_BLOCK] = kernel.TAGMATCH_BLOCK
        words[_BEFORE], words[_AFTER] = (mark.handle for mark in self._marks)
        for this in range(2):
            words[_BUFFERS + this] = self._buffers[this].address
            words[_KERNELS + this], words[_PARAMETERS + this] = words_of_launch(self._launches[this])
        self._memory = StreamMemory(words, self._host_job, results, results.view(np.uint8), elapsed)

    def match(self, jobs: Jobs, first: int, step: int, signatures: Array) -> Array:
        """The (query, set) pairs u64 of every `step`-th job from `first` on.  Raises RuntimeError if the GPU fails."""
        found = [np.empty(0, np.uint64)]
        while first < jobs.n:
            pairs, first, n, error, seconds = run_jobs(driver_calls(), self._memory, jobs, first, step, signatures)
            self.kernel_s += seconds
            if error:
                with suppress(RuntimeError):
                    self._stream.synchronize()  # before its memory is used again
                raise RuntimeError(f"subset match: {words_of(error)}")
            found.append(pairs)
            if n:
                self._make_room(n * 5 // 4)
        return np.concatenate(found)


class _Part(NamedTuple):
    """Jobs of some queries, the last one excluded, in a thread."""

    queries: range
    pairs: Future[Array]


class GpuMatcher:
    """Matches batches on one GPU with several threads, each of which takes a stream.

    They are at most half of the CPU threads of the engine, but two: a thread that waits for its stream keeps a core.
    """

    def __init__(self, gpu: Gpu, signatures: Array, bounds: Array, variant: TagMatchVariant, n_threads: int) -> None:
        self._gpu, self._bounds, self._most = gpu, bounds, variant.launch
        on_device = gpu.upload(signatures)
        n_streams = min(variant.streams, max(n_threads // 2, min(n_threads, 2)))
        self._streams = [MatchStream(gpu, on_device, variant) for _ in range(n_streams)]
        self._free = deque(self._streams)
        self._threads = ThreadPoolExecutor(len(self._streams), "tagmatch", gpu.make_current)
        self._begun: list[_Part] = []

    @property
    def kernel_s(self) -> float:
        """Seconds of device time of all kernels so far; those of simultaneous streams are added up."""
        return sum(stream.kernel_s for stream in self._streams)

    @property
    def n_busy(self) -> int:
        """Number of threads that match."""
        return min(sum(not part.pairs.done() for part in self._begun), len(self._streams))

    def begin(self, batches: PartitionBatches, signatures: Array) -> list[Array]:
        """Begin to match batches; `signatures` u64[n, 3] of all queries.  Returns the (query, set) pairs u64 that are ready,
        of earlier batches."""
        if batches.n:
            jobs = jobs_of(batches, self._bounds, self._most)
            queries = range(int(jobs.queries.min()), int(jobs.queries.max()) + 1)
            step = min(len(self._streams), jobs.n)
            for first in range(step):
                self._begun.append(_Part(queries, self._threads.submit(self._match, jobs, first, step, signatures)))
        return self._ended(range(0))

    def _match(self, jobs: Jobs, first: int, step: int, signatures: Array) -> Array:
        """Match some jobs in a thread with a free stream, of which there is one for each thread."""
        stream = self._free.pop()
        try:
            return stream.match(jobs, first, step, signatures)
        finally:
            self._free.append(stream)

    def _ended(self, queries: range) -> list[Array]:
        """Return the pairs of the parts that have ended, after waiting for the parts with these queries."""
        found, left = [], []
        for part in self._begun:
            if part.pairs.done() or (part.queries.start < queries.stop and queries.start < part.queries.stop):
                found.append(part.pairs.result())
            else:
                left.append(part)
        self._begun = left
        return found

    def forget(self) -> None:
        """Discard all begun batches."""
        begun, self._begun = self._begun, []
        for part in begun:
            part.pairs.cancel()
        for part in begun:
            with suppress(CancelledError, Exception):
                part.pairs.result()

    def finish(self, queries: range) -> list[Array]:
        """Return the remaining pairs of these queries, and some pairs of others."""
        return self._ended(queries)
