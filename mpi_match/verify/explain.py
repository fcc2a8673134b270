"""Explanations: the filters of a table that match one event or, if none does, the nearest ones and what they miss.

The *distance* of a filter from an event is the least number of its leaves (constraints; an area counts as one) with an
outcome that would have to change for it to match:

    constraint         0 if it turns out as wanted, else 1
    all of some parts  the sum of their distances
    any of some parts  the least of their distances
    not a part         the distance from the part being false: `all` and `any` change places

It is computed for every filter, not for candidates: the counting engine finds the satisfied rows of the table, and the
distances of parts of conditions (`table.conditions`) follow stage by stage.  With 250,000 filters of four constraints an
event takes a fraction of a second; if half of them have conditions, two to five times as long, and making an `Explainer`
takes some seconds.  Only filters that are shown are decoded, and the naive matcher of `model` finds which of their leaves
fail.
"""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of, places_in, sums, take_ranges
from mpi_match.engines.counting import Counting
from mpi_match.engines.staged import distinct_filters, stages_of_parts
from mpi_match.events.batch import EventBatch
from mpi_match.events.event_table import EventTable
from mpi_match.events.events import Events
from mpi_match.humanize import plural
from mpi_match.ingest.batches.open import open_events
from mpi_match.ingest.rows.flatten import Names
from mpi_match.ingest.rows.judge import PLAIN, EventForm, event_of_passed, names_of
from mpi_match.model import (
    EVERY_STRING,
    Area,
    Attribute,
    Condition,
    Constraint,
    Event,
    Filter,
    Join,
    Json,
    ModelError,
    Time,
    Type,
    View,
    constraint,
    constraints_of,
    describe,
    holds_consistently,
    inside,
    is_satisfied,
    value_of,
    viewed,
    whole_condition,
)
from mpi_match.operators import Form
from mpi_match.table.conditions import recompose
from mpi_match.table.scopes import shared_paths
from mpi_match.table.table import Table

FILTERS_SHOWN = 5
"""The default number of filters, and of alternatives of a condition, that are shown."""
_SHOWN_CHARACTERS, _SHOWN_NAMES, _LOOKED_THROUGH = 70, 8, 5_000
_NEVER = 2**40
"""The distance of a condition with an outcome that cannot change; sums of it stay below 2^63."""


class Unmet(NamedTuple):
    """A constraint that is not satisfied or, if it should not be (`negated`), is.

    `value` is the event's value under its name, `is_there` tells whether it has one, and `hint` is a likely mistake.
    """

    wanted: Constraint
    negated: bool
    value: Attribute = None
    is_there: bool = False
    hint: str = ""

    def row(self) -> Json:
        """An object for JSON."""
        asked = [self.wanted.symbol, *([] if self.wanted.operand is None else [self.wanted.written])]
        return {
            "name": self.wanted.name,
            **({"value": _for_json(self.value)} if self.is_there else {"absent": True}),
            "asked": {"not": asked} if self.negated else asked,
            **({"hint": self.hint} if self.hint else {}),
        }

    @property
    def met(self) -> str:
        """The attribute and its value as text."""
        return f"`{self.wanted.name}` " + (f"= {_shown(self.value)}" if self.is_there else "is absent")

    @property
    def asked(self) -> str:
        """The operator as text."""
        return f"{'not ' * self.negated}{self.wanted.symbol}"


class OutsideArea(NamedTuple):
    """The area of a filter, which does not hold the location of the event (None: it has none)."""

    area: Area
    location: tuple[float, float] | None

    def row(self) -> Json:
        """An object for JSON."""
        return {"area": list(self.area), "location": None if self.location is None else list(self.location)}


class Apart(NamedTuple):
    """Lists of objects below which a filter's constraints hold in different objects, and should hold in one."""

    lists: tuple[str, ...]

    def row(self) -> Json:
        """An object for JSON."""
        return {"no_one_object_of": list(self.lists)}


class AnyOf(NamedTuple):
    """Alternatives, the nearest first: the outcome of all leaves of one of them has to change.  Without alternatives, no
    change would help."""

    ways: tuple[tuple[Missing, ...], ...]

    @property
    def distance(self) -> int:
        """Number of leaves of the nearest alternative."""
        return min(map(_distance, self.ways), default=_NEVER)

    def row(self) -> Json:
        """An object for JSON."""
        return {"any_of": [[each.row() for each in way] for way in self.ways]}


