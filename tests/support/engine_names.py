"""Which engines there are, for tests that run on each."""

from __future__ import annotations

import pytest
from live_machine import REFUSAL

from mpi_match import engines
from mpi_match.engines import EngineError, open_engine
from mpi_match.model import make_filter
from mpi_match.table.table import Table

CPU = ("reference", "counting", "sff", "betree", "keyed", "twophase")
GPU = tuple(name for name in engines.REGISTRY if name not in CPU)
SLOW = ("reference", "counting")
"""Engines that take milliseconds for an event: they get fewer events where the table is large."""

every_engine = pytest.mark.parametrize("name", [*CPU, *(pytest.param(name, marks=pytest.mark.gpu) for name in GPU)])


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
