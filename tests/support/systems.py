"""The five published systems on the README: what each paper prints, and what was measured here by the same system's command.

A row takes the latest record that measures what it says; without one it is "not measured".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from mpi_match.lab.papers.claims import encoding
from mpi_match.lab.papers.published import Printed, printed

Record = dict[str, Any]


class System(NamedTuple):
    """A row.

    name, how   the system and its paper; the command that measures it here
    published   system, artifact, subject, metric of what the paper prints, and some of its parameters
    on          hardware of the paper
    takes       is a record one of this row?
    value       what it measured, in words
    better      the greater the better: among records of one commit the best one counts
    beside      what another record of the commit measured, in words; None: nothing
    """

    name: str
    how: str
    published: tuple[str, str, str, str]
    parameters: Mapping[str, Any]
    on: str
    takes: Callable[[Record], bool]
    value: Callable[[Record], str]
    better: Callable[[Record], float]
    beside: tuple[Callable[[Record], bool], Callable[[Record], str]] | None = None


def _matches(record: Record, **wanted: Any) -> bool:
    return all(record.get(key) == value for key, value in wanted.items())


def _options(record: Record, **wanted: Any) -> bool:
    return _matches(record.get("engine_options") or {}, **wanted)


def _is_default(record: Record, **allowed: str | None) -> bool:
    """Is it of the whole default workload?  Points of figures have parameters; some may be there, with one value or any."""
    given: Mapping[str, str] = record.get("parameters") or {}
    others = {key for key, value in given.items() if "." not in key and allowed.get(key, "") not in (None, value)}
    return record.get("scale", 1.0) == 1.0 and not others


def _is_mode_of_mpi_cuda(record: Record, several: bool) -> bool:
    how = f"{record.get('command', '')} {record.get('how', '')}"
    is_it = _matches(record, scenario="ccm", engine="ccm", batch=1) and (record.get("workers", 0) > 1) == several
    is_alike = record.get("what") == "ranks" and _is_default(record, workers=None, events=None)
    return is_it and is_alike and all(each in how for each in ("--credits 1", "--feed master"))


def _rate(record: Record) -> float:
    """Events a second; of several runs the median."""
    found = record["events_per_s"]
    return float(found["median"] if isinstance(found, dict) else found)


def _us(record: Record) -> str:
    """The time of an event with its encoding, as the papers have it, and without."""
    bare = record["us_per_event"]
    return f"{bare + 1e6 * encoding(record):.1f} µs an event, {bare:.1f} without encoding"


def _us_of_rate(record: Record) -> str:
    workers = record["workers"]
    return f"{1e6 / _rate(record):.1f} µs an event with {workers} worker{'s' if workers > 1 else ''}"


def _per_second(what: str) -> Callable[[Record], str]:
    def text(record: Record) -> str:
        rate = _rate(record)
        return f"{rate / 1e3:,.1f} k {what}/s" if rate >= 1e4 else f"{rate:,.0f} {what}/s"

    return text


def _fast(record: Record) -> float:
    return -float(record["us_per_event"])


def _is_tagmatch(record: Record, launch: int) -> bool:
    is_whole = _matches(record, engine="tagmatch", n_filters=212_000_000, experiment="tagmatch-table-1")
    return is_whole and _options(record, variant="hybrid", exact=True, launch=launch)


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
        _us_of_rate,
        _rate,
        (lambda r: _is_mode_of_mpi_cuda(r, several=False), _us_of_rate),
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
        (lambda r: _is_tagmatch(r, launch=64), lambda r: f"{_per_second('queries')(r)} with 64 batches a launch"),
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


def _of_seeds(records: Sequence[Record], better: Callable[[Record], float]) -> list[Record]:
    """The median record of each group that differs in the seed only."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        options = [record.get(key) for key in ("scenario", "engine_options", "parameters", "workers", "batch")]
        groups.setdefault(json.dumps(options, sort_keys=True), []).append(record)
    return [sorted(each, key=better)[len(each) // 2] for each in groups.values()]


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
            best = max(_of_seeds([record for record in mine if record["commit"] == last], system.better), key=system.better)
            measured, commit = system.value(best), f"`{best['commit'][:12]}`"
            if system.beside:
                takes, value = system.beside
                others = [record for record in records if record.get("commit") == last and takes(record)]
                measured += f"; {value(max(others, key=system.better))}" if others else ""
            device = device_of(best)
        published = f"{published_text(system)}, {system.on}"
        lines.append(f"| {system.name} | {system.how} | {published} | {measured} | {device} | {commit} |")
    return "\n".join(lines) + "\n"
