"""What it takes to open an engine: memory of the order of the engine's own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lasting import lasting

from mpi_match.engines import open_engine
from mpi_match.model import make_filter
from mpi_match.table.table import Table

MOST_TIMES = 1.3
"""An engine is opened in so many times its bytes."""


def resident(key: str) -> int:
    """VmRSS, the resident bytes of this process, or VmHWM, the most that there were."""
    found = re.search(rf"^{key}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return 1024 * int(found[1])


def everything_unless_muted(n: int) -> Table:
    """Filters that an event without attributes matches, each on an interface of its own."""
    return Table.from_filters([make_filter(f"s{i}", [["muted", "absent"]]) for i in range(n)])


@pytest.mark.parametrize("name", ["keyed", "twophase", *lasting("sff", "betree")])
def test_an_engine_is_opened_in_the_memory_that_it_takes(name: str) -> None:
    """Matched a thousand times, to load code, such an event would have a hundred million answers."""
    open_engine(name, everything_unless_muted(10))  # compiled code and libraries are in memory from here on
    table = everything_unless_muted(100_000)
    Path("/proc/self/clear_refs").write_text("5")  # the most is what there is now
    before = resident("VmRSS")
    engine = open_engine(name, table)
    assert resident("VmHWM") - before <= MOST_TIMES * engine.nbytes
