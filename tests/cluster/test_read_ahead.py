"""Reading ahead, reordering of results, and reuse of buffers."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_match.arrays.csr import Array
from mpi_match.cluster.at_once.in_place import AtOnce
from mpi_match.cluster.batches import BatchRanges
from mpi_match.cluster.prefetch import Buffers, InOrder, ReadAhead
from mpi_match.journal.reader import EventRange


def test_batches_are_read_once_in_the_order_asked_for() -> None:
    read: list[int] = []
    with ReadAhead(lambda batch: read.append(batch) or batch * 10, ThreadPoolExecutor(1)) as feed:  # type: ignore[func-returns-value]
        feed.want([0, 1, 2])
        feed.want([1, 2, 3])
        assert [feed.take(batch) for batch in (1, 0, 2, 3)] == [10, 0, 20, 30]
        assert read == [0, 1, 2, 3]
        feed.want([4])
        while not feed.is_ready(4):
            time.sleep(0.001)


def test_an_error_of_reading_is_raised_by_take() -> None:
    with ReadAhead(lambda batch: 1 // batch, ThreadPoolExecutor(2)) as feed:
        feed.want([0, 1])
        assert feed.take(1) == 1
        with pytest.raises(ZeroDivisionError):
            feed.take(0)


def test_with_no_thread_a_batch_is_read_when_it_is_asked_for() -> None:
    read: list[int] = []
    with ReadAhead(lambda batch: read.append(batch) or 1 // batch, AtOnce()) as feed:  # type: ignore[func-returns-value]
        feed.want([2, 0])
        assert read == [2, 0]
        assert feed.is_ready(0)
        assert feed.take(2) == 0
        with pytest.raises(ZeroDivisionError):
            feed.take(0)


@given(st.permutations(range(8)), st.lists(st.booleans(), min_size=40, max_size=40))
def test_results_are_returned_in_the_order_of_beginning(order: list[int], ends: list[bool]) -> None:
    in_order, begun, given_on, rest = InOrder[int](), 0, [], list(order)
    for end in ends:
        ready = [number for number in rest if number < begun]
        if end and ready:
            rest.remove(ready[0])
            given_on += in_order.end(ready[0], -ready[0])
            assert given_on == [-i for i in range(min([*rest, 8]))]
        elif begun < 8:
            in_order.begin(begun)
            begun += 1


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5000)), max_size=80))
def test_buffers_are_large_enough_aligned_and_no_more_than_were_needed_at_once(steps: list[tuple[bool, int]]) -> None:
    buffers, most = Buffers(), 0
    taken: list[Array] = []
    for give, n_bytes in steps:
        if give and taken:
            buffers.give(taken.pop(0))
            continue
        buffer = buffers.take(n_bytes)
        assert len(buffer) >= n_bytes
        assert buffer.ctypes.data % 8 == 0
        assert all(buffer is not other for other in taken)
        taken.append(buffer)
        most = max(most, len(taken))
        assert len(taken) + len(buffers) <= most


def test_consecutive_batches_end_at_a_gap() -> None:
    ranges = BatchRanges([EventRange(0, 3), EventRange(5, 9)], 2)
    assert [ranges.of(batch) for batch in range(ranges.n_batches)] == [(0, 2), (2, 3), (5, 7), (7, 9)]
    assert [ranges.consecutive(batch, 8) for batch in range(ranges.n_batches)] == [(0, 3), (2, 3), (5, 9), (7, 9)]
    assert ranges.consecutive(2, 1) == (5, 7)
