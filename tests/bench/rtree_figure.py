"""The figure of `rtree_beside` from its records: as CLCB's figures 3 to 6.

An SVG's description has its data, so that a test can recognise one that is out of date.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LINES = (
    ("rtree", "one_event_us", "one_move_us", "R*-tree, one at a time", "black", "o-"),
    ("rtree", "batch_us_per_event", None, "R*-tree, many at once", "black", "o--"),
    ("keyed", "one_event_us", "one_move_us", "keyed, one at a time", "tab:green", "s-"),
    ("keyed", "batch_us_per_event", "batch_move_us", "keyed, many at once", "tab:green", "s--"),
    ("clcb", "one_event_us", "one_move_us", "clcb, one at a time", "tab:blue", "^-"),
    ("clcb", "batch_us_per_event", "batch_move_us", "clcb, many at once", "tab:blue", "^--"),
    ("keyed_cuda", "batch_us_per_event", "batch_move_us", "keyed_cuda, many at once", "tab:orange", "v--"),
)
"""Engine; what is drawn of its matching and of its updates (None: nothing); label, colour, style."""
STYLE = {"svg.hashsalt": "rtree beside", "svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans", "Verdana"]}
"""With these an SVG is the same bytes each time, and its text stays text."""


def described(records: Sequence[dict[str, Any]]) -> str:
    """What is drawn, as JSON: scenario, interfaces, engine, commit, and the values."""
    values = ("one_event_us", "batch_us_per_event", "one_move_us", "batch_move_us")
    keys = ("scenario", "n_interfaces", "engine", "device", "commit", *values)
    return json.dumps([[record.get(key) for key in keys] for record in records])


def records_in(path: Path) -> list[dict[str, Any]]:
    """The records of this bench in a file of records."""
    records = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [record for record in records if record.get("what") == "rtree beside"]


def draw(records: Sequence[dict[str, Any]], path: Path) -> None:
    """Matching above, moving below, against the number of interfaces, a column for each scenario.  Needs matplotlib."""
    import matplotlib

    metadata = {"Date": None, "Description": described(records)} if path.suffix == ".svg" else {}
    with matplotlib.rc_context(dict[Any, Any](STYLE)):
        _figure(records).savefig(path, dpi=150, metadata=metadata)


def _figure(records: Sequence[dict[str, Any]]) -> Any:
    from matplotlib.figure import Figure

    scenarios = list(dict.fromkeys(record["scenario"] for record in records))
    sizes = sorted({record["n_interfaces"] for record in records})
    figure = Figure(figsize=(5.5 * len(scenarios), 8), layout="constrained")
    axes = figure.subplots(2, len(scenarios), sharex=True, sharey="row", squeeze=False)
    for column, scenario in zip(axes.T, scenarios, strict=True):
        for engine, match, move, label, colour, style in LINES:
            rows = [record for record in records if (record["scenario"], record["engine"]) == (scenario, engine)]
            rows.sort(key=lambda record: record["n_interfaces"])
            for axis, what in zip(column, (match, move), strict=True):
                drawn = [(row["n_interfaces"], row[what]) for row in rows if what in row]
                if drawn:
                    values = [value["p50"] if isinstance(value, dict) else value for _, value in drawn]
                    axis.plot([n for n, _ in drawn], values, style, color=colour, label=label)
        column[0].set_title(scenario)
        column[1].set_xlabel("interfaces, with 10 filters each")
        for axis, unit in zip(column, ("µs to match an event", "µs to move a filter"), strict=True):
            axis.set(xscale="log", yscale="log", ylabel=unit if column[0] is axes[0, 0] else None)
            axis.grid(alpha=0.3)
        column[1].set_xticks(sizes, [f"{n:,}" for n in sizes], fontsize="small")
        column[1].minorticks_off()
    named = {label: line for axis in axes.flat for line, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=4)
    return figure
