"""Adds attributes to the events of a batch."""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import jit
from mpi_match.compute.parallel import in_stretches
from mpi_match.events.batch import EventBatch, unmarked

LEAST_EXTENDED = 512
"""Events that are worth a further thread."""


def extended(batch: EventBatch, offsets: Array, ids: Array, attribute_of: Array) -> EventBatch:
    """A batch without rejected rows, with further attributes: attribute_of[id] for each of an event's `ids`.

    Parameters: `offsets` i64[n + 1] are the bounds of the events in `ids`; `attribute_of` are packed attributes, which
    ascend with each event's ids and have names that it lacks.
    """
    bounds = batch.bounds
    joint = np.empty(len(batch.attributes) + len(ids), batch.attributes.dtype)
    arrays = (bounds, unmarked(batch.attributes), offsets, unmarked(ids), attribute_of, joint)
    in_stretches(len(batch), _merge, *arrays, least=LEAST_EXTENDED)
    return EventBatch((bounds + offsets).astype(batch.offsets.dtype), joint, batch.location, batch.fingerprint)


@jit
def _merge(
    stretch: int,
    n_stretches: int,
    offsets: Array,
    attributes: Array,
    more_offsets: Array,
    ids: Array,
    attribute_of: Array,
    joint: Array,
) -> None:
    """Merge two ascending runs of attributes for each event of a stretch."""
    n = len(offsets) - 1
    first, last = stretch * n // n_stretches, (stretch + 1) * n // n_stretches
    to = offsets[first] + more_offsets[first]
    for event in range(first, last):
        i, end = offsets[event], offsets[event + 1]
        for k in range(more_offsets[event], more_offsets[event + 1]):
            more = attribute_of[ids[k]]
            while i < end and attributes[i] < more:
                joint[to] = attributes[i]
                i += 1
                to += 1
            joint[to] = more
            to += 1
        while i < end:
            joint[to] = attributes[i]
            i += 1
            to += 1