Missing = Unmet | OutsideArea | Apart | AnyOf


def _distance(missing: Iterable[Missing]) -> int:
    return min(sum(each.distance if isinstance(each, AnyOf) else 1 for each in missing), _NEVER)


class Rejected(NamedTuple):
    """A row that stands in place of an event and is not one, and the reason."""

    reason: str


class Explained(NamedTuple):
    """A filter, its number in the table, and the conditions that it misses: all of `missing`.  It matches if that is
    empty."""

    number: int
    filter: Filter
    missing: tuple[Missing, ...]

    @property
    def distance(self) -> int:
        """Number of leaves with an outcome that would have to change."""
        return _distance(self.missing)

    def row(self) -> Json:
        """An object for JSON."""
        return {
            "filter": self.number,
            "interface": self.filter.interface,
            **({} if self.filter.id is None else {"id": self.filter.id}),
            "asks": _text_of(self.filter),
            **({"distance": self.distance, "missing": [each.row() for each in self.missing]} if self.missing else {}),
        }

    def lines(self, most: int = FILTERS_SHOWN) -> Iterator[str]:
        """Its text, with at most `most` alternatives of each condition."""
        named = "" if self.filter.id is None else f" (id {self.filter.id!r})"
        title = f"filter {self.number}{named} on {self.filter.interface}"
        if not self.missing:
            yield f"{title}: {_shortened(_text_of(self.filter), 4 * _SHOWN_CHARACTERS)}"
            return
        n_leaves = sum(1 for _ in constraints_of(self.filter)) + (self.filter.area is not None)
        by = "never matches" if self.distance >= _NEVER else f"misses by {self.distance} of {plural(n_leaves, 'constraint')}"
        yield f"{title}: {by}"
        yield from (f"  {line}" for line in _lines_of(self.missing, most))


@dataclass(frozen=True)
class Explanation:
    """The result for one event.

    event      its attributes as they were read, without a location of its own; None if it cannot be read
    rejected   the reason why it is a rejected row, which no filter matches; empty if it is none
    matched    filters that match, `n_matched` of `n_filters` that were asked about; or, if none does,
    nearest    filters that do not, the nearest first
    unnamed    attributes that no filter of the table names
    """

    event: Event | None
    rejected: str
    n_filters: int
    n_matched: int
    matched: list[Explained]
    nearest: list[Explained]
    unnamed: list[str]

    def __bool__(self) -> bool:
        return self.n_matched > 0

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def row(self) -> Json:
        """The explanation as an object for JSON."""
        event = self.event
        return {
            "matches": bool(self),
            "filters": self.n_filters,
            "matched_filters": self.n_matched,
            **({"rejected": self.rejected} if self.rejected else {}),
            **({} if event is None else {"attributes": {k: _for_json(v) for k, v in event.attributes.items()}}),
            **({"location": list(event.location)} if event is not None and event.location is not None else {}),
            "matched": [each.row() for each in self.matched],
            "nearest": [each.row() for each in self.nearest],
            "unnamed": self.unnamed,
        }

    def lines(self, most: int = FILTERS_SHOWN) -> Iterator[str]:
        """The explanation as lines of text, with at most `most` alternatives of each condition."""
        if self.rejected:
            yield f"a rejected row, which no filter matches: {self.rejected}"
            return
        if self.n_matched:
            yield f"{plural(self.n_matched, 'filter')} of {self.n_filters:,} match{'es' * (self.n_matched == 1)}:"
        elif not self.n_filters:
            yield "there is no filter"
        else:
            rest = ", the nearest" if len(self.nearest) < self.n_filters else ""
            yield f"no filter of {self.n_filters:,} matches{rest}:" if self.n_filters > 1 else "it does not match:"
        for each in (*self.matched, *self.nearest):
            yield from each.lines(most)
        if self.n_matched > len(self.matched):
            yield f"... and {plural(self.n_matched - len(self.matched), 'other')}"
        if self.unnamed:
            shown = ", ".join(f"`{name}`" for name in self.unnamed[:_SHOWN_NAMES])
            more = len(self.unnamed) - _SHOWN_NAMES
            yield f"attributes that no filter names: {shown}{f', and {more:,} more' if more > 0 else ''}"


