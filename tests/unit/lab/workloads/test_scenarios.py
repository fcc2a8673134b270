"""The scenarios agree with their papers, are the same everywhere, and the same as rows and as columns."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from cases import CASES, event_of, filters_of

from mpi_match.arrays.csr import owners
from mpi_match.engines import open_engine
from mpi_match.events.events import Events
from mpi_match.ingest.rows.judge import EventForm, event_of_row, parse_json, subscription_filters
from mpi_match.ingest.rows.to_json import event_rows, subscription_rows
from mpi_match.lab.workloads.files import LOCATION
from mpi_match.lab.workloads.sampling import CELLS, stepped
from mpi_match.lab.workloads.scenarios import DRAWN_AT_ONCE, SCENARIOS, OriginalCcm, RangeScenario, Scenario, TagScenario
from mpi_match.model import Op, Type, make_event, match_naive
from mpi_match.table import vocabulary as vocabulary_module
from mpi_match.table.subscriptions import Subscriptions
from mpi_match.table.table import Table

PLAIN = [scenario for scenario in SCENARIOS.values() if not isinstance(scenario, (RangeScenario, TagScenario))]
EVERY_PLAIN = pytest.mark.parametrize("scenario", PLAIN, ids=[scenario.name for scenario in PLAIN])
EVERY = pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)


def small(scenario: Scenario) -> Scenario:
    return scenario.scaled(3_000)


def near(found: float, expected: float, n: int) -> bool:
    """Is a frequency within five standard deviations of what it should be?"""
    return bool(abs(found - expected) <= 5 * np.sqrt(max(expected * (1 - expected), 1e-9) / n))


@EVERY_PLAIN
def test_filters_have_the_sizes_names_and_operators_of_the_scenario(scenario: Scenario) -> None:
    scenario = small(scenario)
    subscriptions = scenario.subscriptions()
    about = 300 if isinstance(scenario, OriginalCcm) else 0
    assert abs(subscriptions.n_filters - 3_000) <= about
    sizes = np.diff(subscriptions.constraint_offsets)
    least, most = scenario.filter_size
    assert set(sizes.tolist()) == set(range(least, most + 1))
    pairs = set(zip(owners(subscriptions.constraint_offsets).tolist(), subscriptions.name.tolist(), strict=True))
    assert len(pairs) == subscriptions.n_constraints, "a name occurs twice in a filter"
    assert len(subscriptions.names) == scenario.n_names
    on_string = subscriptions.kind >> 4 == Type.STRING
    for type_, ops, rows in (
        (Type.STRING, scenario.string_ops, subscriptions.kind[on_string]),
        (Type.NUMBER, scenario.number_ops, subscriptions.kind[~on_string]),
    ):
        for op in set(ops):
            found = np.count_nonzero(rows == (type_ << 4 | op))
            n = min(len(rows), scenario.n_distinct or len(rows))  # drawn once, then used again
            assert not n or near(found / len(rows), ops.count(op) / len(ops), n), op
        assert {int(kind) & 15 for kind in rows} <= {int(op) for op in ops}
    numbers = subscriptions.number[subscriptions.operand_offsets[:-1]][~on_string]
    values = set(range(scenario.first_value, scenario.first_value + scenario.n_values))
    assert set(numbers.tolist()) == values
    types = Counter(zip(subscriptions.name.tolist(), on_string.tolist(), strict=True))
    assert len(types) == len({name for name, _ in types}), "a name has two types"


@EVERY_PLAIN
def test_events_have_the_sizes_names_and_types_of_the_scenario(scenario: Scenario) -> None:
    scenario = small(scenario)
    events = scenario.events(2_000)
    assert len(events) == 2_000
    least, most = scenario.event_size
    fewest = 1 if isinstance(scenario, OriginalCcm) else least  # it may draw one name for all attributes of an event
    sizes = set(np.diff(events.offsets).tolist())
    assert set(range(least, most + 1)) <= sizes <= set(range(fewest, most + 1))
    pairs = set(zip(owners(events.offsets).tolist(), events.name.tolist(), strict=True))
    assert len(pairs) == len(events.name), "a name occurs twice in an event"
    subscriptions = scenario.subscriptions()
    assert list(events.names) == list(subscriptions.names)
    of_filters = dict(zip(subscriptions.name.tolist(), (subscriptions.kind >> 4).tolist(), strict=True))
    assert all(
        of_filters.get(name, type_) == type_ for name, type_ in zip(events.name.tolist(), events.type.tolist(), strict=True)
    )


def test_the_scenarios_are_those_of_the_papers() -> None:
    ccm = SCENARIOS["ccm"]
    assert (ccm.n_filters, ccm.n_interfaces, ccm.n_names, ccm.n_values) == (250_000, 10, 100, 100)
    assert SCENARIOS["ccm-large"].n_filters == 2_500_000
    assert SCENARIOS["many-interfaces"].scaled(500).n_interfaces == 500
    sizes = np.bincount(ccm.subscriptions().interface)
    assert sizes.sum() == 250_000
    assert sizes.min() >= 22_500
    assert sizes.max() <= 27_500
    assert len(set(sizes.tolist())) > 5
    strings = SCENARIOS["ccm-strings"].scaled(3_000)
    assert 0.48 < np.mean(strings.events(5_000).type == Type.STRING) < 0.52


@pytest.mark.parametrize(
    ("name", "n_filters", "size", "width"), [("debs2009", 6_000_000, 10, 50), ("debs2009-blocks", 2_000_000, 6, 30)]
)
def test_the_workloads_of_farroukh_have_1500_predicates_and_the_averages_of_table_1(
    name: str, n_filters: int, size: int, width: int
) -> None:
    scenario = SCENARIOS[name]
    assert (scenario.n_filters, scenario.n_interfaces, scenario.n_names) == (n_filters, n_filters, 100)
    subscriptions, n = scenario.scaled(40_000).subscriptions(), 10_000
    assert np.diff(subscriptions.constraint_offsets).mean() == pytest.approx(size, rel=0.01)
    assert np.diff(scenario.events(n).offsets).mean() == pytest.approx(width, rel=0.01)
    distinct = set(zip(subscriptions.name.tolist(), subscriptions.kind.tolist(), subscriptions.number.tolist(), strict=True))
    assert len(distinct) == 1_500
    assert Counter(name for name, *_ in distinct) == dict.fromkeys(range(100), 15)
    assert {number for *_, number in distinct} == set(range(1, 16)) == set(scenario.events(n).number.tolist())
    other = scenario.scaled(3_000).subscriptions(seed=1)
    assert not distinct >= set(zip(other.name.tolist(), other.kind.tolist(), other.number.tolist(), strict=True))


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0])
def test_names_are_drawn_by_their_weights_and_without_replacement(exponent: float) -> None:
    scenario = replace(SCENARIOS["ccm"], n_names=9, name_exponent=exponent, event_size=(2, 2), filter_size=(1, 2))
    n = 60_000
    drawn = scenario.events(n).name.reshape(n, 2)
    weight = np.arange(1, 10) ** -exponent
    chance = weight / weight.sum()
    for first in range(9):
        for second in range(9):
            expected = 0.0 if first == second else chance[first] * chance[second] / (1 - chance[first])
            found = np.count_nonzero((drawn[:, 0] == first) & (drawn[:, 1] == second)) / n
            assert near(found, expected, n), (first, second, found, expected)


def test_string_operators_select_about_as_much_as_equality() -> None:
    scenario = SCENARIOS["ccm-strings"]
    subscriptions = scenario.scaled(20_000).subscriptions()
    words = list(scenario.events(1).strings)
    first = subscriptions.string[subscriptions.operand_offsets[:-1]]
    for op, found in ((Op.PREFIX, bytes.startswith), (Op.CONTAINS, bytes.__contains__)):
        operands = {subscriptions.strings[i] for i in first[subscriptions.kind == (Type.STRING << 4 | op)]}
        share = np.mean([found(word, operand) for operand in operands for word in words])
        assert len(operands) > 70
        assert 0.01 <= share < 0.03


def _digest(*arrays: np.ndarray) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()[:16]


def test_a_seed_means_the_same_workload_on_every_machine() -> None:
    found = {}
    for name in ("ccm", "ccm-strings", "ccm-zipf2", "debs2009"):
        subscriptions, events = SCENARIOS[name].scaled(2_000).subscriptions(), SCENARIOS[name].events(2_000)
        columns = (
            subscriptions.interface,
            subscriptions.constraint_offsets,
            subscriptions.name,
            subscriptions.kind,
            subscriptions.number,
            subscriptions.string,
        )
        found[name] = _digest(*columns), _digest(events.offsets, events.name, events.type, events.number, events.string)
    assert found == GOLDEN
    clcb = SCENARIOS["clcb-zipf"].scaled(2_000)
    moves = [clcb.moves(50, step=step) for step in (0.01, None)]
    # rounded, because the last bits of a normal deviate depend on the machine's logarithm
    location = clcb.events(2_000).location
    assert location is not None
    places = [np.round(each * 2**40) for each in (clcb.subscriptions().area, location, *(m.area for m in moves))]
    assert _digest(*places, *(m.filter_id for m in moves)) == PLACES
    assert _digest(SCENARIOS["ccm"].scaled(2_000).subscriptions(seed=1).name) != _digest(
        SCENARIOS["ccm"].scaled(2_000).subscriptions().name
    )


GOLDEN = {
    "ccm": ("585676823b9441ed", "cb4fa51de4f168b2"),
    "ccm-strings": ("3df02019143c6a43", "8ec93fe6d6823b15"),
    "ccm-zipf2": ("18139834cd74d478", "8d7974efb742828a"),
    "debs2009": ("e2137531d83d435e", "6de38889c54ad7e7"),
}


PLACES = "48b7923706079b60"


def test_an_event_does_not_depend_on_how_many_there_are_or_how_they_are_cut() -> None:
    scenario, n = SCENARIOS["ccm-strings"], DRAWN_AT_ONCE + 2_000
    whole = scenario.events(n, seed=7)
    chunks = list(scenario.event_chunks(n, seed=7, size=5_000))
    assert [len(chunk) for chunk in chunks] == [5_000] * 3 + [n - 15_000]
    for field in ("name", "type", "number", "string"):
        assert np.array_equal(np.concatenate([getattr(chunk, field) for chunk in chunks]), getattr(whole, field))
    alone = scenario.event_range(DRAWN_AT_ONCE + 1, DRAWN_AT_ONCE + 2, seed=7)
    assert alone.event(0) == whole.event(DRAWN_AT_ONCE + 1)
    assert len(scenario.events(0)) == 0
    located = SCENARIOS["clcb"].events(n, seed=7).location
    assert located is not None
    again = SCENARIOS["clcb"].event_range(DRAWN_AT_ONCE - 1, DRAWN_AT_ONCE + 2, seed=7).location
    assert again is not None
    assert np.array_equal(again, located[DRAWN_AT_ONCE - 1 : DRAWN_AT_ONCE + 2])


def test_the_filters_of_an_interface_share_its_place_and_move_with_it() -> None:
    scenario = SCENARIOS["clcb"].scaled(3_000)
    subscriptions, moves = scenario.subscriptions(), scenario.moves(100, step=0.001)
    assert np.array_equal(subscriptions.interface, np.repeat(np.arange(300), 10))
    assert np.array_equal(subscriptions.area, np.repeat(subscriptions.area[::10], 10, axis=0))
    assert subscriptions.area[0, 2] ** 2 * np.pi == pytest.approx(1e-4)
    assert np.array_equal(moves.filter_id.reshape(100, 10) % 10, np.broadcast_to(np.arange(10), (100, 10)))
    assert np.array_equal(moves.area, np.repeat(moves.area[::10], 10, axis=0))
    step = moves.area - subscriptions.area[moves.filter_id]
    assert 0 < np.abs(step[:, :2]).max() < 0.006, "six deviations"
    assert not step[:, 2].any()
    anew = scenario.moves(100, step=None)
    assert np.abs(anew.area - subscriptions.area[anew.filter_id]).max() > 0.5
    assert np.array_equal(scenario.moves(40).area, scenario.moves(100).area[:400]), "a move depends on how many there are"
    table = Table.from_subscriptions(subscriptions)
    assert np.array_equal(table.filters.interface, subscriptions.interface), "ids of moves are ids of the table"
    with pytest.raises(ValueError, match="no areas to move"):
        SCENARIOS["ccm"].moves(1)


def test_places_are_uniform_or_in_towns() -> None:
    uniform, towns = (SCENARIOS[name].events(40_000).location for name in ("clcb", "clcb-zipf"))
    for place, busiest in ((uniform, 1 / CELLS**2), (towns, 1 / sum(1 / (i + 1) for i in range(CELLS**2)))):
        assert place is not None
        assert place.min() >= 0
        assert place.max() < 1
        cells = np.bincount((place * CELLS).astype(int) @ [CELLS, 1], minlength=CELLS**2)
        assert near(np.sort(cells)[-1] / 40_000, busiest, 40_000)


def test_steps_stay_on_the_plane() -> None:
    place = np.array([[0.0, 1.0], [0.001, 0.999], [0.5, 0.5]])
    for step in (0.01, 1.0, 5.0):
        moved = stepped(np.repeat(place, 200, axis=0), np.random.default_rng(0), step)
        assert moved.min() >= 0
        assert moved.max() <= 1
        assert len(np.unique(moved)) > 1000


@pytest.mark.parametrize(("name", "least", "most"), [("clcb", 0.004, 0.006), ("clcb-hard", 1, 1)])
def test_half_a_percent_of_the_filters_of_clcb_match_the_content_of_an_event_and_of_the_hard_case_all(
    name: str, least: float, most: float
) -> None:
    scenario = replace(SCENARIOS[name].scaled(20_000), area=0.0)
    table = Table.from_subscriptions(scenario.subscriptions())
    found = open_engine("counting", table).match(scenario.events(1_000).encode(table.vocabulary), filters=True)
    assert least <= found.n_matches / 1_000 / 20_000 <= most


def test_the_defaults_of_clcb_are_those_of_its_table_1() -> None:
    clcb = SCENARIOS["clcb"]
    assert (clcb.n_interfaces, clcb.n_filters, clcb.n_names, clcb.area) == (250_000, 2_500_000, 100, 1e-4)
    assert clcb.filter_size == clcb.event_size == (3, 5)


def test_a_scenario_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 filter"):
        SCENARIOS["ccm"].scaled(0)
    with pytest.raises(ValueError, match="cannot fill"):
        replace(SCENARIOS["ccm"], n_filters=5)
    with pytest.raises(ValueError, match="distinct names"):
        replace(SCENARIOS["ccm"], n_names=4)
    for n_distinct in (150, 100 * 4 * 100 + 100):
        with pytest.raises(ValueError, match=f"{n_distinct} distinct constraints do not fit 100 names"):
            replace(SCENARIOS["ccm"], n_distinct=n_distinct)
    replace(SCENARIOS["ccm"], n_distinct=100 * 4 * 100)


@EVERY
def test_rows_make_the_same_table_and_events_as_columns(scenario: Scenario) -> None:
    scenario = scenario.scaled(300)
    subscriptions, events = scenario.subscriptions(), scenario.events(100)
    lines = [json.dumps(row) for row in subscription_rows(subscriptions)]
    table = Table.from_subscriptions(subscriptions)
    assert table == Table.from_filters(item for line in lines for item in subscription_filters(parse_json(line)))
    form = EventForm(LOCATION) if scenario.area else EventForm()
    again = Events.of(event_of_row(parse_json(json.dumps(row)), form) for row in event_rows(events, form))
    assert (again.location is None) == (not scenario.area)
    for i in range(100):
        event = again.event(i)
        assert event is not None
        content = {name: value for name, value in event.attributes.items() if not (scenario.area and name in LOCATION)}
        assert event._replace(attributes=content) == events.event(i)


def test_rows_carry_every_operator_type_area_and_id() -> None:
    filters = [item._replace(id=f"{i}.{k}") for i, case in enumerate(CASES) for k, item in enumerate(filters_of(case))]
    assert {c.op for item in filters for c in item.constraints} == set(Op)
    rows = [json.dumps(row) for row in subscription_rows(Subscriptions.of(filters))]
    again = [item for row in rows for item in subscription_filters(parse_json(row))]
    for item, read in zip(filters, again, strict=True):
        assert read == item if item.where is None else Table.from_filters([read]) == Table.from_filters([item]), item.id


def test_events_with_locations_and_ids_need_attributes_to_put_them_in() -> None:
    events = Events.of(
        make_event({"a": 1.5, "b": True, "c": "é"}, point, id_) for point, id_ in (((3, 4), "e0"), (None, None))
    )
    with pytest.raises(ValueError, match="have locations"):
        next(event_rows(events))
    with pytest.raises(ValueError, match="have ids"):
        next(event_rows(events, EventForm(("x", "y"))))
    first, second = event_rows(events, EventForm(("x", "y"), "id"))
    assert first == {"a": 1.5, "b": True, "c": "é", "x": 3.0, "y": 4.0, "id": "e0"}
    assert second == {"a": 1.5, "b": True, "c": "é"}


def test_numbers_are_encoded_alike_with_and_without_the_table_of_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    filters = [item for case in CASES for item in filters_of(case)]
    events = [event_of(case) for case in CASES]
    values = [*np.linspace(-3, 103, 500), np.nan, np.inf, -np.inf, 0.0, 2.0**53]
    for subscriptions in (Subscriptions.of(filters), SCENARIOS["ccm-10-names"].scaled(100).subscriptions()):
        tables = []
        for largest in (vocabulary_module.MAX_CLASSES, 0):
            monkeypatch.setattr(vocabulary_module, "MAX_CLASSES", largest)
            tables.append(Table.from_subscriptions(subscriptions).vocabulary)
        name = np.repeat(np.arange(tables[0].n_names), len(values))
        value = np.tile(np.array(values), tables[0].n_names)
        assert np.array_equal(tables[0].number_codes(name, value), tables[1].number_codes(name, value))
        one, other = (Events.of(events).encode(v) for v in tables)
        assert np.array_equal(one.attributes, other.attributes)


def test_a_vocabulary_that_needs_64_bits_an_attribute_matches_like_any_other() -> None:
    scenario = replace(SCENARIOS["ccm"], n_filters=40_000, n_names=1, filter_size=(1, 1), event_size=(1, 1), n_values=10**6)
    table = Table.from_subscriptions(scenario.subscriptions())
    events = scenario.events(6)
    batch = events.encode(table.vocabulary)
    assert batch.attributes.dtype == np.uint64
    filters = list(table.iter_filters())
    expected = [match_naive(filters, events.event(i)) for i in range(6)]
    assert open_engine("counting", table).match(batch).labels(table.labels) == expected
