"""Keys of several features in small tables."""

from __future__ import annotations

import pytest

from mpi_match.engines.keyed.index import features


@pytest.fixture(autouse=True)
def long_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables get keys as long as those of large ones: what an event costs beside the search counts nothing."""
    monkeypatch.setattr(features, "COST_OF_EVENT", 0.0)
    monkeypatch.setattr(features, "COST_OF_ATTRIBUTE", 0.0)
