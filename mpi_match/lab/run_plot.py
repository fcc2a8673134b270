"""A figure of a run: its rate, its workers' shares and its incidents over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.environment.machine import place_of
from mpi_match.humanize import plural
from mpi_match.lab.figure import COLOURS, HATCHES, PAGE, drawing, engineering
from mpi_match.monitor.report import Recorded
from mpi_match.storage import StorageError

FEWEST, MOST, BATCHES = 8, 80, 3
"""A run is drawn in FEWEST to MOST intervals, long enough for BATCHES batches of a worker on average; shorter ones would
show noise."""
NAMED = 12
"""The most workers with a legend."""
MARKS = {
    "lost": ("#cf222e", "-"),
    "overdue": ("#bc4c00", "--"),
    "failed": ("#bf8700", "--"),
    "quarantined": ("#24292f", "-"),
    "dropped": ("#8250df", ":"),
}
"""Incidents that are drawn, with their colour and line; a batch sent again follows from another incident."""


def rates(recorded: Recorded) -> tuple[Array, Array, Array]:
    """Bounds of the intervals in seconds, f64[n + 1]; the events written per second in each, f64[n], and those answered per
    second by each worker, f64[workers, n].  Raises StorageError for a report without two ticks at different times.
    """
    ticks = recorded.ticks
    at_s = np.array([tick["at_s"] for tick in ticks], float)
    kept = np.append(np.flatnonzero(np.diff(at_s)), len(at_s) - 1) if len(at_s) else np.empty(0, int)
    if len(kept) < 2:
        raise StorageError("the report has no two ticks at different times: there is nothing to draw")
    run = recorded.run
    n_batches = run["n_events"] / run["options"]["batch"]
    n_intervals = int(np.clip(n_batches / (BATCHES * len(run["workers"])), FEWEST, MOST))
    kept = kept[np.unique(np.linspace(0, len(kept) - 1, min(len(kept), n_intervals + 1)).round().astype(int))]
    bounds = at_s[kept]
    counts = np.array([[ticks[i]["written"], *ticks[i]["answered"]] for i in kept], float).T
    per_s = np.diff(counts) / np.diff(bounds)
    return bounds, per_s[0], per_s[1:]


def draw(recorded: Recorded, path: Path) -> None:
    """Draw the rate above and the shares below (PNG, SVG or PDF by the path's ending).

    Raises StorageError when there is nothing to draw, ImportError, saying what to install, without matplotlib.
    """
    bounds, written, answered = rates(recorded)
    workers = recorded.run["workers"]
    total = answered.sum(axis=0)
    shares = np.divide(answered, total, out=np.zeros_like(answered), where=total > 0)
    with drawing(path, PAGE, place_of(recorded.run)) as figure:
        above, below = figure.subplots(2, 1, sharex=True)
        above.stairs(written, bounds, fill=True, color="#54aeff66")
        above.stairs(written, bounds, baseline=None, color="#0969da")
        above.set(ylabel="events per second", ylim=(0, None), title=_title(recorded))
        engineering(above.yaxis)
        base = np.zeros(len(total))
        for number, (worker, share) in enumerate(zip(workers, shares, strict=True)):
            hatch = HATCHES[(number + number // len(COLOURS)) % len(HATCHES)]  # in grey too, neighbours are told apart
            look = {"facecolor": _colour(number, len(workers)), "edgecolor": "white", "linewidth": 0, "hatch": hatch}
            below.stairs(base + share, bounds, baseline=base, fill=True, label=f"worker {worker['rank']}", **look)
            base = base + share
        below.set(ylabel="share of the events answered", xlabel="seconds", ylim=(0, 1), xlim=(bounds[0], bounds[-1]))
        _mark(recorded, (above, below))
        for axes in (above, below):
            if axes.get_legend_handles_labels()[0] and (axes is above or len(workers) <= NAMED):
                axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))


def _colour(number: int, n_workers: int) -> str | tuple[float, ...]:
    """The colour of a worker: from the palette, or for many workers from a colour scale."""
    if n_workers <= len(COLOURS) * len(HATCHES):
        return COLOURS[number % len(COLOURS)]
    import matplotlib

    return matplotlib.colormaps["viridis"](number / n_workers)


def _title(recorded: Recorded) -> str:
    workers = recorded.run["workers"]
    engines = ", ".join(sorted({f"{worker['engine']} on {worker['device']}" for worker in workers}))
    end = "" if recorded.summary and recorded.summary["complete"] else "; did not end well"
    return f"{recorded.run['n_events']:,} events, {plural(len(workers), 'worker')}: {engines}{end}"


def _mark(recorded: Recorded, panels: tuple[Any, Any]) -> None:
    """Draw a line through both panels for each incident; the legend names the kind."""
    for kind, (colour, style) in MARKS.items():
        at_s = [incident["at_s"] for incident in recorded.incidents if incident["kind"] == kind]
        for axes in panels if at_s else ():
            look = {"colors": colour, "linestyles": style, "label": kind if axes is panels[0] else None}
            axes.vlines(at_s, 0, 1, transform=axes.get_xaxis_transform(), **look)
