"""Adds attributes to the events of a batch."""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import jit
from mpi_match.events.batch import EventBatch, unmarked


def extended(batch: EventBatch, offsets: Array, attributes: Array) -> EventBatch:
    """A batch without rejected rows, with further attributes: packed ones of each event, `offsets` i64[n + 1], ascending in
    each, under names that the event lacks.
    """
    bounds = batch.bounds
    joint = np.empty(len(batch.attributes) + len(attributes), batch.attributes.dtype)
    _merge(bounds, unmarked(batch.attributes), offsets, attributes, joint)
    return EventBatch((bounds + offsets).astype(batch.offsets.dtype), joint, batch.location, batch.fingerprint)


@jit
def _merge(offsets: Array, attributes: Array, more_offsets: Array, more: Array, joint: Array) -> None:
    """Merge two ascending runs of attributes for each event."""
    to = 0
    for event in range(len(offsets) - 1):
        i, k = offsets[event], more_offsets[event]
        end, stop = offsets[event + 1], more_offsets[event + 1]
        while i < end or k < stop:
            if k == stop or (i < end and attributes[i] < more[k]):
                joint[to] = attributes[i]
                i += 1
            else:
                joint[to] = more[k]
                k += 1
            to += 1
