"""Matching: the predicates that an attribute satisfies, and the counting of their filters.

A filter's counter belongs to an event if it is above the event's *base*: then it is the base and the number of satisfied
constraints so far.  The next event's base is above all of these, so nothing is reset between events; when the numbers of the
counters' type are used up, all counters are set to zero.  A filter that `absent` rules out begins above any number of
constraints that a filter needs, so it never reaches exactly the needed number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.array_pointers import line, rows
from mpi_match.compute.compile_cache import jit, nested
from mpi_match.engines.keyed.index.filter_rows import IN_LIST, OUT_OF_LIST, UNEQUAL
from mpi_match.lab.baselines.event_by_event import (
    NEXT_EVENT,
    PAIRS_BEFORE,
    PAIRS_COUNTED,
    EncodedEvents,
    event_at,
    is_in_area,
    lower_bound,
    note,
)
from mpi_match.lab.baselines.sff.index import (
    ABOVE,
    BELOW,
    GROUP_CLASS,
    GROUP_FIRST,
    GROUP_FIRST_CODE,
    GROUP_LAST,
    GROUP_LAST_CODE,
    PRESENT,
    WITHIN,
)

(
    SFF_GROUP_OFFSETS,
    SFF_GROUPS,
    SFF_LO,
    SFF_HI,
    SFF_ROWS,
    SFF_ABSENT,
    SFF_MEMBER_OFFSETS,
    SFF_MEMBER_CODE,
    SFF_MEMBER_LIST,
    SFF_FILTER,
    SFF_NEED,
    SFF_INTERFACE,
) = range(12)
(
    SFF_CIRCLE,
    SFF_CIRCLES,
    SFF_ALWAYS,
    SFF_SELECTIVE,
    SFF_EXCLUDE_OFFSETS,
    SFF_EXCLUDE,
    SFF_PRESENCE,
    SFF_DONE,
    SFF_RUNS,
    SFF_STATE,
    SFF_PROGRESS,
    SFF_SIDES,
    SFF_SIDE_FILTER,
) = range(12, 25)
"""Arrays of the engine (`engine.Sff`), by their number in its table of pointers."""
SFF_BASE, SFF_SERIAL, SFF_N_DONE, SFF_N_INTERFACES, SFF_LEAST_NEED, SFF_STEP, SFF_MOST = range(7)
"""Words of SFF_STATE: the base and number of the event; interfaces that are done, and those that have filters; the fewest
constraints of a filter that has any; the distance of two bases; the largest value of a counter.
"""
SFF_N_STATE = 7


@nested
def _exclude(attributes: Array, shift: int, table: Array) -> None:
    """Rule out the interfaces whose determinant names the event lacks, round by round."""
    names, offsets = line(table, SFF_SELECTIVE, np.int64), line(table, SFF_EXCLUDE_OFFSETS, np.int64)
    exclude, presence = line(table, SFF_EXCLUDE, np.uint32), line(table, SFF_PRESENCE, np.int64)
    done, state = line(table, SFF_DONE, np.int64), line(table, SFF_STATE, np.int64)
    serial, n_done = state[SFF_SERIAL], np.int64(0)
    for attribute in attributes:
        presence[np.int64(attribute) >> shift] = serial
    for r in range(len(names)):
        if presence[names[r]] != serial:
            for i in range(offsets[r], offsets[r + 1]):
                if done[exclude[i]] != serial:
                    done[exclude[i]] = serial
                    n_done += 1
            if n_done == state[SFF_N_INTERFACES]:
                break
    state[SFF_N_DONE] = n_done


@nested
def _list_runs(runs: Any, n: Any, group: Any, members: Any, table: Any) -> Any:
    """Append the runs of a group of `in` or `not in`; `members` are the operand lists that hold the code."""
    lo, lists = line(table, SFF_LO, np.uint32), line(table, SFF_MEMBER_LIST, np.uint32)
    after, last = group[GROUP_FIRST], group[GROUP_LAST]
    for m in range(members[0], members[1]):
        at = lower_bound(lo, after, last, np.int64(lists[m]))
        if at < last and lo[at] == lists[m]:
            runs[n, 0], runs[n, 1] = (at, at + 1) if group[GROUP_CLASS] == IN_LIST else (after, at)
            n, after = n + 1, at + 1
    if group[GROUP_CLASS] != IN_LIST:
        runs[n, 0], runs[n, 1] = after, last
        n += 1
    return n


@nested
def _ordered_runs(runs: Any, n: Any, group: Any, code: Any, table: Any) -> Any:
    """Append the runs of a group other than lists."""
    lo, hi = line(table, SFF_LO, np.uint32), line(table, SFF_HI, np.uint32)
    kind, first, last = group[GROUP_CLASS], group[GROUP_FIRST], group[GROUP_LAST]
    if kind == PRESENT:
        runs[n, 0], runs[n, 1] = first, last
    elif kind == BELOW:
        runs[n, 0], runs[n, 1] = lower_bound(hi, first, last, code), last
    elif kind == ABOVE:
        runs[n, 0], runs[n, 1] = first, lower_bound(lo, first, last, code + 1)
    elif kind == WITHIN:
        for p in range(first, lower_bound(lo, first, last, code + 1)):
            if hi[p] >= code:
                runs[n, 0], runs[n, 1] = p, p + 1
                n += 1
        return n
    else:
        at = lower_bound(lo, first, last, code)
        next_ = at + (at < last and lo[at] == code)
        runs[n, 0], runs[n, 1] = at, next_
        if kind == UNEQUAL:
            runs[n, 0], runs[n, 1] = first, at
            n += 1
            runs[n, 0], runs[n, 1] = next_, last
    return n + 1


@nested
def _satisfied(name: Any, code: Any, table: Any) -> Any:
    """Write the runs of predicates that an attribute satisfies to SFF_RUNS. Returns the number of runs."""
    group_offsets, groups = line(table, SFF_GROUP_OFFSETS, np.int64), rows(table, SFF_GROUPS, np.int64)
    member_offsets, member_code = line(table, SFF_MEMBER_OFFSETS, np.int64), line(table, SFF_MEMBER_CODE, np.uint32)
    runs, n = rows(table, SFF_RUNS, np.int64), np.int64(0)
    for g in range(group_offsets[name], group_offsets[name + 1]):
        group = groups[g]
        if code < group[GROUP_FIRST_CODE] or code > group[GROUP_LAST_CODE]:
            continue
        if group[GROUP_CLASS] not in (IN_LIST, OUT_OF_LIST):
            n = _ordered_runs(runs, n, group, code, table)
        else:
            first, last = member_offsets[name], member_offsets[name + 1]
            first = lower_bound(member_code, first, last, code)
            last = lower_bound(member_code, first, last, code + 1)
            n = _list_runs(runs, n, group, (first, last), table)
    return n


@nested
def _matched(f: int, event: tuple, filters: bool, table: Array, pairs: Array) -> None:
    """Note a filter whose constraints are all satisfied, if its area holds the event and its interface is not done."""
    done, state = line(table, SFF_DONE, np.int64), line(table, SFF_STATE, np.int64)
    interface = np.int64(line(table, SFF_INTERFACE, np.uint32)[f])
    if done[interface] == state[SFF_SERIAL]:
        return
    if is_in_area(f, event, line(table, SFF_CIRCLE, np.int32), rows(table, SFF_CIRCLES, np.float64)):
        note(event, np.int64(f) if filters else interface, line(table, SFF_PROGRESS, np.int64), pairs)
        if not filters:
            done[interface] = state[SFF_SERIAL]
            state[SFF_N_DONE] += 1


@nested
def _count(run: Array, event: tuple, filters: bool, counters: Array, table: Array, pairs: Array) -> None:
    """Count one more satisfied constraint for the filters of a run of predicates, until every interface is done."""
    filter_, interface = line(table, SFF_FILTER, np.uint32), line(table, SFF_INTERFACE, np.uint32)
    need, done = line(table, SFF_NEED, np.uint32), line(table, SFF_DONE, np.int64)
    starts, state = line(table, SFF_ROWS, np.int64), line(table, SFF_STATE, np.int64)
    base, serial, least, n_done = state[SFF_BASE], state[SFF_SERIAL], state[SFF_LEAST_NEED], state[SFF_N_DONE]
    for row in range(starts[run[0]], starts[run[1]]):
        f = filter_[row]
        if n_done and done[interface[f]] == serial:
            continue
        count = max(np.int64(counters[f]), base) + 1 - base
        counters[f] = base + count
        if count >= least and count == need[f]:
            _matched(f, event, filters, table, pairs)
            n_done = state[SFF_N_DONE]
            if n_done == state[SFF_N_INTERFACES]:
                return


@nested
def _is_on_side(side: int, end: float, event: tuple) -> bool:
    """Tells whether an event is within a side of a box: the least x or y, the greatest x or y."""
    _, x, y = event
    at = y if side & 1 else x
    return bool(end <= at if side < 2 else at <= end)


@nested
def _count_sides(event: tuple, filters: bool, counters: Array, table: Array, pairs: Array) -> None:
    """Count the sides of the areas' boxes that an event is within, as constraints on its coordinates."""
    sides, filter_of = rows(table, SFF_SIDES, np.float64), rows(table, SFF_SIDE_FILTER, np.uint32)
    interface, need = line(table, SFF_INTERFACE, np.uint32), line(table, SFF_NEED, np.uint32)
    done, state = line(table, SFF_DONE, np.int64), line(table, SFF_STATE, np.int64)
    base, serial = state[SFF_BASE], state[SFF_SERIAL]
    for side in range(len(sides)):
        ends = sides[side]
        first, last = 0, len(ends)
        while first < last:  # the ends of the first two sides ascend to the event, those of the others from it
            middle = (first + last) >> 1
            if _is_on_side(side, ends[middle], event) == (side < 2):
                first = middle + 1
            else:
                last = middle
        begin, end = (0, first) if side < 2 else (first, len(ends))
        for i in range(begin, end):
            f = filter_of[side, i]
            if done[interface[f]] != serial and _is_on_side(side, ends[i], event):
                count = max(np.int64(counters[f]), base) + 1 - base
                counters[f] = base + count
                if count == need[f]:
                    _matched(f, event, filters, table, pairs)
                    if state[SFF_N_DONE] == state[SFF_N_INTERFACES]:
                        return


