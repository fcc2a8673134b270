"""Ablation: measures an engine with each value of each of its options, one option changed at a time, beside its defaults.

    default ──► option a, another value ──► default ──► option a, another value ──► default ──► option b, ...

The default is measured before and after each variant, so that a machine that becomes slower shows.  An option with many
numbers has half and twice its default.  Answers of all variants of an exact engine must agree.
"""

from __future__ import annotations

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
    """Measure an engine and all its variants on one workload; a record for each, the default first.

    A record is that of `compare` with `what` ("ablation"), `option` and `value` (None for the default, which has the options
    given for the engine).  Those of variants have `default_events_per_s`, the rates of the default before and after, and
    `ratio`, the rate over the mean of both.  A variant that cannot serve the workload has `failure` instead of times; if the
    default cannot, nothing else is measured.  Raises what `compare` raises.
    """
    drawn = SCENARIOS[scenario] if options.n_filters is None else SCENARIOS[scenario].scaled(options.n_filters)
    workload = Workload.of(drawn, options.n_events, options.seed)
    usual = {f"{engine}.{key}": value for key, value in of_engine(engine, options.engine_options).items()}

    def measured(given: Mapping[str, object], kept: KeptEngines) -> Json:
        (record,) = compare(drawn, [engine], replace(options, engine_options=given), workload, kept=kept)
        return record

    found: list[Json] = []
    of_default, before = KeptEngines(), 0.0
    for option, value in ((None, None), *variants(engine, usual)):
        tell(f"{engine}: the default" if option is None else f"{engine}: {option}={value}")
        about = {"what": "ablation", "scenario": scenario, "engine": engine, "option": option, "value": value}
        try:
            if option is None:
                record = measured(usual, of_default)
                before = record["events_per_s"]
                found.append({**record, **about})
                continue
            record = measured({**usual, f"{engine}.{option}": value}, KeptEngines())
        except EngineError as error:
            found.append({**about, "failure": str(error)})
            if option is None:
                return found
            continue
        check_agreement([*(each for each in found if "failure" not in each), record])
        after = measured(usual, of_default)["events_per_s"]
        beside = {"default_events_per_s": [before, after], "ratio": 2 * record["events_per_s"] / (before + after)}
        found.append({**record, **about, **beside})
        before = after
    return found


def ablation_table(records: Sequence[Json]) -> str:
    """Return the records as text: the default, then its variants, the slowest first."""
    rest = sorted((r for r in records if r["option"] is not None and "failure" not in r), key=lambda r: float(r["ratio"]))
    rows = [
        [
            _variant(record),
            f"{record['events_per_s']:,.0f}",
            f"{record['us_per_event']:.4g}",
            f"{record['ratio']:.2f}",
            ratios_of(record),
        ]
        for record in [*(r for r in records if r["option"] is None and "failure" not in r), *rest]
    ]
    failed = [f"# {_variant(r)}: {r['failure']}" for r in records if "failure" in r]
    head = ["Variant", "Events/s", "us/event", "Ratio", "To each"]
    return "\n".join([f"# {records[0]['engine']}", *aligned(head, rows), *failed])


def ratios_of(record: Json) -> str:
    """The ratios of a variant to the default before and after it; empty for the default."""
    rates = record.get("default_events_per_s") or []
    return " ".join(f"{record['events_per_s'] / each:.2f}" for each in rates)


def _variant(record: Json) -> str:
    """The option that a record changes, with its value."""
    return "default" if record["option"] is None else f"{record['option']}={record['value']}"
