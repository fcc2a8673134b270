"""Records of one or several sweeps as a table and as a figure: a quantity over a parameter, a line for each engine.

A record is of any `bench`; its value of a key is that among its `parameters`, else that of the record itself (`n_filters`,
`batch`, `scenario`).  Records that differ only in their seed are one point: the median, and the interval that has
all of them.  With a single seed the interval is that of the repetitions.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from mpi_match.bench.report import Result, aligned, engine_of, note_of, steps_of
from mpi_match.environment.machine import place_of
from mpi_match.figure import COLOURS, HATCHES, drawing, engineering, legend_above
from mpi_match.humanize import plural
from mpi_match.storage import StorageError

QUANTITIES = {
    "events_per_s": "events per second",
    "us_per_event": "time of an event (µs)",
    "build_s": "time to build (s)",
    "engine_bytes": "memory of the engine (bytes)",
    "matches_per_event": "matches of an event",
    "ratio": "ratio to the first engine",
    "p50": "latency, median (µs)",
    "p99": "latency, 99th percentile (µs)",
    "p99.9": "latency, 99.9th percentile (µs)",
    "max": "latency, longest (µs)",
    "one_move_us": "time to move a filter (µs)",
    "batch_move_us": "time to move a filter, many at once (µs)",
}
"""What can be drawn over a parameter, with its name on the axis."""


class Measured(NamedTuple):
    """One point of a line: where it is, the median there, and the least and the most that was measured."""

    x: Any
    median: float
    least: float
    most: float


def value_of(record: Result, key: str) -> Any:
    """A record's value of a parameter or of its own field: a number where it is one, else text; None when it has none."""
    if key == "engine":
        return engine_of(record)
    value = (record.get("parameters") or {}).get(key, record.get(key, record.get(f"n_{key}")))
    if not isinstance(value, str):
        return value
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def quantity(record: Result, y: str) -> float | None:
    """A number of a record: a field, or a percentile of its latencies; None when it has none."""
    found = record.get(y, (record.get("latency_us") or {}).get(y))
    return float(found) if isinstance(found, (int, float)) else None


def lines(
    records: Sequence[Result], x: str, by: Sequence[str] = ("engine",), y: str = "events_per_s"
) -> dict[str, list[Measured]]:
    """The lines of a figure: for each combination of the values of `by`, in words, its points in the order of `x`.

    Raises StorageError when no record has a value of `x`, of `y` or of one of `by`.
    """
    found: dict[str, dict[Any, list[Result]]] = {}
    for record in records:
        at = value_of(record, x)
        if at is None or quantity(record, y) is None:
            continue
        name = _name(record, by, x)
        found.setdefault(name, {}).setdefault(at, []).append(record)
    for key in (x, y, *by):
        if not any(value_of(record, key) is not None or quantity(record, key) is not None for record in records):
            raise StorageError(f"no result has a value of {key!r}; they have: {', '.join(keys_of(records))}")
    if not found:
        raise StorageError(f"no result has a value of {x!r} and a number {y!r}")
    return {
        name: [measured(group, y, at) for at, group in sorted(points.items(), key=_order)] for name, points in found.items()
    }


def keys_of(records: Iterable[Result]) -> list[str]:
    """The keys that records may be drawn over: their parameters, and their own plain fields."""
    keys: dict[str, None] = {}
    for record in records:
        keys.update(dict.fromkeys(record.get("parameters") or {}))
        keys.update(
            {key: None for key, value in record.items() if isinstance(value, (int, float, str)) and key != "command"}
        )
    return list(keys)


def told_apart_by(records: Sequence[Result], x: str) -> list[str]:
    """The keys that records differ in besides `x`: scenario, parameters, engine; the engine where they differ in nothing."""
    scenarios, engines = ({record[key] for record in records} for key in ("scenario", "engine"))
    keys = [*(["scenario"] if len(scenarios) > 1 else []), *(key for key in varied(records) if key != x)]
    return [*keys, "engine"] if len(engines) > 1 or not keys else keys