@nested
def _rule_out(attributes: Array, shift: int, counters: Array, table: Array) -> None:
    """Rule out the filters with an `absent` constraint on a name of the event."""
    absent, filter_ = rows(table, SFF_ABSENT, np.int64), line(table, SFF_FILTER, np.uint32)
    state = line(table, SFF_STATE, np.int64)
    for attribute in attributes:
        name = np.int64(attribute) >> shift
        if name < len(absent):
            for row in range(absent[name, 0], absent[name, 1]):
                counters[filter_[row]] = state[SFF_BASE] + state[SFF_STEP] // 2


@nested
def _match(attributes: Array, event: tuple, given: tuple, counters: Array, table: Array, pairs: Array) -> None:
    """Match one event; `given` holds whether filters are answered, and the width of a code."""
    filters, shift = given
    state, always = line(table, SFF_STATE, np.int64), line(table, SFF_ALWAYS, np.uint32)
    runs, mask = rows(table, SFF_RUNS, np.int64), (np.int64(1) << shift) - 1
    _exclude(attributes, shift, table)
    if state[SFF_N_DONE] == state[SFF_N_INTERFACES]:
        return
    _rule_out(attributes, shift, counters, table)
    for f in always:
        if counters[f] <= state[SFF_BASE]:
            _matched(f, event, filters, table, pairs)
    _count_sides(event, filters, counters, table, pairs)
    for attribute in attributes:
        packed = np.int64(attribute)
        for r in range(_satisfied(packed >> shift, packed & mask, table)):
            if state[SFF_N_DONE] == state[SFF_N_INTERFACES]:
                return
            _count(runs[r], event, filters, counters, table, pairs)


