"""The answers of an engine and of `model` in the same form, for each kind of answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpi_match import model
from mpi_match.engines import Engine
from mpi_match.events.batch import EventBatch
from mpi_match.matches.matches import Matches
from mpi_match.table.table import Table

KINDS = ("mask", "list", "filters")
"""Kinds of answer: bit masks of interfaces, lists of them, lists of filters."""


def answers(engine: Engine, table: Table, batch: EventBatch, answer: str) -> list[list[Any]]:
    """The engine's answers, as labels of interfaces or as filters."""
    return in_words(engine.match(batch, filters=answer == "filters"), table, answer)


def in_words(matches: Matches, table: Table, answer: str) -> list[list[Any]]:
    """An engine's answers as labels of interfaces or as filters."""
    if answer != "filters":
        return [*matches.labels(table.labels)]
    return [[table.filter(int(i)) for i in matches[event]] for event in range(matches.n_events)]


def expected(table: Table, events: Sequence[model.Event], answer: str) -> list[list[Any]]:
    if answer != "filters":
        return [model.match_naive(table.iter_filters(), event) for event in events]
    return [[f for f in table.iter_filters() if model.matches(f, event)] for event in events]
