"""The five published systems on the README: what each paper prints, and what was measured here by the same system's command.

A row takes the latest record that measures what it says; without one it is "not measured".
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from mpi_match.lab.papers.claims import encoding
from mpi_match.lab.papers.published import Printed, printed

Record = dict[str, Any]
Seeds = Sequence[Record]
"""Records that differ in the seed only."""


class System(NamedTuple):
    """A row.

    name, how   the system and its paper; the command that measures it here
    published   system, artifact, subject, metric of what the paper prints, and some of its parameters
    on          hardware of the paper
    takes       is a record one of this row?
    value       what records that differ in the seed only measured, in words: the median
    better      the greater the better: among records of one commit those of the best median count
    beside      what other records of the commit measured, in words
    """

    name: str
    how: str
    published: tuple[str, str, str, str]
    parameters: Mapping[str, Any]
    on: str
    takes: Callable[[Record], bool]
    value: Callable[[Seeds], str]
    better: Callable[[Record], float]
    beside: Sequence[tuple[Callable[[Record], bool], Callable[[Seeds], str]]] = ()


def _matches(record: Record, **wanted: Any) -> bool:
    return all(record.get(key) == value for key, value in wanted.items())


def _options(record: Record, **wanted: Any) -> bool:
    return _matches(record.get("engine_options") or {}, **wanted)


def _is_default(record: Record, **allowed: str | None) -> bool:
    """Is it of the whole default workload?  Points of figures have parameters; some may be there, with one value or any."""
    given: Mapping[str, str] = record.get("parameters") or {}
    others = {key for key, value in given.items() if "." not in key and allowed.get(key, "") not in (None, value)}
    return record.get("scale", 1.0) == 1.0 and not others


def _is_mode_of_mpi_cuda(record: Record, several: bool, n_events: int = 20_000) -> bool:
    how = f"{record.get('command', '')} {record.get('how', '')}"
    is_it = _matches(record, scenario="ccm", engine="ccm", batch=1) and (record.get("workers", 0) > 1) == several
    is_alike = record.get("what") == "ranks" and _is_default(record, workers=None, events=None)
    is_run = record.get("experiment") in ("mpi-cuda-table-2", "mpi-cuda-figure-4") and record.get("n_events") == n_events
    return is_it and is_alike and is_run and all(each in how for each in ("--credits 1", "--feed master"))


def _rate(record: Record) -> float:
    """Events a second; of several runs the median."""
    found = record["events_per_s"]
    return float(found["median"] if isinstance(found, dict) else found)


def _us(records: Seeds) -> str:
    """The time of an event with its encoding, as the papers have it, and without."""
    bare, whole = (statistics.median(map(of, records)) for of in (_bare_us, _whole_us))
    return f"{whole:.1f} µs an event, {bare:.1f} without encoding"


def _bare_us(record: Record) -> float:
    return float(record["us_per_event"])


def _whole_us(record: Record) -> float:
    return _bare_us(record) + 1e6 * encoding(record)


def _us_of_rate(records: Seeds, unit: str = "") -> str:
    workers, n_events = records[0]["workers"], records[0]["n_events"]
    rate = statistics.median(map(_rate, records))
    return f"{1e6 / rate:.1f}{unit} with {workers} worker{'s' if workers > 1 else ''} and {n_events:,} events"


def _per_second(what: str) -> Callable[[Seeds], str]:
    def text(records: Seeds) -> str:
        rate = statistics.median(map(_rate, records))
        return f"{rate / 1e3:,.1f} k {what}/s" if rate >= 1e4 else f"{rate:,.0f} {what}/s"

    return text


def _fast(record: Record) -> float:
    return -_whole_us(record)


def _is_tagmatch(record: Record, launch: int) -> bool:
    """Tells whether a record is of 212 million sets: with several keys for some of them, as the paper has it, once there is
    such a record."""
    given = record.get("parameters") or {}
    is_whole = record.get("n_filters") == 212_000_000 or (
        _matches(given, sets="212000000") and given.get("operation") == "match"
    )
    is_it = is_whole and _matches(record, engine="tagmatch", experiment="tagmatch-table-1")
    return is_it and _options(record, variant="hybrid", exact=True, launch=launch)


SYSTEMS = (
    System(
        "CCM (DEBS 2011)",
        "`experiment run ccm-table-2`",
        ("ccm", "table 2", "CCM", "processing_time"),
        {"scenario": "default"},
        "GTX 460",
        lambda r: (
            _matches(r, scenario="ccm-strings", engine="ccm", batch=1, experiment="ccm-table-2")
            and _is_default(r, name_exponent="0")
        ),
        _us,
        _fast,
    ),
    System(
        "MPI-CUDA (IJCSE 2017)",
        "[a mode of `run`](mpi_match/docs/cluster.md#mpi-cuda-as-published)",
        ("mpi-cuda", "table 2", "MPI-CUDA", "processing_time"),
        {"gpus": 4},
        "four K600",
        lambda r: _is_mode_of_mpi_cuda(r, several=True),
        lambda of_seeds: _us_of_rate(of_seeds, " µs an event"),
        _rate,
        (
            (lambda r: _is_mode_of_mpi_cuda(r, several=False), _us_of_rate),
            (lambda r: _is_mode_of_mpi_cuda(r, several=True, n_events=500_000), _us_of_rate),
            (lambda r: _is_mode_of_mpi_cuda(r, several=False, n_events=500_000), _us_of_rate),
        ),
    ),
    System(
        "CLCB (Middleware 2012)",
        "`experiment run clcb-table-2`",
        ("clcb", "table 2, text", "CLCB", "processing_time"),
        {"location": True},
        "GTX 460",
        lambda r: (
            _matches(r, scenario="clcb", engine="clcb", batch=1, experiment="clcb-table-2") and _is_default(r, area="0.0001")
        ),
        _us,
        _fast,
    ),
    System(
        "TagMatch (EuroSys 2017)",
        "`experiment run tagmatch-table-1`, 212 M sets",
        ("tagmatch", "table 1", "TagMatch", "throughput"),
        {"sets": 212_000_000},
        "two TITAN X",
        lambda r: _is_tagmatch(r, launch=1),
        _per_second("queries"),
        _rate,
        [(lambda r: _is_tagmatch(r, launch=64), lambda r: f"{_per_second('queries')(r)} with 64 batches a launch")],
    ),
    System(
        "Farroukh et al. (DEBS 2009)",
        "`bench debs2009 --engine twophase --threads 1`",
        ("farroukh", "figure 5", "ME-IP", "throughput"),
        {"threads": 1},
        "a thread",
        lambda r: (
            _matches(r, scenario="debs2009", engine="twophase", n_filters=6_000_000)
            and _is_default(r, threads=None)
            and _options(r, technique="me-ip")
            and r["device"].endswith(" 1 thread")
        ),
        _per_second("events"),
        _rate,
    ),
)


def _printed(system: System) -> Printed:
    """The paper's value.  Raises ValueError where there is not exactly one."""
    name, artifact, subject, metric = system.published
    (found,) = {
        (each.text, each.where): each
        for each in printed()
        if (each.system, each.artifact, each.subject, each.metric) == (name, artifact, subject, metric)
        and each.kind == "result"
        and system.parameters.items() <= dict(each.parameters).items()
        and each.relation == "="
    }.values()
    return found


