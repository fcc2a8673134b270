"""Records of one or several sweeps as a table and as a figure: a quantity over a parameter, a line for each engine.

A record is of any `bench`; its value of a key is that among its `parameters`, else that of the record itself (`n_filters`,
`batch`, `scenario`).  Records that differ only in their seed are one point: the median, and the interval from the least to
the greatest.  With a single seed the interval is that of the repetitions.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from mpi_match.environment.machine import place_of
from mpi_match.humanize import plural
from mpi_match.lab.bench.report import Result, aligned, engine_of, note_of, steps_of
from mpi_match.lab.figure import COLUMN, bar_look, drawing, engineering, legend_above, line_look, name_bars
from mpi_match.storage import StorageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

QUANTITIES = {
    "events_per_s": "events per second",
    "us_per_event": "time of an event (µs)",
    "build_s": "time to build (s)",
    "engine_bytes": "memory of the engine (bytes)",
    "whole_bytes": "memory of the engine, with what it shares with the table (bytes)",
    "matching_us": "matching time of an event (µs)",
    "matches_per_event": "matches of an event",
    "matches_per_s": "matches per second",
    "ratio": "ratio to the first engine",
    "p50": "latency, median (µs)",
    "p99": "latency, 99th percentile (µs)",
    "p99.9": "latency, 99.9th percentile (µs)",
    "max": "latency, longest (µs)",
    "one_move_us": "time to move a filter (µs)",
    "batch_move_us": "time to move a filter, many at once (µs)",
}
"""Quantities that can be drawn over a parameter, with the label of the axis."""
_MOST_LINES = 6
"""The most lines in one panel; a figure of more lines has several panels."""
_PANELS_BESIDE = 2
_PANEL_HEIGHT = 1.5
"""Height of each further row of panels, in inches."""
_BAR_WIDTH = 0.2
"""Least width of a bar in inches, with a line of text below it."""


class Measured(NamedTuple):
    """One point of a line: its x, and the median, least and greatest measured value."""

    x: Any
    median: float
    least: float
    most: float


def value_of(record: Result, key: str) -> Any:
    """A record's value of a parameter or of its own field: a number if possible, else text; None if it has none."""
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


