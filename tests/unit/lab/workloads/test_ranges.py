"""The workloads of ranges have the parameters that they state, and events are the same however they are cut."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mpi_match.arrays.csr import owners
from mpi_match.errors import OptionError
from mpi_match.lab.workloads.parameters import with_parameters
from mpi_match.lab.workloads.ranges import Intervals, Packets
from mpi_match.lab.workloads.scenarios import DRAWN_AT_ONCE, SCENARIOS, RangeScenario
from mpi_match.model import Op, Type

RANGES = [scenario for scenario in SCENARIOS.values() if isinstance(scenario, RangeScenario)]
EVERY = pytest.mark.parametrize("scenario", RANGES, ids=[scenario.name for scenario in RANGES])


@EVERY
def test_sizes_are_those_of_the_scenario(scenario: RangeScenario) -> None:
    subscriptions, events = scenario.scaled(2_000).subscriptions(), scenario.events(1_000)
    assert subscriptions.n_filters == 2_000
    for sizes, (least, most) in (
        (np.diff(subscriptions.constraint_offsets), scenario.filter_size),
        (np.diff(events.offsets), scenario.event_size),
    ):
        assert least <= sizes.min()
        assert sizes.max() == most
    assert len(subscriptions.names) == scenario.n_names
    pairs = set(zip(owners(subscriptions.constraint_offsets).tolist(), subscriptions.name.tolist(), strict=True))
    assert len(pairs) == subscriptions.n_constraints, "a name occurs twice in a filter"


@EVERY
def test_events_are_the_same_however_they_are_cut(scenario: RangeScenario) -> None:
    whole = scenario.events(DRAWN_AT_ONCE + 50, seed=7)
    part = scenario.event_range(DRAWN_AT_ONCE - 2, DRAWN_AT_ONCE + 2, seed=7)
    assert [part.event(i) for i in range(4)] == [whole.event(DRAWN_AT_ONCE - 2 + i) for i in range(4)]
    assert [part.event(i) for i in range(4)] != [scenario.events(4, seed=8).event(i) for i in range(4)]


@pytest.mark.parametrize("name", ["intervals", "intervals-narrow", "intervals-normal"])
def test_intervals_have_one_width_and_lie_among_the_values(name: str) -> None:
    scenario = SCENARIOS[name].scaled(3_000)
    assert isinstance(scenario, RangeScenario)
    assert isinstance(scenario.fields, Intervals)
    subscriptions, width = scenario.subscriptions(), scenario.fields.width
    assert set(subscriptions.kind.tolist()) == {Type.NUMBER << 4 | Op.BETWEEN}
    low, high = subscriptions.number[::2], subscriptions.number[1::2]
    assert set((high - low).tolist()) == {width * Intervals.N_VALUES}
    assert low.min() >= 0
    assert high.max() <= Intervals.N_VALUES
    share = np.bincount(subscriptions.name, minlength=20) / 3_000
    if scenario.fields.name_exponent:
        assert share[0] > 1.5 * share[19]
    else:
        assert np.allclose(share, scenario.fields.constraints / 20, atol=0.05)
    middle = np.mean((low > 0.25 * (1 - width) * Intervals.N_VALUES) & (low < 0.75 * (1 - width) * Intervals.N_VALUES))
    assert middle > 0.6 if scenario.fields.spread else 0.47 < middle < 0.53


def test_some_attributes_are_those_of_a_random_choice() -> None:
    fields = replace(Intervals(), event_size=(4, 4))
    values = fields.events(np.random.default_rng(0), 4_000)
    assert ((~np.isnan(values)).sum(axis=1) == 4).all()
    assert np.allclose((~np.isnan(values)).mean(axis=0), 4 / 20, atol=0.03)


def test_prefixes_are_of_whole_bits_and_ports_exact_ranged_or_any() -> None:
    rows = Packets().filters(np.random.default_rng(0), np.zeros(5_000))
    for side, (lengths, shares) in enumerate(Packets.LENGTHS):
        constrained = rows.op[:, side] != 255
        size = (rows.high - rows.low)[constrained, side] + 1
        assert (rows.low[constrained, side] % size == 0).all()
        found = [np.mean(~constrained), *(np.sum(size == 2.0 ** (32 - n)) / 5_000 for n in lengths[1:])]
        assert np.allclose(found, shares, atol=0.03)
    assert {*np.unique(rows.op[:, 3])} == {Op.EQ, Op.BETWEEN, 255}


def test_quotes_of_a_popular_name_meet_filters_on_it() -> None:
    subscriptions, events = SCENARIOS["stock"].subscriptions(), SCENARIOS["stock"].events(5_000)
    on_name = subscriptions.kind == Type.STRING << 4 | Op.EQ
    asked = np.bincount(subscriptions.string[subscriptions.operand_offsets[:-1]][on_name], minlength=1000)
    quoted = np.bincount(events.string[events.name == 0], minlength=1000)
    assert asked.argmax() == quoted.argmax() == 0
    assert asked[0] > 5 * asked[20]


def drawn(name: str, **given: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Bounds of 2,000 filters, f64[2000, 20, 2], without limits on free attributes; values of 2,000 events, f64[2000, 20];
    which filters match which events, and which filters lie within which."""
    scenario = with_parameters(SCENARIOS[name], {"filters": "2000", **given})
    filters, events = scenario.subscriptions(), scenario.events(2_000)
    bounds = np.tile([-np.inf, np.inf], (2_000, 20, 1))
    bounds[owners(filters.constraint_offsets), filters.name] = filters.number.reshape(-1, 2)
    values = events.number.reshape(2_000, 20)
    matched, within = np.ones((2_000, 2_000), bool), np.ones((2_000, 2_000), bool)
    for k in range(20):
        low, high = bounds[:, k].T
        matched &= (low[:, None] <= values[:, k]) & (values[:, k] <= high[:, None])
        within &= (low[:, None] >= low) & (high[:, None] <= high)
    return bounds, values, matched, within