def varied(records: Sequence[Result]) -> list[str]:
    """The parameters that have more than one value among the records."""
    keys = dict.fromkeys(key for record in records for key in record.get("parameters") or {})
    return [key for key in keys if len({(record.get("parameters") or {}).get(key) for record in records}) > 1]


def _name(record: Result, by: Sequence[str], x: str = "") -> str:
    """A record's values of some keys in words, without those that it lacks; an option is said once, or on the axis."""
    values = {key: value_of(record, key) for key in by}
    if "engine" in values and any("." in key for key in (x, *by)):
        values["engine"] = record["engine"]
    return ", ".join(_word(key, value) for key, value in values.items() if value is not None)


def _word(key: str, value: Any) -> str:
    return str(value) if key in ("engine", "scenario") else f"{key.rpartition('.')[2].replace('_', ' ')} {value}"


def _order(item: tuple[Any, list[Result]]) -> tuple[int, float, str]:
    at = item[0]
    return (1, 0.0, at) if isinstance(at, str) else (0, float(at), "")


def measured(group: Sequence[Result], y: str, at: Any = None) -> Measured:
    """The median and the interval of `y` over records of one point: of its seeds, or of one record's repetitions."""
    values = [value for record in group if (value := quantity(record, y)) is not None]
    median = statistics.median(values)
    if len(values) > 1:
        return Measured(at, median, min(values), max(values))
    if y == "one_move_us":
        spread = group[0]["one_move_us_spread"]
        return Measured(at, median, spread["min"], spread["max"])
    spent = group[0].get("match_s")
    if spent is None or y not in ("events_per_s", "us_per_event"):
        return Measured(at, median, median, median)
    faster, slower = spent["median"] / spent["min"], spent["median"] / spent["max"]
    ends = (median * slower, median * faster) if y == "events_per_s" else (median / faster, median / slower)
    return Measured(at, median, *ends)


def together(records: Sequence[Result]) -> list[list[Result]]:
    """The records of each point, engine and size, which differ in their seed only, in the order of the first ones."""
    keys, groups = varied(records), dict[str, list[Result]]()
    for record in records:
        at = [value_of(record, key) for key in keys]
        sizes = [record[key] for key in ("batch", "n_filters", "n_events")]
        groups.setdefault(repr([at, engine_of(record), sizes]), []).append(record)
    return list(groups.values())


def sweep_table(records: Sequence[Result]) -> str:
    """Records of one scenario as text: a line for each point and engine, seeds together."""
    keys, groups = varied(records), together(records)
    events = sorted({record["n_events"] for record in records})
    cells = []
    for group in groups:
        rate, first = measured(group, "events_per_s"), group[0]
        cells.append(
            [
                *(str((first.get("parameters") or {}).get(key, "")) for key in keys),
                engine_of(first),
                *([f"{first['n_events']:,}"] if len(events) > 1 else []),
                f"{rate.median:,.0f}",
                f"{rate.least:,.0f} to {rate.most:,.0f}",
                f"{measured(group, 'us_per_event').median:.4g}",
                f"{measured(group, 'build_s').median:.3f}" if "build_s" in first else "-",
                f"{measured(group, 'matches_per_event').median:.3f}",
                f"{measured(group, 'ratio').median:.3g}" if "ratio" in first else "-",
            ]
        )
    percentiles = [name for name in ("p50", "p99", "p99.9") if any(quantity(record, name) is not None for record in records)]
    for row, group in zip(cells, groups, strict=True):
        row += [
            f"{measured(group, name).median:.1f}" if quantity(group[0], name) is not None else "-" for name in percentiles
        ]
    titles = [
        *keys,
        "Engine",
        *(["Events"] if len(events) > 1 else []),
        "Events/s",
        "Interval",
        "us/event",
        "Build (s)",
        "Matches/event",
        "Ratio",
    ]
    titles += [f"{name} (us)" for name in percentiles]
    seeds = sorted({record["seed"] for record in records})
    same = {key: value for key, value in (records[0].get("parameters") or {}).items() if key not in keys}
    head = [
        f"# mpi-match bench: {' '.join([records[0]['scenario'], *(f'{key}={value}' for key, value in same.items())])}",
        f"# {' to '.join(f'{n:,}' for n in dict.fromkeys((events[0], events[-1])))} events; "
        f"{plural(len(seeds), 'seed')} ({', '.join(map(str, seeds))}), {plural(records[0]['repetitions'], 'repetition')}; "
        f"intervals have all {'seeds' if len(seeds) > 1 else 'repetitions'}",
        f"# {place_of(records[0])}",
    ]
    steps = [steps_of(record) for record in records if "steps_s" in record]
    return "\n".join([*head, *aligned(titles, cells), *steps])


