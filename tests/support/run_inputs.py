"""Inputs of the tests of runs, and the files that a run leaves beside its output."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.arrays.strings import Strings
from mpi_match.events.events import Events
from mpi_match.model import Type

KEPT = ["matches.h5.journal", "matches.h5.run.json"]
"""The files that an incomplete run with answers leaves."""


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Compiled files, and the table and events in them."""

    table: Path
    events: Path
    filters: list[Any]


@dataclasses.dataclass(frozen=True)
class Changing:
    """Compiled files of a table that changes, and the answers of the naive matcher, which applies one change after the
    other.
    """

    table: Path
    events: Path
    changes: Path
    answers: list[list[str]]
    n_refused: int


def leftovers(output: Path) -> list[str]:
    """Files in the output's directory whose name holds the output's."""
    return sorted(path.name for path in output.parent.iterdir() if output.name in path.name)


def plain_events(n: int) -> Events:
    """n events {"n3": i % 7}, made without making objects."""
    number: Array = (np.arange(n) % 7).astype(np.float64)
    kinds, zeros = np.full(n, Type.NUMBER, np.uint8), np.zeros(n, np.uint32)
    return Events(np.arange(n + 1), zeros, kinds, number, zeros, Strings.of([b"n3"]), Strings.of(()))