def published_text(system: System) -> str:
    """The paper's value; milliseconds as microseconds."""
    found = _printed(system)
    if found.unit == "ms":
        return f"{found.value * 1e3:g} µs an event"
    if found.unit.startswith("thousand "):
        return f"{found.value} k {found.unit.removeprefix('thousand ')}"
    return found.text


def _of_seeds(records: Sequence[Record]) -> list[Seeds]:
    """The records in groups that differ in the seed only."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        options = [record.get(key) for key in ("scenario", "engine_options", "parameters", "workers", "batch")]
        groups.setdefault(json.dumps(options, sort_keys=True), []).append(record)
    return list(groups.values())


def _best(records: Sequence[Record], better: Callable[[Record], float]) -> Seeds:
    """The group of `_of_seeds` with the best median."""
    return max(_of_seeds(records), key=lambda group: statistics.median(map(better, group)))


def systems_table(records: Iterable[Record], device_of: Callable[[Record], str]) -> str:
    """The table as Markdown; `device_of` says what a record was measured on."""
    records = list(records)
    head = "| published system | here | published | measured | on | commit |"
    lines = [head, "|---|---|---|---|---|---|"]
    for system in SYSTEMS:
        mine: Sequence[Record] = [record for record in records if system.takes(record)]
        measured, device, commit = "not measured", "", ""
        if mine:
            latest = max(record["date"] for record in mine)
            (last,) = {record["commit"] for record in mine if record["date"] == latest}
            best = _best([record for record in mine if record["commit"] == last], system.better)
            measured, commit, device = system.value(best), f"`{last[:12]}`", device_of(best[0])
            for takes, value in system.beside:
                if others := [record for record in records if record.get("commit") == last and takes(record)]:
                    measured += f"; {value(_best(others, system.better))}"
        published = f"{published_text(system)}, {system.on}"
        lines.append(f"| {system.name} | {system.how} | {published} | {measured} | {device} | {commit} |")
    return "\n".join(lines) + "\n"
