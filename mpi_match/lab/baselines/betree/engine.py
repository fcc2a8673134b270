"""BE-Tree: an index of conjunctions that is divided by names and values in turn.

Sadoghi and Jacobsen, *BE-Tree: an index structure to efficiently match Boolean expressions over high-dimensional discrete
space*, SIGMOD 2011.  The tree (`build`) is built once and not adapted to events.  An event reaches the nodes of names that
it has and of ranges that its values lie in (`search`); the filters in their buckets are evaluated, each until a constraint
fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.engines.keyed.index.filter_rows import FilterRows, too_large
from mpi_match.lab.baselines.betree import search
from mpi_match.lab.baselines.betree.build import build, extents
from mpi_match.lab.baselines.betree.coordinates import COORDINATES, codes_of_boxes, plane_of, with_areas
from mpi_match.lab.baselines.candidate_check import OF_TABLE, candidate_arrays, candidate_scratch
from mpi_match.lab.baselines.event_by_event import EncodedEvents, EventByEvent, EventScratch, areas_of
from mpi_match.table.table import Table


class BeTree(EventByEvent):
    """The tree of one table, and its filters in the tree's order."""

    name = "betree"

    def __init__(
        self,
        table: Table,
        device: int | None = None,
        threads: int | None = None,
        *,
        live: bool = False,
        options: Mapping[str, Any],
    ) -> None:
        super().__init__(table, options)
        rows, (circle, circles) = FilterRows.of(table), areas_of(table)
        found, n_codes, plane = extents(rows), np.diff(rows.code_offsets), np.zeros((0, 2))
        if options["area"] == "constraints" and table.has_areas:
            plane = plane_of(circles)
            found = with_areas(found, table.filters.area_filter, codes_of_boxes(circles, plane), len(n_codes))
            n_codes = np.append(n_codes, (COORDINATES, COORDINATES))
        tree = build(found, n_codes, int(options["bucket"]), int(options["halvings"]))
        order = tree.order
        self._n_names, self._n_nodes = rows.n_virtual + len(plane), len(tree.nodes)
        arrays: dict[int, tuple[Array, Any]] = {
            **candidate_arrays(rows, order, circle, circles),
            search.TREE_NODES: (tree.nodes, np.int64),
            search.TREE_ENTRIES: (tree.entries, np.int64),
            search.TREE_FILTER: (order, np.uint32),
            search.TREE_INTERFACE: (table.filters.interface[order], np.uint32),
            search.TREE_PLANE: (plane, np.float64),
        }
        self.bind(arrays, shared=OF_TABLE)

    def new_scratch(self) -> tuple[EventScratch, dict[int, tuple[Array, object]]]:
        scratch = EventScratch(np.zeros(2, np.int64))
        return scratch, {
            **candidate_scratch(self._n_names),
            search.TREE_STACK: (np.empty(self._n_nodes + 1, np.int64), np.int64),
            search.TREE_DONE: (np.zeros(self._table.n_interfaces, np.int64), np.int64),
            search.TREE_STATE: (scratch.state, np.int64),
            search.TREE_PROGRESS: (scratch.progress, np.int64),
        }

    @classmethod
    def serves(cls, table: Table) -> str | None:
        return too_large(table)

    @property
    def candidates(self) -> int:
        return sum(int(scratch.state[search.TREE_CANDIDATES]) for scratch in self._sharing.sets)

    def find(self, filters: bool, events: EncodedEvents, scratch: EventScratch) -> None:
        search.match_events(filters, events, scratch.bound.table, scratch.pairs)
