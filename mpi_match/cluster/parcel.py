"""A part of the table as one run of bytes: as a host's ranks share it, and as it is sent to a worker that is to load it.

| size | which part, where which array lies |  array  |  array  | ...
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mpi_match.arrays import Array
from mpi_match.cluster.part import Part
from mpi_match.table import Table

ALIGNMENT = 64


class Place(NamedTuple):
    """Where an array lies in the shared memory."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    at: int
    n_bytes: int


class _Views:
    """The arrays of a table as views of one memory; `Table.from_arrays` reads it like a file."""

    def __init__(self, memory: Array, places: Sequence[Place]) -> None:
        self._memory = memory
        self._places = {place.name: place for place in places}

    def array(self, name: str) -> Array:
        place = self._places[name]
        return self._memory[place.at : place.at + place.n_bytes].view(place.dtype).reshape(place.shape)


def plan(table: Table) -> list[Place]:
    """Where the arrays of a table lie, one behind the other."""
    places, at = [], 0
    for name, array in table.arrays():
        places.append(Place(name, array.dtype.str, array.shape, at, array.nbytes))
        at += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    return places


def laid_out(memory: Array, places: Sequence[Place]) -> Table:
    """The table whose arrays lie in a memory u8, which must stay as it is."""
    return Table.from_arrays(_Views(memory, places))


def packed(part: Part, table: Table) -> Array:
    """A part and its table as u8."""
    places = plan(table)
    words = pickle.dumps((part, places))
    start = _start(len(words))
    wire = np.zeros(start + max(place.at + place.n_bytes for place in places), np.uint8)
    wire[:8] = np.array([len(words)], np.int64).view(np.uint8)
    wire[8 : 8 + len(words)] = np.frombuffer(words, np.uint8)
    for place, (_, array) in zip(places, table.arrays(), strict=True):
        at = start + place.at
        wire[at : at + place.n_bytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return wire


def unpacked(wire: Array) -> tuple[Part, Table]:
    """What was packed; the table's arrays lie in `wire`."""
    n_words = int(wire[:8].view(np.int64)[0])
    part, places = pickle.loads(wire[8 : 8 + n_words].tobytes())
    return part, laid_out(wire[_start(n_words) :], places)


def _start(n_words: int) -> int:
    return -(-(8 + n_words) // ALIGNMENT) * ALIGNMENT
