"""Scaling for people: a table in the form of the OSU micro-benchmarks for each kind, and a plot of both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from mpi_match.environment.machine import place_of
from mpi_match.lab.bench.report import Result, aligned, note_of
from mpi_match.lab.figure import drawing, engineering, legend_above, line_look

_WORDS = {"strong": "the same {n:,} events for any number of workers", "weak": "{n:,} events for each worker"}
_COLUMNS: tuple[tuple[str, Callable[[Result], str]], ...] = (
    ("Workers", lambda r: str(r["workers"])),
    ("Events/s", lambda r: f"{r['events_per_s']['median']:,.0f}"),
    ("Spread", lambda r: _spread(r["events_per_s"])),
    ("Per worker", lambda r: f"{r['events_per_s_each']:,.0f}"),
    ("Speed-up", lambda r: f"{r['speed_up']:.2f}"),
    ("Efficiency", lambda r: f"{r['efficiency']:.2f}"),
    ("p50 (us)", lambda r: _trip(r, "p50")),
    ("p99 (us)", lambda r: _trip(r, "p99")),
    ("Checked", lambda r: f"{r['checked']['verify']} judged, all equal"),
)
"""Events per second: the median; round trips of a batch: the medians of the runs' own."""


def _spread(rate: dict[str, float]) -> str:
    return f"-{1 - rate['min'] / rate['median']:.0%} +{rate['max'] / rate['median'] - 1:.0%}"


def _trip(result: Result, which: str) -> str:
    return f"{result['round_trip_us'][which]:,.0f}" if result["round_trip_us"] else "-"


def scaling_table(results: Sequence[Result]) -> str:
    """The results of `scaling.scale` as text: a head and a table for each kind."""
    groups = [[r for r in results if r["kind"] == kind] for kind in dict.fromkeys(r["kind"] for r in results)]
    return "\n\n".join("\n".join([*_head(group), *_lines(group)]) for group in groups) + "\n"


def _head(results: Sequence[Result]) -> list[str]:
    one, n_each = results[0], results[0]["n_events"] // (results[0]["workers"] if results[0]["kind"] == "weak" else 1)
    return [
        f"# mpi-match bench --scaling: {one['scenario']}, {one['kind']}: {_WORDS[one['kind']].format(n=n_each)}",
        f"# {one['n_filters']:,} filters, {one['n_constraints']:,} constraints; batches of {one['batch']:,}; {one['how']}",
        f"# {one['engine']} on {one['device']} for each worker; {one['mpi']}; {one['repetitions']} repetitions",
        f"# {place_of(one)}",
    ]


def _lines(results: Sequence[Result]) -> list[str]:
    return aligned([title for title, _ in _COLUMNS], [[value(result) for _, value in _COLUMNS] for result in results])


def plot_scaling(results: Sequence[Result], path: Path | BinaryIO) -> None:
    """Draw events per second over workers, for both kinds, beside the linear ideal (see `figure.drawing`).

    Whiskers show the fastest and the slowest repetition.  Raises ImportError, saying what to install, without matplotlib.
    """
    with drawing(path, note=note_of(results)) as figure:
        axes = figure.subplots()
        series = dict.fromkeys((r["scenario"], r["kind"], r.get("how", "")) for r in results)
        in_all = set[str].intersection(*(set(how.split()) for *_, how in series))
        for k, (scenario, kind, how) in enumerate(series):
            shown = [r for r in results if (r["scenario"], r["kind"], r.get("how", "")) == (scenario, kind, how)]
            workers = [r["workers"] for r in shown]
            rates = [r["events_per_s"]["median"] for r in shown]
            below = [r["events_per_s"]["median"] - r["events_per_s"]["min"] for r in shown]
            above = [r["events_per_s"]["max"] - r["events_per_s"]["median"] for r in shown]
            own = [word for word in how.split() if word not in in_all]  # of the options of `run`
            look = line_look(k)
            axes.errorbar(workers, rates, yerr=[below, above], label=", ".join([scenario, kind, *own]), **look)
            linear = [rates[0] * n / workers[0] for n in workers]
            axes.plot(workers, linear, color=look["color"], linestyle=":", marker="", alpha=0.6)
        ticks = sorted({r["workers"] for r in results})
        axes.set(xscale="log", yscale="log", xlabel="workers", ylabel="events per second (dotted: linear)")
        engineering(axes.yaxis)
        axes.minorticks_off()
        axes.set_xticks(ticks, [str(n) for n in ticks], minor=False)
        legend_above(figure)
