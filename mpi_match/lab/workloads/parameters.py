"""The parameters of scenarios by name, as experiments vary them: each is a field of `Scenario`, with the text form of its
values.

names=50                    a number
attributes=4                a range of one value; attributes=3-5: from 3 to 5, drawn uniformly
number_operators==/!=/<     operators, equally likely
filters_per_interface=2500  the number of filters is this times interfaces
sets=20000000               of tag sets: the number of filters is this times keys_per_set
answers=0.01                of intervals: their width is the one with which so many filters match an event on average
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from mpi_match.errors import OptionError
from mpi_match.lab.workloads.ranges import Intervals
from mpi_match.lab.workloads.scenarios import RangeScenario, Scenario, TagScenario
from mpi_match.model import OPS, Op

PER_INTERFACE = "filters_per_interface"
SETS, ANSWERS = "sets", "answers"
DERIVED = (PER_INTERFACE, SETS, ANSWERS)
"""Parameters from which others follow: the number of filters, or the width of intervals."""


class Parameter(NamedTuple):
    """A parameter of scenarios: its name in experiments, the field of `Scenario`, its meaning, and the form of its values.

    `read` makes a value from its text and raises ValueError; `form` describes the accepted text.
    """

    key: str
    field: str
    says: str
    read: Callable[[str], Any]
    form: str


def _range(text: str) -> tuple[int, int]:
    least, dash, most = text.partition("-")
    return int(least), int(most if dash else least)


def _operators(text: str) -> tuple[Op, ...]:
    return tuple(OPS[symbol] for symbol in text.split("/"))


def _whole(key: str, field: str, says: str) -> Parameter:
    return Parameter(key, field, says, int, "a whole number")


def _real(key: str, field: str, says: str) -> Parameter:
    return Parameter(key, field, says, float, "a number")


def _span(key: str, field: str, says: str) -> Parameter:
    return Parameter(key, field, says, _range, "a whole number or a range such as 3-5")


def _symbols(key: str, field: str, says: str) -> Parameter:
    return Parameter(key, field, says, _operators, "operators such as =/!=/</>")


PARAMETERS = (
    _whole("filters", "n_filters", "filters in the table; alone, it scales the scenario as --filters does"),
    _whole("interfaces", "n_interfaces", "interfaces that the filters are divided over"),
    _real("interface_spread", "interface_spread", "how far an interface's filters may be from the mean, as a share of it"),
    _span("constraints", "filter_size", "constraints of a filter, on distinct names"),
    _span("attributes", "event_size", "attributes of an event, of distinct names"),
    _whole("names", "n_names", "names there are"),
    _real("name_exponent", "name_exponent", "Zipf's exponent of names; 0: uniform"),
    _whole("values", "n_values", "values of a name"),
    _whole("first_value", "first_value", "the least number among the values"),
    _real("string_share", "string_share", "share of the names that hold strings"),
    _symbols("number_operators", "number_ops", "operators on numbers"),
    _symbols("string_operators", "string_ops", "operators on strings"),
    _whole("distinct", "n_distinct", "distinct constraints, as many on each name; 0: as many as operators and values make"),
    _real("area", "area", "share of the plane in the circle of a filter; 0: no areas, and events have no location"),
    _real("place_exponent", "place_exponent", "Zipf's exponent of locations; 0: uniform"),
)
"""Every field of a scenario that an experiment may vary."""

RANGE_PARAMETERS = (
    _whole("names", "n_attributes", "names there are"),
    _span("attributes", "event_size", "attributes of an event, of distinct names"),
    _whole("constraints", "constraints", "intervals of a filter, on distinct names"),
    _real("width", "width", "width of an interval, as a share of the values"),
    _real("name_exponent", "name_exponent", "Zipf's exponent of the names that filters constrain; 0: uniform"),
    _real("spread", "spread", "standard deviation of values and intervals, as a share of the values; 0: uniform"),
    _real("correlation", "correlation", "of any two attributes of an event, and of the places of intervals"),
    _real("covering", "covering", "share of the filters that lie within an earlier one"),
    _real("skew", "skew", "share of the answers that come from the first tenth of the filters; 0: a tenth"),
    _whole("symbols", "n_symbols", "symbols that are traded"),
    _real("symbol_exponent", "exponent", "Zipf's exponent of symbols; 0: uniform"),
    _whole("networks", "n_networks", "networks of 16 bits that addresses are in"),
)
"""Parameters of `RangeScenario`, which are fields of its generator, besides the first three of `PARAMETERS`."""


TAG_PARAMETERS = (
    _span("constraints", "filter_size", "tags of a set"),
    _span("extra_tags", "extra_tags", "tags of an event besides those of a set"),
    _whole("names", "n_names", "tags there are"),
    _real("name_exponent", "name_exponent", "Zipf's exponent of tags; 0: uniform"),
    _real("keys_per_set", "keys_per_set", "filters with equal tags, on average"),
    _real("answers", "answers", "filters of the set that an event was made of, on average"),
)
"""Parameters of `TagScenario`, besides the first three of `PARAMETERS`."""


def parameters_of(scenario: Scenario) -> dict[str, Parameter]:
    """The parameters that a scenario has, by key."""
    if isinstance(scenario, TagScenario):
        return {parameter.key: parameter for parameter in (*PARAMETERS[:3], *TAG_PARAMETERS)}
    if isinstance(scenario, RangeScenario):
        of_fields = [parameter for parameter in RANGE_PARAMETERS if hasattr(scenario.fields, parameter.field)]
        return {parameter.key: parameter for parameter in (*PARAMETERS[:3], *of_fields)}
    return {parameter.key: parameter for parameter in PARAMETERS}


def derived_of(scenario: Scenario) -> dict[str, Parameter]:
    """The parameters of `DERIVED` that a scenario has, by key."""
    found = [_whole(PER_INTERFACE, "", "filters of an interface, on average")]
    if isinstance(scenario, TagScenario):
        found.append(_whole(SETS, "", "sets with different tags"))
    if isinstance(scenario, RangeScenario) and isinstance(scenario.fields, Intervals):
        found.append(_real(ANSWERS, "", "filters that match an event, on average"))
    return {parameter.key: parameter for parameter in found}


def _value(scenario: Scenario, parameter: Parameter) -> object:
    owner = scenario.fields if isinstance(scenario, RangeScenario) and parameter in RANGE_PARAMETERS else scenario
    return getattr(owner, parameter.field)


def listed(scenario: Scenario) -> Iterator[tuple[str, str, str]]:
    """Key, value and meaning of each parameter of a scenario."""
    for key, parameter in parameters_of(scenario).items():
        yield key, spelled(_value(scenario, parameter)), parameter.says
    derived = derived_of(scenario)
    yield PER_INTERFACE, spelled(scenario.n_filters / scenario.n_interfaces), derived[PER_INTERFACE].says
    if isinstance(scenario, TagScenario):
        yield SETS, spelled(scenario.n_filters / scenario.keys_per_set), derived[SETS].says
    if isinstance(scenario, RangeScenario) and scenario.answers is not None:
        yield ANSWERS, spelled(scenario.answers), derived[ANSWERS].says


def spelled(value: object) -> str:
    """A value of a parameter as it is written."""
    if not isinstance(value, tuple):
        return f"{value:g}" if isinstance(value, float) and value != int(value) else f"{value:.0f}"
    if value and isinstance(value[0], Op):
        return "/".join(op.symbol for op in value)
    return f"{value[0]}" if value[0] == value[1] else f"{value[0]}-{value[1]}"


def with_parameters(scenario: Scenario, given: Mapping[str, str]) -> Scenario:
    """A scenario with other parameters, by key and written value.

    `filters` without `interfaces` scales it.  Raises OptionError for a parameter that it does not have, a value of
    another form, and parameters that contradict each other (more constraints than names).
    """
    known, derived = parameters_of(scenario), derived_of(scenario)
    values: dict[str, Any] = {}
    for key, text in given.items():
        if key not in derived and key not in known:
            raise OptionError(f"{scenario.name} has no parameter {key!r}; it has: {', '.join((*known, *derived))}")
        parameter = derived.get(key) or known[key]
        try:
            values[key] = parameter.read(text)
        except (ValueError, KeyError):
            raise OptionError(f"{key} is {text!r}; it must be {parameter.form}") from None
    for together in (("filters", PER_INTERFACE, SETS), ("width", ANSWERS)):
        if len(found := [key for key in together if key in values]) > 1:
            raise OptionError(f"{' and '.join(found)} contradict each other: give only one of them")
    if PER_INTERFACE in values:
        values["filters"] = values.pop(PER_INTERFACE) * values.setdefault("interfaces", scenario.n_interfaces)
    if SETS in values:
        each: float = values.get("keys_per_set", getattr(scenario, "keys_per_set", 1.0))
        values["filters"] = round(values.pop(SETS) * each)
    n_answers = values.pop(ANSWERS) if ANSWERS in derived and ANSWERS in values else None
    try:
        if "filters" in values and "interfaces" not in values:
            scenario = scenario.scaled(values.pop("filters"))
        if isinstance(scenario, RangeScenario):
            own = {known[key].field: values.pop(key) for key in list(values) if known[key] in RANGE_PARAMETERS}
            scenario = scenario.with_fields(**own)
            if n_answers is not None:
                scenario = scenario.with_answers(n_answers)
        return replace(scenario, **{known[key].field: value for key, value in values.items()})
    except ValueError as error:
        raise OptionError(str(error)) from None
