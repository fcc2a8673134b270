"""The attributes of a row: its values by dotted name, through objects and lists of any depth.

    {"user": {"name": "ada"}, "resources": [{"arn": "a"}, {"arn": "b", "tags": [["x"], [null, "y"]]}]}

    user.name = "ada"     resources = []     resources.arn = ["a", "b"]     resources.tags = ["x", "y"]

Objects flatten to dotted names.  A list is an attribute of its name: the numbers, strings and booleans in it and in the
lists in it, without nulls.  Names go through lists: the values that the objects in a list have under a name are one list.
A name *occurs twice* if one object has it twice, or if it occurs in two lists, or inside a list and outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from mpi_match.model import Json, ModelError, Place, check_name, elements_of, is_list, is_null, plain, value_of

if TYPE_CHECKING:
    from mpi_match.table.scopes import Scopes

MAX_DEPTH = 100
"""Depth of nested objects up to which all attributes of a row are read, if the needed ones are not known."""
_TOO_DEEP = f"objects are nested more than {MAX_DEPTH} deep"


_PLAIN = frozenset((str, int, float, bool, list, type(None)))


class Repeating(dict[str, Any]):
    """A JSON object in which a name occurs twice; as a dict it has the last value of each name.

    pairs   all names and values, in their order
    """

    pairs: list[tuple[str, Any]]

    @property
    def repeated(self) -> str:
        """The first name that occurs twice."""
        seen: set[str] = set()
        return next(name for name, _ in self.pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]


class Names:
    """The names of attributes that count.

    names      frozenset of the names
    presence   frozenset of the names for which constraints only ask for presence
    times      frozenset of the names for which constraints only ask for the instant, and perhaps for presence
    every      tells whether a constraint asks for all strings
    scopes     the scopes that filters ask for; None without any
    above      frozenset of the names of objects and lists that may hold some of them: a name up to each of its points
    """

    def __init__(
        self, names: Iterable[str], presence: Iterable[str] = (), times: Iterable[str] = (), *, every: bool = False
    ) -> None:
        self.names, self.presence, self.times = frozenset(names), frozenset(presence), frozenset(times)
        self.every = every
        self.scopes: Scopes | None = None
        self.above = frozenset(name[:at] for name in self.names for at, char in enumerate(name) if char == ".")


class _Level(NamedTuple):
    """An object on the way.

    pairs    its names and values that are still to come
    row      the object
    prefix   its dotted name, with a point; empty for the row
    list     the number of the outermost list that it is in; 0 outside of lists
    number   its own number, or that of the object in a list that it is flattened into
    depth    how many objects it is in
    place    the objects in lists that it is or lies in
    parent   the level of the object that holds it; None for the row
    """

    pairs: Iterator[tuple[Any, Any]]
    row: Mapping[Any, Any]
    prefix: str
    list: int
    number: int
    depth: int
    place: Place
    parent: _Level | None

    def is_inside(self, item: object) -> bool:
        """Tells whether an object is this one, or contains it."""
        level: _Level | None = self
        while level is not None:
            if level.row is item:
                return True
            level = level.parent
        return False


class _Found:
    """Values by name, and the reasons why others cannot be read."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.left_out: dict[str, str] = {}
        self.places: dict[str, list[Place]] = {}
        self._list_of: dict[str, int] = {}
        self._seen: set[tuple[str, int]] = set()

    def add(self, name: str, value: object, level: _Level) -> None:
        """A value other than an object; of a list, its elements in a new list."""
        if level.list:
            self._add_inside(name, value, level)
        elif name in self.values:
            self._twice(name)
        else:
            self.values[name] = value

    def _add_inside(self, name: str, value: Any, level: _Level) -> None:
        if (name, level.number) in self._seen:
            self._twice(name)
        self._seen.add((name, level.number))
        if is_null(value):
            return
        values = value if is_list(value) else [value]
        if name not in self.values:
            self.values[name], self._list_of[name] = list(values), level.list
            self.places[name] = [level.place] * len(values)
        elif self._list_of.get(name) == level.list:
            self.values[name] += values
            self.places[name] += [level.place] * len(values)
        else:
            self._twice(name)

    def _twice(self, name: str) -> None:
        self.left_out.setdefault(name, f"the name {name!r} occurs twice")