@jit
def match_events(filters: bool, events: EncodedEvents, counters: Array, table: Array, pairs: Array) -> None:
    """Match events from `progress` on (`EventByEvent.find`).

    Parameters: `filters` is whether filters, not interfaces, are answered; `events` EncodedEvents; `counters` u8 or
    u32[n_filters]; `table` of pointers to
    the arrays that are numbered above; `pairs` u64, the room for answers.
    """
    state, progress = line(table, SFF_STATE, np.int64), line(table, SFF_PROGRESS, np.int64)
    for number in range(progress[NEXT_EVENT], len(events.bounds) - 1):
        state[SFF_BASE], state[SFF_SERIAL] = state[SFF_BASE] + state[SFF_STEP], state[SFF_SERIAL] + 1
        if state[SFF_BASE] + state[SFF_STEP] > state[SFF_MOST]:
            counters[:] = 0
            state[SFF_BASE] = 0
        attributes, event = event_at(events, number)
        progress[PAIRS_COUNTED] = progress[PAIRS_BEFORE]
        _match(attributes, event, (filters, events.shift), counters, table, pairs)
        if progress[PAIRS_COUNTED] > len(pairs):
            return
        progress[NEXT_EVENT], progress[PAIRS_BEFORE] = number + 1, progress[PAIRS_COUNTED]
