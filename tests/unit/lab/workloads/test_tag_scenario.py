"""The scenario of tag sets: sizes, laws, and events that have the tags of a set."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from mpi_match.arrays.csr import owners
from mpi_match.errors import OptionError
from mpi_match.lab.workloads.parameters import with_parameters
from mpi_match.lab.workloads.scenarios import DRAWN_AT_ONCE, SCENARIOS, TagScenario, keys_of_sets
from mpi_match.model import Op, Type

SMALL = with_parameters(SCENARIOS["tagmatch"], {"filters": "3000", "names": "500"})


def sets_of(offsets: np.ndarray, name: np.ndarray) -> list[frozenset[int]]:
    return [frozenset(each.tolist()) for each in np.split(name, offsets[1:-1])]


def test_filters_ask_for_three_to_seven_names_popular_ones_more_often() -> None:
    drawn = SMALL.subscriptions()
    sizes = np.diff(drawn.constraint_offsets)
    assert (drawn.n_filters, sizes.min(), sizes.max()) == (3000, 3, 7)
    assert abs(sizes.mean() - 5) < 0.1
    assert set(drawn.kind.tolist()) == {Type.ANY << 4 | Op.EXISTS}
    pairs = np.stack([owners(drawn.constraint_offsets), drawn.name], axis=1)
    assert len(np.unique(pairs, axis=0)) == len(pairs), "a name occurs twice in a filter"
    often = np.bincount(drawn.name, minlength=500)
    assert often[0] > 1.2 * often[1] > often[2] > 5 * often[100]


def test_an_event_has_the_names_of_a_filter_and_two_to_four_more() -> None:
    drawn, events = SMALL.subscriptions(4), SMALL.events(40, seed=4)
    sets = sets_of(drawn.constraint_offsets, drawn.name)
    spare = []
    for tags in sets_of(events.offsets, events.name.astype(np.int64)):
        within = [each for each in sets if each <= tags]
        assert within, "it matches no filter"
        spare.append(len(tags) - max(map(len, within)))
    assert max(spare) == 4
    assert np.mean(spare) > 2, "an extra name is seldom one of the set's"
    assert not [tags for tags in sets_of(events.offsets, events.name) if not 3 <= len(tags) <= 11]


def test_extra_tags_are_a_parameter() -> None:
    wide = with_parameters(SMALL, {"extra_tags": "10", "constraints": "2"})
    assert isinstance(wide, TagScenario)
    assert wide.event_size == (12, 12)
    assert np.diff(wide.events(300).offsets).max() == 12


def test_events_are_the_same_however_they_are_cut() -> None:
    whole, part = SMALL.events(DRAWN_AT_ONCE + 9, seed=7), SMALL.event_range(DRAWN_AT_ONCE - 2, DRAWN_AT_ONCE + 2, seed=7)
    assert [part.event(i) for i in range(4)] == [whole.event(DRAWN_AT_ONCE - 2 + i) for i in range(4)]
    assert [part.event(i) for i in range(4)] != [SMALL.events(4, seed=8).event(i) for i in range(4)]


@pytest.mark.parametrize(("filters", "answers"), [(DRAWN_AT_ONCE, 3), (2 * DRAWN_AT_ONCE, 10), (3_000, 40)])
def test_more_keys_than_sets_with_as_many_answers_as_asked_for(filters: int, answers: float) -> None:
    scenario = with_parameters(SCENARIOS["tagmatch-keys"], {"filters": str(filters), "answers": str(answers)})
    drawn, events = scenario.subscriptions(), scenario.events(1_000, seed=0)
    sets = Counter(sets_of(drawn.constraint_offsets, drawn.name))
    assert filters / len(sets) == pytest.approx(1.415, rel=0.01)
    popular = sorted(sets.values(), reverse=True)
    assert popular[0] >= popular[1] > popular[3] > popular[20] >= popular[-1] == 1
    found = [
        sum(n for tags, n in sets.items() if tags <= of_event) for of_event in sets_of(events.offsets, events.name)[:100]
    ]
    assert min(found) > 0
    by_event = sum(max(n for tags, n in sets.items() if tags <= each) for each in sets_of(events.offsets, events.name)[:100])
    assert sum(found) <= 1.1 * by_event, "other sets seldom match"
    of_keys = sum(n * n for n in popular) / filters
    assert of_keys == pytest.approx(answers, rel=0.05)


def test_keys_of_sets_add_up() -> None:
    for n, each, answers in ((16_384, 1.415, 10), (1_000, 2.0, 100), (50, 1.5, 1.5), (7, 1.415, 3)):
        found = keys_of_sets(n, each, answers)
        assert found.sum() == n
        assert len(found) == round(n / each)
        assert found.min() >= 1


def test_keys_that_cannot_be_are_refused() -> None:
    for given in ({"answers": "1"}, {"keys_per_set": "1"}, {"keys_per_set": "0.5"}):
        with pytest.raises(OptionError, match="keys of a set"):
            with_parameters(SCENARIOS["tagmatch-keys"], given)