def flattened(
    row: Mapping[Any, object], names: Names, *, every: bool = False
) -> tuple[Json, dict[str, str], dict[str, tuple[Place, ...]]]:
    """The values of a row by dotted name, unchanged; the reasons why others cannot be read, by name; and the positions of
    the elements of names that go through lists of objects.

    Lists in the result have no lists, objects and nulls.  Only names among `names` are read; with `every` all names are,
    except in objects deeper than `MAX_DEPTH`.  Raises ModelError for a name other than a string, and for an object or list
    that contains itself.
    """
    found, n_lists, n_objects, n_of_objects = _Found(), 0, 0, 0
    path = [_Level(_pairs_of(row), row, "", 0, 0, 1, (), None)]
    while path:
        level = path[-1]
        for key, value in level.pairs:
            name = level.prefix + (key if type(key) is str else check_name(plain(key)))
            is_above = name in names.above
            is_wanted = name in names.names or (every and _is_text(name))
            if _is_object(value):
                inner, is_listed = [value], False
            elif is_list(value):
                if not is_wanted and not is_above:
                    continue
                elements, is_listed = elements_of(value), True
                inner = [each for each in elements if _is_object(each)]
                if is_wanted:
                    found.add(name, [each for each in elements if not _is_object(each)] if inner else elements, level)
            else:
                if is_wanted:
                    found.add(name, value, level)
                continue
            if not inner or not (is_above or every):
                continue
            if not is_above and level.depth >= MAX_DEPTH:
                found.left_out.setdefault(f"{name}.", f"attribute {name!r}: {_TOO_DEEP}")
                continue
            if any(map(level.is_inside, inner)):
                raise ModelError(f"the object {name!r} contains itself")
            n_lists += is_listed and not level.list
            n_of_objects += is_listed
            for at in range(len(inner) - 1, -1, -1):
                n_objects += is_listed
                list_, number = (level.list or n_lists, n_objects) if is_listed else (level.list, level.number)
                place = (*level.place, (n_of_objects, at)) if is_listed else level.place
                path.append(
                    _Level(_pairs_of(inner[at]), inner[at], f"{name}.", list_, number, level.depth + 1, place, level)
                )
            break
        else:
            path.pop()
    return found.values, found.left_out, {name: tuple(places) for name, places in found.places.items()}


def strings_of(row: Mapping[Any, object]) -> tuple[str, ...]:
    """All strings of a row at any depth, each once, without names.

    Raises ModelError for a string that is not Unicode text, and for an object or list that contains itself.
    """
    found: dict[str, None] = {}
    path, around = [(iter([value for _, value in _pairs_of(row)]), id(row))], {id(row)}
    while path:
        for item in path[-1][0]:
            if _is_object(item) or is_list(item):
                if id(item) in around:
                    raise ModelError("an object or list contains itself")
                around.add(id(item))
                path.append((iter([value for _, value in _pairs_of(item)] if _is_object(item) else item), id(item)))
                break
            if isinstance(value := plain(item), str):
                found[value_of(value)[1]] = None  # type: ignore[index]
        else:
            around.discard(path.pop()[1])
    return tuple(found)


def _is_object(value: object) -> bool:
    return type(value) is dict or (type(value) not in _PLAIN and isinstance(value, Mapping))


def _pairs_of(row: Mapping[Any, object]) -> Iterator[tuple[Any, Any]]:
    return iter(row.pairs if isinstance(row, Repeating) else row.items())


def _is_text(name: str) -> bool:
    """Tells whether a name is Unicode text, without lone surrogates, as names in filters are."""
    try:
        return name.isascii() or bool(name.encode())
    except UnicodeEncodeError:
        return False
