"""Reports of scanned rows: the report of a batch, which travels to the rank that sums them up, and the sums of all rows so
far."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.ingest.rows.rejects import RejectedLines, WrittenRejects


class Scanned(Protocol):
    """The result of scanning some rows, as `ScanTotals` sums it up."""

    @property
    def n_flagged(self) -> int:
        """Number of rows that the scanner left to `rows.judge`."""
        ...

    @property
    def n_on_gpu(self) -> int:
        """Number of rows that a GPU scanned."""
        ...

    @property
    def located(self) -> bool:
        """Tells whether an event has a location."""
        ...

    @property
    def identified(self) -> bool:
        """Tells whether an event has an id."""
        ...

    @property
    def named(self) -> bool:
        """Tells whether an event has an attribute that a filter names."""
        ...


@dataclass
class ScanTotals:
    """The sums of all rows scanned so far; the fields are those of `Scanned`."""

    n_flagged: int = 0
    n_on_gpu: int = 0
    located: bool = False
    identified: bool = False
    named: bool = False

    def add(self, found: Scanned) -> None:
        """Add the rows of a block or of a batch."""
        self.n_flagged += found.n_flagged
        self.n_on_gpu += found.n_on_gpu
        self.located |= found.located
        self.identified |= found.identified
        self.named |= found.named


class ScanReport(NamedTuple):
    """The fields of `Scanned` for a batch, and its rejected rows."""

    n_flagged: int
    n_on_gpu: int
    located: bool
    identified: bool
    named: bool
    rejects: RejectedLines

    def to_wire(self) -> Array:
        """As u8: a line of counts, and the lines of a file of rejects."""
        counts = json.dumps((*self[:-1], len(self.rejects))).encode()
        return np.frombuffer(b"%b\n%b" % (counts, self.rejects.to_json()), np.uint8)

    @classmethod
    def from_wire(cls, wire: bytes | memoryview | Array) -> ScanReport:
        """The report in a wire form."""
        counts, _, rejects = bytes(wire).partition(b"\n")
        n_flagged, n_on_gpu, located, identified, named, n = json.loads(counts)
        return cls(n_flagged, n_on_gpu, located, identified, named, WrittenRejects(n, rejects))