class Explainer:
    """Explains events for one table."""

    def __init__(self, table: Table) -> None:
        self._table, self._counting = table, Counting(table)
        self._parts = _Parts(table)
        self._stages = list(_stages(table))

    def explain(
        self,
        event: Mapping[str, object] | Event | bytes | str | Rejected,
        form: EventForm = PLAIN,
        *,
        interface: str | None = None,
        filter: int | str | None = None,
        most: int = FILTERS_SHOWN,
    ) -> Explanation:
        """The explanation of an event as a program passes it; the other parameters are those of `api.explain`.

        Raises ModelError for an interface or a filter that the table does not have.
        """
        asked, vocabulary = self.filters(interface, filter), self._table.vocabulary
        try:
            if isinstance(event, Rejected):
                raise ModelError(event.reason)
            judged = event_of_passed(event, form, names_of(vocabulary, form), every=True)
            batch = Events.of([judged]).encode(vocabulary)
        except ModelError as error:
            return Explanation(None, str(error), len(asked), 0, [], [], [])
        read = judged if isinstance(event, Event) else event_of_passed(event, form)  # with native times as they are
        values = {name: value for name, value in judged.attributes.items() if isinstance(name, str)}
        shown = judged._replace(attributes=values | dict(read.attributes))
        known = vocabulary.attribute_names | {*form.names, EVERY_STRING}
        above = Names(known).above  # lists of objects whose attributes have names are named, too
        unnamed = [
            name for name, value in shown.attributes.items() if name not in known and (value != () or name not in above)
        ]
        unnamed += [name for name in judged.left_out or () if name not in known]
        distances = self._distances(batch)[asked]
        hits = asked[distances == 0]
        found = [self._explained(i, shown) for i in hits[:most].tolist()]
        nearest: list[Explained] = []
        if not len(hits):
            order = np.lexsort((-self._touched(batch)[asked], distances))[:most]
            nearest = [self._explained(i, shown) for i in asked[order].tolist()]
        return Explanation(shown, "", len(asked), len(hits), found, nearest, unnamed)

    def filters(self, interface: str | None, filter: int | str | None) -> Array:
        """i64: the filters of an interface, those with an id, one by its number, or all except parts of conditions.

        Raises ModelError.
        """
        table = self._table
        if interface is not None and filter is not None:
            raise ModelError("an explanation is of an interface or of a filter, not of both")
        if interface is not None:
            at = bisect_left(table.labels, interface.encode(errors="replace"), 0, table.n_visible)
            if at == table.n_visible or table.labels[at] != interface.encode(errors="replace"):
                labels = (label.decode() for label in islice(table.labels, min(table.n_visible, _LOOKED_THROUGH)))
                raise ModelError(f"the table has no interface {interface!r}{_similar(interface, labels)}")
            return np.arange(*places_in(table.filters.interface, (at, at + 1)).tolist())
        if filter is None:
            return np.arange(table.n_visible_filters)
        if isinstance(filter, str):
            wanted = filter.encode(errors="replace")
            of_id = table.filters.id_filter[[i for i, each in enumerate(table.filters.ids) if each == wanted]].astype(
                np.int64
            )
            of_id = of_id[of_id < table.n_visible_filters]
            if len(of_id):
                return of_id
            if not filter.isdecimal():
                n_visible = int(np.searchsorted(table.filters.id_filter, table.n_visible_filters))
                ids = (each.decode() for each in islice(table.filters.ids, min(n_visible, _LOOKED_THROUGH)))
                raise ModelError(f"no filter has the id {filter!r}{_similar(filter, ids)}")
            filter = int(filter)
        if not 0 <= filter < table.n_visible_filters:
            raise ModelError(f"there is no filter {filter}; the table has {table.n_visible_filters:,}, counted from 0")
        return np.array([filter])

    def _distances(self, batch: EventBatch) -> Array:
        """i64[n_filters]: the distance of each filter from the one event of a batch."""
        if not self._stages:
            return self._counting.failed(batch, 0)
        table, constraints = self._table, self._table.constraints
        satisfied, lost = self._counting.rows(batch.attributes.astype(np.int64))
        true = (constraints.form != Form.ABSENT).astype(np.int64)  # distance of each row from being satisfied
        true[satisfied], true[lost] = 0, 1
        false = 1 - true
        for stage in self._stages:
            all_true = np.minimum(sums(true[stage.rows], stage.filter_offsets), _NEVER)
            any_false = _least(false[stage.rows], stage.filter_offsets)
            part_true = _least(all_true, stage.part_offsets)
            part_false = np.minimum(sums(any_false, stage.part_offsets), _NEVER)
            true[stage.exists], false[stage.exists] = part_true[stage.part_there], part_false[stage.part_there]
            true[stage.absent], false[stage.absent] = part_false[stage.part_gone], part_true[stage.part_gone]
        found = np.bincount(constraints.filter_id, weights=true, minlength=table.n_filters).astype(np.int64)
        if table.has_areas:
            found[table.filters.area_filter] += ~self._counting.inside(batch, 0)
        return found

    def _touched(self, batch: EventBatch) -> Array:
        """i64[n_filters]: the number of constraints of each filter on names that the event has.  Among filters at one
        distance, those with more come first.
        """
        table, constraints = self._table, self._table.constraints
        names = np.unique(batch.attributes.astype(np.int64) >> table.vocabulary.shift)
        names = names[names < table.vocabulary.n_names]
        rows = take_ranges(constraints.offsets[names], constraints.offsets[names + 1] - constraints.offsets[names])
        return np.bincount(constraints.filter_id[rows], minlength=table.n_filters)

    def _explained(self, number: int, event: Event) -> Explained:
        item = recompose(self._table.conjunction(number), self._parts)
        missing: list[Missing] = []
        for each in item.constraints:
            missing += _missing(each, event.attributes, True)
        if item.where is not None:
            missing += _missing(item.where, event.attributes, True)
        if item.consistent and event.places:
            whole = whole_condition(item)
            if holds_consistently(whole, event):
                missing = []
            elif not missing:
                missing = [Apart(tuple(sorted(shared_paths(whole))))]
        if item.area is not None and not inside(event.location, item.area):
            missing.append(OutsideArea(item.area, event.location))
        return Explained(number, item, tuple(missing))


