"""Parameters of scenarios by name: all of them, read and written alike, and what cannot be is refused."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from mpi_match.errors import OptionError
from mpi_match.lab.workloads.parameters import listed, parameters_of, with_parameters
from mpi_match.lab.workloads.scenarios import SCENARIOS, RangeScenario, Scenario, TagScenario

EVERY = pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)


@EVERY
def test_every_field_of_a_scenario_is_a_parameter(scenario: Scenario) -> None:
    known = {parameter.field for parameter in parameters_of(scenario).values()}
    if isinstance(scenario, RangeScenario):
        of_fields: Any = scenario.fields
        own = {each.name for each in fields(of_fields)} - {"words"}
        assert known == own | {"n_filters", "n_interfaces", "interface_spread"}
    elif isinstance(scenario, TagScenario):
        drawn = {"filter_size", "extra_tags", "n_names", "name_exponent", "keys_per_set", "answers"}
        assert known == drawn | {"n_filters", "n_interfaces", "interface_spread"}
    else:
        assert known == {each.name for each in fields(scenario)} - {"name", "source"}


@EVERY
def test_what_is_listed_is_what_the_scenario_is(scenario: Scenario) -> None:
    given = {key: value for key, value, says in listed(scenario) if key in parameters_of(scenario) and says}
    assert with_parameters(scenario, given) == scenario


def test_values_are_read_by_their_form() -> None:
    given = {"constraints": "2-7", "attributes": "4", "name_exponent": "1.5", "number_operators": "=/>=", "names": "9"}
    found = with_parameters(SCENARIOS["ccm"], given)
    assert (found.filter_size, found.event_size, found.name_exponent, found.n_names) == ((2, 7), (4, 4), 1.5, 9)
    assert [op.symbol for op in found.number_ops] == ["=", ">="]


def test_generators_of_ranges_have_parameters_of_their_own() -> None:
    found = with_parameters(SCENARIOS["intervals"], {"width": "0.25", "constraints": "3", "names": "8", "attributes": "8"})
    drawn = found.scaled(50).subscriptions()
    assert (drawn.constraint_offsets[-1], len(drawn.names)) == (150, 8)
    assert set(np.diff(found.events(9).offsets).tolist()) == {8}
    ends = drawn.number.reshape(-1, 2)
    assert set((ends[:, 1] - ends[:, 0]).tolist()) == {250_000}
    with pytest.raises(OptionError, match="do not fit 5 distinct names"):
        with_parameters(SCENARIOS["intervals"], {"names": "5"})
    assert with_parameters(SCENARIOS["stock"], {"symbols": "7"}) != SCENARIOS["stock"]


def test_filters_and_interfaces() -> None:
    ccm, each = SCENARIOS["ccm"], SCENARIOS["many-interfaces"]

    def sizes(scenario: Scenario, **given: str) -> tuple[int, int]:
        found = with_parameters(scenario, given)
        return found.n_filters, found.n_interfaces

    assert sizes(ccm, filters="500") == (500, 10)
    assert sizes(each, filters="500") == (500, 500)
    assert sizes(ccm, filters="500", interfaces="50") == (500, 50)
    assert sizes(ccm, interfaces="50") == (250_000, 50)
    assert sizes(ccm, filters_per_interface="7") == (70, 10)
    assert sizes(ccm, filters_per_interface="7", interfaces="3") == (21, 3)
    keys = SCENARIOS["tagmatch-keys"]
    assert sizes(keys, sets="20000000") == (28_300_000, 28_300_000)
    assert sizes(keys, sets="1000", keys_per_set="2") == (2_000, 2_000)
    assert {key: value for key, value, _ in listed(keys)}["sets"] == "706714"


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"surnames": "3"}, "ccm has no parameter 'surnames'; it has: filters, interfaces,"),
        ({"names": "many"}, "names is 'many'; it must be a whole number"),
        ({"attributes": "3-"}, "attributes is '3-'; it must be a whole number or a range such as 3-5"),
        ({"attributes": "3-x"}, "attributes is '3-x'; it must be a whole number or a range such as 3-5"),
        ({"number_operators": "=/~"}, "number_operators is '=/~'; it must be operators such as =/!=/</>"),
        ({"constraints": "11", "names": "10"}, "ccm: 11 to 11 constraints of a filter do not fit 10 distinct names"),
        ({"filters": "9", "filters_per_interface": "3"}, "filters and filters_per_interface contradict"),
        ({"sets": "9"}, "ccm has no parameter 'sets'"),
        ({"filters": "9", "interfaces": "10"}, "ccm: 9 filters cannot fill 10 interfaces"),
        ({"filters": "0"}, "at least 1 filter"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, str], line: str) -> None:
    with pytest.raises(OptionError) as refused:
        with_parameters(SCENARIOS["ccm"], given)
    assert line in str(refused.value)
