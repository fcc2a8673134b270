"""Events: a lossless round trip, and the same meaning for every constraint after encoding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from cases import CASES, event_of, filters_of
from hypothesis import given
from hypothesis import strategies as st
from strategies import events, subscriptions_and_events

from mpi_match.events.batch import EventBatch
from mpi_match.events.events import Events
from mpi_match.model import LISTS, Constraint, Event, Filter, Op, is_satisfied, make_event, make_filter
from mpi_match.table import vocabulary
from mpi_match.table.conditions import is_part
from mpi_match.table.kinds import parts_of
from mpi_match.table.table import Table
from mpi_match.table.virtual_names import VIEW_MARK
from mpi_match.table.vocabulary import ATOM_OPS


def codes_of(batch: EventBatch, event: int, table: Table) -> dict[int, int]:
    """Name id -> code of one event's attributes; atoms are names beyond the table's."""
    bounds, shift = batch.bounds, table.vocabulary.shift
    packed = batch.attributes[bounds[event] : bounds[event + 1]].tolist()
    assert packed == sorted(set(packed)), "attributes ascend"
    codes = {attribute >> shift: attribute & ((1 << shift) - 1) for attribute in packed}
    assert len(codes) == len(packed), "names are distinct"
    return codes


def code_satisfies(table: Table, row: int, codes: dict[int, int]) -> bool:
    """Is constraint `row` satisfied, by codes alone?  Written from docs/format.md."""
    v, c = table.vocabulary, table.constraints
    name, op, lo, hi = int(c.name_id[row]), parts_of(int(c.kind[row]))[1], int(c.lo[row]), int(c.hi[row])
    if op in ATOM_OPS:
        return v.n_names + int(v.atom_offsets[name]) + lo in codes
    if name not in codes:
        return op is Op.ABSENT
    code = codes[name]
    n, s = int(v.n_numbers[name]), int(v.n_strings[name])
    first, last = [
        (0, 2 * n + 2 * s + 5),
        (0, 2 * n),
        (2 * n + 2, 2 * n + 2 * s + 2),
        (2 * n + 2 * s + 3, 2 * n + 2 * s + 4),
    ][int(c.type[row])]
    if op is Op.ABSENT or not first <= code <= last:
        return False
    if op in LISTS:
        listed = int(c.set_offsets[name]) + lo
        held = code in c.set_codes[c.set_code_offsets[listed] : c.set_code_offsets[listed + 1]]
        return held if op is Op.IN else not held
    return not lo <= code <= hi if op is Op.NE else lo <= code <= hi


def assert_codes_say_what_values_say(filters: Sequence[Filter], published: Sequence[Event | None]) -> None:
    table = Table.from_filters(filters)
    batch = Events.of(published).encode(table.vocabulary)
    assert batch.n_events == len(published)
    with pytest.MonkeyPatch.context() as patch:  # numbers are looked up in another way where operands are many
        patch.setattr(vocabulary, "MAX_CLASSES", -1)
        assert_equal(Events.of(published).encode(Table.from_filters(filters).vocabulary), batch)
    wanted: list[Constraint] = [table.constraints.decode(row, table.vocabulary) for row in range(table.n_constraints)]
    for i, event in enumerate(published):
        codes = codes_of(batch, i, table)
        if event is None:
            assert not codes
            continue
        known = {
            name
            for name, value in event.attributes.items()
            if value is not None and table.vocabulary.name_id(name.encode()) >= 0
        }
        plain = sum(name[:1] < VIEW_MARK for name in table.vocabulary.names)
        assert sum(name < plain for name in codes) == len(known)
        for row, item in enumerate(wanted):
            if is_part(item.name):
                continue  # engines match parts (`engines.staged`)
            expected = is_satisfied(item, event.attributes)
            assert code_satisfies(table, row, codes) == expected, f"{item} on {event.attributes}"


@given(subscriptions_and_events(max_filters=8))
def test_codes_satisfy_exactly_what_values_satisfy(inputs: tuple[list[Filter], list[Event | None]]) -> None:
    assert_codes_say_what_values_say(*inputs)


def test_codes_of_all_cases() -> None:
    for case in CASES:
        assert_codes_say_what_values_say(filters_of(case), [event_of(case)])


def test_a_string_s_atoms_are_found_once_for_all_events_that_have_it() -> None:
    table = Table.from_filters([make_filter("i", [["x", "contains", "b"], ["x", "suffix", "b"], ["y", "contains", "b"]])])
    batch = Events.of([make_event({"x": value}) for value in ("ab", "ba", "ab", "c")]).encode(table.vocabulary)
    satisfied = [sorted(set(codes_of(batch, i, table)) - {0, 1}) for i in range(4)]
    assert satisfied == [[2, 3], [3], [2, 3], []]


@given(st.lists(events(), max_size=6))
def test_published_events_come_back(published: list[Event]) -> None:
    flat = Events.of(published)
    assert [repr(sorted_event(flat.event(i))) for i in range(len(flat))] == [repr(sorted_event(e)) for e in published]


def sorted_event(event: Event | None) -> Any:
    assert event is not None
    return sorted(event.attributes.items()), event.location, event.id


def test_picked_events_are_those_events_in_that_order() -> None:
    table = Table.from_filters(
        [make_filter("a", [["x", ">", 1], ["y", "prefix", "b"]], (0, 0, 1)), make_filter("b", [["y", "exists"]])]
    )
    published = [make_event({"x": i, "y": "b" * i}, (i, 0)) if i % 3 else make_event({}) for i in range(8)]
    batch = Events.of(published).encode(table.vocabulary)
    for wanted in ([5, 0, 2, 2, 7], [3], []):
        expected = Events.of([published[i] for i in wanted]).encode(table.vocabulary)
        found = (
            batch[1:].picked(np.array(wanted, np.int64) - 1) if 0 not in wanted else batch.picked(np.array(wanted, np.int64))
        )
        assert_equal(found, expected if wanted else replace(expected, location=found.location))


@given(subscriptions_and_events(), st.data())
def test_slices_encode_as_slices_of_the_encoded(
    inputs: tuple[list[Filter], list[Event | None]], data: st.DataObject
) -> None:
    filters, published = inputs
    codes = Table.from_filters(filters).vocabulary
    start, stop = sorted(data.draw(st.lists(st.integers(0, len(published)), min_size=2, max_size=2)))
    flat = Events.of(published)
    assert_equal(flat[start:stop].encode(codes), flat.encode(codes)[start:stop])
    kept = [flat[start:stop].event(i) for i in range(stop - start)]
    assert [e and e.id for e in kept] == [e and e.id for e in published[start:stop]]


def assert_equal(found: EventBatch, expected: EventBatch) -> None:
    """Two batches are equal, wherever their offsets start."""
    assert np.array_equal(found.bounds, expected.bounds)
    assert np.array_equal(found.attributes, expected.attributes)
    assert found.attributes.dtype == expected.attributes.dtype
    assert found.fingerprint == expected.fingerprint
    nowhere = np.full((len(found), 2), np.nan)
    locations = [nowhere if batch.location is None else batch.location for batch in (found, expected)]
    assert np.array_equal(locations[0], locations[1], equal_nan=True)
    rejected = [None if batch.rejected is None else batch.rejected.tolist() for batch in (found, expected)]
    assert rejected[0] == rejected[1]
    signatures = [None if batch.signatures is None else batch.signatures.tolist() for batch in (found, expected)]
    assert signatures[0] == signatures[1]


# Batches.


@pytest.fixture
def batch() -> EventBatch:
    """Thirty events with up to three attributes, every third with a location."""
    table = Table.from_filters([make_filter("i", [["a", ">", 1], ["b", "=", "x"], ["c", "suffix", "y"]])])
    published = [
        make_event({"a": i, "b": "xy"[i % 2], "c": "y"} if i % 4 else {}, (i, -i) if i % 3 == 0 else None) for i in range(30)
    ]
    return Events.of(published).encode(table.vocabulary)


@pytest.mark.parametrize("start", [0, 1, 2**31, 2**32 - 30, 2**32 - 1])
def test_offsets_count_modulo_two_to_the_thirty_two(start: int, batch: EventBatch) -> None:
    moved = EventBatch(batch.offsets + np.uint32(start), batch.attributes, batch.location, batch.fingerprint)
    assert int(moved.offsets[0]) == start
    assert_equal(moved, batch)
    for a, b in ((0, 30), (3, 17), (29, 30), (5, 5)):
        assert_equal(moved[a:b], batch[a:b])
    assert_equal(EventBatch.concat([moved[:11], moved[11:]]), batch)
    assert_equal(EventBatch.from_wire(moved.to_wire()), batch)


def test_slices_share_memory(batch: EventBatch) -> None:
    piece = batch[3:9]
    assert len(piece) == 6
    assert np.shares_memory(piece.attributes, batch.attributes)
    assert batch[9:3].n_events == 0
    assert len(batch[-5:]) == 5
    with pytest.raises(ValueError, match="consecutive"):
        batch[::2]


def test_joining_batches_fills_missing_locations(batch: EventBatch) -> None:
    without = EventBatch(batch.offsets, batch.attributes, None, batch.fingerprint)
    both = EventBatch.concat([without, batch])
    assert both.location is not None
    assert np.isnan(both.location[:30]).all()
    assert_equal(both[30:], batch)
    assert EventBatch.concat([without, without]).location is None


def test_the_wire_form_is_one_buffer(batch: EventBatch) -> None:
    wire = batch.to_wire()
    assert (wire.dtype, wire.nbytes, wire.ndim) == (np.dtype(np.uint8), batch.wire_bytes, 1)
    assert_equal(EventBatch.from_wire(wire), batch)
    large = np.full(batch.wire_bytes + 100, 7, np.uint8)
    filled = batch.to_wire(large)
    assert np.shares_memory(filled, large)
    assert np.all(large[batch.wire_bytes :] == 7)
    received = EventBatch.from_wire(large)
    assert_equal(received, batch)
    assert np.shares_memory(received.attributes, large)
    without = EventBatch(batch.offsets, batch.attributes, None, batch.fingerprint)
    assert EventBatch.from_wire(without.to_wire()).location is None


def test_a_single_event_is_as_its_slice_in_arrays_and_in_integers(batch: EventBatch) -> None:
    for at, located in product(range(5), (False, True)):
        event = batch[at : at + 1] if located else replace(batch, location=None)[at : at + 1]
        received = EventBatch.from_wire(event.to_wire())
        assert (received.packed, received.n_attributes) == (event.packed, event.n_attributes)
        assert received.packed == tuple(event.attributes.tolist())
        there = located and at % 3 == 0
        assert repr(received.place) == repr(event.place) == str((float(at), 0.0 - at) if there else (math.nan, math.nan))
        assert_equal(received, event)
        assert_equal(received[:1], event)
        assert_equal(received[:0], event[:0])
        assert_equal(EventBatch.concat([received, received]), EventBatch.concat([event, event]))


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("start", [0, 2**32 - 1])
@pytest.mark.parametrize("located", [False, True])
def test_wire_forms_of_pieces_are_those_of_slices(located: bool, start: int, size: int, batch: EventBatch) -> None:
    offsets = batch.offsets + np.uint32(start)
    whole = EventBatch(offsets, batch.attributes, batch.location if located else None, batch.fingerprint)
    slices = [whole[at : at + size].to_wire() for at in range(0, whole.n_events, size)]
    assert list(whole.to_wires(size)) == [wire.tobytes() for wire in slices]
    assert len(slices) > 1
    assert list(whole[:0].to_wires(size)) == []


def test_what_is_no_whole_batch_is_refused(batch: EventBatch) -> None:
    wire = batch.to_wire()
    for length in [*range(0, len(wire) - 8, 24), len(wire) - 8]:
        with pytest.raises(ValueError, match=r"not a (whole )?batch"):
            EventBatch.from_wire(wire[:length])
    with pytest.raises(ValueError, match="not a batch: the first word is 0x0"):
        EventBatch.from_wire(np.zeros(1000, np.uint8))


REJECTED = (0, 4, 5, 17, 29)


def test_signatures_travel_in_slices_joins_and_wires(batch: EventBatch) -> None:
    signed = replace(batch, signatures=np.arange(90, dtype=np.uint64).reshape(30, 3))
    for each in (signed, replace(signed, rejected=np.array([2, 29], np.uint32)), replace(signed, location=None)):
        wire = each.to_wire()
        assert wire.nbytes == each.wire_bytes
        assert_equal(EventBatch.from_wire(wire), each)
        assert_equal(EventBatch.from_wire(each.to_wire(np.empty(each.wire_bytes, np.uint8))), each)
        with pytest.raises(ValueError, match="not a whole batch"):
            EventBatch.from_wire(wire[:-1])
        assert_equal(EventBatch.concat([each[:7], each[7:]]), each)
    accepted = replace(signed, rejected=np.array([0, 5], np.uint32)).accepted
    assert accepted.signatures is not None
    assert accepted.signatures[:, 0].tolist() == [3 * i for i in range(30) if i not in (0, 5)]
    assert EventBatch.concat([signed, batch]).signatures is None


@pytest.fixture
def with_rejected(batch: EventBatch) -> EventBatch:
    """The same thirty, of which some have become rejected rows."""
    table = Table.from_filters([make_filter("i", [["a", ">", 1], ["b", "=", "x"], ["c", "suffix", "y"]])])
    assert table.vocabulary.fingerprint == batch.fingerprint
    published = [None if i in REJECTED else make_event({"a": i, "c": "y"}, (i, -i)) for i in range(30)]
    return Events.of(published).encode(table.vocabulary)


def test_rejected_rows_travel_in_slices_joins_and_wires(with_rejected: EventBatch) -> None:
    batch = with_rejected
    assert batch.rejected is not None
    assert (batch.rejected.tolist(), batch.rejected.dtype) == (list(REJECTED), np.dtype(np.uint32))
    assert not np.diff(batch.bounds)[list(REJECTED)].any()
    piece = batch[4:18]
    assert piece.rejected is not None
    assert piece.rejected.tolist() == [0, 1, 13]
    assert batch[6:17].rejected is None
    assert_equal(EventBatch.concat([batch[:5], batch[5:5], batch[5:17], batch[17:]]), batch)
    assert_equal(EventBatch.from_wire(batch.to_wire()), batch)
    assert_equal(EventBatch.from_wire(batch.to_wire(np.full(batch.wire_bytes + 100, 7, np.uint8))), batch)
    nowhere = EventBatch(batch.offsets, batch.attributes, None, batch.fingerprint, batch.rejected)
    assert_equal(EventBatch.from_wire(nowhere.to_wire()), nowhere)
    assert len(nowhere.to_wire()) == nowhere.wire_bytes
    for length in (batch.wire_bytes - 8, batch.wire_bytes - 24):
        with pytest.raises(ValueError, match="not a whole batch"):
            EventBatch.from_wire(batch.to_wire()[:length])


def test_what_is_accepted_is_the_batch_without_rejected_rows(with_rejected: EventBatch) -> None:
    table = Table.from_filters([make_filter("i", [["a", ">", 1], ["b", "=", "x"], ["c", "suffix", "y"]])])
    good = [make_event({"a": i, "c": "y"}, (i, -i)) for i in range(30) if i not in REJECTED]
    assert_equal(with_rejected.accepted, Events.of(good).encode(table.vocabulary))
    assert_equal(with_rejected[4:6].accepted, Events.of([]).encode(table.vocabulary))
    assert with_rejected[6:9].accepted.rejected is None
    plain = with_rejected[6:9]
    assert plain.accepted is plain


# Values at their edges.


def test_numbers_between_neighbouring_operands() -> None:
    step = math.nextafter(1.0, 2.0)
    filters = [make_filter("i", [["x", op, operand] for op in ("=", "<", ">=") for operand in (1.0, step, 2**53, -0.0)])]
    values = [0.0, -0.0, 5e-324, 1.0, step, math.nextafter(step, 2), math.inf, -math.inf, math.nan, 2**53, 2**53 - 1]
    assert_codes_say_what_values_say(filters, [make_event({"x": value}) for value in values])


def test_a_table_without_names_keeps_only_locations() -> None:
    table = Table.from_filters([make_filter("i", [], [0, 0, 1])])
    batch = Events.of([make_event({"x": 1}, (0, 0)), make_event({})]).encode(table.vocabulary)
    assert batch.offsets.tolist() == [0, 0, 0]
    assert batch.location is not None
    assert batch.location[0].tolist() == [0, 0]
    assert np.isnan(batch.location[1]).all()


def test_no_events() -> None:
    flat = Events.of([])
    batch = flat.encode(Table.from_filters([make_filter("i", [["x", ">", 1]])]).vocabulary)
    assert (len(flat), len(batch), len(batch.attributes)) == (0, 0, 0)
    assert_equal(EventBatch.from_wire(batch.to_wire()), batch)


def test_events_are_counted_from_the_end_too_and_what_is_not_there_is_an_index_error() -> None:
    published = [make_event({"x": i}) for i in range(3)]
    kept = Events.of(published)
    assert [kept.event(i) for i in (-3, -2, -1)] == published
    for i in (3, -4):
        with pytest.raises(IndexError, match=f"event {i} of 3"):
            kept.event(i)
    with pytest.raises(ValueError, match="consecutive"):
        kept[::2]
