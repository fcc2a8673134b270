"""Ablation: measures an engine with each value of each of its options, one option changed at a time, beside its defaults.

    default ──► option a, its other values ──► option b, its other values ──► ... ──► default

The default is measured first and last, so that a machine that becomes slower shows.  An option with many numbers has half
and twice its default.  Answers of all variants of an exact engine must agree.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from mpi_match.engines.option import Option, OptionValue
from mpi_match.engines.registry import of_engine, options_of, read_options
from mpi_match.errors import EngineError
from mpi_match.lab.bench.engines import BenchOptions, KeptEngines, compare
from mpi_match.lab.bench.report import aligned
from mpi_match.lab.bench.sweep import check_agreement
from mpi_match.lab.bench.workload import Workload
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.model import Json

OWN_SCENARIO = {"clcb": "clcb", "twophase": "debs2009", "tagmatch": "tagmatch", "rtree": "clcb"}
"""The scenarios of engines that `ccm-strings` does not suit."""


def others(option: Option, usual: OptionValue) -> list[OptionValue]:
    """The values of an option beside the usual one: all choices, or half and twice a number."""
    if isinstance(usual, bool):
        return [not usual]
    if option.choices:
        return [value for value in option.choices if value != usual]
    assert not isinstance(usual, str)
    halved, doubled = usual // 2, usual * 2
    least, most = option.least or 0, doubled if option.most is None else option.most
    return [value for value in dict.fromkeys((halved, doubled)) if least <= value <= most and value != usual]


def variants(engine: str, given: Mapping[str, object] = MappingProxyType({})) -> Iterator[tuple[str, OptionValue]]:
    """Each option of an engine with each of its values but the given one, or the default.  Raises OptionError."""
    usual = read_options(engine, given, measured=True)
    return ((option.name, value) for option in options_of(engine) for value in others(option, usual[option.name]))


def ablate(engine: str, scenario: str, options: BenchOptions, tell: Callable[[str], None] = lambda text: None) -> list[Json]:
    """Measure an engine and all its variants on one workload; a record for each, the default first and last.

    A record is that of `compare` with `what` ("ablation"), `option` and `value` (None for the default), and `ratio`, its
    rate over that of the default, which has the options given for the engine.  A variant that cannot serve the workload has
    `failure` instead of times; if the default cannot, nothing else is measured.  Raises what `compare` raises.
    """
    drawn = SCENARIOS[scenario] if options.n_filters is None else SCENARIOS[scenario].scaled(options.n_filters)
    workload = Workload.of(drawn, options.n_events, options.seed)
    found: list[Json] = []
    usual = {f"{engine}.{key}": value for key, value in of_engine(engine, options.engine_options).items()}
    for option, value in ((None, None), *variants(engine, usual), (None, None)):
        given = usual | ({} if option is None else {f"{engine}.{option}": value})
        tell(f"{engine}: the default" if option is None else f"{engine}: {option}={value}")
        about = {"what": "ablation", "scenario": scenario, "engine": engine, "option": option, "value": value}
        try:
            (record,) = compare(drawn, [engine], replace(options, engine_options=given), workload, kept=KeptEngines())
        except EngineError as error:
            found.append({**about, "failure": str(error)})
            if option is None:
                return found
            continue
        check_agreement([*(each for each in found if "failure" not in each), record])
        found.append({**record, **about})
    defaults = [record["events_per_s"] for record in found if record["option"] is None]
    return [
        record if "failure" in record else {**record, "ratio": record["events_per_s"] / statistics.median(defaults)}
        for record in found
    ]


def ablation_table(records: Sequence[Json]) -> str:
    """Return the records as text: the default, then its variants, the slowest first."""
    defaults = [record for record in records if record["option"] is None and "failure" not in record]
    rest = sorted((r for r in records if r["option"] is not None and "failure" not in r), key=lambda r: float(r["ratio"]))
    rows = [
        [
            _variant(record),
            f"{record['events_per_s']:,.0f}",
            f"{record['us_per_event']:.4g}",
            f"{record['ratio']:.2f}",
        ]
        for record in [*defaults, *rest]
    ]
    failed = [f"# {_variant(r)}: {r['failure']}" for r in records if "failure" in r]
    return "\n".join([f"# {records[0]['engine']}", *aligned(["Variant", "Events/s", "us/event", "Ratio"], rows), *failed])


def _variant(record: Json) -> str:
    """What a record changes."""
    return "default" if record["option"] is None else f"{record['option']}={record['value']}"
