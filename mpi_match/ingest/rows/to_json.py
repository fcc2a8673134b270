"""Writes subscriptions and events as the plain rows that `rows` reads, ready for `json.dumps`.

`rows` reads exactly the same filters and events from them.  Numbers without a fraction are written as integers; the bound
that `Subscriptions` keeps beside each prefix is left out; NaN and the infinities are left to `json`, which writes what
Python reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.arrays.exact import nearest_doubles, residues, values_of
from mpi_match.events.events import Events
from mpi_match.events.lists import exact_numbers
from mpi_match.ingest.rows.judge import EventForm
from mpi_match.model import (
    CONSISTENT,
    HAS,
    MAX_EXACT_INTEGER,
    RESERVED,
    Condition,
    Constraint,
    Filter,
    Join,
    Json,
    ModelError,
    Type,
)
from mpi_match.operators import Form, Takes
from mpi_match.table.conditions import by_label, is_part, recompose
from mpi_match.table.kinds import TYPE_OF_KIND, check_kinds, kinds_where, parts_of
from mpi_match.table.subscriptions import Subscriptions
from mpi_match.table.virtual_names import MARK, VIEW_MARK, to_constraint

_IS_PREFIX = kinds_where(lambda record: record.form is Form.PREFIX)


def subscription_rows(subscriptions: Subscriptions) -> Iterator[Json]:
    """One subscription row for every filter, in order; parts of conditions are in the rows of their filters."""
    labels = [item.decode() for item in subscriptions.labels]
    names = [item if item.startswith((MARK, VIEW_MARK)) else item.decode() for item in subscriptions.names]
    type_ = TYPE_OF_KIND[subscriptions.kind]
    counts = np.diff(subscriptions.operand_offsets)
    is_text = subscriptions.string >= 0
    bounded = _IS_PREFIX[subscriptions.kind] & (counts == 2)
    is_text[subscriptions.operand_offsets[1:][bounded] - 1] = (
        False  # a bound is no text: its last byte may not even be UTF-8
    )
    values = _values(
        subscriptions.number,
        is_text,
        subscriptions.string,
        np.repeat(type_ == Type.BOOLEAN, counts),
        list(subscriptions.strings),
    )
    check_kinds(subscriptions.kind)
    symbols = {kind: parts_of(kind)[1].symbol for kind in np.unique(subscriptions.kind).tolist()}
    takes = {kind: parts_of(kind)[1].record.takes for kind in symbols}

    bounds, first = subscriptions.constraint_offsets.tolist(), subscriptions.operand_offsets.tolist()
    name, kinds = [names[i] for i in subscriptions.name.tolist()], subscriptions.kind.tolist()

    def operand(k: int) -> Any:
        if takes[kinds[k]] in (Takes.LIST, Takes.BOUNDS):
            return values[first[k] : first[k + 1]]
        return None if takes[kinds[k]] is Takes.NOTHING else values[first[k]]

    def asked(k: int) -> Constraint:
        of, value = name[k], operand(k)
        value = tuple(value) if isinstance(value, list) else value
        return to_constraint(of.encode() if isinstance(of, str) else of, *parts_of(kinds[k]), value)

    is_hidden = [is_part(label) for label in labels]
    interfaces = subscriptions.interface.tolist()
    parts = by_label(
        Filter(labels[of], tuple(map(asked, range(bounds[i], bounds[i + 1]))))
        for i, of in enumerate(interfaces)
        if is_hidden[of]
    )
    ids, id_ = list(subscriptions.ids), subscriptions.id.tolist()
    circles = {int(i): subscriptions.area[i].tolist() for i in np.flatnonzero(~np.isnan(subscriptions.area[:, 2]))}
    for i, interface in enumerate(interfaces):
        if is_hidden[interface]:
            continue
        constraints: list[list[Any]] = []
        has_conditions = False
        for k in range(bounds[i], bounds[i + 1]):
            of = name[k]
            if isinstance(of, bytes):
                found = asked(k)
                has_conditions |= found.name.startswith(RESERVED)
                constraints.append(_row_of(found))
            else:
                value = operand(k)
                constraints.append([of, symbols[kinds[k]]] if value is None else [of, symbols[kinds[k]], value])
        row: dict[str, Any] = {"interface": labels[interface], "constraints": constraints}
        if has_conditions:
            whole = recompose(Filter(labels[interface], tuple(map(asked, range(bounds[i], bounds[i + 1])))), parts)
            row["constraints"] = list(map(_row_of, whole.constraints))
            row |= {"where": _tree(whole.where)} if whole.where is not None else {}
            row |= {"arrays": CONSISTENT} if whole.consistent else {}
        if i in circles:
            row["area"] = circles[i]
        if id_[i] >= 0:
            row["id"] = ids[id_[i]].decode()
        yield row


def _tree(condition: Condition | Constraint | None) -> Any:
    """A condition in the form of rows."""
    if not isinstance(condition, Condition):
        return _row_of(condition) if condition else None
    parts = [_tree(part) for part in condition.parts]
    return {condition.join.value: parts[0] if condition.join is Join.NOT else parts}


def _row_of(asked: Constraint) -> list[object]:
    """A constraint in the form of rows."""
    operand = asked.written
    if operand is None:
        return [asked.name, asked.symbol]
    plain = [_integer(each) for each in operand] if isinstance(operand, tuple) else _integer(operand)
    return [asked.name, HAS if asked.any_element and asked.symbol == "any =" else asked.symbol, plain]


def _integer(value: Any) -> Any:
    """A number without a fraction as an integer; anything else unchanged."""
    is_whole = isinstance(value, float) and abs(value) <= MAX_EXACT_INTEGER and value == int(value)
    return int(value) if is_whole else value


def event_rows(events: Events, form: EventForm | None = None) -> Iterator[Json | None]:
    """One event row for every event, in order; None for a rejected row, which is not a valid event when it is read again.

    `form` names the attributes that take an event's location and its id, as in reading.  Raises ModelError if events have a
    location or ids that `form` does not name.
    """
    form = form or EventForm()
    for what, column, flag in (("locations", events.location, form.location), ("ids", events.ids, form.id)):
        if column is not None and flag is None:
            raise ModelError(f"these events have {what}; name the attribute that takes them (--{what[:-1]})")
    names = [item.decode() for item in events.names]
    strings = list(events.strings)
    values = _values(
        exact_numbers(events.type, events.number, events.string),
        events.type == Type.STRING,
        events.string,
        events.type == Type.BOOLEAN,
        strings,
    )
    for k in np.flatnonzero(events.type == Type.NULL).tolist():
        values[k] = None
    if (lists := events.lists) is not None:
        elements = _values(lists.numbers, lists.type == Type.STRING, lists.string, lists.type == Type.BOOLEAN, strings)
        for k in np.flatnonzero(events.type == Type.LIST).tolist():
            at = int(events.string[k])
            values[k] = elements[int(lists.offsets[at]) : int(lists.offsets[at + 1])]
    name, bounds = [names[i] for i in events.name.tolist()], events.offsets.tolist()
    rejected = set() if events.rejected is None else set(events.rejected.tolist())
    for i in range(events.n_events):
        if i in rejected:
            yield None
            continue
        row = dict(zip(name[bounds[i] : bounds[i + 1]], values[bounds[i] : bounds[i + 1]], strict=True))
        if events.location is not None and form.location is not None and not np.isnan(events.location[i, 0]):
            row.update(zip(form.location, events.location[i].tolist(), strict=True))
        if events.ids is not None and form.id is not None and events.ids[i]:
            row[form.id] = events.ids[i].decode()
        yield row


def _values(numbers: Array, is_string: Array, string: Array, is_boolean: Array, strings: list[bytes]) -> list[object]:
    """Python values of a column with these numbers: strings, booleans, and numbers, which are integers if they are whole.

    `numbers` is exact (`arrays.exact`).
    """
    values: list[Any] = values_of(numbers)
    number = nearest_doubles(numbers)
    small = (np.abs(number) <= MAX_EXACT_INTEGER) & (residues(numbers) == 0)  # 2^53 + 1 is nearest to 2^53
    whole = np.flatnonzero(small & (np.where(small, number, 0) % 1 == 0) & ~is_string & ~is_boolean)
    for at, value in zip(whole.tolist(), number[whole].astype(np.int64).tolist(), strict=True):
        values[at] = value
    at_string = np.flatnonzero(is_string)
    texts = {i: strings[i].decode() for i in np.unique(string[at_string]).tolist()}
    for at, index in zip(at_string.tolist(), string[at_string].tolist(), strict=True):
        values[at] = texts[index]
    for at in np.flatnonzero(is_boolean).tolist():
        values[at] = bool(values[at])
    return values
