"""Compares results of two revisions or two machines: better, worse, or within the noise."""

from __future__ import annotations

import json
from collections.abc import Sequence

from mpi_match.environment.machine import place_of
from mpi_match.lab.bench.report import Result, aligned, engine_of
from mpi_match.lab.bench.sweep_report import Measured, measured
from mpi_match.storage import StorageError

_SAME = ("scenario", "n_filters", "n_interfaces", "n_events", "batch", "parameters")
_SAME_SCALING = ("kind", "workers", "threads", "how")


def comparison_table(old: Sequence[Result], new: Sequence[Result]) -> tuple[str, int]:
    """The rates as text, one line for each point measured in both, and the number of points measured in only one.

    A difference is real when the intervals of all repetitions, or of all seeds where there are several, do not overlap; a
    single measurement has no interval.
    Raises StorageError when they share no point.
    """
    before, after = _groups(old), _groups(new)
    common = [key for key in before if key in after]
    if not common:
        raise StorageError("the files share no result: scenarios, parameters, engines or numbers of events differ")
    cells = []
    for key in common:
        was, now = (_rate(group[key]) for group in (before, after))
        once = any(_n_values(group[key]) == 1 for group in (before, after))
        first = before[key][0]
        cells.append(
            [
                _words(first),
                engine_of(first),
                f"{was.median:,.0f}",
                f"{now.median:,.0f}",
                f"{now.median / was.median:.3f}",
                "-" if once else f"{now.least / was.most:.3f} to {now.most / was.least:.3f}",
                "measured once" if once else verdict(was, now),
            ]
        )
    titles = ["Scenario", "Engine", "Old (events/s)", "New (events/s)", "Ratio", "Interval", "Verdict"]
    head = [f"# {what}: {place_of(records[0])}" for what, records in (("old", old), ("new", new))]
    return "\n".join([*head, *aligned(titles, cells)]), len(before.keys() ^ after.keys())


def verdict(was: Measured, now: Measured) -> str:
    """`better`, `worse`, or `noise` where the intervals overlap."""
    return "better" if now.least > was.most else "worse" if now.most < was.least else "noise"


def _groups(records: Sequence[Result]) -> dict[str, list[Result]]:
    """Groups of results that differ only in their seed, or repeat a measurement."""
    groups: dict[str, list[Result]] = {}
    for record in records:
        same = _same_scaling(record)
        if "events_per_s" in record and (same or not isinstance(record["events_per_s"], dict)):
            key = json.dumps([[record.get(name) for name in (*_SAME, *same)], engine_of(record)], sort_keys=True)
            groups.setdefault(key, []).append(record)
    return groups


def _same_scaling(record: Result) -> tuple[str, ...]:
    """Further fields that comparable results of `bench --scaling` share."""
    return _SAME_SCALING if record.get("what") == "scaling" else ()


def _rate(group: Sequence[Result]) -> Measured:
    """Events per second; a result of `bench --scaling` has the median and the interval."""
    if not _same_scaling(group[0]):
        return measured(group, "events_per_s")
    rates = [record["events_per_s"] for record in group]
    if len(rates) == 1:
        return Measured(None, rates[0]["median"], rates[0]["min"], rates[0]["max"])
    return measured([{"events_per_s": rate["median"]} for rate in rates], "events_per_s")


def _n_values(group: Sequence[Result]) -> int:
    """The number of measurements in a group: its results, or the repetitions of a single one."""
    return len(group) if len(group) > 1 else int(group[0].get("repetitions", 1))


def _words(record: Result) -> str:
    parameters = (record.get("parameters") or {}).items()
    scaling = [f"{key}={record[key]}" for key in _same_scaling(record)[:2]]
    return " ".join([record["scenario"], *(f"{key}={value}" for key, value in parameters), *scaling])
