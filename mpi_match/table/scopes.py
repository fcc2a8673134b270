"""Scopes: conditions that must hold in one object of each list (`Filter.consistent`), for engines that know no objects.

    a.x any = 1 and a.y any = 2, consistent      becomes      a.x any = 1, a.y any = 2, scope s absent

An engine sees the elements of an attribute, not the objects that they lie in.  So a filter asks in addition that a *scope*
is absent.  That is a name which contains the condition.  The judge of rows gives it to an event for which no choice of
objects makes the condition true.  Without several objects in a list there is nothing to choose, and an event needs no
scopes: only rows with such lists on the way to two of the constraints are judged one by one.

A condition behind `not` chooses its own objects and has a scope of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from mpi_match.model import (
    RESERVED,
    Condition,
    Constraint,
    Event,
    Filter,
    Join,
    ModelError,
    Op,
    Type,
    View,
    holds_consistently,
    whole_condition,
)
from mpi_match.operators import Form

SCOPE_LABEL = RESERVED + "["
"""The beginning of the names of scopes in the model.  Alone, it is a name that an event has if its scopes are known."""
MOST_SCOPE_BYTES = 2**24
"""Most bytes of the scopes of one filter."""


def is_scope(name: str) -> bool:
    """Tells whether a name is that of a scope."""
    return name.startswith(SCOPE_LABEL)


def with_scopes(item: Filter) -> Filter:
    """A consistent filter as one that asks for scopes.  Raises ModelError if these are too large."""
    if not item.consistent:
        return item
    room = [MOST_SCOPE_BYTES]
    found = (*(_inside(part, room) for part in whole_condition(item).parts), *_asked(whole_condition(item), room))
    conditions = tuple(each for each in found if isinstance(each, Condition))
    where = conditions[0] if len(conditions) == 1 else Condition(Join.AND, conditions) if conditions else None
    constraints = tuple(each for each in found if isinstance(each, Constraint))
    return item._replace(constraints=constraints, where=where, consistent=False)


def _inside(tree: Condition | Constraint, room: list[int]) -> Condition | Constraint:
    """A condition in which everything behind `not` asks for its scope."""
    if isinstance(tree, Constraint):
        return tree
    parts = tuple(_inside(part, room) for part in tree.parts)
    if tree.join is Join.NOT and (asked := _asked(tree.parts[0], room)):
        parts = (Condition(Join.AND, (*parts, *asked)),)
    return tree._replace(parts=parts)


def _asked(tree: Condition | Constraint, room: list[int]) -> list[Constraint]:
    """The constraint that asks for the scope of a condition, in a tuple; empty if the condition needs no scope."""
    if not shared_paths(tree):
        return []
    name = SCOPE_LABEL + json.dumps(_written(tree), ensure_ascii=False, separators=(",", ":"))
    room[0] -= len(name)
    if room[0] < 0:
        raise ModelError(f"conditions on objects in lists of more than {MOST_SCOPE_BYTES // 2**20} MiB")
    return [Constraint(name, Type.ANY, Op.ABSENT, None)]


def shared_paths(tree: Condition | Constraint) -> set[str]:
    """The names of possible lists for whose elements two constraints ask that must both hold."""
    shared: set[str] = set()
    _paths(tree, shared)
    return shared


def _paths(tree: Condition | Constraint, shared: set[str]) -> set[str]:
    if isinstance(tree, Constraint):
        is_of_elements = tree.any_element or tree.op.record.form is Form.EXISTS
        return {tree.name[:at] for at, char in enumerate(tree.name) if char == "."} if is_of_elements else set()
    found: set[str] = set()
    for part in tree.parts:
        own = _paths(part, shared)
        if tree.join is Join.AND:
            shared |= found & own
        found |= own
    return set() if tree.join is Join.NOT else found


def _written(tree: Condition | Constraint) -> Any:
    """A condition as plain values, which are equal for equal conditions."""
    if isinstance(tree, Constraint):
        name, type_, op, operand, any_element, view = tree
        return [name, int(type_), int(op), operand, int(any_element), view.value.decode()]
    parts = [_written(part) for part in tree.parts]
    return {tree.join.value: parts if tree.join is Join.NOT else sorted(parts, key=json.dumps)}


def condition_of(name: str) -> Condition | Constraint:
    """The condition of a scope.  Raises ModelError for any other name."""
    try:
        return _read(json.loads(name[len(SCOPE_LABEL) :]))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"the name of a scope holds no condition: {error}") from None


def _read(raw: Any) -> Condition | Constraint:
    if isinstance(raw, list):
        name, type_, op, operand, any_element, view = raw
        values = tuple(operand) if isinstance(operand, list) else operand
        return Constraint(str(name), Type(type_), Op(op), values, bool(any_element), View(view.encode()))
    [(word, parts)] = raw.items()
    return Condition(Join(word), tuple(map(_read, parts)))


def without_scopes(item: Filter) -> Filter:
    """The consistent filter from which `with_scopes` made a filter with recomposed conditions; other filters unchanged."""
    whole = whole_condition(item)
    own = next((each for each in whole.parts if isinstance(each, Constraint) and is_scope(each.name)), None)
    if own is None and not any(is_scope(each.name) for each in whole.leaves()):
        return item
    found: Condition | Constraint = _left_out(whole) if own is None else condition_of(own.name)
    parts = found.parts if isinstance(found, Condition) and found.join is Join.AND else (found,)
    conditions = tuple(each for each in parts if isinstance(each, Condition))
    where = conditions[0] if len(conditions) == 1 else Condition(Join.AND, conditions) if conditions else None
    return item._replace(
        constraints=tuple(each for each in parts if isinstance(each, Constraint)), where=where, consistent=True
    )


def _left_out(tree: Condition) -> Condition:
    """A condition without scopes: each constraint on a scope is replaced by the scope's condition."""
    for part in tree.parts if tree.join is Join.AND else ():
        if isinstance(part, Constraint) and is_scope(part.name):
            return Condition(Join.AND, (condition_of(part.name),))
    return tree._replace(parts=tuple(part if isinstance(part, Constraint) else _left_out(part) for part in tree.parts))