@pytest.mark.parametrize(
    ("name", "answers"), [("intervals-narrow", 0.3), ("intervals", 20), ("intervals-covering", 2), ("intervals-skewed", 5)]
)
def test_an_event_has_as_many_answers_as_asked_for(name: str, answers: float) -> None:
    scenario = with_parameters(SCENARIOS[name], {"filters": "2000", "answers": str(answers)})
    assert isinstance(scenario, RangeScenario)
    assert scenario.answers == pytest.approx(answers)
    *_, matched, _ = drawn(name, answers=str(answers))
    assert matched.sum() / 2_000 == pytest.approx(answers, rel=0.2)


@pytest.mark.parametrize("answers", ["1e-4", "1e4"])
def test_the_axis_of_answers_goes_from_rare_to_dense(answers: str) -> None:
    scenario = with_parameters(SCENARIOS["intervals"], {"answers": answers})
    assert isinstance(scenario, RangeScenario)
    assert scenario.answers == pytest.approx(float(answers))


@pytest.mark.parametrize(
    ("name", "given", "line"),
    [
        ("intervals-normal", {"answers": "1"}, "answers are a parameter of filters whose attributes are uniform"),
        ("intervals", {"answers": "200000"}, "intervals of no width match a share of 2"),
        ("intervals", {"answers": "1", "width": "0.5"}, "width and answers contradict each other"),
        ("intervals", {"covering": "1"}, "covering is 1; it must be at least 0 and less than 1"),
        ("stock", {"answers": "1"}, "stock has no parameter 'answers'"),
    ],
)
def test_answers_that_cannot_be_are_refused(name: str, given: dict[str, str], line: str) -> None:
    with pytest.raises(OptionError) as refused:
        with_parameters(SCENARIOS[name], given)
    assert line in str(refused.value)


def test_half_of_the_covering_filters_lie_within_an_earlier_one() -> None:
    *_, within = drawn("intervals-covering")
    earlier = np.tril(within, -1).any(axis=1)
    assert np.mean(earlier) == pytest.approx(0.5, abs=0.05)
    *_, none = drawn("intervals-covering", covering="0")
    assert not np.tril(none, -1).any()


def test_attributes_and_places_are_correlated() -> None:
    bounds, values, matched, _ = drawn("intervals-correlated")
    pairs = np.triu_indices(20, 1)
    assert np.corrcoef(values.T)[pairs].mean() == pytest.approx(0.5, abs=0.05)
    low = np.where(np.isfinite(bounds[:, :, 0]), bounds[:, :, 0], np.nan)
    of_pairs = [np.corrcoef(low[there, i], low[there, j])[0, 1] for i, j, there in _both(low)]
    assert np.mean(of_pairs) == pytest.approx(0.5, abs=0.05)
    *_, alone, _ = drawn("intervals-correlated", correlation="0")
    assert matched.sum() > 3 * alone.sum()


def _both(low: np.ndarray) -> list[tuple[int, int, np.ndarray]]:
    """Pairs of attributes, and the filters that constrain both."""
    return [(i, j, ~np.isnan(low[:, i]) & ~np.isnan(low[:, j])) for i in range(20) for j in range(i)]


def test_half_of_the_answers_come_from_the_first_tenth_of_the_filters() -> None:
    *_, matched, _ = drawn("intervals-skewed")
    assert matched[:200].sum() / matched.sum() == pytest.approx(0.5, abs=0.08)
