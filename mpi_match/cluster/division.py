"""The table of a run, divided: which workers are groups, and which part of the filters each member has.

Where a group is one worker, the table is loaded whole, once, by the master.  Otherwise it never is, by anyone: the master
keeps an outline (`large_table`), and reads a part when it is about to be sent.  So the file is only needed where the master
runs; workers that read their parts themselves would all have to see it.

A worker's limit (`--memory-limit`) is that of the table in its memory, or of its part.  What its engine makes of it comes on
top: `mpi-match bench` shows how much that is.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from types import TracebackType

import numpy as np

from mpi_match.cluster import ClusterError, RunOptions
from mpi_match.cluster.part import Part
from mpi_match.cluster.placement import divide, fewest_parts, groups_of
from mpi_match.large_table import LargeTable
from mpi_match.table import Table


class Division:
    """A run's table and its parts; a context manager.

    groups   of workers, all of one size; member i of each has part i
    parts    one for each member of a group
    table    whole, or the outline of one that has parts

    Raises ClusterError for groups that cannot be, and for a table that does not fit; StorageError.
    """

    def __init__(self, options: RunOptions, n_workers: int) -> None:
        self.groups = groups_of(n_workers, options.placement, options.groups)
        self._limit, self._path = options.memory_limit, options.table
        self._n_bytes: dict[int, int] = {}
        n_members = len(self.groups[0])
        self.table: Table | LargeTable
        if n_members == 1:
            if self._limit is not None:
                with LargeTable(self._path) as outline:
                    self._refuse_large(outline, n_members)
            self.table = Table.load(self._path)
            self.parts = [Part(0, 1, 0, self.table.n_filters, self.table.n_filters)]
            return
        self.table = LargeTable(self._path)
        try:
            self.parts = self._divided(self.table, options, n_members)
        except BaseException:
            self.table.__exit__()
            raise

    def __enter__(self) -> Division:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(self.table, LargeTable):
            self.table.__exit__()

    def read(self, part: Part) -> Table:
        """The table of a part.  Raises StorageError when the file is damaged, ClusterError when it is over the limit."""
        if isinstance(self.table, Table):
            return self.table
        table = self.table.part(part.first, part.stop)
        self._n_bytes[part.member] = table.nbytes
        if self._limit is not None and table.nbytes > self._limit:
            raise ClusterError(
                f"{self._path}: part {part.member + 1} of {part.n_members} takes {table.nbytes:,} bytes, the limit is "
                f"{self._limit:,}; have at least {part.n_members + 1} workers in a group",
                2,
            )
        return table

    def room(self, members: Collection[int]) -> bool:
        """May a worker have the parts of all these members?  They have been read before."""
        return self._limit is None or sum(self._n_bytes[member] for member in members) <= self._limit

    def _divided(self, table: LargeTable, options: RunOptions, n_members: int) -> list[Part]:
        from mpi_match.cluster.work import work_of  # loads Numba

        self._refuse_large(table, n_members)
        most = None if self._limit is None else self._limit - table.outline_bytes
        bounds = divide(work_of(table, options.engine, filters=options.filters), table.grain_bytes, n_members, most)
        if bounds is None:
            raise self._too_large(table, n_members + 1)
        bounds = np.minimum(table.grain * bounds, table.n_filters)
        return [
            Part(member, n_members, int(first), int(stop), table.n_filters)
            for member, (first, stop) in enumerate(pairwise(bounds.tolist()))
        ]

    def _refuse_large(self, table: LargeTable, n_members: int) -> None:
        """Raise ClusterError when `n_members` workers do not have the memory together."""
        if self._limit is None:
            return
        least = fewest_parts(table.grain_bytes, self._limit - table.outline_bytes)
        if least is None:
            raise ClusterError(
                f"{self._path}: {table.outline_bytes:,} bytes of names, operands and labels are needed by every worker and "
                f"leave no room for a filter in {self._limit:,}; raise --memory-limit",
                2,
            )
        if least > n_members:
            raise self._too_large(table, least)

    def _too_large(self, table: LargeTable, least: int) -> ClusterError:
        return ClusterError(
            f"{self._path}: takes {table.n_bytes:,} bytes in memory, a worker may have {self._limit:,} (--memory-limit); "
            f"divide it with --placement shard among at least {least} workers, or more to a group",
            2,
        )
