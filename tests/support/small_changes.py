"""A table of three filters, and rows of changes as they are written: what the tests of changes share."""

from __future__ import annotations

import json

from mpi_match.ingest.rows.judge import ChangeRow, change_of_row
from mpi_match.model import make_filter
from mpi_match.table.table import Table


def row(text: str, stamped: bool = False) -> ChangeRow:
    return change_of_row(json.loads(text), stamped=stamped)


def small_table() -> Table:
    """Two filters with ids, one of them with an area, and one without."""
    return Table.from_filters(
        [
            make_filter("desk", [["temp", "<", 20]], id_="cold"),
            make_filter("mobile-7", [["city", "prefix", "Mi"]], [9.2, 45.5, 1.0], "walk"),
            make_filter("mobile-7", [["temp", "in", [20, 25]]]),
        ]
    )
