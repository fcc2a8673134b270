"""The cases in groups that share a table and a batch: the CUDA simulator takes its time for every launch.

A case of many names is a group of its own, for a grid of CLCB is as high as the widest event of a batch.
"""

from __future__ import annotations

from typing import Any

import pytest
from cases import CONJUNCTIONS, event_of, filters_of

from mpi_match.engines import open_engine
from mpi_match.events.events import Events
from mpi_match.model import match_naive
from mpi_match.table.table import Table

NARROW, WIDE = ([case for case in CONJUNCTIONS if (len(event_of(case).attributes) > 8) == wide] for wide in (False, True))
GROUPS = [*(NARROW[i : i + 15] for i in range(0, len(NARROW), 15)), *([case] for case in WIDE)]
every_group = pytest.mark.parametrize("group", GROUPS, ids=[group[0]["name"] for group in GROUPS])


def assert_cases(name: str, group: list[dict[str, Any]]) -> None:
    """An engine gives each event of a group the answers of its case, and those of the model for all filters."""
    filters = [f._replace(interface=f"{i:02}/{f.interface}") for i, case in enumerate(group) for f in filters_of(case)]
    table = Table.from_filters(filters)
    batch = Events.of([event_of(case) for case in group]).encode(table.vocabulary)
    found = open_engine(name, table).match(batch).labels(table.labels)
    for i, (case, labels) in enumerate(zip(group, found, strict=True)):
        assert [label[3:] for label in labels if label.startswith(f"{i:02}/")] == case["expect"], case["name"]
        assert labels == match_naive(filters, event_of(case)), case["name"]
