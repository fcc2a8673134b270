"""Mid-size random tables made with NumPy: thousands of filters, every operator, and events that many of them match.

Too large for the naive matcher, small enough for the counting engine to verify the others.  Each shape varies one property
that an engine may depend on: constraints of a name, sizes of filters, interfaces that share them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from mpi_match.engines import open_engine
from mpi_match.events.batch import EventBatch
from mpi_match.events.events import Events
from mpi_match.matches.matches import Matches
from mpi_match.model import OPS_OF_TYPE, Event, Filter, Op, Type, constraint, make_event, make_filter
from mpi_match.table.table import Table


@dataclass(frozen=True)
class Shape:
    """Parameters of random filters and events.

    sizes           a filter has `sizes[0]` to `sizes[1] - 1` constraints
    n_interfaces    None gives every filter an interface of its own
    skew            exponent of the names' Zipf law
    areas           share of the filters that have an area
    wide_events     an event has every name that can occur, instead of at most 8
    """

    n_filters: int = 2500
    n_events: int = 150
    n_names: int = 20
    sizes: tuple[int, int] = (1, 5)
    types: tuple[Type, ...] = tuple(Type)
    operators: tuple[Op, ...] = tuple(Op)
    n_interfaces: int | None = 50
    skew: float = 0.0
    areas: float = 0.1
    wide_events: bool = False


SHAPES: dict[str, Shape] = {
    "numbers": Shape(types=(Type.NUMBER,)),
    "strings": Shape(types=(Type.STRING,)),
    "every type": Shape(),
    "tag sets": Shape(types=(Type.ANY,), n_names=40, sizes=(2, 6)),
    "two names": Shape(n_names=2, sizes=(1, 3), n_filters=1500),
    "skewed names": Shape(skew=2.0),
    "long filters": Shape(sizes=(6, 14), n_names=12, wide_events=True),
    "one interface each": Shape(n_interfaces=None),
    "one interface": Shape(n_interfaces=1),
    "areas": Shape(areas=0.7, sizes=(0, 3)),
    "only areas": Shape(areas=1.0, sizes=(0, 1)),
    "areas and three names": Shape(areas=1.0, sizes=(3, 6), n_names=9, operators=(Op.GE, Op.NE, Op.EXISTS)),
    "areas and wide events": Shape(
        areas=1.0, sizes=(3, 6), n_names=40, operators=(Op.GE, Op.NE, Op.EXISTS), wide_events=True
    ),
    "selective": Shape(operators=(Op.EQ, Op.IN, Op.BETWEEN, Op.PREFIX), n_filters=4000),
    "wide events": Shape(operators=(Op.EQ, Op.IN, Op.LE), sizes=(2, 4), n_names=40, wide_events=True),
    "negative": Shape(operators=(Op.NE, Op.NOT_IN, Op.ABSENT), sizes=(1, 5), n_filters=1500),
}

DEFAULT = Shape()
WORDS = ["", *(a + b + c for a in "abc" for b in ("", "a", "b") for c in ("", "é"))]


def random_subscriptions(seed: int, shape: Shape = DEFAULT) -> tuple[list[Filter], list[Event]]:
    """Filters of a shape, and events over the same names and values."""
    rng = np.random.default_rng(seed)
    weight = (1.0 + np.arange(shape.n_names)) ** -shape.skew
    weight /= weight.sum()
    choices = [(type_, op) for type_ in shape.types for op in sorted(OPS_OF_TYPE[type_]) if op in shape.operators]

    def value(type_: Type) -> float | str | bool:
        if type_ is Type.NUMBER:
            return float(rng.integers(-10, 10)) / 2
        return bool(rng.integers(2)) if type_ is Type.BOOLEAN else WORDS[int(rng.integers(len(WORDS)))]

    def operand(type_: Type, op: Op) -> object:
        if type_ is Type.ANY:
            return None
        if op in (Op.IN, Op.NOT_IN):
            return [value(type_) for _ in range(rng.integers(1, 5))]
        return sorted([value(type_), value(type_)]) if op is Op.BETWEEN else value(type_)

    filters = []
    for i in range(shape.n_filters):
        conditions = []
        for name in rng.choice(shape.n_names, int(rng.integers(*shape.sizes)), p=weight):
            type_, op = choices[int(rng.integers(len(choices)))]
            conditions.append(constraint(f"n{name}", op, operand(type_, op)))
        circle = [*rng.integers(-20, 20, 2).tolist(), int(2 ** rng.integers(0, 6))] if rng.random() < shape.areas else None
        filters.append(
            make_filter(str(i if shape.n_interfaces is None else int(rng.integers(shape.n_interfaces))), conditions, circle)
        )

    valued = [type_ for type_ in shape.types if type_ is not Type.ANY] or [Type.NUMBER, Type.STRING, Type.BOOLEAN]
    events = []
    for _ in range(shape.n_events):
        n_attributes = shape.n_names if shape.wide_events else int(rng.integers(0, min(shape.n_names, 8) + 1))
        names = rng.choice(shape.n_names, min(n_attributes, int((weight > 0).sum())), replace=False, p=weight)
        attributes = {f"n{name}": value(valued[int(rng.integers(len(valued)))]) for name in names}
        location = rng.integers(-20, 20, 2).tolist() if rng.random() < 0.8 else None
        events.append(make_event(attributes, location))
    return filters, events


@cache
def shaped(shape: str) -> tuple[list[Filter], list[Event]]:
    """The filters and events of a shape, made once; all engines' tests share them, so no test may change them."""
    return random_subscriptions(len(shape), SHAPES[shape])


class Judged(NamedTuple):
    """A table and encoded events, and what the counting engine answers: interfaces, and filters."""

    table: Table
    batch: EventBatch
    interfaces: Matches
    filters: Matches


@cache
def judged(shape: str) -> Judged:
    """A shape's table with its answers, made once: all tests of a process share it, so none may change it."""
    filters, events = shaped(shape)
    table = Table.from_filters(filters)
    batch, judge = Events.of(events).encode(table.vocabulary), open_engine("counting", table)
    return Judged(table, batch, judge.match(batch), judge.match(batch, filters=True))
