"""Functions that are only parts of others: the same results, and no machine code of their own."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest

from mpi_match.compute.compile_cache import jit, nested, nested_pipeline


@nested
def _halved(x: int) -> tuple[int, bool]:
    return x // 2, x % 2 == 0


@nested
def _steps(values: Any, x: int) -> int:
    n = 0
    while x != 1:
        half, is_even = _halved(x)
        x = half if is_even else 3 * x + 1
        values[n % len(values)] += x
        n += 1
    return n


@jit
def _collatz(values: Any, n: int) -> int:
    most = 0
    for x in range(1, n):
        most = max(most, _steps(values, x))
    return most + _halved(n)[0]


def has_machine_code(function: Any) -> bool:
    (compiled,) = function.overloads.values()
    return bool(compiled.library.codegen._engine.is_symbol_defined(compiled.fndesc.llvm_func_name))


def steps(x: int) -> int:
    return 0 if x == 1 else 1 + steps(x // 2 if x % 2 == 0 else 3 * x + 1)


def test_callers_have_the_code_of_nested_functions() -> None:
    values = np.zeros(3, np.int64)
    assert _collatz(values, 30) == max(map(steps, range(1, 30))) + 15
    assert values.all()


def test_only_what_python_calls_has_machine_code() -> None:
    assert _collatz(np.zeros(1, np.int64), 2) == 1
    if not _collatz.stats.cache_hits:  # loaded code has no parts
        assert [has_machine_code(each) for each in (_collatz, _steps, _halved)] == [True, False, False]


def test_another_numba_compiles_them_as_it_does_all_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert nested_pipeline()
    monkeypatch.setattr(numba, "__version__", "0.69.0")
    assert nested_pipeline() == {}
