"""The simulator, as these tests have it, does what a GPU does where it does not by itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mpi_match.arrays.csr import Array
from mpi_match.engines import open_engine
from mpi_match.events.events import Events
from mpi_match.gpu.kernels import DeviceArray, KernelLaunch, Stream, cuda, open_gpu
from mpi_match.gpu.upload import Upload
from mpi_match.model import make_event, make_filter
from mpi_match.table.table import Table


def test_threads_that_ask_at_once_get_the_same_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[Any] = []
    empty: Callable[..., Any] = np.empty

    def take_time(*shape_and_type: object) -> Any:
        time.sleep(0.01)
        return empty(*shape_and_type)

    def ask() -> None:
        got.append(cuda.shared.array(2, np.int64))

    monkeypatch.setattr(np, "empty", take_time)
    cuda.jit(ask)[1, 4]()
    assert len(got) == 4
    assert len({id(each) for each in got}) == 1


def test_threads_go_on_when_all_that_run_have_arrived() -> None:
    """Also when others have ended, in every block; threads begin in any order."""
    first: list[int] = []
    seen: list[int] = []

    def run() -> None:
        thread, block = cuda.threadIdx.x, cuda.blockIdx.x
        if thread == 3:
            return
        first.append(thread)
        cuda.syncthreads()
        seen.append(len(first) - 3 * block)

    cuda.jit(run)[20, 4]()
    assert seen == [3] * 60
    assert len({tuple(first[i : i + 3]) for i in range(0, 60, 3)}) > 1


def test_an_error_of_a_thread_is_that_of_the_launch() -> None:
    """Others that wait for it end, and the next launch is as any other."""

    def fail() -> None:
        if cuda.threadIdx.x == 1:
            raise ZeroDivisionError("of one thread")
        cuda.syncthreads()

    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="of one thread") as found:
            cuda.jit(fail)[2, 3]()
        assert found.value.__notes__ == ["in thread (1, 0, 0) of block (0, 0, 0)"]
        test_threads_go_on_when_all_that_run_have_arrived()


def test_arrays_are_copied_while_the_caller_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """And an error of copying is raised where the copies are waited for, every time."""
    gpu, may_copy, copy_in = open_gpu(), threading.Event(), Stream.copy_in

    def held_up(self: Stream, to: DeviceArray, source: Array) -> None:
        assert may_copy.wait(60)
        copy_in(self, to, source)

    monkeypatch.setattr(Stream, "copy_in", held_up)
    arrays = [np.arange(6.0).reshape(2, 3).T, np.empty(0, np.uint32), np.arange(3)]
    upload = Upload(gpu, arrays)
    may_copy.set()
    for _ in range(2):
        upload.wait()
    found = [array.memory[: given.size].tolist() for array, given in zip(upload.on_device, arrays, strict=True)]
    assert found == [[0, 3, 1, 4, 2, 5], [], [0, 1, 2]]
    monkeypatch.setattr(Stream, "copy_in", lambda *_: 1 / 0)
    failing = Upload(gpu, arrays)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            failing.wait()


def test_an_event_whose_answer_is_not_delivered_is_no_empty_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table.from_filters([make_filter("i", [])])
    batch = Events.of([make_event({})]).encode(table.vocabulary)
    for name in ("ccm", "clcb"):
        engine = open_engine(name, table)
        assert engine.match(batch).n_matches == 1
        with monkeypatch.context() as patch:
            patch.setattr(KernelLaunch, "__call__", lambda *_: None)
            with pytest.raises(RuntimeError, match="without delivering an answer"):
                engine.match(batch)
