"""The workload generator of the CCM evaluation, number for number: glibc's `rand` and the order of its calls.

    srand(seed)
    1,000 events     attributes: least + rand() % (1 + most - least); each: name = rand() % names, value = rand() % values;
                     a repeated name keeps its first value, so the event has fewer attributes
    per interface    filters: least + rand() % (1 + most - least); each: constraints, as for attributes; each of these:
                     name = rand() % names until it is new in the filter, operator by rand() % 100 (= below 25, != below
                     50, < below 75, else >), value = rand() % values

`rand` is the additive feedback generator that glibc's `random` uses by default (TYPE_3, x^31 + x^3 + 1): a word is the sum
of those 3 and 31 before it, modulo 2^32; its lowest bit is dropped; the first 310 sums are thrown away.

Source: the description of the workload in Margara & Cugola, DEBS 2011, section 5, and the authors' published evaluation
code, whose default run (seed 0, 3 to 5 attributes, 3 to 5 constraints) has 250,962 filters and 280 matches.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import jit, nested

ORIGINAL_EVENTS = 1000
"""Number of events, which the generator draws before the filters."""
_WORDS, _LAG, _THROWN_AWAY = 31, 3, 310


class Drawn(NamedTuple):
    """Everything drawn for one seed.

    event_sizes        i64[ORIGINAL_EVENTS]: attributes of each event
    event_name, event_value
                       i64[sum of event_sizes]: attributes, events end to end
    interface_sizes    i64[n_interfaces]: filters of each interface
    filter_sizes       i64[sum of interface_sizes]: constraints of each filter, interfaces end to end
    constraint_name, constraint_choice, constraint_value
                       i64[sum of filter_sizes]: constraints; choices 0 to 3 are = != < >
    """

    event_sizes: Array
    event_name: Array
    event_value: Array
    interface_sizes: Array
    filter_sizes: Array
    constraint_name: Array
    constraint_choice: Array
    constraint_value: Array


class Ranges(NamedTuple):
    """Least and most, both included: attributes of an event, constraints of a filter, filters of an interface."""

    event_size: tuple[int, int]
    filter_size: tuple[int, int]
    interface_size: tuple[int, int]


def draw(seed: int, ranges: Ranges, n_interfaces: int, n_names: int, n_values: int) -> Drawn:
    """Everything that the generator draws for a seed below 2^32.  Seeds 0 and 1 are the same, as in glibc."""
    state = _seeded(seed)
    events = _draw_events(state, ranges.event_size, n_names, n_values)
    return Drawn(*events, *_draw_filters(state, ranges, n_interfaces, n_names, n_values))


def _seeded(seed: int) -> Array:
    """The state u32[32] after `srand(seed)`: the last 31 words, and the index of the oldest."""
    state = np.zeros(_WORDS + 1, np.uint32)
    word = seed or 1
    if word >= 2**31:  # it is an int32
        word -= 2**32
    for i in range(_WORDS):
        state[i] = word % 2**32
        high = int(word / 127773)  # truncates, as C does
        word = 16807 * (word - high * 127773) - 2836 * high
        if word < 0:
            word += 2**31 - 1
    state[_WORDS] = _LAG  # the first three words stand for the next three
    for _ in range(_THROWN_AWAY):
        _rand(state)
    return state


@nested
def _rand_below(state: Array, n: int) -> int:
    oldest = np.int64(state[_WORDS])
    recent = oldest - _LAG if oldest >= _LAG else oldest - _LAG + _WORDS
    state[oldest] += state[recent]
    state[_WORDS] = (oldest + 1) % _WORDS
    return int(state[oldest] >> np.uint32(1)) % n


@jit
def _rand(state: Array) -> int:
    """The next number, below 2^31."""
    return _rand_below(state, 1 << 31)


@jit
def _draw_events(state: Array, size: tuple[int, int], n_names: int, n_values: int) -> tuple[Array, Array, Array]:
    sizes = np.zeros(ORIGINAL_EVENTS, np.int64)
    name = np.empty(ORIGINAL_EVENTS * size[1], np.int64)
    value = np.empty(ORIGINAL_EVENTS * size[1], np.int64)
    end = 0
    for event in range(ORIGINAL_EVENTS):
        first = end
        for _ in range(size[0] + _rand_below(state, 1 + size[1] - size[0])):
            drawn, its_value = _rand_below(state, n_names), _rand_below(state, n_values)
            if not (name[first:end] == drawn).any():
                name[end], value[end] = drawn, its_value
                end += 1
        sizes[event] = end - first
    return sizes, name[:end], value[:end]


@jit
def _draw_filters(
    state: Array, ranges: Ranges, n_interfaces: int, n_names: int, n_values: int
) -> tuple[Array, Array, Array, Array, Array]:
    least, most = ranges.interface_size
    fewest, longest = ranges.filter_size
    interface_sizes = np.empty(n_interfaces, np.int64)
    sizes = np.empty(n_interfaces * most, np.int64)
    name = np.empty(n_interfaces * most * longest, np.int64)
    choice, value = np.empty_like(name), np.empty_like(name)
    n_filters = end = 0
    for interface in range(n_interfaces):
        interface_sizes[interface] = least + _rand_below(state, 1 + most - least)
        for _ in range(interface_sizes[interface]):
            first = end
            sizes[n_filters] = fewest + _rand_below(state, 1 + longest - fewest)
            for _ in range(sizes[n_filters]):
                drawn = _rand_below(state, n_names)
                while (name[first:end] == drawn).any():
                    drawn = _rand_below(state, n_names)
                name[end], choice[end], value[end] = drawn, _rand_below(state, 100) // 25, _rand_below(state, n_values)
                end += 1
            n_filters += 1
    return interface_sizes, sizes[:n_filters], name[:end], choice[:end], value[:end]
