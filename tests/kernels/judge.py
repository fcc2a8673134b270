"""What an engine says and what `model` says, in the same words, for each kind of answer."""

from __future__ import annotations

from mpi_match import model

KINDS = ("mask", "list", "filters")
"""Kinds of answer: bit masks of interfaces, lists of them, lists of filters."""


def answers(engine, table, batch, answer):
    """What the engine says, as labels of interfaces or as filters."""
    return in_words(engine.match(batch, filters=answer == "filters"), table, answer)


def in_words(matches, table, answer):
    """An engine's answer, so."""
    if answer != "filters":
        return matches.labels(table.labels)
    return [[table.filter(int(i)) for i in matches[event]] for event in range(matches.n_events)]


def expected(table, events, answer):
    if answer != "filters":
        return [model.match_naive(table.iter_filters(), event) for event in events]
    return [[f for f in table.iter_filters() if model.matches(f, event)] for event in events]
