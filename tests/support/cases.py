"""The named cases of `cases.json`, as model objects.

A case is `{"name", "subscriptions", "event", "location"?, "expect", "why"}`: subscription rows as users write them, one
event, and the labels of the interfaces it must be delivered to.  NaN, Infinity and -0.0 stand as Python's json reads them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mpi_match import model
from mpi_match.ingest.rows.judge import subscription_filters
from mpi_match.model import Event, Filter

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "cases.json").read_text(encoding="utf-8"))


def filters_of(case: dict[str, Any]) -> list[Filter]:
    return [item for row in case["subscriptions"] for item in subscription_filters(row)]


def event_of(case: dict[str, Any]) -> Event:
    return model.make_event(case["event"], case.get("location"))


CONJUNCTIONS = [case for case in CASES if all(item.where is None for item in filters_of(case))]
"""The cases without conditions, for tests of one engine; with conditions a table has one for each stage."""

one_in_three = pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case["name"], marks=[pytest.mark.lasting] * (at % 3 > 0))
        for at, case in enumerate(CONJUNCTIONS)
    ],
)
"""For tests of a second index of an engine that has all cases with the first; the others take their turn in `lasting`."""
