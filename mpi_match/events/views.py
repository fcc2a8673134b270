"""Adds the views of attributes that a vocabulary asks for, as attributes of their own (`table.virtual_names`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol, TypeVar

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of
from mpi_match.arrays.strings import Strings
from mpi_match.events.lists import ListColumns, ListsBuilder, ValueColumns, Values
from mpi_match.model import Type, Value, View, viewed
from mpi_match.table.virtual_names import view_name
from mpi_match.table.vocabulary import Vocabulary


class EventColumns(ValueColumns, Protocol):
    """The columns of `Events` from which views are made."""

    @property
    def n_events(self) -> int: ...

    @property
    def offsets(self) -> Array: ...

    @property
    def name(self) -> Array: ...

    @property
    def names(self) -> Strings: ...

    @property
    def strings(self) -> Strings: ...

    @property
    def lists(self) -> ListColumns | None: ...


E = TypeVar("E", bound=EventColumns)


def with_views(events: E, vocabulary: Vocabulary) -> E:
    """The events with the views that the vocabulary asks for, after the attributes of each event.

    Work: each view is made once of each distinct text.
    """
    index = {name: i for i, name in enumerate(events.names)} if vocabulary.views else {}
    asked = [(index[base], base, view) for base, views in vocabulary.views.items() if base in index for view in views]
    if not asked:
        return events
    names, strings = list(events.names), dict[str, int]()
    flat, lists, made = Values(strings), ListsBuilder(strings), _Made()
    owner, name = list[int](), list[int]()
    event = np.repeat(np.arange(events.n_events), np.diff(events.offsets))
    for at, base, view in asked:
        names.append(view_name(base, view))
        rows = np.flatnonzero((events.name == at) & ((events.type == Type.STRING) | (events.type == Type.LIST)))
        for row in rows.tolist():
            if events.type[row] == Type.STRING:
                value: Any = made.view(events.strings, int(events.string[row]), view)
            else:
                value = made.view_of_list(events, int(events.string[row]), view)
            if value is None or value == ():
                continue
            owner.append(int(event[row]))
            name.append(len(names) - 1)
            if isinstance(value, tuple):
                flat.append(Type.LIST, 0.0, lists.add(value))
            else:
                flat.add(value)
    if not owner:
        return events
    more, n_strings = flat.columns(), len(events.strings)
    n_lists = 0 if events.lists is None else len(events.lists.offsets) - 1
    is_text, is_list = more["type"] == Type.STRING, more["type"] == Type.LIST
    string = more["string"].copy()
    string[is_text] += n_strings
    string[is_list] += n_lists
    order = np.argsort(np.append(event, owner), kind="stable")
    sizes = np.diff(events.offsets) + np.bincount(owner, minlength=events.n_events)
    return replace(  # type: ignore[type-var]
        events,
        name=np.append(events.name, np.array(name, np.uint32)).astype(np.uint32)[order],
        type=np.append(events.type, more["type"]).astype(events.type.dtype)[order],
        number=np.append(events.number, more["number"])[order],
        string=np.append(events.string, string).astype(np.uint32)[order],
        offsets=offsets_of(sizes),
        names=Strings.of(names),
        strings=Strings.concat([events.strings, Strings.of(text.encode() for text in strings)]),
        lists=_joined(events.lists, lists.build(), n_strings),
    )


def _joined(old: ListColumns | None, new: ListColumns | None, n_strings: int) -> ListColumns | None:
    """Joins lists with others that number their strings from `n_strings` on."""
    if new is None:
        return old
    shifted = replace(new, string=np.where(new.type == Type.STRING, new.string + n_strings, new.string).astype(np.uint32))
    return shifted if old is None else ListColumns.concat([old, shifted])


class _Made:
    """Views of texts, each made once."""

    def __init__(self) -> None:
        self._known: dict[tuple[View, bytes], Value | None] = {}

    def view(self, strings: Strings, which: int, view: View) -> Value | None:
        """The view of one text."""
        text = strings[which]
        if (view, text) not in self._known:
            self._known[view, text] = viewed(text.decode(), view)
        return self._known[view, text]

    def view_of_list(self, events: EventColumns, which: int, view: View) -> tuple[Value, ...]:
        """The views of the texts of a list that have one."""
        assert events.lists is not None
        of = events.lists
        rows = range(int(of.offsets[which]), int(of.offsets[which + 1]))
        found = [self.view(events.strings, int(of.string[row]), view) for row in rows if of.type[row] == Type.STRING]
        return tuple(each for each in found if each is not None)
