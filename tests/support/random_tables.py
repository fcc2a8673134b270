"""Mid-size random tables made with NumPy: thousands of filters, every operator, and events that many of them match.

Too large for the naive matcher, small enough for the counting engine to judge the others.  Each shape bends the table one
way that an engine may depend on: how many constraints a name has, how long filters are, how many interfaces share them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from mpi_match.model import OPS_OF_TYPE, Event, Filter, Op, Type, constraint, make_event, make_filter

SHAPES: dict[str, dict[str, Any]] = {
    "numbers": {"types": (Type.NUMBER,)},
    "strings": {"types": (Type.STRING,)},
    "every type": {},
    "tag sets": {"types": (Type.ANY,), "n_names": 40, "sizes": (2, 6)},
    "two names": {"n_names": 2, "sizes": (1, 3), "n_filters": 1500},
    "skewed names": {"skew": 2.0},
    "long filters": {"sizes": (6, 14), "n_names": 12, "wide_events": True},
    "one interface each": {"n_interfaces": None},
    "one interface": {"n_interfaces": 1},
    "areas": {"areas": 0.7, "sizes": (0, 3)},
    "only areas": {"areas": 1.0, "sizes": (0, 1)},
    "areas and three names": {"areas": 1.0, "sizes": (3, 6), "n_names": 9, "operators": (Op.GE, Op.NE, Op.EXISTS)},
    "areas and wide events": {
        "areas": 1.0,
        "sizes": (3, 6),
        "n_names": 40,
        "operators": (Op.GE, Op.NE, Op.EXISTS),
        "wide_events": True,
    },
    "selective": {"operators": (Op.EQ, Op.IN, Op.BETWEEN, Op.PREFIX), "n_filters": 4000},
    "wide events": {"operators": (Op.EQ, Op.IN, Op.LE), "sizes": (2, 4), "n_names": 40, "wide_events": True},
    "negative": {"operators": (Op.NE, Op.NOT_IN, Op.ABSENT), "sizes": (1, 5), "n_filters": 1500},
}
"""What each shape changes of the defaults of `random_subscriptions`."""

WORDS = ["", *(a + b + c for a in "abc" for b in ("", "a", "b") for c in ("", "é"))]


def random_subscriptions(
    seed: int,
    n_filters: int = 2500,
    n_events: int = 150,
    n_names: int = 20,
    sizes: tuple[int, int] = (1, 5),
    types: tuple[Type, ...] = tuple(Type),
    operators: tuple[Op, ...] = tuple(Op),
    n_interfaces: int | None = 50,
    skew: float = 0.0,
    areas: float = 0.1,
    wide_events: bool = False,
) -> tuple[list[Filter], list[Event]]:
    """Filters of `sizes[0]` to `sizes[1] - 1` constraints, and events over the same names and values.

    `skew` is the exponent of the names' Zipf law, `areas` the share of filters that have one; `n_interfaces` None gives
    every filter its own.
    """
    rng = np.random.default_rng(seed)
    weight = (1.0 + np.arange(n_names)) ** -skew
    weight /= weight.sum()
    choices = [(type_, op) for type_ in types for op in sorted(OPS_OF_TYPE[type_]) if op in operators]

    def value(type_: Type) -> float | str | bool:
        if type_ is Type.NUMBER:
            return float(rng.integers(-10, 10)) / 2
        return bool(rng.integers(2)) if type_ is Type.BOOLEAN else WORDS[int(rng.integers(len(WORDS)))]

    def operand(type_: Type, op: Op) -> object:
        if type_ is Type.ANY:
            return None
        if op in (Op.IN, Op.NOT_IN):
            return [value(type_) for _ in range(rng.integers(1, 5))]
        return sorted([value(type_), value(type_)]) if op is Op.BETWEEN else value(type_)  # type: ignore[type-var]

    filters = []
    for i in range(n_filters):
        conditions = []
        for name in rng.choice(n_names, int(rng.integers(*sizes)), p=weight):
            type_, op = choices[int(rng.integers(len(choices)))]
            conditions.append(constraint(f"n{name}", op, operand(type_, op)))
        circle = [*rng.integers(-20, 20, 2).tolist(), int(2 ** rng.integers(0, 6))] if rng.random() < areas else None
        filters.append(make_filter(str(i if n_interfaces is None else int(rng.integers(n_interfaces))), conditions, circle))

    valued = [type_ for type_ in types if type_ is not Type.ANY] or [Type.NUMBER, Type.STRING, Type.BOOLEAN]
    events = []
    for _ in range(n_events):
        n_attributes = n_names if wide_events else int(rng.integers(0, min(n_names, 8) + 1))
        names = rng.choice(n_names, min(n_attributes, int((weight > 0).sum())), replace=False, p=weight)
        attributes = {f"n{name}": value(valued[int(rng.integers(len(valued)))]) for name in names}
        location = rng.integers(-20, 20, 2).tolist() if rng.random() < 0.8 else None
        events.append(make_event(attributes, location))
    return filters, events


@cache
def shaped(shape: str) -> tuple[list[Filter], list[Event]]:
    """The filters and events of a shape as every engine gets them, made once; nobody is to change them."""
    return random_subscriptions(len(shape), **SHAPES[shape])
