"""Filters and events of the workloads whose constraints are ranges: `intervals`, `stock` and `packets`.

A generator has fields, each with one type, and draws rows of them:

    filters     field 0           field 1         field 2
    f0          between 10, 60                    > 5          a field without an operator is not constrained
    events      31                17              8            NaN: the event has no such attribute

Strings are numbers of `words`.  `scenarios` makes `Subscriptions` and `Events` of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of
from mpi_match.lab.workloads.sampling import Weighted
from mpi_match.model import Op, Type
from mpi_match.table.kinds import KIND_SHIFT

FREE = 255
"""The operator of a field that a filter does not constrain."""
_EQ, _GT, _LT, _BETWEEN = np.uint8(Op.EQ), np.uint8(Op.GT), np.uint8(Op.LT), np.uint8(Op.BETWEEN)


class DrawnFilters(NamedTuple):
    """n filters of F fields: operators u8[n, F], or FREE; operands f64[n, F], `high` only for `between`."""

    op: Array
    low: Array
    high: Array


class DrawnConstraints(NamedTuple):
    """Drawn filters as columns of `Subscriptions`: sizes i64[n]; name, kind and number of operands of each constraint;
    operands, whose `string` i64 is -1 for a number."""

    sizes: Array
    name: Array
    kind: Array
    n_operands: Array
    number: Array
    string: Array


class RangeFields(Protocol):
    """A generator of rows: the names of its fields, which of them hold strings, and the strings."""

    @property
    def names(self) -> Sequence[bytes]: ...

    @property
    def is_string(self) -> Sequence[bool]: ...

    @property
    def words(self) -> Sequence[bytes]: ...

    def filters(self, rng: np.random.Generator, place: Array) -> DrawnFilters:
        """Draw n filters, given the place of each in the table, f64[n] from 0 to 1."""
        ...

    def events(self, rng: np.random.Generator, n: int) -> Array:
        """Values of n events, f64[n, F]; NaN where an event lacks an attribute."""
        ...


def constraints_of(rows: DrawnFilters, fields: RangeFields) -> DrawnConstraints:
    """The constraints of filters, filter by filter, by field within each."""
    there, is_string = rows.op != FREE, np.array(fields.is_string, bool)
    name = np.nonzero(there)[1]
    op, on_string = rows.op[there], is_string[name]
    kind = np.where(on_string, np.uint8(Type.STRING << KIND_SHIFT), np.uint8(Type.NUMBER << KIND_SHIFT)) | op
    n_operands = 1 + (op == _BETWEEN).astype(np.int64)
    first = offsets_of(n_operands)
    number, string = np.zeros(int(first[-1])), np.full(int(first[-1]), -1, np.int64)
    low, at = rows.low[there], first[:-1]
    number[at] = np.where(on_string, 0.0, low)
    string[at] = np.where(on_string, low, -1).astype(np.int64)
    number[at[op == _BETWEEN] + 1] = rows.high[there][op == _BETWEEN]
    return DrawnConstraints(there.sum(axis=1), name, kind, n_operands, number, string)


@dataclass(frozen=True)
class Intervals:
    """Every constraint an interval of one width, on distinct attributes, as in the papers from REIN (2014) on.

    n_attributes    number of attributes; an event has `event_size` of them, (least, most)
    constraints     intervals in each filter
    width           of an interval, as a share of the values
    name_exponent   attribute i is constrained with a weight of (i + 1) ** -name_exponent
    spread          standard deviation of a normal distribution of values and of the centres of intervals, as a share of the
                    values; 0: both are uniform
    correlation     of any two attributes of an event, and of the places of any two intervals of a filter
    covering        share of the filters that are covered: their intervals lie within those of an earlier filter, `NARROWED`
    skew            share of the answers that come from the first tenth of the filters; 0: a tenth
    """

    n_attributes: int = 20
    constraints: int = 10
    width: float = 0.5
    event_size: tuple[int, int] = (20, 20)
    name_exponent: float = 0.0
    spread: float = 0.0
    correlation: float = 0.0
    covering: float = 0.0
    skew: float = 0.0

    N_VALUES = 1_000_000
    NARROWED = 0.9
    """Width of an interval within another one, as a share of that."""
    POPULAR = 0.1
    """Share of the filters that are popular with `skew`."""
    words: tuple[bytes, ...] = ()

    @property
    def names(self) -> list[bytes]:
        """The attributes."""
        return [b"attribute-%02d" % i for i in range(self.n_attributes)]

    @property
    def is_string(self) -> list[bool]:
        """All are numbers."""
        return [False] * self.n_attributes

    def __post_init__(self) -> None:
        shares = {"correlation": self.correlation, "covering": self.covering, "skew": self.skew}
        for name, share in shares.items():
            if not 0 <= share < 1:
                raise ValueError(f"{name} is {share:g}; it must be at least 0 and less than 1")

    @property
    def matched(self) -> float | None:
        """Probability that a filter matches an event; None where attributes may be absent or depend on each other."""
        if self.event_size[0] < self.n_attributes or self.spread or self.correlation:
            return None
        narrowed = 1 - self.covering + self.covering * self.NARROWED**self.constraints
        return float(self.width**self.constraints * narrowed)

    def matching(self, share: float) -> Intervals:
        """The same with the width of intervals at which a share of the filters matches an event.  Raises ValueError."""
        found = replace(self, width=1.0).matched
        if found is None or not 0 < share < found:
            raise ValueError(
                f"intervals of no width match a share of {share:g}; answers are a parameter of filters whose attributes are "
                "uniform, independent and all in every event"
            )
        return replace(self, width=(share / found) ** (1 / self.constraints))

    def filters(self, rng: np.random.Generator, place: Array) -> DrawnFilters:
        shape = len(place), self.n_attributes
        key = rng.standard_exponential(shape) * np.arange(1, self.n_attributes + 1) ** self.name_exponent
        rank = np.argsort(np.argsort(key, axis=1), axis=1)  # so an attribute is among the first by its weight
        width = np.full((len(place), 1), self.width)
        if self.skew:
            share = np.where(place < self.POPULAR, self.skew / self.POPULAR, (1 - self.skew) / (1 - self.POPULAR))
            width[:, 0] *= share ** (1 / self.constraints)
        low = np.floor(self._within(rng, shape, 1 - np.minimum(width, 1)) * self.N_VALUES)
        high = low + np.floor(np.minimum(width, 1) * self.N_VALUES)
        op = np.where(rank < self.constraints, _BETWEEN, np.uint8(FREE))
        return self._covered(rng, DrawnFilters(op, low, high)) if self.covering else DrawnFilters(op, low, high)

    def _covered(self, rng: np.random.Generator, drawn: DrawnFilters) -> DrawnFilters:
        """Let a share of the filters lie within earlier ones, which are not covered themselves."""
        is_covered = rng.random(len(drawn.op)) < self.covering
        is_covered[0] = False
        others, mine = np.flatnonzero(~is_covered), np.flatnonzero(is_covered)
        by = others[(rng.random(len(mine)) * np.searchsorted(others, mine)).astype(np.int64)]
        op, low, high = (each.copy() for each in drawn)
        spare = (high[by] - low[by]) * (1 - self.NARROWED)
        op[mine], low[mine] = op[by], np.ceil(low[by] + rng.random(spare.shape) * spare)
        high[mine] = np.minimum(low[mine] + np.floor((high[by] - low[by]) * self.NARROWED), high[by])
        return DrawnFilters(op, low, high)

    def events(self, rng: np.random.Generator, n: int) -> Array:
        shape = n, self.n_attributes
        value = np.floor(self._within(rng, shape, 1) * self.N_VALUES)
        size = rng.integers(self.event_size[0], self.event_size[1] + 1, (n, 1))
        rank = rng.permuted(np.broadcast_to(np.arange(self.n_attributes), shape), axis=1)
        return np.where(rank < size, value, np.nan)

    def _within(self, rng: np.random.Generator, shape: tuple[int, int], most: float | Array) -> Array:
        """Numbers from 0 to `most`, as shares of the values: uniform, or normal around the middle and reflected.  Correlated
        ones are the same number of their row with the probability sqrt(correlation) each, else one of their own."""
        if not self.spread:
            drawn = rng.random(shape)
            if self.correlation:
                is_shared = rng.random(shape) < math.sqrt(self.correlation)
                drawn = np.where(is_shared, rng.random((shape[0], 1)), drawn)
            return np.asarray(drawn * most)
        folded = np.abs(rng.normal(most / 2, self.spread, shape)) % (2 * most)
        return np.asarray(np.minimum(folded, 2 * most - folded))


@dataclass(frozen=True)
class Stock:
    """Quotes: name, price and volume.  A filter asks for a name (most do), a range of prices and a least volume.

    n_symbols, exponent   names, and the exponent of Zipf's law by which filters and quotes have them
    """

    n_symbols: int = 1000
    exponent: float = 1.0

    names = (b"name", b"price", b"volume")
    is_string = (True, False, False)

    @property
    def words(self) -> list[bytes]:
        """The symbols: three letters each, the most popular first."""
        return [bytes(ord("A") + i // 26**k * 7 % 26 for k in range(3)) + b"%d" % i for i in range(self.n_symbols)]

    def filters(self, rng: np.random.Generator, place: Array) -> DrawnFilters:
        n = len(place)
        op, low, high = (np.full((n, 3), FREE, np.uint8), np.zeros((n, 3)), np.zeros((n, 3)))
        symbol = self._symbols(rng, n)
        op[:, 0] = np.where(rng.random(n) < 0.97, _EQ, FREE)
        low[:, 0] = symbol
        cents = self._prices(symbol)
        form, near, band = rng.random(n), rng.normal(1, 0.1, n), rng.uniform(0.005, 0.05, n)
        op[:, 1] = np.select([form < 0.8, form < 0.9], [_BETWEEN, _GT], _LT)
        low[:, 1] = np.rint(cents * np.where(form < 0.8, near * (1 - band), np.where(form < 0.9, near + 0.1, near - 0.1)))
        high[:, 1] = np.maximum(np.rint(cents * near * (1 + band)), low[:, 1])
        op[:, 2] = np.where(rng.random(n) < 0.7, _GT, FREE)
        low[:, 2] = 100 * np.rint(rng.lognormal(6, 1.5, n))
        return DrawnFilters(op, low, high)

    def events(self, rng: np.random.Generator, n: int) -> Array:
        symbol = self._symbols(rng, n)
        price = np.rint(self._prices(symbol) * rng.normal(1, 0.1, n))
        return np.column_stack([symbol, price, 100 * np.rint(rng.lognormal(4, 1.5, n))])

    def _symbols(self, rng: np.random.Generator, n: int) -> Array:
        return Weighted(self.n_symbols, self.exponent).draw(rng, n).astype(np.int64)

    def _prices(self, symbol: Array) -> Array:
        """The mean price of each symbol in cents, from one dollar to a thousand, always the same."""
        of_all = 10 ** np.random.Generator(np.random.PCG64(self.n_symbols)).uniform(2, 5, self.n_symbols)
        return np.asarray(np.rint(of_all[symbol]))


@dataclass(frozen=True)
class Packets:
    """Five fields of packets: addresses as prefixes, ports exact, ranged or any, the protocol; all matches are asked for.

    Rules and packets have addresses in the same networks, nested as real ones are: a network of 16 bits out of
    `n_networks`, by Zipf's law, in it 64 of 24 bits and their hosts, by Zipf's law too.
    """

    n_networks: int = 400

    names = (b"src", b"dst", b"sport", b"dport", b"proto")
    is_string = (False,) * 5
    words: tuple[bytes, ...] = ()

    LENGTHS = (
        ((0, 16, 20, 24, 28, 32), (0.10, 0.04, 0.04, 0.27, 0.15, 0.40)),
        (
            (0, 16, 20, 24, 28, 32),
            (0.02, 0.04, 0.04, 0.30, 0.15, 0.45),
        ),
    )
    """Lengths of prefixes of sources and destinations, and their shares."""
    SERVICES = (80, 443, 53, 22, 25, 110, 143, 123, 161, 389, 445, 636, 993, 1433, 1521, 3306, 3389, 5060, 8080, 8443)
    RANGES = ((1024, 65535), (0, 1023), (49152, 65535), (6000, 6063), (137, 139), (20, 21), (5000, 5100), (8000, 8100))

    def filters(self, rng: np.random.Generator, place: Array) -> DrawnFilters:
        n = len(place)
        op, low, high = (np.full((n, 5), FREE, np.uint8), np.zeros((n, 5)), np.zeros((n, 5)))
        for side, (lengths, shares) in enumerate(self.LENGTHS):
            length = rng.choice(lengths, n, p=shares)
            size = 2.0 ** (32 - length)
            low[:, side] = np.floor(self._addresses(rng, n) / size) * size
            high[:, side] = low[:, side] + size - 1
            op[:, side] = np.select([length == 0, length == 32], [np.uint8(FREE), _EQ], _BETWEEN)
        ranges = np.array(self.RANGES)[Weighted(len(self.RANGES), 1.0).draw(rng, 2 * n)].reshape(n, 2, 2)
        for side, (any_, exact) in enumerate(((0.85, 0.05), (0.2, 0.6))):
            form = rng.random(n)
            op[:, 2 + side] = np.select([form < any_, form < any_ + exact], [np.uint8(FREE), _EQ], _BETWEEN)
            low[:, 2 + side] = np.where(form < any_ + exact, self._services(rng, n), ranges[:, side, 0])
            high[:, 2 + side] = ranges[:, side, 1]
        low[:, 4] = rng.choice((6, 17, 1, 50), n, p=(0.7, 0.2, 0.07, 0.03))
        op[:, 4] = np.where((rng.random(n) < 0.9) | (op[:, 2] != FREE) | (op[:, 3] != FREE), _EQ, FREE)
        return DrawnFilters(op, low, high)

    def events(self, rng: np.random.Generator, n: int) -> Array:
        services, free = self._services(rng, n), rng.integers(1024, 65536, n)
        swapped = rng.random(n) < 0.3  # answers
        proto = rng.choice((6, 17, 1, 50), n, p=(0.7, 0.2, 0.07, 0.03))
        addresses = self._addresses(rng, 2 * n).reshape(2, n)
        ports = np.where(swapped, services, free), np.where(swapped, free, services)
        return np.column_stack([*addresses, *ports, proto]).astype(np.float64)

    def _addresses(self, rng: np.random.Generator, n: int) -> Array:
        network = Weighted(self.n_networks, 1.0).draw(rng, n).astype(np.int64)
        of_all = np.random.Generator(np.random.PCG64(self.n_networks)).permutation(2**16)[: self.n_networks]
        subnet = Weighted(64, 0.8).draw(rng, n).astype(np.int64) * 37 % 256
        host = Weighted(256, 0.8).draw(rng, n).astype(np.int64)
        return np.asarray(of_all[network] << 16 | subnet << 8 | host)

    def _services(self, rng: np.random.Generator, n: int) -> Array:
        return np.array(self.SERVICES)[Weighted(len(self.SERVICES), 1.0).draw(rng, n)]
