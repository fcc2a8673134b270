"""State of numba that a process shares: its threads, and a cache on disk with keys that must tell functions apart.

The key of that cache is a function's file, name, code and argument types, but not the options it is compiled with: of a
function that is compiled both with `parallel` and without, whichever came first would be loaded for the other.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numba
import pytest
from numba.core.dispatcher import Dispatcher

import mpi_match
from mpi_match import engines
from mpi_match.events.events import Events
from mpi_match.model import make_event, make_filter
from mpi_match.table.table import Table


def test_a_function_is_compiled_with_one_set_of_options() -> None:
    options: defaultdict[Any, set[str]] = defaultdict(set)
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
def test_a_match_with_one_thread_leaves_the_others_to_later_ones() -> None:
    table = Table.from_filters([make_filter("i", [["a", "=", 1]])])
    batch = Events.of([make_event({"a": 1})]).encode(table.vocabulary)
    before = numba.get_num_threads()
    assert engines.open_engine("keyed", table, threads=1).match(batch).n_matches == 1
    assert numba.get_num_threads() == before


INTERRUPTED = """
import random, signal
import numpy as np
from mpi_match.compute.compile_cache import jit

@jit
def two_arrays(n):
    found = np.zeros(4, np.uint32)
    for i in range(n):
        found[i % 4] += i
    return found, found[:2]

def interrupt(*_):
    raise KeyboardInterrupt

two_arrays(1)
signal.signal(signal.SIGALRM, interrupt)
draw, n = random.Random(0), 0
for _ in range(400):
    try:
        signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-4, 2e-3))
        while True:
            two_arrays(100_000)
    except KeyboardInterrupt:
        n += 1
print(n)
"""


def test_an_interrupt_is_no_error_of_compiled_code_that_returns_arrays() -> None:
    """Numba makes these arrays through Python code, where a signal handler may run, and does not look for its exception."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stdout) == (0, "400\n"), done.stderr


NOTHING_LEFT = """
import sys
from pathlib import Path
from numba.core.dispatcher import Dispatcher
from mpi_match import open_engine
from mpi_match.engines.keyed import cpu, cpu_search
from mpi_match.events.event_table import EventTable
from mpi_match.table.table import Table
from mpi_match.lab.workloads.files import write_workload
from mpi_match.lab.workloads.scenarios import SCENARIOS

there = Path(sys.argv[1])
write_workload(SCENARIOS["clcb"].scaled(n_filters=100), there, 2000)
table = Table.load(there / "table.h5")
engine = open_engine("keyed", table)
functions = [each for names in (vars(cpu), vars(cpu_search)) for each in names.values() if isinstance(each, Dispatcher)]
before = [len(each.signatures) for each in functions]
assert sum(before) > 1, before
with EventTable(there / "events.h5", table.vocabulary) as events:
    for n in (1, 2000):
        mapped = events.batch(0, n)
        engine.match(mapped)
        engine.match(mapped.from_wire(mapped.to_wire()))
print([len(each.signatures) for each in functions] == before)
"""


def test_an_engine_that_is_open_has_nothing_left_to_compile_or_load(repository: Path, tmp_path: Path) -> None:
    """So the time of matching is that of matching only, for events in a mapped file and for those of a message."""
    command = [sys.executable, "-c", NOTHING_LEFT, str(tmp_path)]
    assert subprocess.run(command, cwd=repository, stdout=subprocess.PIPE, text=True, check=True).stdout == "True\n"


EVERYTHING = """
import sys
from numba.core.dispatcher import Dispatcher
from mpi_match.compute import compile_cache
from mpi_match.engines import prewarm
from mpi_match.engines.keyed.cpu import Keyed
from mpi_match.events.events import Events
from mpi_match.table.table import Table
from random_tables import SHAPES, random_subscriptions

def compiled():
    ours = [vars(module) for name, module in sys.modules.items() if name.startswith("mpi_match.")]
    functions = [each for names in ours for each in names.values() if isinstance(each, Dispatcher)]
    return {(f"{f.__module__}.{f.__name__}", signature) for f in functions for signature in f.signatures}

live = sys.argv[1] == "live"
work = []
for shape in SHAPES.values():
    filters, events = random_subscriptions(0, shape)
    table = Table.from_filters(filters)
    work.append((table, [Events.of(some).encode(table.vocabulary) for some in (events, events * 5)]))
for mark in compile_cache.directory().glob("*.compiled"):
    mark.unlink(missing_ok=True)
prewarm.prewarm("keyed", Keyed, lambda small: Keyed(small, live=live), work[0][0], live=live, loads=True)
before = compiled()
assert len(before) > 30
for table, batches in work:
    engine = Keyed(table, live=live)
    for batch in batches:
        engine.match(batch)
        engine.match(batch, filters=True)
print(*sorted(f"{name}{signature}" for name, signature in compiled() - before), sep="\\n")
"""


@pytest.mark.parametrize("live", ["live", pytest.param("fixed", marks=pytest.mark.lasting)])
def test_prewarming_compiles_all_that_a_table_needs(live: str, repository: Path) -> None:
    """So that one rank of a host compiles it and the others load it."""
    path = os.pathsep.join((str(repository), str(repository / "tests" / "support")))
    done = subprocess.run(
        [sys.executable, "-c", EVERYTHING, live],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 0
    assert done.stdout.strip() == ""
