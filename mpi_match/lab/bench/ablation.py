"""Ablation: measures an engine with each value of each of its options, one option changed at a time, beside its defaults.

    default ──► option a, its other values ──► option b, its other values ──► ... ──► default

The default is measured first and last, so that a machine that becomes slower shows.  An option with many numbers has half
and twice its default.  Answers of all variants of an exact engine must agree.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from mpi_match.engines.option import Option, OptionValue
from mpi_match.engines.registry import options_of
from mpi_match.errors import EngineError
from mpi_match.lab.bench.engines import BenchOptions, KeptEngines, compare
from mpi_match.lab.bench.report import aligned
from mpi_match.lab.bench.sweep import check_agreement
from mpi_match.lab.bench.workload import Workload
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.model import Json

OWN_SCENARIO = {"clcb": "clcb", "twophase": "debs2009", "tagmatch": "tagmatch", "rtree": "clcb"}
"""The scenarios of engines that `ccm-strings` does not suit."""


def others(option: Option) -> list[OptionValue]:
    """The values of an option beside its default: all choices, or half and twice a number."""
    if isinstance(option.default, bool):
        return [not option.default]
    if option.choices:
        return [value for value in option.choices if value != option.default]
    assert not isinstance(option.default, str)
    halved, doubled = option.default // 2, option.default * 2
    least, most = option.least or 0, doubled if option.most is None else option.most
    return [value for value in dict.fromkeys((halved, doubled)) if least <= value <= most and value != option.default]


def variants(engine: str) -> Iterator[tuple[str, OptionValue]]:
    """Each option of an engine with each of its other values."""
    return ((option.name, value) for option in options_of(engine) for value in others(option))


def ablate(engine: str, scenario: str, options: BenchOptions, tell: Callable[[str], None] = lambda text: None) -> list[Json]:
    """Measure an engine and all its variants on one workload; a record for each, the default first and last.

    A record is that of `compare` with `what` ("ablation"), `option` and `value` (None for the default), and `ratio`, its
    rate over that of the default.  A variant that cannot serve the workload has `failure` instead of times.  Raises what
    `compare` raises.
    """
    drawn = SCENARIOS[scenario] if options.n_filters is None else SCENARIOS[scenario].scaled(options.n_filters)
    workload = Workload.of(drawn, options.n_events, options.seed)
    found: list[Json] = []
    for option, value in ((None, None), *variants(engine), (None, None)):
        given = dict(options.engine_options) | ({} if option is None else {f"{engine}.{option}": value})
        tell("the default" if option is None else f"{option}={value}")
        about = {"what": "ablation", "scenario": scenario, "engine": engine, "option": option, "value": value}
        try:
            (record,) = compare(drawn, [engine], replace(options, engine_options=given), workload, kept=KeptEngines())
        except EngineError as error:
            found.append({**about, "failure": str(error)})
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
    defaults = [record for record in records if record["option"] is None]
    rest = sorted((r for r in records if r["option"] is not None and "failure" not in r), key=lambda r: float(r["ratio"]))
    rows = [
        [
            "default" if record["option"] is None else f"{record['option']}={record['value']}",
            f"{record['events_per_s']:,.0f}",
            f"{record['us_per_event']:.4g}",
            f"{record['ratio']:.2f}",
        ]
        for record in [*defaults, *rest]
    ]
    failed = [f"# {r['option']}={r['value']}: {r['failure']}" for r in records if "failure" in r]
    return "\n".join([*aligned(["Variant", "Events/s", "us/event", "Ratio"], rows), *failed])
