"""What the scan of a batch of rows reports to the rank that keeps the account of a whole run."""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.ingest.rows.judge import Reject


class ScanReport(NamedTuple):
    """What a batch's scan has found besides events: rows that the scanner flagged, and those whose lines a GPU scanned;
    whether any event has a location, an id, and an attribute that a filter names; and the rejected rows."""

    n_flagged: int
    n_on_gpu: int
    located: bool
    identified: bool
    named: bool
    rejects: list[Reject]

    def to_wire(self) -> Array:
        """As u8."""
        return np.frombuffer(json.dumps(self).encode(), np.uint8)

    @classmethod
    def from_wire(cls, wire: bytes | memoryview | Array) -> ScanReport:
        """The report that was sent."""
        n_flagged, n_on_gpu, located, identified, named, rejects = json.loads(bytes(wire))
        return cls(n_flagged, n_on_gpu, located, identified, named, [Reject(*each) for each in rejects])
