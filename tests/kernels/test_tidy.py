"""The kernels that sort each event's answers, with as many of them as a warp, a block and digits are for."""

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


@pytest.mark.parametrize(("n_blocks", "n_ids"), [(1, 4), (3, 5 * 24 + 3), (None, 2**32)])
def test_answers_are_sorted_and_one_of_each_is_left(n_blocks: int | None, n_ids: int) -> None:
    """Of few ids, so that most answers are there several times, and of as many as there can be."""
    alone, together = tidy.TIDIED_ALONE, tidy.TIDIED_TOGETHER
    room = 3 * together
    totals = [0, 1, 2, alone - 1, alone, alone + 1, together, together + 1, room, room + 1, 2, 2 * together]
    random = np.random.default_rng(3)
    ids = random.integers(0, n_ids, (len(totals), room)).astype(np.uint32)
    gpu, (most_blocks, n_digits) = open_gpu(), tidy.digit_shape(len(totals), room, n_ids)
    n_blocks, stream = n_blocks or most_blocks, gpu.stream()
    given = AnswerArrays(gpu.upload(np.array(totals, np.uint64)), gpu.upload(ids.reshape(-1)))
    spare = gpu.upload(np.zeros(n_blocks * room, np.uint32))
    threads, own = compact.KEYED_BLOCK, tidy.DIGIT_WARPS * WARP
    warps = -(-len(totals) * WARP // threads)
    for _ in range(2):  # sorted answers stay as they are
        tidy.tidy_kernel.bind((warps,), threads, [given, len(totals), room])(stream)
        tidy.digit_kernel.bind((n_blocks,), own, [given, spare, len(totals), room, n_digits])(stream)
    found, left = fetched(given.found, stream), fetched(given.ids, stream).reshape(len(totals), room)
    for event, total in enumerate(totals):
        if total > room:
            assert found[event] == total
            assert (left[event] == ids[event]).all()
        else:
            assert left[event, : found[event]].tolist() == sorted(set(ids[event, :total].tolist()))


def test_spare_memory_is_bounded_and_digits_hold_all_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tidy, "RADIX_BITS", 8)
    assert tidy.digit_shape(10, 3000, 33) == (10, 2)
    for room in (3_000, 1_000_000, 10_000_000):
        assert 4 * room * tidy.digit_shape(10**6, room, 2**16)[0] <= tidy.DIGIT_BYTES
    assert tidy.digit_shape(10**6, 10**9, 2**16) == (1, 2)
    assert [tidy.digit_shape(1, 3000, n)[1] for n in (1, 2**16, 2**16 + 1, 2**32)] == [2, 2, 4, 4]
