"""The kernels that sort each event's answers, with as many of them as a warp, a block and marks are for."""

from __future__ import annotations

import numpy as np
import pytest

from mpi_match.arrays.csr import Array
from mpi_match.engines.keyed.kernels import compact, tidy
from mpi_match.engines.keyed.kernels.trie_thread import AnswerArrays
from mpi_match.gpu.intrinsics import WARP
from mpi_match.gpu.kernels import DeviceArray, Stream, open_gpu


def fetched(array: DeviceArray, stream: Stream) -> Array:
    there = np.empty(array.size, array.dtype)
    stream.copy_out(there, array)
    stream.synchronize()
    return there


@pytest.mark.parametrize("n_blocks", [1, 3, None])
def test_answers_are_sorted_and_one_of_each_is_left(n_blocks: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    alone, together = tidy.TIDIED_ALONE, tidy.TIDIED_TOGETHER
    room, n_ids = 3 * together, 5 * together + 3
    totals = [0, 1, 2, alone - 1, alone, alone + 1, together, together + 1, room, room + 1, 2, 2 * together]
    random = np.random.default_rng(3)
    ids = random.integers(0, n_ids, (len(totals), room)).astype(np.uint32)
    gpu, shape = open_gpu(), tidy.mark_shape(len(totals), n_ids)
    if n_blocks is not None:
        shape = (n_blocks, n_blocks * (shape[1] // shape[0]))
    stream = gpu.stream()
    given = AnswerArrays(gpu.upload(np.array(totals, np.uint64)), gpu.upload(ids.reshape(-1)))
    marks = gpu.upload(np.zeros(shape[1], np.uint32))
    threads = compact.KEYED_BLOCK
    n_words, warps = shape[1] // shape[0], -(-len(totals) * WARP // threads)
    for _ in range(2):  # once more: what is sorted stays, and marks are clear again
        tidy.tidy_kernel.bind((warps,), threads, [given, len(totals), room])(stream)
        tidy.mark_kernel.bind((shape[0],), tidy.MARK_THREADS, [given, marks, len(totals), room, n_words])(stream)
    found, left = fetched(given.found, stream), fetched(given.ids, stream).reshape(len(totals), room)
    for event, total in enumerate(totals):
        if total > room:
            assert found[event] == total
            assert (left[event] == ids[event]).all()
        else:
            assert left[event, : found[event]].tolist() == sorted(set(ids[event, :total].tolist()))
    assert not fetched(marks, stream).any()


def test_the_memory_for_marks_is_bounded() -> None:
    assert tidy.mark_shape(10, 33) == (10, 20)
    for n_ids in (1_000, 1_000_000, 10_000_000):
        assert 4 * tidy.mark_shape(10**6, n_ids)[1] <= tidy.MARK_BYTES
    assert tidy.mark_shape(10**6, 10**9)[0] == 1
