"""The published workloads as generators, so that our measurements are comparable with those of the papers.

A `Scenario` is a row of parameters and the paper they come from.  It generates subscriptions and events directly as flat
columns: a million of either in about half a second on one core, the same on every machine.

    ccm              the default of Margara & Cugola (DEBS 2011), with numbers only: 10 interfaces with 22,500 to 27,500
                     filters each, 3 to 5 constraints of `= != > <` on 100 names; events of 3 to 5 attributes; all uniform
    ccm-original     what ccm describes, as its authors generated it: glibc's `rand`, 1,000 events, 250,962 filters (seed 0),
                     280 matches
    ccm-strings      the same as published: half the constraints are on strings, with `= != contains prefix`
    ccm-zipf1        ccm with names drawn by Zipf's law, exponent 1 ...
    ccm-zipf2        ... and 2: a few names are in nearly every filter and every event
    ccm-10-names     ccm with 10 names: every event touches two fifths of all constraints, and answers are dense
    ccm-wide         ccm with 8 to 10 attributes per event: an event often has all names of a filter
    ccm-large        ccm with 2.5 M filters
    many-interfaces  1 M interfaces with one filter of ccm each: few matches, out of a huge number of possible ones
    debs2009         the scalability workload of Farroukh et al. (DEBS 2009): 6 M subscriptions of 10 constraints on the
                     average, out of 1,500 distinct ones on 100 names; values 1 to 15, events of 50 attributes on the
                     average; the answers are subscriptions, so each is an interface.  With 1 to 5 M, their third workload
    debs2009-blocks  their block size workload: 2 M subscriptions of 6 constraints, events of 30 attributes
    clcb             the default of Cugola & Margara (Middleware 2012): 250,000 interfaces with 10 filters each, every filter
                     with a circular area of 0.01 % of the plane; about 0.5 % of the filters match an event's content; events
                     of 3 to 5 attributes at a location; locations uniform
    clcb-zipf        clcb with interfaces and events concentrated in towns: locations by Zipf's law, exponent 1
    clcb-area-0.001  clcb with areas of 0.001 % of the plane ...
    clcb-area-0.1    ... of 0.1 % ...
    clcb-area-1      ... and of 1 %
    clcb-large       clcb with 1 M interfaces, 10 M filters
    clcb-hard        clcb's hard case, figure 6b of its paper: every constraint is satisfied by every event, only locations
                     decide; about 25 answers for every event, of 250 filters
    intervals        100,000 filters of 10 intervals on 20 attributes that every event has, each of half the values, uniform:
                     about 95 answers; every filter is an interface ...
    intervals-narrow ... with 5 intervals of a tenth of the values: about one answer
    intervals-large  ... with a million filters
    intervals-normal ... values and intervals normal around the middle, attributes by Zipf's law (exponent 0.5), events with
                     10 to 20 of them
    intervals-covering    5 intervals of half of the values; half of the filters lie within an earlier one
    intervals-correlated  5 intervals of 0.3 of the values; any two attributes of an event, and the places of any two
                     intervals of a filter, have a correlation of 0.5
    intervals-skewed      5 intervals of about a quarter of the values; half of the answers come from the first tenth of the
                     filters, which one worker may hold
    stock            100,000 filters of a name, a range of prices and a least volume; 1,000 names by Zipf's law
    packets          10,000 rules of five fields: prefixes of addresses, ports exact, ranged or any, the protocol; every rule
                     is an interface, and all that match a packet are asked for

    tagmatch         tag sets after Rogora et al. (EuroSys 2017): filters that ask for 3 to 7 names, 5 on the average, of
                     200,000 by Zipf's law (exponent 1), an interface each; an event has the names of one of them and 2 to 4
                     more.  1 M filters; the paper has 20, 40 and 212 M
    tagmatch-keys    the same with more keys than sets, as in the paper: 300 filters, an interface each, share 212 sets.
                     Some sets are popular: an event has 10 answers, nearly all from the set that it was made of

Choices where the papers leave parameters open:

* **A name has one type.**  Under ccm-strings every second name holds strings, in filters and in events, as in any real
  schema; with a type drawn for each constraint, half of all look-ups would fail on the type alone and flatter every engine.
* **Values are 100 numbers (0 to 99) and 100 words** of two to four syllables.  `prefix` asks for the first three letters
  of a word and `contains` for the three from its second: about 100 operands for each operator again, about as selective as
  `=`.  Whole words as operands would make the two operators the same as `=`.
* **The sizes of interfaces add up.**  Interfaces come in pairs, one above the mean by what the other is below it, so that a
  table has exactly `n_filters`, each interface within 10 % of the mean.
* **many-interfaces needed no tuning**: with the parameters of ccm, an event matches 1.3 of the 1 M filters on average.
* **Operators of debs2009**: half are `=` (what that paper's clusters are keyed by), the rest `!= < <= > >=` in equal parts.
  Ten equalities would be satisfied by no event at all, and an answer that is always empty checks nothing.
* **Sizes of debs2009**: the paper states averages; sizes are uniform from half of that to one and a half times it.  Each of
  the 100 names has 15 of the 1,500 constraints, drawn without repetition.
* **Locations in clcb.**  The plane is the unit square.  An interface has one location, and the circles of all its filters
  are centred on it with one radius; when an interface moves (`moves`), its filters move with it.  A circle may reach beyond
  the border of the plane, events are on it.
* **Content of clcb** is that of ccm, but names are drawn by Zipf's law with exponent 1.87, which was found by measuring: an
  event matches the content of 0.51 % of the filters, as printed (counted: 4,000 events, 50,000 filters without areas); with
  100 uniform names no mixture of operators comes near.
* **Zipf's law goes as far as distinct names allow**: a name that the event or filter already has is drawn again, so popular
names are rarer than the law says: with exponent 2 nearly every event has the first name, and can have it only once.
* **Towns of clcb-zipf** are cells of 32 x 32 (`sampling`); the first holds 13 % of all interfaces and of all events.
* **clcb-hard has one value and five names**, which every event has, and constraints `= >= <=` on some of them.

* **Intervals** are the workload of papers since REIN (Qian et al., INFOCOM 2014): interval constraints of one width
  on distinct attributes, the events have all attributes.  Values are the integers below a million.
* **Packets and quotes are our own** (`ranges`): no real rule sets or quotes are included.  Rules have the shapes that
  ClassBench (Taylor & Turner, INFOCOM 2005) reports of real filter sets, prefixes that nest, mostly of 24 and 32 bits, few
  distinct ports and ranges; its seeds are not used.

* **tagmatch is drawn, not taken from Twitter**: neither the tweets (TREC, Tweets2011) nor the follower graph (Kwak et al.)
behind the paper's interests is available.  The sizes of sets, queries of a set and 2 to 4 more tags, and about one key per
set follow the paper; the distribution of tags, and their number, are ours.
* **Keys of tagmatch-keys**: the paper prints 300 M users and 212 M unique sets, but neither how popular sets are nor how
many keys a query has.  The keys beyond one for each set are given to sets by Zipf's law, with the exponent that gives a
query `answers` keys of its own set; tags are drawn with exponent 0.5, so that few other sets match.  Copies of a set are in
one block (see below).

Limits: unless its line says otherwise, everything of a scenario is drawn independently, without popular combinations of
names, correlated values, copied subscriptions or events that resemble the one before. Structure in real workloads favours an
index of rare combinations; many equal subscriptions penalise it. In the default scenario most events match nothing, which
flatters an engine that only rejects fast; ccm-10-names and ccm-wide expose such an engine. Only the scenarios of clcb have
areas and moves, with circles of one size in each; none has strings longer than a word.

Filters and events are made in blocks, each from its own generator, seeded with (seed, purpose, number of the block): event i
does not depend on the number of events or the size of chunks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of, smallest_unsigned, take_ranges
from mpi_match.arrays.strings import Strings
from mpi_match.events.events import Events
from mpi_match.ingest.rows.to_json import event_rows, subscription_rows
from mpi_match.lab.workloads.ranges import DrawnConstraints, Intervals, Packets, RangeFields, Stock, constraints_of
from mpi_match.lab.workloads.sampling import Moves, Sampler, Weighted, radius_of, stepped
from mpi_match.model import Op, Type
from mpi_match.table.kinds import OP_MASK, kind_of
from mpi_match.table.operands import prefix_bound
from mpi_match.table.subscriptions import Subscriptions

if TYPE_CHECKING:
    from mpi_match.lab.workloads.ccm_generator import Drawn
    from mpi_match.table.table import Table

__all__ = ["CHUNK_EVENTS", "DRAWN_AT_ONCE", "SCENARIOS", "Scenario", "event_rows", "subscription_rows"]

DRAWN_AT_ONCE = 2**14
"""Number of filters or events drawn from one generator."""
CHUNK_EVENTS = 2**18
_FILTERS, _EVENTS, _INTERFACES, _WORDS, _HOMES, _LOCATIONS, _MOVES, _DISTINCT, _COPIES = range(
    9
)  # what a generator is for: independent streams under one seed
_CCM = "Margara & Cugola, High performance content-based matching using GPUs, DEBS 2011, default scenario"
_CLCB = "Cugola & Margara, High-performance location-aware publish-subscribe on GPUs, Middleware 2012, default scenario"
_REIN = "after Qian et al., REIN: A fast event matching approach for content-based publish/subscribe systems, INFOCOM 2014"
_STOCK = (
    "our own, after the stock quotes of Aguilera et al., Matching events in a content-based subscription system, PODC 1999"
)
_PACKETS = "our own, after Taylor & Turner, ClassBench: A packet classification benchmark, INFOCOM 2005"
_TAGMATCH = "after Rogora et al., High-throughput subset matching on commodity GPU-based systems, EuroSys 2017"
_DEBS2009 = "Farroukh et al., Parallel event processing for content-based publish/subscribe systems, DEBS 2009"


@dataclass(frozen=True)
class Scenario:
    """Parameters of a workload; every range is (least, most), both included, drawn uniformly.

    name, source        registry name; where the parameters come from
    n_filters           filters in the table, exactly
    n_interfaces        interfaces they are divided over, each within `interface_spread` of the mean
    filter_size         constraints per filter, on distinct names
    event_size          attributes per event, of distinct names
    n_names             number of names
    name_exponent       name i (from 0) has a weight of (i + 1) ** -name_exponent
    n_values            values of a name: first_value, first_value + 1, ... as numbers; as many words
    string_share        share of the names that hold strings
    number_ops          operators on numbers, equally likely (a repeated one twice as likely); same for string_ops
    n_distinct          number of distinct constraints, equally many on each name; 0: all combinations of operators and
    values
    area                share of the plane in the circle of each filter; 0: no areas, and events have no location
    place_exponent      locations of interfaces and events: 0 uniform, else Zipf's law (`sampling`)
    """

    name: str
    source: str
    n_filters: int
    n_interfaces: int
    interface_spread: float = 0.1
    filter_size: tuple[int, int] = (3, 5)
    event_size: tuple[int, int] = (3, 5)
    n_names: int = 100
    name_exponent: float = 0.0
    n_values: int = 100
    first_value: int = 0
    string_share: float = 0.0
    number_ops: tuple[Op, ...] = (Op.EQ, Op.NE, Op.GT, Op.LT)
    string_ops: tuple[Op, ...] = (Op.EQ, Op.NE, Op.CONTAINS, Op.PREFIX)
    n_distinct: int = 0
    area: float = 0.0
    place_exponent: float = 0.0

    def __post_init__(self) -> None:
        if self.n_filters < 1:
            raise ValueError(f"{self.name}: a scenario needs at least 1 filter, found {self.n_filters}")
        if not 1 <= self.n_interfaces <= self.n_filters:
            raise ValueError(f"{self.name}: {self.n_filters} filters cannot fill {self.n_interfaces} interfaces")
        if self.n_distinct % self.n_names or self.n_distinct > self.n_names * len(set(self.number_ops)) * self.n_values:
            raise ValueError(f"{self.name}: {self.n_distinct} distinct constraints do not fit {self.n_names} names")
        for what, (least, most) in (
            ("constraints of a filter", self.filter_size),
            ("attributes of an event", self.event_size),
        ):
            if not 0 <= least <= most <= self.n_names:
                raise ValueError(f"{self.name}: {least} to {most} {what} do not fit {self.n_names} distinct names")

    def scaled(self, n_filters: int) -> Scenario:
        """The scenario with another number of filters: on the same interfaces, or, if interfaces have locations or one
        filter, with the same number of filters on each."""
        each = self.n_filters // self.n_interfaces
        n_interfaces = max(n_filters // each, 1) if self.area or each == 1 else min(self.n_interfaces, n_filters)
        return replace(self, n_filters=n_filters, n_interfaces=n_interfaces)

    @property
    def of_filters(self) -> Scenario:
        """The parameters that determine the filters, equal for scenarios that differ only in their events."""
        return replace(self, event_size=(0, 0))

    def subscriptions(self, seed: int = 0) -> Subscriptions:
        """The subscriptions, as `Table.from_subscriptions` takes them."""
        sizes, name, choice, value = self._filters(seed)
        is_string = self._is_string[name]
        on_strings, on_numbers = self._kinds(Type.STRING, self.string_ops), self._kinds(Type.NUMBER, self.number_ops)
        kind = np.where(is_string, on_strings[choice], on_numbers[choice])
        is_prefix = kind == kind_of(Type.STRING, Op.PREFIX)
        operand_offsets = offsets_of(1 + is_prefix)
        strings, operand = _string_operands(self._words)
        first = operand_offsets[:-1]
        number = np.zeros(int(operand_offsets[-1]))
        number[first] = np.where(is_string, 0, value + self.first_value)
        string = np.full(len(number), -1, np.int64)
        string[first[is_string]] = operand[kind[is_string] & OP_MASK, value[is_string]]
        string[first[is_prefix] + 1] = operand[_BOUND, value[is_prefix]]
        interface = np.repeat(np.arange(self.n_interfaces), self._interface_sizes(seed))
        return Subscriptions(
            labels=Strings.numbered(b"interface-", self.n_interfaces),
            names=Strings.numbered(b"name-", self.n_names),
            strings=Strings.of(strings),
            ids=Strings.of(()),
            interface=interface,
            constraint_offsets=offsets_of(sizes),
            area=self._circles(self._homes(seed)[interface]) if self.area else np.full((len(sizes), 3), np.nan),
            id=np.full(len(sizes), -1),
            name=name.astype(np.int64),
            kind=kind,
            operand_offsets=operand_offsets,
            number=number,
            string=string,
        )

    def drawn_table(self, seed: int = 0) -> Callable[[], Table]:
        """Draw the subscriptions; returns a function that makes their table."""
        from mpi_match.table.table import Table

        subscriptions = self.subscriptions(seed)
        return lambda: Table.from_subscriptions(subscriptions)

    def events(self, n: int, seed: int = 1) -> Events:
        """The first n events.  Event i depends on `seed` and i only."""
        return self.event_range(0, n, seed)

    def event_chunks(self, n: int, seed: int = 1, size: int = CHUNK_EVENTS) -> Iterator[Events]:
        """The first n events in chunks of `size` (the last may be shorter), never all in memory together."""
        return (self.event_range(at, min(at + size, n), seed) for at in range(0, n, size))

    def event_range(self, start: int, stop: int, seed: int = 1) -> Events:
        """Events `start` to `stop`."""
        first, sizes, name, value = self._events(start, stop, seed)
        is_string = self._is_string[name]
        whole = Events(
            offsets=offsets_of(sizes),
            name=name.astype(np.uint32),
            type=np.where(is_string, np.uint8(Type.STRING), np.uint8(Type.NUMBER)),
            number=np.where(is_string, 0.0, value.astype(np.float64) + self.first_value),
            string=np.where(is_string, value, 0).astype(np.uint32),
            names=Strings.numbered(b"name-", self.n_names),
            strings=Strings.of(self._words),
            location=np.concatenate(
                [self._locations(seed, (first + at) // DRAWN_AT_ONCE) for at in range(0, len(sizes), DRAWN_AT_ONCE)]
            )
            if self.area
            else None,
        )
        return whole[start - first : stop - first]

    def moves(self, n: int, seed: int = 2, *, step: float | None = 0.01, subscriptions_seed: int = 0) -> Moves:
        """The first n moves of an interface, each as new areas of all its filters.  Ids are those of the table of
        `subscriptions(subscriptions_seed)`.

        A move takes a random interface to a location near its first one (`step`: standard deviation along each axis), or to
        a new one drawn like the first (`step` None).  So move i depends on the seeds and i only, and the distribution of
        locations stays the same.  Raises ValueError for a scenario without areas.
        """
        if not self.area:
            raise ValueError(f"{self.name}: its filters have no areas to move")
        homes = self._homes(subscriptions_seed)
        interfaces, places = [np.empty(0, np.int64)], [np.empty((0, 2))]
        for block in range(-(-n // DRAWN_AT_ONCE)):
            rng = _generator(seed, _MOVES, block)
            interfaces.append(rng.integers(0, self.n_interfaces, DRAWN_AT_ONCE))
            places.append(
                self._places.draw(rng, DRAWN_AT_ONCE) if step is None else stepped(homes[interfaces[-1]], rng, step)
            )
        interface, place = np.concatenate(interfaces)[:n], np.concatenate(places)[:n]
        first = offsets_of(self._interface_sizes(subscriptions_seed))
        sizes = np.diff(first)[interface]
        filter_id = take_ranges(first[interface], sizes).astype(np.uint32)
        return Moves(filter_id, np.repeat(self._circles(place), sizes, axis=0))

    def _circles(self, place: Array) -> Array:
        """f64[n, 3]: the areas around locations f64[n, 2]."""
        return np.column_stack([place, np.full(len(place), radius_of(self.area))])

    def _homes(self, seed: int) -> Array:
        """f64[n_interfaces, 2]: the location of each interface; that of interface i depends on `seed` and i only."""
        blocks = range(-(-self.n_interfaces // DRAWN_AT_ONCE))
        return np.concatenate([self._places.draw(_generator(seed, _HOMES, at), DRAWN_AT_ONCE) for at in blocks])[
            : self.n_interfaces
        ]

    def _locations(self, seed: int, block: int) -> Array:
        """f64[DRAWN_AT_ONCE, 2]: locations of `DRAWN_AT_ONCE` events."""
        return self._places.draw(_generator(seed, _LOCATIONS, block), DRAWN_AT_ONCE)

    def _filters(self, seed: int) -> tuple[Array, Array, Array, Array]:
        """Sizes of all filters; name, choice of operator and value of each of their constraints, i64."""
        distinct = self._distinct(seed) if self.n_distinct else None
        blocks = [self._filter_block(seed, at, distinct) for at in range(-(-self.n_filters // DRAWN_AT_ONCE))]
        sizes, name, choice, value = (np.concatenate(columns) for columns in zip(*blocks, strict=True))
        sizes = sizes[: self.n_filters]
        n_constraints = int(sizes.sum())
        return sizes, name[:n_constraints], choice[:n_constraints], value[:n_constraints].astype(np.int64)

    def _events(self, start: int, stop: int, seed: int) -> tuple[int, Array, Array, Array]:
        """The whole blocks of events around `start` to `stop`: the number of the first event, the sizes, and the name and
        value of each attribute."""
        first, last = start // DRAWN_AT_ONCE, -(-stop // DRAWN_AT_ONCE)
        blocks = [self._event_block(seed, at) for at in range(first, max(last, first + 1))]
        sizes, name, value = (np.concatenate(columns) for columns in zip(*blocks, strict=True))
        return first * DRAWN_AT_ONCE, sizes, name, value

    def _event_block(self, seed: int, block: int) -> tuple[Array, Array, Array]:
        """Sizes of `DRAWN_AT_ONCE` events; name and value of each of their attributes."""
        rng = _generator(seed, _EVENTS, block)
        sizes, name = self._names_of(rng, self.event_size)
        return sizes, name, rng.integers(0, self.n_values, len(name), dtype=smallest_unsigned(self.n_values))

    def _filter_block(
        self, seed: int, block: int, distinct: tuple[Array, Array] | None
    ) -> tuple[Array, Array, Array, Array]:
        """Sizes of `DRAWN_AT_ONCE` filters; name, choice of operator and value of each of their constraints, from `distinct`
        constraints if given."""
        rng = _generator(seed, _FILTERS, block)
        sizes, name = self._names_of(rng, self.filter_size)
        if distinct is not None:
            choices, values = distinct
            at = rng.integers(0, choices.shape[1], len(name))
            return sizes, name, choices[name, at], values[name, at]
        choice = rng.integers(0, self._n_choices, len(name), dtype=np.uint8)
        return sizes, name, choice, rng.integers(0, self.n_values, len(name), dtype=smallest_unsigned(self.n_values))

    def _distinct(self, seed: int) -> tuple[Array, Array]:
        """Choice of operator u8 and value of the distinct constraints, [n_names, n_distinct // n_names] each."""
        rng = _generator(seed, _DISTINCT, 0)
        kinds = self._kinds(Type.NUMBER, self.number_ops)
        each = self.n_distinct // self.n_names
        drawn: list[tuple[int, int]] = []
        for _ in range(self.n_names):
            found: dict[tuple[int, int], tuple[int, int]] = {}
            while len(found) < each:
                choice, value = int(rng.integers(len(kinds))), int(rng.integers(self.n_values))
                found.setdefault((int(kinds[choice]), value), (choice, value))
            drawn.extend(found.values())
        columns = np.array(drawn).reshape(self.n_names, each, 2)
        return columns[..., 0].astype(np.uint8), columns[..., 1].astype(smallest_unsigned(self.n_values))

    def _names_of(self, rng: np.random.Generator, size: tuple[int, int]) -> tuple[Array, Array]:
        """Sizes i64[DRAWN_AT_ONCE] in the range, and that many distinct names for each, end to end."""
        sizes = rng.integers(size[0], size[1] + 1, DRAWN_AT_ONCE)
        if self.name_exponent == 0 and size[1] > self.n_names // 4:  # so many would be rejected that a shuffle costs less
            names = np.broadcast_to(
                np.arange(self.n_names, dtype=smallest_unsigned(self.n_names)), (DRAWN_AT_ONCE, self.n_names)
            )
            rows = rng.permuted(names, axis=1)[:, : size[1]]
        else:
            rows = self._draw_distinct(rng, size[1])
        return sizes, rows[np.arange(size[1]) < sizes[:, None]]

    def _draw_distinct(self, rng: np.random.Generator, most: int) -> Array:
        """[DRAWN_AT_ONCE, most] names, distinct within a row: duplicates are drawn again."""
        columns = np.empty((most, DRAWN_AT_ONCE), smallest_unsigned(self.n_names))
        for k in range(most):
            columns[k] = self._names.draw(rng, DRAWN_AT_ONCE)
            again = np.flatnonzero((columns[:k] == columns[k]).any(axis=0))
            while len(again):
                drawn = self._names.draw(rng, len(again))
                columns[k, again] = drawn
                again = again[(columns[:k, again] == drawn).any(axis=0)]
        return columns.T

    @cached_property
    def _names(self) -> Weighted:
        return Weighted(self.n_names, self.name_exponent)

    @cached_property
    def _places(self) -> Sampler:
        return Sampler(self.place_exponent)

    @cached_property
    def _is_string(self) -> Array:
        """bool[n_names]: strings are spread evenly over popular and rare names."""
        return np.asarray(np.diff(np.floor(np.arange(self.n_names + 1) * self.string_share)) > 0)

    @cached_property
    def _words(self) -> list[bytes]:
        """The values of names that hold strings; empty if no name does."""
        return _words(self.n_values) if self.string_share else []

    @property
    def _n_choices(self) -> int:
        """Equally likely choices that serve both lists of operators."""
        return math.lcm(len(self.number_ops), len(self.string_ops))

    def _kinds(self, type_: Type, ops: tuple[Op, ...]) -> Array:
        """u8[_n_choices]: kind of constraint for each choice."""
        return np.resize(np.array([kind_of(type_, op) for op in ops], np.uint8), self._n_choices)

    def _interface_sizes(self, seed: int) -> Array:
        """i64[n_interfaces]: filters of each interface; see the module for how they add up."""
        mean, rest = divmod(self.n_filters, self.n_interfaces)
        sizes = np.full(self.n_interfaces, mean)
        sizes[:rest] += 1
        most = int(mean * self.interface_spread)
        pairs = self.n_interfaces // 2
        off = _generator(seed, _INTERFACES, 0).integers(-most, most + 1, pairs)
        sizes[: 2 * pairs : 2] += off
        sizes[1 : 2 * pairs : 2] -= off
        return sizes


@dataclass(frozen=True)
class OriginalCcm(Scenario):
    """The workload of the CCM evaluation itself, number for number (`ccm_generator`).

    `n_filters` is the average; the number depends on the seed, and seeds 0 and 1 are the same.  It draws 1,000 events, which
    repeat.
    """

    number_ops: tuple[Op, ...] = (Op.EQ, Op.NE, Op.LT, Op.GT)

    def __post_init__(self) -> None:
        super().__post_init__()
        fixed = {"name_exponent": 0, "first_value": 0, "string_share": 0, "area": 0, "number_ops": OriginalCcm.number_ops}
        for parameter, value in fixed.items():
            if getattr(self, parameter) != value:
                raise ValueError(f"{self.name}: the original generator has no {parameter} but {value}; see ccm")

    @property
    def of_filters(self) -> Scenario:
        """All parameters: events and filters share one sequence of random numbers."""
        return self

    def _filters(self, seed: int) -> tuple[Array, Array, Array, Array]:
        drawn = self._drawn(seed)
        return drawn.filter_sizes, drawn.constraint_name, drawn.constraint_choice, drawn.constraint_value

    def _events(self, start: int, stop: int, seed: int) -> tuple[int, Array, Array, Array]:
        from mpi_match.lab.workloads.ccm_generator import ORIGINAL_EVENTS

        drawn, times = self._drawn(seed), -(-stop // ORIGINAL_EVENTS) - start // ORIGINAL_EVENTS
        sizes, name, value = (np.tile(each, max(times, 1)) for each in drawn[:3])
        return start // ORIGINAL_EVENTS * ORIGINAL_EVENTS, sizes, name, value

    def _interface_sizes(self, seed: int) -> Array:
        return self._drawn(seed).interface_sizes

    def _drawn(self, seed: int) -> Drawn:
        from mpi_match.lab.workloads.ccm_generator import Ranges, draw

        mean = self.n_filters // self.n_interfaces
        off = int(mean * self.interface_spread)
        ranges = Ranges(self.event_size, self.filter_size, (mean - off, mean + off))
        return draw(seed, ranges, self.n_interfaces, self.n_names, self.n_values)


@dataclass(frozen=True)
class RangeScenario(Scenario):
    """A scenario whose filters and events `fields` draws; it has only the parameters for numbers of filters, interfaces and
    names, and for sizes of filters and events."""

    fields: RangeFields = field(kw_only=True)

    def with_fields(self, **changes: object) -> RangeScenario:
        """The scenario with other parameters of `fields`.  Raises ValueError for more constraints or attributes than
        names."""
        fields: Any = replace(cast(Any, self.fields), **changes)
        sizes: dict[str, Any] = {}
        if isinstance(fields, Intervals):
            sizes = {"event_size": fields.event_size, "filter_size": (fields.constraints, fields.constraints)}
        return replace(self, fields=fields, n_names=len(fields.names), **sizes)

    @property
    def answers(self) -> float | None:
        """Filters that match an event, on average; None where that does not follow from the parameters."""
        matched = self.fields.matched if isinstance(self.fields, Intervals) else None
        return None if matched is None else self.n_filters * matched

    def with_answers(self, answers: float) -> RangeScenario:
        """The scenario with intervals so wide that an event has this many answers on average.  Raises ValueError."""
        assert isinstance(self.fields, Intervals)
        return replace(self, fields=self.fields.matching(answers / self.n_filters))

    def subscriptions(self, seed: int = 0) -> Subscriptions:
        starts = range(0, self.n_filters, DRAWN_AT_ONCE)
        place = np.arange(DRAWN_AT_ONCE)
        drawn = (
            self.fields.filters(_generator(seed, _FILTERS, at), (start + place) / self.n_filters)
            for at, start in enumerate(starts)
        )
        pieces = [
            constraints_of(
                rows._replace(**{key: array[: self.n_filters - start] for key, array in rows._asdict().items()}), self.fields
            )
            for start, rows in zip(starts, drawn, strict=True)
        ]
        columns = DrawnConstraints(*(np.concatenate(each) for each in zip(*pieces, strict=True)))
        return Subscriptions(
            labels=Strings.numbered(b"interface-", self.n_interfaces),
            names=Strings.of(self.fields.names),
            strings=Strings.of(self.fields.words),
            ids=Strings.of(()),
            interface=np.repeat(np.arange(self.n_interfaces), self._interface_sizes(seed)),
            constraint_offsets=offsets_of(columns.sizes),
            area=np.full((self.n_filters, 3), np.nan),
            id=np.full(self.n_filters, -1),
            name=columns.name,
            kind=columns.kind,
            operand_offsets=offsets_of(columns.n_operands),
            number=columns.number,
            string=columns.string,
        )

    def event_range(self, start: int, stop: int, seed: int = 1) -> Events:
        first, last = start // DRAWN_AT_ONCE, -(-stop // DRAWN_AT_ONCE)
        blocks = range(first, max(last, first + 1))
        value = np.concatenate([self.fields.events(_generator(seed, _EVENTS, at), DRAWN_AT_ONCE) for at in blocks])
        value = value[start - first * DRAWN_AT_ONCE : stop - first * DRAWN_AT_ONCE]
        there = ~np.isnan(value)
        name = np.nonzero(there)[1]
        on_string = np.array(self.fields.is_string, bool)[name]
        return Events(
            offsets=offsets_of(there.sum(axis=1)),
            name=name.astype(np.uint32),
            type=np.where(on_string, np.uint8(Type.STRING), np.uint8(Type.NUMBER)),
            number=np.where(on_string, 0.0, value[there]),
            string=np.where(on_string, value[there], 0).astype(np.uint32),
            names=Strings.of(self.fields.names),
            strings=Strings.of(self.fields.words),
        )


@dataclass(frozen=True)
class TagScenario(Scenario):
    """Tag sets: filters that ask for the presence of `filter_size` names, and events with the names of one of them and more.

    extra_tags    number of further names of an event, (least, most); `event_size` is the sum
    keys_per_set  filters with equal names, on average
    answers       filters of the set that an event was made of, on average; at least `keys_per_set`, with which all sets are
                  equally popular
    """

    extra_tags: tuple[int, int] = (2, 4)
    keys_per_set: float = 1.0
    answers: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.keys_per_set <= self.answers or (self.keys_per_set == 1 < self.answers):
            raise ValueError(
                f"{self.name}: {self.answers:g} answers an event do not fit {self.keys_per_set:g} keys of a set: there are "
                "at least as many, and just one if each set has one key"
            )
        sizes = tuple(size + extra for size, extra in zip(self.filter_size, self.extra_tags, strict=True))
        object.__setattr__(self, "event_size", sizes)
        super().__post_init__()

    @property
    def of_filters(self) -> Scenario:
        return replace(self, extra_tags=(0, 0))

    def subscriptions(self, seed: int = 0) -> Subscriptions:
        sizes, name = self._drawn_sets(seed)
        return Subscriptions(
            labels=Strings.numbered(b"interface-", self.n_interfaces),
            names=self._tags,
            strings=Strings.of(()),
            ids=Strings.of(()),
            interface=np.repeat(np.arange(self.n_interfaces), self._interface_sizes(seed)),
            constraint_offsets=offsets_of(sizes),
            area=np.full((self.n_filters, 3), np.nan),
            id=np.full(len(sizes), -1),
            name=name.astype(np.int64),
            kind=np.full(len(name), kind_of(Type.ANY, Op.EXISTS), np.uint8),
            operand_offsets=np.zeros(len(name) + 1, np.int64),
            number=np.zeros(0),
            string=np.zeros(0, np.int64),
        )

    def drawn_table(self, seed: int = 0) -> Callable[[], Table]:
        """Draw the subscriptions, as arrays if each filter has an interface of its own."""
        if self.n_interfaces < self.n_filters:
            return super().drawn_table(seed)
        from mpi_match.table.tag_sets import TagSetColumns

        sizes, name = self._drawn_sets(seed)
        return TagSetColumns(Strings.numbered(b"interface-", self.n_interfaces), self._tags, sizes, name).table

    def _drawn_sets(self, seed: int) -> tuple[Array, Array]:
        """Sizes of all sets, in the narrowest unsigned type, and their names u32 end to end."""
        from mpi_match.compute.parallel import in_stretches, running_sum

        n_blocks = -(-self.n_filters // DRAWN_AT_ONCE)
        sizes = np.empty(n_blocks * DRAWN_AT_ONCE, smallest_unsigned(self.filter_size[1] + 1))
        in_stretches(n_blocks, self._draw_sizes, seed, sizes, least=1)
        sizes = sizes[: self.n_filters]
        offsets = running_sum(sizes)
        name = np.empty(int(offsets[-1]), np.uint32)
        in_stretches(n_blocks, self._draw_sets, seed, offsets, name, least=1)
        return sizes, name

    def _draw_sizes(self, stretch: int, n_stretches: int, seed: int, sizes: Array) -> None:
        """Fill the sizes of some blocks."""
        for block in _stretch(len(sizes) // DRAWN_AT_ONCE, stretch, n_stretches):
            drawn = self._sizes_of(_generator(seed, _FILTERS, block))
            sizes[block * DRAWN_AT_ONCE : (block + 1) * DRAWN_AT_ONCE] = drawn[self._sets_of_keys(seed, block)]

    def _draw_sets(self, stretch: int, n_stretches: int, seed: int, offsets: Array, name: Array) -> None:
        """Fill the names of some blocks."""
        for block in _stretch(-(-(len(offsets) - 1) // DRAWN_AT_ONCE), stretch, n_stretches):
            sizes, rows = self._set_block(seed, block)
            first, last = offsets[block * DRAWN_AT_ONCE], offsets[min((block + 1) * DRAWN_AT_ONCE, len(offsets) - 1)]
            name[first:last] = rows[np.arange(rows.shape[1]) < sizes[:, None]][: last - first]

    def _sizes_of(self, rng: np.random.Generator) -> Array:
        return rng.integers(self.filter_size[0], self.filter_size[1] + 1, DRAWN_AT_ONCE)

    def event_range(self, start: int, stop: int, seed: int = 1) -> Events:
        """Events `start` to `stop`, with the names of a filter of `subscriptions(seed)`, and others."""
        first, last = start // DRAWN_AT_ONCE, -(-stop // DRAWN_AT_ONCE)
        blocks = [self._query_block(seed, at) for at in range(first, max(last, first + 1))]
        sizes, name = (np.concatenate(columns) for columns in zip(*blocks, strict=True))
        whole = Events(
            offsets=offsets_of(sizes),
            name=name.astype(np.uint32),
            type=np.full(len(name), Type.NUMBER, np.uint8),
            number=np.ones(len(name)),
            string=np.zeros(len(name), np.uint32),
            names=self._tags,
            strings=Strings.of([]),
        )
        return whole[start - first * DRAWN_AT_ONCE : stop - first * DRAWN_AT_ONCE]

    def _set_block(self, seed: int, block: int) -> tuple[Array, Array]:
        """Sizes of the sets of `DRAWN_AT_ONCE` filters, and for each as many names as the largest set may have."""
        rng, of_key = _generator(seed, _FILTERS, block), self._sets_of_keys(seed, block)
        return self._sizes_of(rng)[of_key], self._draw_distinct(rng, self.filter_size[1])[of_key]

    def _sets_of_keys(self, seed: int, block: int) -> Array:
        """i64[DRAWN_AT_ONCE]: the set of each filter of a block, a number within the block."""
        if self.keys_per_set == 1:
            return np.arange(DRAWN_AT_ONCE)
        n_keys = self._keys_of_sets
        shuffled = _generator(seed, _COPIES, block).permutation(np.repeat(np.arange(len(n_keys)), n_keys))
        return np.resize(shuffled, DRAWN_AT_ONCE)

    @cached_property
    def _keys_of_sets(self) -> Array:
        """i64: the number of filters of each set of a block, the most popular first."""
        return keys_of_sets(min(self.n_filters, DRAWN_AT_ONCE), self.keys_per_set, self.answers)

    def _query_block(self, seed: int, block: int) -> tuple[Array, Array]:
        """Sizes of `DRAWN_AT_ONCE` events, and their names end to end, distinct in each."""
        rng = _generator(seed, _EVENTS, block)
        of_block = block % -(-self.n_filters // DRAWN_AT_ONCE)
        sizes, rows = self._set_block(seed, of_block)
        chosen = rng.integers(0, min(self.n_filters - of_block * DRAWN_AT_ONCE, DRAWN_AT_ONCE), DRAWN_AT_ONCE)
        extra = rng.integers(self.extra_tags[0], self.extra_tags[1] + 1, DRAWN_AT_ONCE)
        more = self._draw_distinct(rng, self.extra_tags[1])
        there = np.hstack([np.arange(rows.shape[1]) < sizes[chosen][:, None], np.arange(more.shape[1]) < extra[:, None]])
        names = np.where(there, np.hstack([rows[chosen], more]).astype(np.int64), -1)
        names.sort(axis=1)  # an extra name may be one of the set's
        is_new = np.diff(names, axis=1, prepend=-1) > 0
        return is_new.sum(axis=1), names[is_new]

    @cached_property
    def _tags(self) -> Strings:
        return Strings.numbered(b"tag-", self.n_names)


def keys_of_sets(n: int, keys_per_set: float, answers: float) -> Array:
    """i64: numbers of keys of sets, n in all and `keys_per_set` on average, falling by Zipf's law so that the set of a
    random key has `answers` on average, or as near as n keys allow."""
    n_sets = max(round(n / keys_per_set), 1)
    rank = np.arange(1, n_sets + 1)

    def drawn(exponent: float) -> Array:
        weight = rank**-exponent
        ends = np.rint((n - n_sets) * np.cumsum(weight) / weight.sum()).astype(np.int64)
        return np.asarray(1 + np.diff(ends, prepend=0))

    low, high = 0.0, 8.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if (drawn(middle) ** 2).sum() > answers * n else (middle, high)
    return drawn(low)


def _stretch(n: int, stretch: int, n_stretches: int) -> range:
    """The blocks that a range of n items covers."""
    return range(stretch * n // n_stretches, (stretch + 1) * n // n_stretches)


def _generator(seed: int, purpose: int, block: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([seed, purpose, block]))


def _words(n: int) -> list[bytes]:
    """Distinct words of two to four syllables, always the same ones."""
    rng = _generator(0, _WORDS, 0)
    words: dict[bytes, None] = {}
    while len(words) < n:
        syllables = rng.integers(0, 60, rng.integers(2, 5)).tolist()
        words["".join("bdfgklmnprst"[s // 5] + "aeiou"[s % 5] for s in syllables).encode()] = None
    return list(words)


_BOUND = 15
"""Row of `_string_operands` for the bound of a prefix; it is the number of no operator."""


def _string_operands(words: list[bytes]) -> tuple[list[bytes], Array]:
    """Distinct operands, and the index of the operand for each operator and word: i64[16, len(words)]."""
    pool = {word: i for i, word in enumerate(words)}
    operand = np.tile(np.arange(len(words)), (16, 1))
    for row, pieces in (
        (Op.PREFIX, [word[:3] for word in words]),
        (_BOUND, [prefix_bound(word[:3]) for word in words]),
        (Op.CONTAINS, [word[1:4] for word in words]),
        (Op.SUFFIX, [word[-3:] for word in words]),
    ):
        operand[row] = [pool.setdefault(piece, len(pool)) for piece in pieces]
    return list(pool), operand


def _ccm(name: str, **parameters: Any) -> Scenario:
    return Scenario(name, _CCM, **{"n_filters": 250_000, "n_interfaces": 10, **parameters})


def _clcb(name: str, **parameters: Any) -> Scenario:
    default = {"n_filters": 2_500_000, "n_interfaces": 250_000, "name_exponent": 1.87, "area": 1e-4}
    return Scenario(name, _CLCB, interface_spread=0, **{**default, **parameters})


def _intervals(name: str, n_filters: int = 100_000, **parameters: Any) -> Scenario:
    fields = Intervals(**parameters)
    return RangeScenario(
        name,
        _REIN,
        n_filters,
        n_filters,
        interface_spread=0,
        filter_size=(fields.constraints, fields.constraints),
        event_size=fields.event_size,
        n_names=fields.n_attributes,
        fields=fields,
    )


def _debs2009(name: str, n_filters: int, **sizes: Any) -> Scenario:
    ops = (Op.EQ,) * 5 + (Op.NE, Op.LT, Op.LE, Op.GT, Op.GE)
    values: dict[str, Any] = {"n_values": 15, "first_value": 1, "number_ops": ops, "n_distinct": 1500}
    return Scenario(name, _DEBS2009, n_filters=n_filters, n_interfaces=n_filters, **values, **sizes)


SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        _ccm("ccm"),
        OriginalCcm("ccm-original", _CCM, 250_000, 10),
        _ccm("ccm-strings", string_share=0.5),
        _ccm("ccm-zipf1", name_exponent=1.0),
        _ccm("ccm-zipf2", name_exponent=2.0),
        _ccm("ccm-10-names", n_names=10),
        _ccm("ccm-wide", event_size=(8, 10)),
        _ccm("ccm-large", n_filters=2_500_000),
        _ccm("many-interfaces", n_filters=1_000_000, n_interfaces=1_000_000),
        _debs2009("debs2009", 6_000_000, filter_size=(5, 15), event_size=(25, 75)),
        _debs2009("debs2009-blocks", 2_000_000, filter_size=(3, 9), event_size=(15, 45)),
        _clcb("clcb"),
        _clcb("clcb-zipf", place_exponent=1.0),
        _clcb("clcb-area-0.001", area=1e-5),
        _clcb("clcb-area-0.1", area=1e-3),
        _clcb("clcb-area-1", area=1e-2),
        _clcb("clcb-large", n_filters=10_000_000, n_interfaces=1_000_000),
        _clcb("clcb-hard", n_names=5, name_exponent=0.0, event_size=(5, 5), n_values=1, number_ops=(Op.EQ, Op.GE, Op.LE)),
        _intervals("intervals"),
        _intervals("intervals-narrow", constraints=5, width=0.1),
        _intervals("intervals-large", n_filters=1_000_000),
        _intervals("intervals-normal", width=0.3, event_size=(10, 20), name_exponent=0.5, spread=0.2),
        _intervals("intervals-covering", constraints=5, covering=0.5),
        _intervals("intervals-correlated", constraints=5, width=0.3, correlation=0.5),
        _intervals("intervals-skewed", constraints=5, width=0.25, skew=0.5),
        RangeScenario("stock", _STOCK, 100_000, 10_000, filter_size=(1, 3), event_size=(3, 3), n_names=3, fields=Stock()),
        RangeScenario(
            "packets",
            _PACKETS,
            10_000,
            10_000,
            interface_spread=0,
            filter_size=(0, 5),
            event_size=(5, 5),
            n_names=5,
            fields=Packets(),
        ),
        TagScenario(
            "tagmatch",
            _TAGMATCH,
            1_000_000,
            1_000_000,
            interface_spread=0,
            filter_size=(3, 7),
            n_names=200_000,
            name_exponent=1.0,
        ),
        TagScenario(
            "tagmatch-keys",
            _TAGMATCH,
            1_000_000,
            1_000_000,
            interface_spread=0,
            filter_size=(3, 7),
            n_names=200_000,
            name_exponent=0.5,
            keys_per_set=1.415,
            answers=10.0,
        ),
    )
}
"""The published scenarios by name."""