class _Stage(NamedTuple):
    """Parts of a stage (`engines.staged`), each with its filters, and those with their rows.

    rows             i64, filter by filter
    filter_offsets   i64: rows of each filter
    part_offsets     i64: filters of each part
    exists, absent   i64: rows that ask for the presence and for the absence of parts
    part_there, part_gone  i64: which part each of them asks for
    """

    rows: Array
    filter_offsets: Array
    part_offsets: Array
    exists: Array
    absent: Array
    part_there: Array
    part_gone: Array


def _stages(table: Table) -> Iterator[_Stage]:
    """The stages of a table's parts, in the order in which they are matched."""
    if table.n_visible == table.n_interfaces:
        return
    names = table.part_names
    stage_of = stages_of_parts(table, dict(zip(names.tolist(), range(table.n_visible, table.n_interfaces), strict=True)))
    offsets, rows = table.by_filter
    once = np.flatnonzero(distinct_filters(table))
    once = once[once >= table.n_visible_filters]
    interface = table.filters.interface[once].astype(np.int64)
    for stage in range(int(stage_of.max()) + 1):
        filters = once[stage_of[interface] == stage]
        parts, counts = np.unique(table.filters.interface[filters], return_counts=True)
        sizes = np.diff(offsets)[filters]
        name = names[parts.astype(np.int64) - table.n_visible]
        is_asked = np.flatnonzero(name >= 0)
        first = table.constraints.offsets[name[is_asked]]
        n_rows = table.constraints.offsets[name[is_asked] + 1] - first
        asking, asked = take_ranges(first, n_rows), np.repeat(is_asked, n_rows)
        is_absent = table.constraints.form[asking] == Form.ABSENT
        yield _Stage(
            rows=rows[take_ranges(offsets[filters], sizes)],
            filter_offsets=offsets_of(sizes),
            part_offsets=offsets_of(counts),
            exists=asking[~is_absent],
            absent=asking[is_absent],
            part_there=asked[~is_absent],
            part_gone=asked[is_absent],
        )


