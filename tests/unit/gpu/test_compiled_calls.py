"""Calls of C functions from compiled code."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from mpi_match.compute.compile_cache import jit

compiled_calls = pytest.importorskip("mpi_match.gpu.compiled_calls")
call_at = compiled_calls.call_at


@jit
def _launched(address: int, words: np.ndarray) -> object:
    """Call a function with eleven arguments."""
    w = words
    return call_at(address, (w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10]))


def test_arguments_arrive_in_their_types_and_the_code_comes_back() -> None:
    """The types are those of cuLaunchKernel: eleven arguments, of which some are narrow and some on the stack."""
    came: list[int] = []
    pointer, count = ctypes.c_void_p, ctypes.c_uint

    def launch(*arguments: int) -> int:
        came.extend(arguments)
        return -7

    function = ctypes.CFUNCTYPE(ctypes.c_int, pointer, *[count] * 7, pointer, pointer, pointer)(launch)
    given = [2**47 + 1, *range(2, 9), 2**46 + 9, 2**45 + 10, 2**40 + 11]
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert _launched(address, np.array(given, np.int64)) == -7
    assert came == given