def draw(
    records: Sequence[Result], path: Path | BinaryIO, x: str, by: Sequence[str] = ("engine",), y: str = "events_per_s"
) -> None:
    """Draw `lines` into a figure (see `figure.drawing`).  Raises StorageError, ImportError."""
    found = lines(records, x, by, y)
    words = [at for at in dict.fromkeys(point.x for line in found.values() for point in line) if isinstance(at, str)]
    with drawing(path, note=note_of(records)) as figure:
        axes = figure.subplots()
        for name, line in found.items():
            at = [words.index(point.x) if isinstance(point.x, str) else point.x for point in line]
            errors = [[p.median - p.least for p in line], [p.most - p.median for p in line]]
            axes.errorbar(at, [point.median for point in line], yerr=errors, label=name)
        axes.set(xlabel=x.replace("_", " "), ylabel=QUANTITIES.get(y, y))
        _scale(axes, "y", [point.median for line in found.values() for point in line])
        if words:
            axes.set_xticks(range(len(words)), words)
        else:
            at = [point.x for line in found.values() for point in line]
            _scale(axes, "x", at)
            if axes.get_xscale() == "linear" and all(isinstance(each, int) for each in at):
                axes.xaxis.get_major_locator().set_params(integer=True)
        legend_above(figure, axes)


def draw_steps(records: Sequence[Result], path: Path | BinaryIO) -> None:
    """Draw the times of the engines' phases for an event, one on the other, a bar for each record that has them (see
    `figure.drawing`).  Raises StorageError, ImportError.
    """
    shown = [record for record in records if record.get("steps_s")]
    if not shown:
        raise StorageError("no result has times of phases")
    names = [_name(record, told_apart_by(shown, "")) for record in shown]
    phases = dict.fromkeys(phase for record in shown for phase in record["steps_s"])
    with drawing(path, note=note_of(shown)) as figure:
        axes = figure.subplots()
        base = [0.0] * len(shown)
        for k, phase in enumerate(phases):
            spent = [1e6 * record["steps_s"].get(phase, 0.0) / record["n_events"] for record in shown]
            look = {"hatch": HATCHES[k % len(HATCHES)], "color": COLOURS[k % len(COLOURS)], "edgecolor": "white"}
            axes.bar(range(len(shown)), spent, 0.6, bottom=base, label=phase, **look)
            base = [below + each for below, each in zip(base, spent, strict=True)]
        axes.set_xticks(range(len(shown)), [name.replace(", ", "\n") for name in names])
        axes.set_ylabel(QUANTITIES["us_per_event"])
        axes.grid(visible=False, axis="x")
        engineering(axes.yaxis)
        legend_above(figure, axes)


def _scale(axes: Any, side: str, numbers: Sequence[float]) -> None:
    """Logarithmic where numbers span more than a factor of 50; else what is measured begins at zero."""
    if min(numbers) > 0 and max(numbers) > 50 * min(numbers):
        axes.set(**{f"{side}scale": "log"})
    elif side == "y":
        axes.set_ylim(bottom=0)
    engineering(axes.yaxis if side == "y" else axes.xaxis)