def _least(items: Array, offsets: Array) -> Array:
    """The least of each list; _NEVER for an empty list."""
    found, some = np.full(len(offsets) - 1, _NEVER), np.flatnonzero(np.diff(offsets))
    if len(some):
        found[some] = np.minimum.reduceat(items, offsets[some])
    return found


class _Parts(Mapping[str, list[Filter]]):
    """The filters of the parts of a table's conditions by label, decoded on request."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def __getitem__(self, label: str) -> list[Filter]:
        table, wanted = self._table, label.encode()
        at = bisect_left(table.labels, wanted, table.n_visible)
        if at == table.n_interfaces or table.labels[at] != wanted:
            raise KeyError(label)
        first, last = places_in(table.filters.interface, (at, at + 1)).tolist()
        return list({item.constraints: item for i in range(first, last) for item in [table.conjunction(i)]}.values())

    def __iter__(self) -> Iterator[str]:
        return (label.decode() for label in self._table.labels.slice(self._table.n_visible, self._table.n_interfaces))

    def __len__(self) -> int:
        return self._table.n_interfaces - self._table.n_visible


def _missing(tree: Condition | Constraint, attributes: Mapping[str, Attribute], wanted: bool) -> tuple[Missing, ...]:
    """The constraints that must all change for a condition to be true or, unless `wanted`, false."""
    if isinstance(tree, Constraint):
        return () if is_satisfied(tree, attributes) is wanted else (_unmet(tree, attributes, negated=not wanted),)
    if tree.join is Join.NOT:
        return _missing(tree.parts[0], attributes, not wanted)
    ways = [_missing(part, attributes, wanted) for part in tree.parts]
    if (tree.join is Join.AND) is wanted:
        return tuple(each for way in ways for each in way)
    if any(not way for way in ways):
        return ()
    if len(ways) == 1:
        return ways[0]
    flat = [inner for way in ways for inner in (way[0].ways if len(way) == 1 and isinstance(way[0], AnyOf) else (way,))]
    return (AnyOf(tuple(sorted(flat, key=_distance))),)


def _unmet(wanted: Constraint, attributes: Mapping[str, Attribute], *, negated: bool) -> Unmet:
    if wanted.name not in attributes:
        hint = "" if negated or wanted.name == EVERY_STRING else _similar(wanted.name, attributes, 1).removeprefix("; ")
        return Unmet(wanted, negated, hint=hint)
    value = attributes[wanted.name]
    return Unmet(wanted, negated, value, True, "" if negated else _hint(wanted, value))


def _hint(wanted: Constraint, value: Attribute) -> str:
    """The reason why a constraint with an operand cannot hold or nearly does, if it is a usual mistake."""
    if wanted.operand is None:
        return ""
    if isinstance(value, tuple):
        return "" if wanted.any_element else f"a list; `any {wanted.symbol}` asks its elements"
    if value is None:
        return "null is absent to all operators but `null`"
    if wanted.view is View.NONE:
        if isinstance(value, Time):
            return "a native time; `before`, `after`, `at` and `between` with texts ask for its instant"
        type_ = value_of(value)[0]
        if type_ is not wanted.type:
            return f"a {type_.name.lower()}, which is never compared with a {wanted.type.name.lower()}"
        if type_ is Type.STRING and wanted.op.record.folds and not isinstance(wanted.operand, tuple):
            folded = constraint(wanted.name, f"{wanted.symbol} i", wanted.operand)
            return f"only case differs; `{folded.symbol}` ignores it" if is_satisfied(folded, {wanted.name: value}) else ""
        return ""
    if viewed(value, wanted.view) is not None:
        return ""
    return {View.FOLD: "no string", View.IP: "no address", View.TIME: "no time of RFC 3339 with its offset"}[wanted.view]


def _similar(name: str, others: Iterable[str], most: int = 3) -> str:
    """The end of a message with the names that a misspelt one may stand for, or ""."""
    plain: dict[str, str] = {}
    for other in islice(others, _LOOKED_THROUGH):
        plain.setdefault(other.casefold(), other)
    found = difflib.get_close_matches(name.casefold(), plain, most, 0.8)
    return f"; there is {' or '.join(f'`{plain[each]}`' for each in found)}" if found else ""


def _lines_of(missing: Iterable[Missing], most: int) -> Iterator[str]:
    for each in missing:
        if isinstance(each, Unmet):
            yield _line_of([each], most)
        elif isinstance(each, OutsideArea):
            place = "no location" if each.location is None else f"location ({each.location[0]!r}, {each.location[1]!r})"
            yield f"{place}, asked: within {each.area.r!r} of ({each.area.x!r}, {each.area.y!r})"
        elif isinstance(each, Apart):
            yield f"each holds, but not in one object of {' and '.join(f'`{name}`' for name in each.lists)}"
        else:
            yield from _lines_of_ways(each, most)


def _lines_of_ways(found: AnyOf, most: int) -> Iterator[str]:
    """Alternatives as text; those that differ only in their operands are one line."""
    if not found.ways:
        yield "nothing satisfies it"
        return
    alike: dict[object, list[tuple[Missing, ...]]] = {}
    for way in found.ways:
        only = way[0] if len(way) == 1 else None
        key = (only.met, only.asked) if isinstance(only, Unmet) and not only.negated else len(alike)
        alike.setdefault(key, []).append(way)
    if len(alike) > 1:
        yield f"one of {len(alike):,}:"
    for ways in islice(alike.values(), most):
        first = ways[0]
        if len(first) == 1 and isinstance(first[0], Unmet):
            lines = [_line_of([each for way in ways for each in way if isinstance(each, Unmet)], most)]
        else:
            lines = list(_lines_of(first, most))
        if len(alike) == 1:
            yield from lines
            continue
        yield f"- {lines[0]}"
        yield from (f"  {line}" for line in lines[1:])
    if len(alike) > most:
        yield f"... and {len(alike) - most:,} more"


def _line_of(unmet: list[Unmet], most: int) -> str:
    """Constraints that differ only in their operands as one line."""
    first = unmet[0]
    shown = sorted({_shown(each.wanted.written) for each in unmet if each.wanted.operand is not None})
    more = f" and {len(shown) - most:,} more" if len(shown) > most else ""
    operands = f" {'any of ' * (len(shown) > 1)}{', '.join(shown[:most])}{more}" if shown else ""
    hint = next((f"  ({each.hint})" for each in unmet if each.hint), "")
    return f"{first.met}, asked: {first.asked}{operands}{hint}"


def _text_of(item: Filter) -> str:
    return str(item).removeprefix(f"{item.interface}: ")


def _shown(value: Attribute) -> str:
    """A value in readable form, shortened."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, tuple):
        inner = ", ".join(map(_shown, value[:20])) + ", ..." * (len(value) > 20)
        return f"[{_shortened(inner, _SHOWN_CHARACTERS)}]"
    if isinstance(value, str):
        return repr(_shortened(value, _SHOWN_CHARACTERS))
    return str(value)


