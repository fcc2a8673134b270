"""What numba shares among all of a process: its threads, and a cache on disk whose entries it must be able to tell apart.

The key of that cache is a function's file, name, code and argument types, but not the options it is compiled with: of a
function that is compiled both with `parallel` and without, whichever came first would be loaded for the other.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections import defaultdict

import numba
import pytest
from numba.core.dispatcher import Dispatcher

import mpi_match
from mpi_match import engines
from mpi_match.events.events import Events
from mpi_match.model import make_event, make_filter
from mpi_match.table.table import Table


def test_a_function_is_compiled_with_one_set_of_options():
    options = defaultdict(set)
    for info in pkgutil.walk_packages(mpi_match.__path__, "mpi_match."):
        if info.name.startswith(("mpi_match.engines", "mpi_match.compute")) and not {"cuda", "kernels"} & set(
            re.split(r"[._]", info.name)
        ):
            for value in vars(importlib.import_module(info.name)).values():
                if isinstance(value, Dispatcher):
                    options[value.py_func].add(repr(sorted(value.targetoptions.items())))
    assert len(options) > 10
    assert {function.__qualname__ for function, each in options.items() if len(each) > 1} == set()


@pytest.mark.skipif(numba.get_num_threads() < 2, reason="one core: there are no threads to leave alone")
def test_a_match_with_one_thread_leaves_the_others_to_those_who_come_after():
    table = Table.from_filters([make_filter("i", [["a", "=", 1]])])
    batch = Events.of([make_event({"a": 1})]).encode(table.vocabulary)
    before = numba.get_num_threads()
    assert engines.open_engine("keyed", table, threads=1).match(batch).n_matches == 1
    assert numba.get_num_threads() == before
