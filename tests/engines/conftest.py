"""Keys of several features in small tables."""

from __future__ import annotations

import pytest

from mpi_match.engines.keyed.index import features


@pytest.fixture(autouse=True)
def long_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables get keys as long as those of large ones: what an event costs beside the search counts nothing."""
    monkeypatch.setattr(features, "EVENT_COST", 0.0)
    monkeypatch.setattr(features, "ATTRIBUTE_COST", 0.0)
