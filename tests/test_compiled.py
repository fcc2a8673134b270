"""What numba's cache on disk must be able to tell apart.

Its key is a function's file, name, code and argument types, but not the options it is compiled with: of a function that is
compiled both with `parallel` and without, whichever came first would be loaded for the other.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections import defaultdict

from numba.core.dispatcher import Dispatcher

from mpi_match import engines


def test_a_function_is_compiled_with_one_set_of_options():
    options = defaultdict(set)
    for info in pkgutil.iter_modules(engines.__path__, "mpi_match.engines."):
        if "cuda" not in info.name:
            for value in vars(importlib.import_module(info.name)).values():
                if isinstance(value, Dispatcher):
                    options[value.py_func].add(repr(sorted(value.targetoptions.items())))
    assert len(options) > 10
    assert {function.__qualname__ for function, each in options.items() if len(each) > 1} == set()