class Scopes:
    """The scopes of a table.

    paths   the names of lists of objects; a row with several objects in one is judged
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._conditions = {name: condition_of(name) for name in names}
        self.paths = frozenset(path for tree in self._conditions.values() for path in shared_paths(tree))
        self._of: dict[tuple[str, Any] | None, list[str]] = {}
        for name, tree in self._conditions.items():
            for key in _keys(tree):
                self._of.setdefault(key, []).append(name)

    def __bool__(self) -> bool:
        return bool(self._conditions)

    def are_below(self, name: str) -> bool:
        """Tells whether the name of an attribute goes through one of the lists."""
        return any(char == "." and name[:at] in self.paths for at, char in enumerate(name))

    def failed(self, event: Event) -> list[str]:
        """The scopes that an event has.  Only scopes with conditions that its attributes may make true are evaluated.

        Raises ModelError for an event with too many choices (`model.holds_consistently`).
        """
        found: dict[str, None] = {}
        for key in (None, *_keys_of(event)):
            found.update(dict.fromkeys(self._of.get(key, ())))
        return [name for name in found if not holds_consistently(self._conditions[name], event)]


def _keys_of(event: Event) -> Iterator[tuple[str, Any]]:
    for name, value in event.attributes.items():
        yield name, None
        if not isinstance(value, tuple):
            yield name, value
        else:
            yield from {(name, each) for each in value}


def _keys(tree: Condition | Constraint) -> list[tuple[str, Any] | None]:
    """Keys such that every event that makes a condition true has one of them; None if that may be any event."""
    if isinstance(tree, Constraint):
        if tree.op.record.form is Form.ABSENT or tree.op.record.of_nulls:
            return [None]
        is_plain = tree.view is View.NONE
        if is_plain and tree.op.record.form is Form.EQUAL:
            return [(tree.name, tree.operand)]
        if is_plain and tree.op.record.form is Form.IN_LIST and isinstance(tree.operand, tuple):
            return [(tree.name, each) for each in tree.operand]
        return [(tree.name, None)]
    if tree.join is Join.NOT or not tree.parts:
        return [None]
    found = [_keys(part) for part in tree.parts]
    if tree.join is Join.OR:
        return [key for keys in found for key in keys]
    return min(found, key=lambda keys: (None in keys, any(key is not None and key[1] is None for key in keys), len(keys)))
