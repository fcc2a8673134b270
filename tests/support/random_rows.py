"""Random rows as users write them, for the readers: every operator and type, ids, areas, several filters to a row."""

from __future__ import annotations

import random
from typing import Any

NAMES = ("temp", "city", "name.first", "é", "wind", "on", "a")
LISTS = ("tags", "scores")
"""Attributes that are lists, or sometimes not; of elements of the first it is only asked whether they are there."""
WORDS = ("", "Milan", "Mi", "Rome", "é", "日本", "a\x00b", "Milano", "lan")
INTERFACES = ("mobile-1", "mobile-10", "mobile-2", "é", "z", 7, "")


def random_subscription(generator: random.Random) -> dict[str, Any]:
    """A valid subscription row."""
    interface = generator.choice(INTERFACES)
    if generator.random() < 0.7:
        return {"interface": interface, **_filter(generator)}
    return {"interface": interface, "filters": [_filter(generator) for _ in range(generator.randint(1, 3))]}


def _filter(generator: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {"constraints": [_constraint(generator) for _ in range(generator.randrange(5))]}
    if generator.random() < 0.3:
        found["area"] = [generator.randrange(-3, 4), generator.random(), generator.randrange(3)]
    if generator.random() < 0.2:
        found["id"] = generator.choice(("first", "second", 3))
    if generator.random() < 0.1:
        found["tags"] = generator.choices(WORDS, k=2)
    return found


def _number(generator: random.Random) -> float:
    return generator.choice((0, -0.0, 1, 2**53, 2**53 + 1, 2**64 - 1, generator.randrange(50), generator.random()))


def _constraint(generator: random.Random) -> list[Any]:
    if generator.random() < 0.2:
        return _on_elements(generator)
    name, form = generator.choice(NAMES), generator.randrange(6)
    if form == 0:
        return [name, generator.choice(("exists", "absent"))]
    if form == 1:
        return [name, generator.choice(("=", "!=")), generator.random() < 0.5]
    if form == 2:
        op = generator.choice(("=", "!=", "<", "<=", ">", ">=", "prefix", "suffix", "contains"))
        return [name, op, generator.choice(WORDS)]
    if form == 3:
        values: tuple[Any, ...] = generator.choice((WORDS, tuple(range(9))))
        return [name, generator.choice(("in", "not in")), generator.choices(values, k=3)]
    if form == 4:
        return [name, "between", sorted((_number(generator), _number(generator)))]
    return [name, generator.choice(("=", "!=", "<", "<=", ">", ">=")), _number(generator)]


def _on_elements(generator: random.Random) -> list[Any]:
    """A constraint on some element of a list: of texts, of numbers, or of both and booleans."""
    name = generator.choice(LISTS)
    if name == "tags" or generator.random() < 0.3:
        return [name, "has", generator.choice((*WORDS, 1, 2.5, True))]
    if generator.random() < 0.5:
        return [name, generator.choice(("any <", "any >=", "any !=", "any prefix", "any contains")), generator.choice(WORDS)]
    if generator.random() < 0.3:
        return [name, generator.choice(("any in", "any not in")), generator.choices(WORDS, k=3)]
    if generator.random() < 0.3:
        return [name, "any between", sorted((_number(generator), _number(generator)))]
    return [name, generator.choice(("any <=", "any >", "any !=")), _number(generator)]


def _list(generator: random.Random) -> Any:
    """A list, or a value that counts as one."""
    found = [
        generator.choice((_number(generator), *generator.choices(WORDS, k=3), True)) for _ in range(generator.randrange(5))
    ]
    return found[0] if found and generator.random() < 0.3 else found


def random_event(generator: random.Random, lists: bool = True) -> dict[str, Any]:
    """A valid event row, without `lists` none that the scanner does not read; locations are x and y, ids are `id`, and some
    names are nested in an object.
    """
    found: dict[str, Any] = {}
    for name in generator.sample((*NAMES, *LISTS) if lists else (*NAMES, "tags"), generator.randrange(len(NAMES))):
        value = generator.choice((_number(generator), generator.choice(WORDS), generator.random() < 0.5, None))
        if name in LISTS:
            found[name] = _list(generator)
        elif name == "name.first":
            found["name"] = {"first": value}
        else:
            found[name] = value
    if generator.random() < 0.5:
        found |= {"x": generator.random(), "y": generator.random()}
    if generator.random() < 0.3:
        found["id"] = generator.choice(("e1", 17))
    return found
