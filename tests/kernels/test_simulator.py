"""The simulator, as these tests have it, does what a GPU does where it does not by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mpi_match.gpu.kernels import cuda


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
