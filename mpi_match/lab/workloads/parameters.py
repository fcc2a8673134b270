"""The parameters of scenarios by name, as experiments vary them: each is a field of `Scenario`, with the text form of its
values.

names=50                    a number
attributes=4                a range of one value; attributes=3-5: from 3 to 5, drawn uniformly
number_operators==/!=/<     operators, equally likely
filters_per_interface=2500  the number of filters is this times interfaces
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from mpi_match.errors import OptionError
from mpi_match.lab.workloads.scenarios import RangeScenario, Scenario, TagScenario
from mpi_match.model import OPS, Op

PER_INTERFACE = "filters_per_interface"


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


def _value(scenario: Scenario, parameter: Parameter) -> Any:
    owner = scenario.fields if isinstance(scenario, RangeScenario) and parameter in RANGE_PARAMETERS else scenario
    return getattr(owner, parameter.field)


def listed(scenario: Scenario) -> Iterator[tuple[str, str, str]]:
    """Key, value and meaning of each parameter of a scenario."""
    for key, parameter in parameters_of(scenario).items():
        yield key, spelled(_value(scenario, parameter)), parameter.says
    yield PER_INTERFACE, spelled(scenario.n_filters / scenario.n_interfaces), "filters of an interface, on average"


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
    known = parameters_of(scenario)
    values: dict[str, Any] = {}
    for key, text in given.items():
        if key != PER_INTERFACE and key not in known:
            raise OptionError(f"{scenario.name} has no parameter {key!r}; it has: {', '.join((*known, PER_INTERFACE))}")
        try:
            values[key] = int(text) if key == PER_INTERFACE else known[key].read(text)
        except (ValueError, KeyError):
            form = "a whole number" if key == PER_INTERFACE else known[key].form
            raise OptionError(f"{key} is {text!r}; it must be {form}") from None
    if PER_INTERFACE in values:
        if "filters" in values:
            raise OptionError(f"filters and {PER_INTERFACE} contradict each other: give only one of them")
        values["filters"] = values.pop(PER_INTERFACE) * values.setdefault("interfaces", scenario.n_interfaces)
    try:
        if "filters" in values and "interfaces" not in values:
            scenario = scenario.scaled(values.pop("filters"))
        if isinstance(scenario, RangeScenario):
            own = {known[key].field: values.pop(key) for key in list(values) if known[key] in RANGE_PARAMETERS}
            scenario = scenario.with_fields(**own)
        return replace(scenario, **{known[key].field: value for key, value in values.items()})
    except ValueError as error:
        raise OptionError(str(error)) from None