def _shortened(text: str, most: int) -> str:
    """A text with the middle left out if it is long."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-most // 2 :]}"


def _for_json(value: Attribute) -> object:
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Time) else value


def explain_file(
    table: Table,
    events: Path,
    number: int,
    form: EventForm = PLAIN,
    *,
    interface: str | None = None,
    filter: int | str | None = None,
    most: int = FILTERS_SHOWN,
) -> Explanation:
    """The explanation of event `number` of a file (`open_events`), see `Explainer.explain`.

    Raises ModelError, also for a number that the file does not have, StorageError, OSError.
    """
    explainer = Explainer(table)
    asked: dict[str, Any] = {"interface": interface, "filter": filter, "most": most}
    with open_events(events, table.vocabulary, form) as found:
        if not 0 <= number < found.n_events:
            raise ModelError(f"{events}: has no event {number}; it has {found.n_events:,}, counted from 0")
        if isinstance(found, EventTable):
            event = found.event(number)
            return explainer.explain(_REASON_SAID if event is None else event, **asked)
        try:
            row = found.row(number)
            if not isinstance(row, Mapping):
                raise ModelError(f"an event must be an object, found {describe(row)}")
        except ModelError as error:
            row = Rejected(str(error))
    return explainer.explain(row, form, **asked)


_REASON_SAID = Rejected("the reason was said when the events were compiled")
