"""Write-behind: in order, with bounded memory, and no writes after a failure."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mpirun import TIMEOUT_S

from mpi_match.cluster import answers as ordered
from mpi_match.cluster.answers import OrderedWriter
from mpi_match.cluster.at_once.in_place import WriteAtOnce
from mpi_match.cluster.batches import BatchRanges
from mpi_match.cluster.messages import Body
from mpi_match.journal.reader import EventRange
from mpi_match.matches.write_behind import MOST_WAITING, WriteBehind
from mpi_match.storage import StorageError


@pytest.mark.parametrize("way", [WriteBehind, WriteAtOnce])
def test_items_are_written_in_order(way: type[WriteBehind[int] | WriteAtOnce[int]]) -> None:
    written: list[int] = []
    with way(written.append) as answers:
        for i in range(100):
            answers.put(i)
        answers.finish()
        assert written == list(range(100))


def test_put_blocks_while_the_queue_is_full() -> None:
    may_write = threading.Event()
    put: list[int] = []

    def write(_: int) -> None:
        may_write.wait(TIMEOUT_S)

    with WriteBehind(write) as answers:

        def put_all() -> None:
            for i in range(2 * MOST_WAITING):
                answers.put(i)
                put.append(i)

        putting = threading.Thread(target=put_all)
        putting.start()
        putting.join(0.2)
        assert putting.is_alive()
        assert len(put) <= MOST_WAITING + 1  # and the one that is being written
        may_write.set()
        putting.join(TIMEOUT_S)
        answers.finish()
    assert len(put) == 2 * MOST_WAITING


@pytest.mark.parametrize("way", [WriteBehind, WriteAtOnce])
def test_put_raises_an_error_of_writing_and_nothing_is_written_after_it(
    way: type[WriteBehind[int] | WriteAtOnce[int]],
) -> None:
    written: list[int] = []

    def write(i: int) -> None:
        if i == 3:
            raise StorageError("disk full")
        written.append(i)

    def put_all() -> None:
        with way(write) as answers:
            for i in range(1000):
                answers.put(i)
            answers.finish()

    with pytest.raises(StorageError, match="disk full"):
        put_all()
    assert written == [0, 1, 2]


def test_leaving_without_finish_drops_the_queue() -> None:
    written: list[int] = []
    begun = threading.Event()

    def write(i: int) -> None:
        begun.set()
        while not answers._dropping:
            time.sleep(0.001)
        written.append(i)

    def interrupted() -> None:
        with answers:
            for i in range(5):
                answers.put(i)
            begun.wait(TIMEOUT_S)
            raise KeyboardInterrupt

    answers = WriteBehind(write)
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert written == [0]


def test_short_answers_are_kept_until_flush_or_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered, "KEPT_BYTES", 10)
    written: list[tuple[int, list[int]]] = []
    answers: Any = SimpleNamespace(
        ranges=BatchRanges([EventRange(0, 9)], 1),
        by_workers=False,
        report=lambda *_: None,
        write=lambda first, counts, ids: written.append((first, counts.tolist())),
    )
    byte = np.dtype(np.uint8)
    inbox: Any = SimpleNamespace(count_dtype=byte, id_dtype=byte, give_back=lambda _: None)
    with OrderedWriter(answers, inbox, WriteAtOnce, in_parts=False, joins=True) as writer:
        for batch in range(9):
            writer.put(batch, {1: Body(b"\2", b"\0\1", b"", None)})
            assert written == [(0, [2] * 4), (4, [2] * 4)][: (batch + 1) // 4]
        writer.finish()
    assert written == [(0, [2] * 4), (4, [2] * 4), (8, [2])]
