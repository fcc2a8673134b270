"""Which filters a worker has: groups of workers, and a table divided among the members of a group.

    workers                  1     2     3     4     5     6
    replicate, 6 groups     all   all   all   all   all   all     a batch goes to one worker
    hybrid, 2 groups        [ a     b     c ]  [ a     b     c ]  to the three of a group, and their answers are united
    shard, 1 group          [ a     b     c     d     e     f  ]  to all

Members are consecutive ranks, which launchers put on one host: a host that is lost takes as few groups with it as can be.

Filters are sorted by interface, so a range of them is a table, with the vocabulary of the whole (events are encoded once for
all) and few interfaces that straddle two ranges.  Ranges are cut so that the most loaded member has as little *work* as
possible (`work`), and no range takes more memory than it may.  To divide a row of numbers under a limit on each
piece is easy: fill the pieces from the left up to a load, and see if there are enough of them; the least load that does is
found by halving.

Everything here is arithmetic: no MPI, no files.
"""

from __future__ import annotations

import numpy as np

from mpi_match.arrays import Array, offsets_of
from mpi_match.cluster import ClusterError

UNEVEN = 2.0
"""Without another limit, a part takes at most so many times the memory that it would if all were equal."""
_HALVINGS = 50


def groups_of(n_workers: int, placement: str, n_groups: int | None = None) -> list[range]:
    """The groups that workers 1 to `n_workers` form; member i of every group has part i of the filters.

    Raises ClusterError for groups that cannot be.
    """
    count = {"replicate": n_workers, "shard": 1}.get(placement, n_groups or 0)
    if not 1 <= count <= n_workers:
        raise ClusterError(
            f"{n_workers} workers cannot form {count} groups; ask for at most {n_workers}, or start more ranks", 2
        )
    if n_workers % count:
        size = n_workers // count
        raise ClusterError(
            f"{n_workers} workers cannot form {count} groups of one size; start {1 + size * count} or "
            f"{1 + (size + 1) * count} ranks, or ask for a number of groups that divides the workers",
            2,
        )
    size = n_workers // count
    return [range(1 + i * size, 1 + (i + 1) * size) for i in range(count)]


def divide(work: Array, n_bytes: Array, n_parts: int, most_bytes: int | None = None) -> Array | None:
    """Bounds i64[n_parts + 1] of ranges of filters, of which the most loaded has the least work that it can have.

    Parameters: of each filter its `work` f64[n_filters] and memory `n_bytes` i64[n_filters]; `most_bytes` that a range may
    have (None: UNEVEN times an equal share, or what the largest filter needs).  None when it takes more ranges than that.
    """
    loads, sizes = np.concatenate([[0.0], np.cumsum(work)]), offsets_of(n_bytes)
    if most_bytes is None:
        most_bytes = max(int(UNEVEN * sizes[-1]) // n_parts, int(n_bytes.max(initial=0)))
    low, high = 0.0, float(loads[-1])
    best = _fill(loads, sizes, n_parts, high, most_bytes)
    for _ in range(_HALVINGS if best is not None else 0):
        middle = (low + high) / 2
        found = _fill(loads, sizes, n_parts, middle, most_bytes)
        if found is None:
            low = middle
        else:
            best, high = found, middle
    return best


def fewest_parts(n_bytes: Array, most_bytes: int) -> int | None:
    """How many ranges of at most so many bytes there must be; None when a filter alone is larger."""
    if int(n_bytes.max(initial=0)) > most_bytes:
        return None
    sizes, at, count = offsets_of(n_bytes), 0, 0
    while at < len(n_bytes):
        at = _reach(sizes, at, most_bytes)
        count += 1
    return max(count, 1)


def _fill(loads: Array, sizes: Array, n_parts: int, most_load: float, most_bytes: int) -> Array | None:
    """The bounds when every range takes what it can; None when filters are left over."""
    bounds = np.zeros(n_parts + 1, np.int64)
    for part in range(n_parts):
        at = int(bounds[part])
        bounds[part + 1] = min(_reach(loads, at, most_load), _reach(sizes, at, most_bytes))
    return bounds if bounds[-1] == len(loads) - 1 else None


def _reach(running: Array, at: int, most: float) -> int:
    """Where a range from `at` has to end."""
    return int(np.searchsorted(running, running[at] + most, side="right")) - 1
