"""Exceptions at steps of updates and matches of the engines on a GPU, see `interrupted_updates`."""

from __future__ import annotations

import pytest
from interrupted_updates import engine_as_before_or_refuses, match_that_was_interrupted, update_as_a_whole

from mpi_match.engines import REGISTRY

every_live_engine = pytest.mark.parametrize(
    "engine", [name for name, entry in REGISTRY.items() if entry.takes_changes and entry.runs_on == "GPU"]
)


@every_live_engine
def test_an_update_takes_effect_as_a_whole_or_not_at_all(engine: str) -> None:
    update_as_a_whole(engine, {}, 6)


@every_live_engine
def test_a_match_that_was_interrupted_changes_nothing(engine: str) -> None:
    match_that_was_interrupted(engine, {}, 6)


@every_live_engine
def test_an_engine_whose_update_was_interrupted_is_as_before_or_refuses(engine: str) -> None:
    engine_as_before_or_refuses(engine, {}, 6)
