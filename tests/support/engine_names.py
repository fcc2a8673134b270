"""Which engines there are, for tests that run on each."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

import pytest
from lasting import lasting
from live_machine import REFUSAL

from mpi_match import engines
from mpi_match.engines import EngineError, open_engine
from mpi_match.model import make_filter
from mpi_match.table.table import Table

PACKAGES = tuple(name for name in ("rtree", "duckdb") if find_spec(name))
"""Engines that are packages of others, as far as they are installed."""
CPU = ("reference", "counting", "sff", "betree", *PACKAGES, "keyed", "twophase")
TAGS = ("tagmatch",)
"""Engines that serve tag sets only: tests of their own have them."""
GPU = tuple(name for name in engines.REGISTRY if name not in (*CPU, *TAGS, "rtree", "duckdb"))
CHIEF = ("counting", "keyed", "twophase")
"""Engines of the CPU that the others are measured against."""
SLOW = ("reference", "counting", "duckdb")
"""Engines that take milliseconds for an event: they get fewer events where the table is large."""


def _chiefly(names: Iterable[str]) -> list[Any]:
    return [each for name in names for each in ([name] if name in CHIEF else lasting(name))]


_ON_GPU = [pytest.param(name, marks=pytest.mark.gpu) for name in GPU]
every_engine = pytest.mark.parametrize("name", [*CPU, *_ON_GPU])
chief_engines = pytest.mark.parametrize("name", [*_chiefly(CPU), *_ON_GPU])
"""For large inputs and sizes near a bound; the other engines take their turn in `lasting`."""
chief_engines_on_cpu = pytest.mark.parametrize("name", _chiefly(CPU))
quickly_opened = pytest.mark.parametrize("name", [*_chiefly(name for name in CPU if name != "duckdb"), *_ON_GPU])
"""For tests that open an engine hundreds of times; in `lasting` the others too.  All have the same cases in one table."""


def refuses(name: str) -> bool:
    """Does the engine refuse tables that change?  It has to do so when it is opened, and in these words."""
    table = Table.from_filters([make_filter("i", [["x", ">", 1]], [0, 0, 1])])
    open_engine(name, table)
    try:
        open_engine(name, table, live=True)
    except EngineError as error:
        assert f"engine {name!r} {REFUSAL}" in str(error)  # noqa: PT017
        return True
    return False
