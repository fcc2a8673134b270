"""Divides workers into groups, and a table among the members of a group.

    workers                  1     2     3     4     5     6
    replicate, 6 groups     all   all   all   all   all   all     a batch goes to one worker
    hybrid, 2 groups        [ a     b     c ]  [ a     b     c ]  to the three of a group, and their answers are merged
    shard, 1 group          [ a     b     c     d     e     f  ]  to all

Members are consecutive ranks, which launchers put on one host: the loss of a host affects as few groups as possible.

Filters are sorted by interface, so a range of them is a table, with the vocabulary of the whole (events are encoded once for
all members) and few interfaces that straddle two ranges.  The filters of parts of conditions, which are the last, are not
divided: every member has them all, and matches them first (`engines.staged`).

Ranges minimise the *work* of the most loaded member (`cost_model`) within the memory limit.  This is the linear partition
problem: fill the ranges from the left up to a load, and check if they suffice; bisection finds the least load that does.

If a group is one worker, the master loads the whole table, once.  Otherwise no process loads the whole table: the master
keeps an outline (`range_reader`), and reads a shard when it is about to be sent.  So only the master's host needs the file;
if workers read their shards themselves, every host would need it.

With `--route` a shard is not a range, but filters that ask for the same, so that many events need not go to it
(`access`, `routing`).

A worker's limit (`--memory-limit`) is for the table in its memory, or its shard.  The engine's own memory comes on top:
`mpi-match bench` shows it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from itertools import pairwise
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of
from mpi_match.cluster.distribution.shard import Shard
from mpi_match.cluster.options import ClusterError, RunOptions
from mpi_match.exit_codes import ExitCode
from mpi_match.table.range_reader import RangeReader
from mpi_match.table.table import Table

if TYPE_CHECKING:
    from mpi_match.cluster.distribution.routing import Routes  # loads Numba

log = logging.getLogger(__name__)

UNEVEN = 2.0
"""Most memory of a shard without a memory limit, in multiples of the mean of all shards."""
_HALVINGS = 50


def groups_of(n_workers: int, placement: str, n_groups: int | None = None) -> list[range]:
    """The groups that workers 1 to `n_workers` form; member i of every group has part i of the filters.

    Raises ClusterError when the workers cannot form the groups.
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
            ExitCode.USAGE,
        )
    size = n_workers // count
    return [range(1 + i * size, 1 + (i + 1) * size) for i in range(count)]


