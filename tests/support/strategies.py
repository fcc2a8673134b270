"""Hypothesis strategies for filters and events that collide: inputs for comparing engines with `model.match_naive`.

Inputs drawn from all strings and all doubles never meet: nearly every answer would be empty, and an engine that finds
nothing would pass.  So everything here comes from small pools of neighbouring values, where errors are likely: doubles one
step apart, both infinities, ±2^53, integers that share a nearest double, strings that begin, end or contain one another,
NUL, characters that UTF-8 and UTF-16 sort differently, names that begin other names.

    events()                 any mixture of the pools; short events are common, and so are values of the wrong type
    events(aimed_at=...)     satisfies one of the given filters as far as possible, then is disturbed a little

Areas lie on a lattice of multiples of 3 and 4 and have radius 0, 3, 4 or 5, so that locations fall exactly on the circle (3²
+ 4² = 5²) and every distance is exact.  Some locations and circles are scaled by a power of two so small or so large that
their squares underflow or overflow.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from mpi_match.model import (
    LISTS,
    OPS_OF_TYPE,
    VIEWS,
    Area,
    Attribute,
    Condition,
    Constraint,
    Event,
    Filter,
    Join,
    Op,
    Type,
    View,
    constraint,
    constraints_of,
    inside,
    make_event,
    satisfies,
)
from mpi_match.texts.instant import instant

NAMES = ("a", "ab", "b", "c", "", "é", "a\0", "\U0001f600")
"""Names of attributes, of events and constraints alike."""
UNUSED_NAME = "no filter uses this"

NUMBERS = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 5e-324, -5e-324),
    *(math.nextafter(1.0, 0.0), math.nextafter(1.0, 2.0), math.inf, -math.inf),
    *(2**53, 2**53 - 1, -(2**53), 1.7976931348623157e308),
    *(2**53 + 1, 2.0**53 + 2, 2**63 - 1, 2.0**63, 2**63 + 1, 2**64 - 1, 2.0**64, -(2**63), -(2**63) + 1),
)
STRINGS = (
    *("", "a", "b", "ab", "ba", "aba", "abab", "abc", "b" * 9, "b" * 8 + "a"),
    *("\0", "a\0", "a\0b", "é", "è", "aé", "\x7f", "a\U0010ffff", "\U0010ffff", "\uffff", "\U0001f600", "1"),
)
WILDCARDS = ("*", "?", "a*b", "*b", "a?*", "", "\\*", "é", "??")
REGEXPS = ("a", "^ab?", "b$", "[a-c]+b", ".", "(?i)A", "é|è", "^$", r"\x00")
SEEN = ("AB", "aB", "É", "10.0.0.1", "10.1.0.0", "2001:db8::1", "2026-01-01", "2026-01-01T00:00:00.000000001Z", "0000-01-01")
"""Strings that operators on views distinguish; beside STRINGS."""
NETS = ("10.0.0.0/8", "10.0.0.1", "0.0.0.0/0", "10.0.0.0/31", "2001:db8::/32", "2001:db8::1", "::/0")
TIMES = ("2026-01-01", "2026-01-01T01:00:00.000000001+01:00", "2026-01-01T00:00:00.000000002Z", "9999-12-31")
BOOLEANS = (False, True)
POOLS: dict[Type, tuple[float | str | bool, ...]] = {Type.NUMBER: NUMBERS, Type.STRING: STRINGS, Type.BOOLEAN: BOOLEANS}
"""Values of each type, for operands and attributes alike."""

ALL_TYPES = (Type.ANY, *POOLS)
INTERFACES = ("a", "b", "10", "9", "é", "")
"""Labels of interfaces; by their UTF-8 bytes they sort as "", "10", "9", "a", "b", "é"."""
LATTICE = (-4, -3, 0, 3, 4)
RADII = (0, 3, 4, 5)
SCALES = (1.0, 2.0**-1074, 2.0**-560, 2.0**540, 2.0**1021)
"""Scales of the lattice: an ordinary one; the least doubles; squares that underflow, or overflow; the greatest doubles."""

scales = st.just(1.0) | st.sampled_from(SCALES)
locations: SearchStrategy[tuple[float, float]] = st.builds(
    lambda x, y, scale: (x * scale, y * scale), st.sampled_from(LATTICE), st.sampled_from(LATTICE), scales
)


def values(types: Sequence[Type] = ALL_TYPES) -> SearchStrategy[float | str | bool]:
    """Values of the given types, NaN among the numbers; `Type.ANY` alone is any value."""
    typed = _typed(types)
    return st.one_of(
        *(st.sampled_from(POOLS[type_]) for type_ in typed), *([st.just(math.nan)] if Type.NUMBER in typed else [])
    )


def attributes_of(types: Sequence[Type] = ALL_TYPES) -> SearchStrategy[Attribute]:
    """Values of the given types, and sometimes lists of them, and nulls."""
    one = values(types)
    return st.one_of(one, one, one, one, one, one, *[st.lists(one, max_size=4).map(tuple)] * 2, st.none())


def _typed(types: Sequence[Type]) -> list[Type]:
    """The types with values among `types`; all types if there are none, as for tag sets."""
    return [type_ for type_ in types if type_ is not Type.ANY] or list(POOLS)


@st.composite
def constraints(draw: DrawFn, types: Sequence[Type] = ALL_TYPES) -> Constraint:
    """One constraint with an operand of one of `types`; `Type.ANY` stands for `exists`, `absent` and `null`."""
    name, type_ = draw(st.sampled_from(NAMES)), draw(st.sampled_from(types))
    op = draw(st.sampled_from(sorted(OPS_OF_TYPE[type_])))
    if type_ is Type.ANY:
        return constraint(name, op)
    symbol = draw(st.sampled_from((op.symbol, op.symbol, f"any {op.symbol}")))
    operands: SearchStrategy[float | str | bool] = st.sampled_from(_OPERANDS.get(op, POOLS[type_]))
    if op in LISTS:
        return constraint(name, symbol, draw(st.lists(operands, min_size=1, max_size=4)))
    if op is Op.BETWEEN:
        return constraint(name, symbol, sorted([draw(operands), draw(operands)]))
    return constraint(name, symbol, draw(operands))


_OPERANDS: dict[Op, tuple[str, ...]] = {Op.WILDCARD: WILDCARDS, Op.REGEXP: REGEXPS}


@st.composite
def constraints_on_views(draw: DrawFn) -> Constraint:
    """One constraint on a view of an attribute, or of some element of it."""
    name, symbol = draw(st.sampled_from(NAMES)), draw(st.sampled_from(sorted(VIEWS)))
    view, op = VIEWS[symbol]
    pool = {View.FOLD: (*STRINGS, *SEEN), View.IP: NETS, View.TIME: TIMES}[view]
    operands = st.sampled_from(_OPERANDS.get(op, pool))
    operand: object = draw(operands)
    if view is View.FOLD and op in LISTS:
        operand = draw(st.lists(operands, min_size=1, max_size=4))
    elif view is View.TIME and draw(st.booleans()):
        symbol, operand = "between", sorted([draw(operands), draw(operands)], key=lambda text: instant(text) or 0)
    return constraint(name, draw(st.sampled_from((symbol, f"any {symbol}"))), operand)


def trees() -> SearchStrategy[Condition]:
    """Conditions over a few constraints, those on views among them."""
    leaves = constraints() | constraints_on_views()
    several = st.lists(
        st.recursive(
            leaves,
            lambda inner: (
                st.builds(lambda part: Condition(Join.NOT, (part,)), inner)
                | st.builds(
                    lambda join, parts: Condition(join, tuple(parts)),
                    st.sampled_from((Join.AND, Join.OR)),
                    st.lists(inner, min_size=1, max_size=3),
                )
            ),
            max_leaves=8,
        ),
        min_size=1,
        max_size=2,
    )
    return several.map(lambda parts: Condition(Join.AND, tuple(parts)))


def areas() -> SearchStrategy[Area]:
    """Circles on the lattice, most with a radius of its scale."""
    radii = st.builds(lambda r, scale: r * scale, st.sampled_from(RADII), scales)
    same = st.builds(
        lambda x, y, r, scale: Area(x * scale, y * scale, r * scale),
        *(st.sampled_from(LATTICE), st.sampled_from(LATTICE), st.sampled_from(RADII), scales),
    )
    return same | st.builds(lambda centre, r: Area(centre[0], centre[1], r), locations, radii)


def filters(
    types: Sequence[Type] = ALL_TYPES,
    interfaces: Sequence[str] = INTERFACES,
    max_constraints: int = 6,
    with_areas: bool = True,
    with_conditions: bool = False,
) -> SearchStrategy[Filter]:
    """One filter of 0 to `max_constraints` constraints, half the time on distinct names, perhaps with an area and an id;
    `with_conditions`, also with constraints on views, and perhaps a condition.
    """
    one = constraints(types) | constraints_on_views() if with_conditions else constraints(types)
    several = st.lists(one, max_size=max_constraints)
    distinct = st.lists(one, max_size=max_constraints, unique_by=lambda item: item.name)
    return st.builds(
        Filter,
        interface=st.sampled_from(interfaces),
        constraints=(several | distinct).map(tuple),
        area=st.none() | areas() if with_areas else st.none(),
        id=st.none() | st.sampled_from(("first", "7", "é")),
        where=st.none() | trees() if with_conditions else st.none(),
        consistent=st.booleans(),
    )


@st.composite
def subscriptions(
    draw: DrawFn,
    types: Sequence[Type] = ALL_TYPES,
    max_filters: int = 12,
    max_constraints: int = 6,
    with_areas: bool = True,
    with_conditions: bool = False,
) -> list[Filter]:
    """0 to `max_filters` filters on 1 to 6 interfaces; some of them twice, and some again on another interface."""
    interfaces = draw(st.lists(st.sampled_from(INTERFACES), min_size=1, unique=True))
    one = filters(types, interfaces, max_constraints, with_areas, with_conditions)
    found = draw(st.lists(one, max_size=max_filters))
    if found:
        room = max_filters - len(found)
        again = draw(st.lists(st.tuples(st.sampled_from(found), st.sampled_from(interfaces)), max_size=min(room, 3)))
        found += [item._replace(interface=interface) for item, interface in again]
    return found


@st.composite
def events(
    draw: DrawFn, types: Sequence[Type] = ALL_TYPES, aimed_at: Sequence[Filter] = (), max_attributes: int = 8
) -> Event:
    """An event of 0 to `max_attributes` attributes, perhaps with a location; half of them are aimed at one of `aimed_at`."""
    names = st.sampled_from((*NAMES, UNUSED_NAME))
    attributes = draw(st.dictionaries(names, attributes_of(types), max_size=max_attributes))
    location: tuple[float, float] | None = draw(st.none() | locations)
    if len(aimed_at) and draw(st.booleans()):
        target = draw(st.sampled_from(aimed_at))
        attributes, location = draw(_aimed(target, types, attributes, location))
    kept = dict(list(attributes.items())[:max_attributes])
    return make_event(kept, location, draw(st.none() | st.sampled_from(("e1", "e2"))))


@st.composite
def _aimed(
    draw: DrawFn,
    target: Filter,
    types: Sequence[Type],
    others: dict[str, Attribute],
    location: tuple[float, float] | None,
) -> tuple[dict[str, Attribute], tuple[float, float] | None]:
    """Attributes and location for `target`, then `others` beside them; sometimes one of the others spoils an attribute."""
    pool = [value for type_ in _typed(types) for value in POOLS[type_]]
    if any(item.view is not View.NONE for item in constraints_of(target)):
        pool += SEEN
    wanted: dict[str, list[Constraint]] = {}
    for item in constraints_of(target):
        wanted.setdefault(item.name, []).append(item)
    attributes: dict[str, Attribute] = {}
    for name, conditions in wanted.items():
        pairs = [(value, pool[0]) for value in pool] if any(item.any_element for item in conditions) else []
        fitting = [value for value in (*pool, *pairs, None) if all(satisfies(value, item) for item in conditions)]
        if fitting:
            attributes[name] = draw(st.sampled_from(fitting))
    spoiled = draw(st.none() | st.sampled_from(sorted(wanted))) if wanted else None
    attributes |= {name: value for name, value in others.items() if name not in wanted or name == spoiled}
    if target.area is not None:
        circle, places = target.area, [(x, y) for x in LATTICE for y in LATTICE]
        near = [(x * scale, y * scale) for scale in SCALES for x, y in places]
        location = draw(st.sampled_from([point for point in near if inside(point, circle)]))
    return attributes, location


@st.composite
def subscriptions_and_events(
    draw: DrawFn,
    types: Sequence[Type] = ALL_TYPES,
    max_filters: int = 12,
    max_events: int = 6,
    max_constraints: int = 6,
    with_areas: bool = True,
    with_conditions: bool = False,
) -> tuple[list[Filter], list[Event | None]]:
    """Filters, and events that many of them nearly or exactly match; None is a rejected row.

    `types` restricts operands and values to some types (for an engine for numbers only: `(Type.NUMBER, Type.ANY)`).
    """
    found = draw(subscriptions(types, max_filters, max_constraints, with_areas, with_conditions))
    one = events(types, found)
    return found, draw(st.lists(st.one_of(one, one, one, one, st.none()), max_size=max_events))


_json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**54), 2**54)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["Milan", "lan"]),
    lambda inner: st.dictionaries(st.sampled_from(["a", "b", "first", "é", ""]) | st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
_json_names = st.sampled_from(["temp", "city", "x", "y", "id", "name", "nested", "on", "é", "position", ""]) | st.text(
    max_size=4
)
json_lines = st.tuples(
    st.dictionaries(_json_names, _json_values, max_size=6), st.booleans(), st.sampled_from([None, (",", ":")])
).map(lambda made: json.dumps(made[0], ensure_ascii=made[1], separators=made[2]).encode(errors="surrogatepass"))
"""Lines of JSON objects, also such as are no events."""
