"""The generator of the CCM evaluation: glibc's numbers, the counts of the published run, and its 280 matches."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import pytest

from mpi_match.engines import REGISTRY, open_engine
from mpi_match.lab.workloads import ccm_generator
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.model import match_naive
from mpi_match.table.table import Table

ORIGINAL = SCENARIOS["ccm-original"]
OF_PACKAGES = ("rtree", "duckdb")
OURS = [name for name, entry in REGISTRY.items() if entry.runs_on == "CPU" and name not in ("reference", *OF_PACKAGES)]


@pytest.mark.parametrize("seed", [0, 1, 2, 42, 2**31 - 1, 2**31, 2**32 - 1])
def test_the_numbers_are_those_of_the_c_library(seed: int) -> None:
    library = ctypes.CDLL(None)
    library.srand(ctypes.c_uint(seed))
    expected = [library.rand() for _ in range(1000)]
    state = ccm_generator._seeded(seed)
    assert [int(ccm_generator._rand(state)) for _ in range(1000)] == expected


@pytest.mark.lasting
def test_the_published_run_has_its_counts_and_every_engine_of_ours_finds_its_280_matches() -> None:
    table, events = Table.from_subscriptions(ORIGINAL.subscriptions()), ORIGINAL.events(1000)
    assert (table.n_filters, table.n_constraints, table.n_interfaces) == (250_962, 1_004_376, 10)
    encoded = events.encode(table.vocabulary)
    for name in OURS:
        assert open_engine(name, table).match(encoded).n_matches == 280, name


def test_engines_of_other_packages_agree_on_a_tenth_of_the_published_run() -> None:
    """With all of it their packages take ten times as long, for the same."""
    scenario = ORIGINAL.scaled(25_000)
    table = Table.from_subscriptions(scenario.subscriptions())
    events = scenario.events(1000).encode(table.vocabulary)
    answers = open_engine("counting", table).match(events)
    assert answers.n_matches > 20
    for name in (*OURS, *OF_PACKAGES):
        assert open_engine(name, table).match(events) == answers, name


def test_it_is_what_a_plain_reading_of_its_description_gives() -> None:
    """The description in Python, with the C library's generator."""
    scenario = replace(ORIGINAL, n_filters=60, n_interfaces=3, n_names=6, n_values=7, event_size=(1, 4), filter_size=(1, 5))
    library = ctypes.CDLL(None)
    library.srand(5)

    def below(n: int) -> int:
        return int(library.rand()) % n

    events = []
    for _ in range(1000):
        event: dict[str, int] = {}
        for _ in range(1 + below(4)):
            name, value = f"name-{below(6)}", below(7)
            event.setdefault(name, value)
        events.append(event)
    filters = []
    for interface in range(3):
        for _ in range(18 + below(5)):
            size, constraints = 1 + below(5), dict[str, tuple[str, str, int]]()
            while len(constraints) < size:
                name = f"name-{below(6)}"
                if name not in constraints:
                    r = below(100)
                    constraints[name] = (name, "=" if r < 25 else "!=" if r < 50 else "<" if r < 75 else ">", below(7))
            filters.append((f"interface-{interface}", sorted(constraints.values())))
    table = Table.from_subscriptions(scenario.subscriptions(5))
    found = [
        (item.interface, sorted((c.name, c.op.symbol, c.operand) for c in item.constraints)) for item in table.iter_filters()
    ]
    assert sorted(found) == sorted(filters)
    drawn = scenario.events(1000, 5)
    assert [drawn.event(i).attributes for i in range(1000)] == events  # type: ignore[union-attr]


def test_further_events_repeat_the_thousand() -> None:
    assert ORIGINAL.event_range(2500, 4100).event(0) == ORIGINAL.events(1000).event(500)
    assert len(ORIGINAL.event_range(2500, 4100)) == 1600
    across = ORIGINAL.event_range(999, 1001)
    assert [across.event(i) for i in range(2)] == [ORIGINAL.events(1000).event(i) for i in (999, 0)]


def test_answers_are_those_of_the_naive_matcher() -> None:
    scenario = replace(ORIGINAL.scaled(400), n_names=5)
    table, events = Table.from_subscriptions(scenario.subscriptions(3)), scenario.events(200, 3)
    filters = list(table.iter_filters())
    expected = [match_naive(filters, events.event(i)) for i in range(200)]
    assert open_engine("counting", table).match(events.encode(table.vocabulary)).labels(table.labels) == expected
    assert any(expected)


def test_what_the_generator_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no string_share but 0; see ccm"):
        replace(ORIGINAL, string_share=0.5)