def divide(work: Array, n_bytes: Array, n_parts: int, most_bytes: int | None = None) -> Array | None:
    """Bounds i64[n_parts + 1] of ranges of filters that minimise the work of the most loaded range.

    Parameters: of each filter its `work` f64[n_filters] and memory `n_bytes` i64[n_filters]; `most_bytes` of a range (None:
    UNEVEN times the mean, or the size of the largest filter).  Returns None when `n_parts` ranges do not suffice.
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
    """The least number of ranges of at most `most_bytes`; None when a single filter is larger."""
    if int(n_bytes.max(initial=0)) > most_bytes:
        return None
    sizes, at, count = offsets_of(n_bytes), 0, 0
    while at < len(n_bytes):
        at = _reach(sizes, at, most_bytes)
        count += 1
    return max(count, 1)


def _fill(loads: Array, sizes: Array, n_parts: int, most_load: float, most_bytes: int) -> Array | None:
    """The bounds when every range is filled up to both limits; None when filters are left over."""
    bounds = np.zeros(n_parts + 1, np.int64)
    for part in range(n_parts):
        at = int(bounds[part])
        bounds[part + 1] = min(_reach(loads, at, most_load), _reach(sizes, at, most_bytes))
    return bounds if bounds[-1] == len(loads) - 1 else None


def _reach(running: Array, at: int, most: float) -> int:
    """The largest end of a range from `at` within the limit."""
    return int(np.searchsorted(running, running[at] + most, side="right")) - 1


class Division:
    """A run's table and its parts; a context manager.

    groups   of workers, all of one size; member i of each holds shard i
    parts    the shards, one for each member of a group
    table    whole, or the outline of a sharded one
    routes   the shards that an event can match; None: events go to all shards

    Raises ClusterError when the workers cannot form the groups, or the table does not fit; StorageError.
    """

    def __init__(self, options: RunOptions, n_workers: int) -> None:
        self.groups = groups_of(n_workers, options.placement, options.groups)
        self._limit, self._path = options.memory_limit, options.table
        self._n_bytes: dict[int, int] = {}
        n_members = len(self.groups[0])
        if options.route and n_members == 1:
            log.warning("--route saves nothing: a group of one worker has all filters and gets every event")
        self.table: Table | RangeReader
        self.routes: Routes | None = None
        if n_members == 1:
            if self._limit is not None:
                with RangeReader(self._path) as outline:
                    self._refuse_large(outline, n_members)
            self.table = Table.load(self._path)
            self.parts = [Shard(0, 1, 0, self.table.n_filters, self.table.n_filters)]
            return
        self.table = RangeReader(self._path)
        try:
            self.parts = self._divided(self.table, options, n_members)
        except BaseException:
            self.table.__exit__()
            raise

    def __enter__(self) -> Division:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(self.table, RangeReader):
            self.table.__exit__()

    def read(self, part: Shard) -> Table:
        """The table of a shard.  Raises StorageError when the file is damaged, ClusterError when it is over the limit."""
        if isinstance(self.table, Table):
            return self.table
        table = self.table.part(part.first, part.stop, part.n_shared) if part.ids is None else self.table.some(part.ids)
        self._n_bytes[part.member] = table.nbytes
        if self._limit is not None and table.nbytes > self._limit:
            raise ClusterError(
                f"{self._path}: part {part.member + 1} of {part.n_members} takes {table.nbytes:,} bytes, the limit is "
                f"{self._limit:,}; have at least {part.n_members + 1} workers in a group",
                ExitCode.USAGE,
            )
        return table

    def room(self, members: Collection[int]) -> bool:
        """Tells whether a worker has room for the shards of all these members, which have been read before."""
        return self._limit is None or sum(self._n_bytes[member] for member in members) <= self._limit

    def _divided(self, table: RangeReader, options: RunOptions, n_members: int) -> list[Shard]:
        from mpi_match.cluster.distribution.cost_model import work_of  # loads Numba

        self._refuse_large(table, n_members)
        most = None if self._limit is None else self._limit - table.outline_bytes - table.parts_bytes
        work, n_bytes = work_of(table, options.engine, filters=options.filters), table.visible_bytes
        if options.route:
            return self._routed(table, work, n_bytes, n_members, most)
        bounds = divide(work[: len(n_bytes)], n_bytes, n_members, most)
        if bounds is None:
            raise self._too_large(table, n_members + 1)
        bounds = np.minimum(table.grain * bounds, table.n_filters - table.n_of_parts)
        return [
            Shard(member, n_members, int(first), int(stop), table.n_filters, table.n_of_parts)
            for member, (first, stop) in enumerate(pairwise(bounds.tolist()))
        ]

    def _routed(
        self, table: RangeReader, work: Array, n_bytes: Array, n_members: int, most_bytes: int | None
    ) -> list[Shard]:
        """Shards of filters that ask for the same, and `routes` to them.  Work and bytes are those of grains."""
        from mpi_match.cluster.distribution.access import accesses_of, order_of
        from mpi_match.cluster.distribution.routing import MOST_SHARDS, routes_of  # these load Numba

        if n_members > MOST_SHARDS:
            raise ClusterError(
                f"--route tells at most {MOST_SHARDS} shards apart, a group has {n_members}; form more groups with "
                "--placement hybrid, or leave it out",
                ExitCode.USAGE,
            )
        n = table.n_filters - table.n_of_parts
        accesses, (has_area, circles) = accesses_of(table), table.areas(np.arange(table.n_filters))
        order = order_of(accesses, has_area, circles)
        order = order[order < n]
        grain = order // table.grain
        bounds = divide(work[grain] / table.grain, -(-n_bytes[grain] // table.grain), n_members, most_bytes)
        if bounds is None:
            raise self._too_large(table, n_members + 1)
        own = [np.sort(order[first:stop]) for first, stop in pairwise(bounds.tolist())]
        self.routes = routes_of(table.vocabulary, own, accesses, (has_area, circles))
        shared = np.arange(n, table.n_filters)
        return [
            Shard(i, n_members, 0, len(ids) + len(shared), table.n_filters, ids=np.append(ids, shared).astype(np.uint32))
            for i, ids in enumerate(own)
        ]

    def _refuse_large(self, table: RangeReader, n_members: int) -> None:
        """Raise ClusterError when the table exceeds the limit of `n_members` workers together."""
        if self._limit is None:
            return
        needed = table.outline_bytes + table.parts_bytes
        least = fewest_parts(table.visible_bytes, self._limit - needed)
        if least is None:
            parts = ", labels and parts of conditions" if table.n_of_parts else " and labels"
            raise ClusterError(
                f"{self._path}: {needed:,} bytes of names, operands{parts} are needed by every worker and "
                f"leave no room for a filter in {self._limit:,}; raise --memory-limit",
                ExitCode.USAGE,
            )
        if least > n_members:
            raise self._too_large(table, least)

    def _too_large(self, table: RangeReader, least: int) -> ClusterError:
        return ClusterError(
            f"{self._path}: takes {table.n_bytes:,} bytes in memory, a worker may have {self._limit:,} (--memory-limit); "
            f"divide it with --placement shard among at least {least} workers, or more to a group",
            ExitCode.USAGE,
        )
