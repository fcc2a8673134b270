"""Merging the answers of a group's members: per event, the ids that any of them found.

    member 1    event 0: 1 4     event 1: 2             filters 0 to 5
    member 2    event 0: 4 7     event 1: none          filters 6 to 9
    merged      event 0: 1 4 7   event 1: 2

Each member's ids ascend within an event, so an event is a merge of as many sorted runs as there are members.  Each filter is
at one member, so runs of filters are disjoint.  An interface whose filters are at two members may come from both, and is
kept once.

One pass in compiled code, without Python's lock: the writer thread merges while other answers arrive.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import jit


def merge(parts: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Counts and ids of the same events from all members of a group (as `Matches` has them), as one.

    Counts and ids keep their dtypes, which depend on the table and not on the member.  Raises ValueError when members
    answered for different numbers of events, or a member's counts do not add up to its ids.
    """
    counts, ids = parts[0]
    if len(parts) == 1:
        return counts, ids
    for other_counts, other_ids in parts:
        if len(other_counts) != len(counts) or int(other_counts.sum(dtype=np.int64)) != len(other_ids):
            raise ValueError("the members of a group did not answer for the same events")
    all_counts = np.stack([each for each, _ in parts], dtype=np.int64, casting="safe")
    all_ids = np.concatenate([each for _, each in parts], dtype=np.uint32)
    merged_counts, merged_ids = np.empty(len(counts), np.uint32), np.empty(len(all_ids), np.uint32)
    n = _merge_events(all_counts, all_ids, merged_counts, merged_ids)
    return merged_counts.astype(counts.dtype), merged_ids[:n].astype(ids.dtype)


@jit
def _merge_events(counts: Array, ids: Array, merged_counts: Array, merged_ids: Array) -> int:
    """Fill `merged_counts` u32[n] and `merged_ids` u32 from `counts` i64[parts, n] and `ids` u32, part after part.

    Returns the number of ids.  The ids merged so far are a run, into which the run of the next part is merged from behind.
    """
    n_parts, n = counts.shape
    at = np.zeros(n_parts, np.int64)
    for part in range(1, n_parts):
        at[part] = at[part - 1] + counts[part - 1].sum()
    end = 0
    for event in range(n):
        first = end
        for part in range(n_parts):
            start, more = at[part], counts[part, event]
            at[part] = start + more
            if more == 0:
                continue
            if end == first or merged_ids[end - 1] < ids[start]:  # nearly always: parts are ranges of filters
                for i in range(more):
                    merged_ids[end + i] = ids[start + i]
                end += more
                continue
            end = _merge_run(merged_ids, first, end, ids, start, more)
        merged_counts[event] = end - first
    return end


@jit
def _merge_run(merged_ids: Array, first: int, end: int, ids: Array, start: int, more: int) -> int:
    """Merge `more` ids from `start` into `merged_ids[first:end]`; returns the new end."""
    equal, a, b = 0, first, start
    while a < end and b < start + more:
        if merged_ids[a] == ids[b]:
            equal += 1
            a += 1
            b += 1
        elif merged_ids[a] < ids[b]:
            a += 1
        else:
            b += 1
    new_end = end + more - equal
    to, a, b = new_end - 1, end - 1, start + more - 1
    while b >= start:
        if a >= first and merged_ids[a] > ids[b]:
            merged_ids[to] = merged_ids[a]
            a -= 1
        else:
            if a >= first and merged_ids[a] == ids[b]:
                a -= 1
            merged_ids[to] = ids[b]
            b -= 1
        to -= 1
    return new_end