def _groups(record: Result) -> int:
    """The number of events that an engine matches at a time: one for each of its groups of threads."""
    options = record["engine_options"]
    threads = int(found[1]) if (found := re.search(r"(\d+) threads?", record["device"])) else 1
    size = {"me-ip": 1, "me-cp": min(int(options.get("group", 1)), threads)}.get(options.get("technique"), threads)
    return -(-threads // size)


SHARING = ("sff", "betree", "rtree")
"""Engines that read arrays of the table, whose bytes are not in `engine_bytes`."""


def _whole_bytes(record: Result) -> float | None:
    """Bytes of the engine and of the arrays that it shares with the table; None for an old record that lacks the latter."""
    if not record.get("engine_bytes") or (record["engine"] in SHARING and "shared_bytes" not in record):
        return None
    return float(record["engine_bytes"] + record.get("shared_bytes", 0))


_DERIVED: dict[str, Callable[[Result], float | None]] = {
    "whole_bytes": _whole_bytes,
    "matching_us": lambda record: record["us_per_event"] * _groups(record),
    "matches_per_s": lambda record: record["matches_per_event"] * record["events_per_s"],
}
"""Quantities that are computed from others."""


def quantity(record: Result, y: str) -> float | None:
    """A number of a record: a field, one that follows from others, or a percentile of its latencies; None if it has none."""
    if y in _DERIVED:
        return _DERIVED[y](record) if "engine_options" in record and "failure" not in record else None
    found = record.get(y, (record.get("latency_us") or {}).get(y))
    return float(found) if isinstance(found, (int, float)) else None


def lines(
    records: Sequence[Result], x: str, by: Sequence[str] = ("engine",), y: str = "events_per_s"
) -> dict[str, list[Measured]]:
    """The lines of a figure: for each combination of the values of `by`, in words, its points in the order of `x`.

    Raises StorageError when no record has a value of `x`, of `y` or of one of `by`.
    """
    for key in (x, y, *by):
        if not any(value_of(record, key) is not None or quantity(record, key) is not None for record in records):
            raise StorageError(f"no result has a value of {key!r}; they have: {', '.join(keys_of(records))}")
    found = _lines(records, x, y, partial(_name, by=by, shown=(x, *by)))
    if not found:
        raise StorageError(f"no result has a value of {x!r} and a number {y!r}")
    return found


def _lines(records: Iterable[Result], x: str, y: str, name_of: Callable[[Result], str]) -> dict[str, list[Measured]]:
    """Lines by their names, of the records that have `x` and `y`."""
    found: dict[str, dict[Any, list[Result]]] = {}
    for record in records:
        at = value_of(record, x)
        if at is not None and quantity(record, y) is not None:
            found.setdefault(name_of(record), {}).setdefault(at, []).append(record)
    return {
        name: [measured(group, y, at) for at, group in sorted(points.items(), key=_order)] for name, points in found.items()
    }


def keys_of(records: Iterable[Result]) -> list[str]:
    """The keys that records can be drawn over: their parameters and their plain fields."""
    keys: dict[str, None] = {}
    for record in records:
        keys.update(dict.fromkeys(record.get("parameters") or {}))
        keys.update(
            {key: None for key, value in record.items() if isinstance(value, (int, float, str)) and key != "command"}
        )
    return list(keys)


def told_apart_by(records: Sequence[Result], x: str) -> list[str]:
    """The keys other than `x` in which records differ: scenario, parameters, engine; the engine if there are none."""
    scenarios, engines = ({record[key] for record in records} for key in ("scenario", "engine"))
    keys = [*(["scenario"] if len(scenarios) > 1 else []), *(key for key in varied(records) if key != x)]
    return [*keys, "engine"] if len(engines) > 1 or not keys else keys


def varied(records: Sequence[Result]) -> list[str]:
    """The parameters that have more than one value among the records."""
    keys = dict.fromkeys(key for record in records for key in record.get("parameters") or {})
    return [key for key in keys if len({(record.get("parameters") or {}).get(key) for record in records}) > 1]


def _name(record: Result, by: Sequence[str], shown: Sequence[str]) -> str:
    """A record's values of some keys as text, without missing ones; an option that is `shown` elsewhere is left out."""
    values = {key: value_of(record, key) for key in by}
    if "engine" in values and any("." in key for key in shown):
        values["engine"] = record["engine"]
    return ", ".join(_word(key, value) for key, value in values.items() if value is not None)


def _word(key: str, value: object) -> str:
    return str(value) if key in ("engine", "scenario") else f"{key.rpartition('.')[2].replace('_', ' ')} {value}"


def _order(item: tuple[Any, list[Result]]) -> tuple[int, float, str]:
    at = item[0]
    return (0, float(at), "") if isinstance(at, (int, float)) else (1, 0.0, at or "")


def measured(group: Sequence[Result], y: str, at: object = None) -> Measured:
    """The median and the interval of `y` over records of one point: of its seeds, or of one record's repetitions."""
    values = [value for record in group if (value := quantity(record, y)) is not None]
    median = statistics.median(values)
    if len(values) > 1:
        return Measured(at, median, min(values), max(values))
    if y == "one_move_us":
        spread = group[0]["one_move_us_spread"]
        return Measured(at, median, spread["min"], spread["max"])
    spent = group[0].get("match_s")
    rates, times = ("events_per_s", "matches_per_s"), ("us_per_event", "matching_us")
    if spent is None or y not in (*rates, *times):
        return Measured(at, median, median, median)
    faster, slower = spent["median"] / spent["min"], spent["median"] / spent["max"]
    ends = (median * slower, median * faster) if y in rates else (median / faster, median / slower)
    return Measured(at, median, *ends)


def together(records: Sequence[Result]) -> list[list[Result]]:
    """Groups of records that differ only in their seed, in the order of their first records."""
    keys, groups = varied(records), dict[str, list[Result]]()
    for record in records:
        at = [value_of(record, key) for key in keys]
        sizes = [*(record[key] for key in ("batch", "n_filters", "n_events")), record.get("rate")]
        groups.setdefault(repr([at, engine_of(record), sizes]), []).append(record)
    return list(groups.values())


def sweep_table(records: Sequence[Result]) -> str:
    """Records of one scenario as text: a line for each point and engine, seeds together."""
    keys, groups = varied(records), together(records)
    events = sorted({record["n_events"] for record in records})
    is_offered = "rate" not in keys and any(record.get("rate") for record in records)
    cells = []
    for group in groups:
        rate, first = measured(group, "events_per_s"), group[0]
        cells.append(
            [
                *(str((first.get("parameters") or {}).get(key, "")) for key in keys),
                engine_of(first),
                *([f"{first['n_events']:,}"] if len(events) > 1 else []),
                *([f"{first['rate']:,.0f}" if first.get("rate") else "-"] if is_offered else []),
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
        *(["Offered/s"] if is_offered else []),
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
    """Draw `lines` into a figure (see `figure.drawing`); many of them into axes for each value of one of `by`.

    Raises StorageError, ImportError.
    """
    found = _panels(records, x, by, y)
    points = [point for panel in found.values() for line in panel.values() for point in line]
    names = list(dict.fromkeys(name for panel in found.values() for name in panel))
    columns = min(len(found), _PANELS_BESIDE)
    rows = -(-len(found) // columns)
    size = (COLUMN[0], COLUMN[1] + _PANEL_HEIGHT * (rows - 1))
    with drawing(path, size, note_of(records)) as figure:
        grid = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
        for axes in grid[len(found) :]:
            axes.remove()
        for axes, (title, panel) in zip(grid, found.items(), strict=False):
            axes.set_title(title)
            axes.tick_params(labelbottom=axes in grid[max(len(found) - columns, 0) : len(found)])
            _draw_lines(axes, panel, names, [point.x for point in points])
        if len(found) == 1:
            grid[0].set(xlabel=x.replace("_", " "), ylabel=QUANTITIES.get(y, y))
        else:
            figure.supxlabel(x.replace("_", " "))
            figure.supylabel(QUANTITIES.get(y, y))
        _scale(grid[0], "y", [point.median for point in points])
        legend_above(figure)


def _draw_lines(axes: Any, panel: dict[str, list[Measured]], names: Sequence[str], xs: Sequence[Any]) -> None:
    """Draw lines into axes with an x axis for all of `xs`; the position among all names decides the style."""
    words = [at for at in dict.fromkeys(xs) if isinstance(at, str)]
    for name, line in panel.items():
        at = [words.index(point.x) if isinstance(point.x, str) else point.x for point in line]
        errors = [[p.median - p.least for p in line], [p.most - p.median for p in line]]
        axes.errorbar(at, [point.median for point in line], yerr=errors, label=name, **line_look(names.index(name)))
    if words:
        axes.set_xticks(range(len(words)), words)
        return
    _scale(axes, "x", xs)
    if axes.get_xscale() == "linear" and all(isinstance(each, int) for each in xs):
        axes.xaxis.get_major_locator().set_params(integer=True)


def _panels(records: Sequence[Result], x: str, by: Sequence[str], y: str) -> dict[str, dict[str, list[Measured]]]:
    """The lines of each panel by its title: one untitled panel, or for many lines one for each value of a key."""
    every = lines(records, x, by, y)
    keys = [key for key in by if key != "engine"] if len(every) > _MOST_LINES and len(by) > 1 else []
    shown = [record for record in records if value_of(record, x) is not None and quantity(record, y) is not None]
    ways: list[tuple[bool, int, int, dict[str, dict[str, list[Measured]]]]] = []
    for key in keys:
        groups: dict[Any, list[Result]] = {}
        for record in shown:
            groups.setdefault(value_of(record, key), []).append(record)
        name_of = partial(_name, by=[each for each in by if each != key], shown=(x, *by))
        way = {
            "" if value is None else _word(key, value): _lines(group, x, y, name_of)
            for value, group in sorted(groups.items(), key=_order)
        }
        ways.append((max(map(len, way.values())) > _MOST_LINES, len(way), len(ways), way))
    return min(ways)[-1] if ways else {"": every}


def draw_steps(records: Sequence[Result], path: Path | BinaryIO) -> None:
    """Draw the time of each phase of the engines as stacked bars, one for each record that has them (see `figure.drawing`).
    Raises StorageError, ImportError.
    """
    shown = [record for record in records if record.get("steps_s")]
    if not shown:
        raise StorageError("no result has times of phases")
    by = told_apart_by(shown, "")
    names = [_name(record, by, by) for record in shown]
    phases = dict.fromkeys(phase for record in shown for phase in record["steps_s"])
    with drawing(path, (max(COLUMN[0], _BAR_WIDTH * len(shown)), COLUMN[1]), note_of(shown)) as figure:
        axes = figure.subplots()
        base = [0.0] * len(shown)
        for k, phase in enumerate(phases):
            spent = [1e6 * record["steps_s"].get(phase, 0.0) / record["n_events"] for record in shown]
            axes.bar(range(len(shown)), spent, 0.6, bottom=base, label=phase, **bar_look(k))
            base = [below + each for below, each in zip(base, spent, strict=True)]
        name_bars(figure, axes, names)
        axes.set_ylabel(QUANTITIES["us_per_event"])
        axes.grid(visible=False, axis="x")
        engineering(axes.yaxis)
        legend_above(figure)


def _scale(axes: Axes, side: str, numbers: Sequence[float]) -> None:
    """Make an axis logarithmic if its numbers span more than a factor of 50; otherwise start it at zero."""
    if min(numbers) > 0 and max(numbers) > 50 * min(numbers):
        axes.set(**{f"{side}scale": "log"})
    elif side == "y":
        axes.set_ylim(bottom=0)
    engineering(axes.yaxis if side == "y" else axes.xaxis)
