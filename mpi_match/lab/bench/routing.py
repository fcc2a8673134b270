"""Measures the share of (event, shard) pairs that routing could leave out, where a broadcast sends each event to all shards.

    filter    its rarest feature: the equality or the name that the fewest events have
    shard     the features of its filters, and the cells that their areas touch
    event     goes to the shards that have one of its features, and its cell

That is sound: an event that matches a filter has all its features.  Shards are ranges of equal numbers of filters, in one
of these orders:

    interface   as a run divides them
    feature     by the rarest feature
    place       by the cell of the area's centre, along a Z-shaped curve

`no_answer` is the share of pairs in which the shard has no answer, which no routing exceeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, owners
from mpi_match.arrays.strings import Strings
from mpi_match.engines import open_engine
from mpi_match.environment.machine import origin
from mpi_match.events.events import Events
from mpi_match.lab.bench.engines import require
from mpi_match.lab.workloads.scenarios import Scenario
from mpi_match.model import Json, Op, Type
from mpi_match.table.kinds import OP_MASK
from mpi_match.table.subscriptions import Subscriptions
from mpi_match.table.table import Table

MOST_SHARDS = 64
_CELLS = 64
"""Cells along each side of the plane."""
_STRING, _NAME = 1 << 39, 1 << 40


class Features(NamedTuple):
    """Features of n rows: those of row i from `offsets[i]` on.  A feature is a name, or a name and a value."""

    offsets: Array
    key: Array


def features_of_events(events: Events) -> Features:
    """The names of each event, and its equalities."""
    name = events.name.astype(np.int64) * _NAME
    value = (
        np.where(events.type == Type.STRING, _STRING + events.string.astype(np.int64), events.number.astype(np.int64)) + 1
    )
    return Features(2 * events.offsets, np.column_stack([name, name + value]).reshape(-1))


def rarest_features(subscriptions: Subscriptions, of_events: Features) -> Array:
    """i64[n_filters]: the feature that the fewest of these events have; -1 of a filter without constraints."""
    name = subscriptions.name * _NAME
    first = subscriptions.operand_offsets[:-1]
    is_equality = (subscriptions.kind & OP_MASK) == Op.EQ
    operand = first[is_equality]
    string, number = subscriptions.string[operand], subscriptions.number[operand].astype(np.int64)
    equality = name[is_equality] + np.where(string >= 0, _STRING + string, number) + 1
    owner = owners(subscriptions.constraint_offsets)
    key, owner = np.append(name, equality), np.append(owner, owner[is_equality])
    known, often = np.unique(of_events.key, return_counts=True)
    place = np.minimum(np.searchsorted(known, key), len(known) - 1)
    n_events = np.where(known[place] == key, often[place], 0)
    order = np.lexsort((key, n_events, owner))
    found = np.full(subscriptions.n_filters, -1, np.int64)
    which, at = np.unique(owner[order], return_index=True)
    found[which] = key[order][at]
    return found


def shards_of(order: Array, n_shards: int) -> Array:
    """u64[n_filters]: the bit of the shard of each filter, when filters in this order are divided."""
    shard = np.empty(len(order), np.int64)
    shard[order] = np.arange(len(order)) * n_shards // len(order)
    return np.uint64(1) << shard.astype(np.uint64)


def by_features(rarest: Array, shard: Array, of_events: Features) -> Array:
    """u64[n_events]: the bits of the shards with a feature of each event."""
    known, which = np.unique(rarest, return_inverse=True)
    of_key = np.zeros(len(known), np.uint64)
    np.bitwise_or.at(of_key, which, shard)
    place = np.minimum(np.searchsorted(known, of_events.key), len(known) - 1)
    bits = np.where(known[place] == of_events.key, of_key[place], np.uint64(0))
    found = np.bitwise_or.reduceat(np.append(bits, np.uint64(0)), of_events.offsets[:-1])
    found[np.diff(of_events.offsets) == 0] = 0
    return np.asarray(found | np.bitwise_or.reduce(of_key[known < 0], initial=np.uint64(0)))


def by_cells(area: Array, shard: Array, location: Array) -> Array:
    """u64[n_events]: the bits of the shards with an area that touches the cell of each event."""
    cell = np.zeros((_CELLS, _CELLS), np.uint64)
    low, high = (_cell_of(area[:, :2] + side * area[:, 2:]) for side in (-1, 1))
    for dx in range(int((high - low)[:, 0].max()) + 1):
        for dy in range(int((high - low)[:, 1].max()) + 1):
            at = low + np.array([dx, dy])
            there = (at <= high).all(axis=1)
            np.bitwise_or.at(cell, tuple(at[there].T), shard[there])
    return np.asarray(cell[tuple(_cell_of(location).T)])


def _cell_of(place: Array) -> Array:
    return np.clip((place * _CELLS).astype(np.int64), 0, _CELLS - 1)


def _along_curve(place: Array) -> Array:
    """Positions of places on a Z-shaped curve through the cells."""
    cell, found = _cell_of(place), np.zeros(len(place), np.int64)
    for bit in range(6):
        found |= (cell[:, 0] >> bit & 1) << 2 * bit | (cell[:, 1] >> bit & 1) << 2 * bit + 1
    return found


def measure_routing(scenario: Scenario, n_events: int, n_shards: Sequence[int], seed: int = 0) -> list[Json]:
    """A record for each order of filters and number of shards, at most `MOST_SHARDS`.  Raises WrongAnswer if routing would
    lose an answer.

    A record has `order`, `shards`, the shares of pairs `left_out` and with `no_answer`, and `busiest`, the share of all
    events that the busiest shard gets.
    """
    subscriptions, events = scenario.subscriptions(seed), scenario.events(n_events, seed)
    n_filters = subscriptions.n_filters
    labels = Strings.numbered(b"", n_filters)  # a table has filters in an order of its own
    table = Table.from_subscriptions(replace(subscriptions, labels=labels, interface=np.arange(n_filters)))
    answers = open_engine("keyed", table).match(events.encode(table.vocabulary))
    of_events = features_of_events(events)
    rarest = rarest_features(subscriptions, of_events)
    orders = {"interface": np.arange(len(rarest)), "feature": np.argsort(rarest, kind="stable")}
    if scenario.area:
        orders["place"] = np.argsort(_along_curve(subscriptions.area[:, :2]), kind="stable")
    found = []
    for name, order in orders.items():
        for n in n_shards:
            shard = shards_of(order, n)
            routed = by_features(rarest, shard, of_events)
            if events.location is not None:
                routed &= by_cells(subscriptions.area, shard, events.location)
            matched = np.zeros(n_events, np.uint64)
            np.bitwise_or.at(matched, owners(answers.offsets), shard[answers.ids])
            require(not np.any(matched & ~routed), "routing loses an answer")
            sent = (routed[:, None] >> np.arange(n, dtype=np.uint64) & np.uint64(1)).astype(bool)
            found.append(
                {
                    "what": "routing",
                    "scenario": scenario.name,
                    "n_filters": len(rarest),
                    "n_events": n_events,
                    "order": name,
                    "shards": n,
                    "left_out": float(1 - sent.mean()),
                    "no_answer": float(1 - np.bitwise_count(matched).sum() / (n * n_events)),
                    "busiest": float(sent.mean(axis=0).max()),
                    **origin(),
                }
            )
    return found
