"""Results for people (a table on the terminal, a plot) and for machines (JSON lines).

The table has the form of the OSU micro-benchmarks: comments that begin with `#`, then one aligned line for each result,
ready to be pasted into a mail or read by `awk`.  Results that were measured under the same conditions share a heading.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

from mpi_match.engines.registry import options_of
from mpi_match.environment.machine import place_of
from mpi_match.lab.figure import COLUMN, bar_look, drawing, engineering, legend_above, name_bars
from mpi_match.model import Json
from mpi_match.storage import StorageError, append_to, reported

Result = Json
"""A result of `bench.engines.compare` for one engine."""

_HEAD = ("scenario", "n_filters", "n_constraints", "n_interfaces", "n_events", "repetitions")
_COLUMNS: tuple[tuple[str, Callable[[Result], str]], ...] = (
    ("Engine", lambda r: engine_of(r)),
    ("Batch", lambda r: str(r["batch"])),
    ("Build (s)", lambda r: f"{r['build_s']:.3f}"),
    ("Match (s)", lambda r: f"{r['match_s']['median']:.4f}"),
    ("Spread", lambda r: _spread(r["match_s"])),
    ("Events/s", lambda r: f"{r['events_per_s']:,.0f}"),
    ("Rows/s", lambda r: f"{r['rows_per_s']['median']:,.0f}" if "rows_per_s" in r else "-"),
    ("Kernel/s", lambda r: f"{r['kernel_events_per_s']:,.0f}" if "kernel_events_per_s" in r else "-"),
    ("us/event", lambda r: f"{r['us_per_event']:.4g}"),
    ("p50 (us)", lambda r: _latency(r, "p50")),
    ("p99 (us)", lambda r: _latency(r, "p99")),
    ("uJ/event", lambda r: _energy(r, lambda joules: 1e6 * joules / r["n_events"])),
    ("Matches/J", lambda r: _energy(r, lambda joules: r["matches"] / joules)),
    ("Matches/event", lambda r: f"{r['matches_per_event']:.3f}"),
    ("Recall", lambda r: f"{r['recall']:.4f}" if "recall" in r else "-"),
    ("Precision", lambda r: f"{r['precision']:.4f}" if "precision" in r else "-"),
    ("Candidates/match", lambda r: _candidates(r)),
    ("Ratio", lambda r: f"{r['ratio']:.2f}"),
    ("Checked", lambda r: "+".join(f"{n} {judge}" for judge, n in r["checked"].items()) or "no"),
)


def engine_of(result: Result) -> str:
    """The engine of a result, and its options that are not the defaults."""
    name, values = result["engine"], result.get("engine_options", {})
    options = options_of(name) if values else ()
    return " ".join([name, *(o.spelled(values[o.name]) for o in options if values.get(o.name, o.default) != o.default)])


def measured_ones(results: Iterable[Result]) -> list[Result]:
    """Results without those of external matchers that failed (`bench.beside`)."""
    return [result for result in results if "failure" not in result]


def failures(results: Iterable[Result]) -> list[str]:
    """One line of text for each external matcher that failed."""
    return [
        f"{result['engine']} {failure['how']} at {failure['step']} on {result['scenario']}: {failure['why']}"
        for result in results
        if (failure := result.get("failure"))
    ]


def _spread(seconds: dict[str, float]) -> str:
    return f"-{1 - seconds['min'] / seconds['median']:.0%} +{seconds['max'] / seconds['median'] - 1:.0%}"


def _latency(result: Result, which: str) -> str:
    return f"{result['latency_us'][which]:.1f}" if "latency_us" in result else "-"


def _energy(result: Result, number: Callable[[float], float]) -> str:
    """A function of the joules of processors and GPU, as far as they are measured."""
    found = [each for each in result.get("energy_j", {}).values() if each is not None]
    return f"{number(sum(found)):,.3g}" if sum(found) > 0 else "not measured"


def _candidates(result: Result) -> str:
    """Number of filters verified for each match."""
    if "candidates_per_event" not in result or not result["matches"]:
        return "-"
    return f"{result['candidates_per_event'] / result['matches_per_event']:.1f}"


def text_table(results: Sequence[Result]) -> str:
    """The results as text; consecutive results under the same conditions share a heading."""
    groups: list[list[Result]] = []
    for result in results:
        if groups and _conditions(groups[-1][0]) == _conditions(result):
            groups[-1].append(result)
        else:
            groups.append([result])
    return "\n\n".join("\n".join([*_head(group[0]), *_lines(group)]) for group in groups) + "\n"


def _conditions(result: Result) -> list[object]:
    return [result[key] for key in (*_HEAD, "machine", "commit")]


def _head(result: Result) -> list[str]:
    return [
        f"# mpi-match bench: {result['scenario']}",
        f"# {result['n_filters']:,} filters, {result['n_constraints']:,} constraints, {result['n_interfaces']:,} interfaces",
        f"# {result['n_events']:,} events, {result['repetitions']} repetitions",
        f"# {place_of(result)}",
    ]


def note_of(results: Sequence[Result]) -> str:
    """The `place_of` results of one machine, with all their commits and the latest date."""
    commits = dict.fromkeys(str(result["commit"] or "unknown") for result in results)
    place = place_of(results[0]).partition("; ")[0]
    return f"{place}; commit {', '.join(commits)}; {max(result['date'] for result in results)}"


def _lines(results: Sequence[Result]) -> list[str]:
    columns = [column for column in _COLUMNS if not column[0].startswith("p") or any("latency_us" in r for r in results)]
    rows = [[str(value(result)) for _, value in columns] for result in results]
    return aligned([title for title, _ in columns], rows) + [steps_of(result) for result in results if "steps_s" in result]


def steps_of(result: Result) -> str:
    """The times of the engine's own phases, for an event and as shares of their sum."""
    steps_s, n_events = result["steps_s"], result["n_events"]
    total = max(sum(steps_s.values()), 1e-12)
    shares = [f"{step} {1e6 * spent / n_events:.3g} us ({spent / total:.0%})" for step, spent in steps_s.items()]
    return f"# steps of {engine_of(result)}, for an event: {', '.join(shares)}"


def aligned(titles: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines under a comment with the titles; all columns but the first are right-aligned."""
    rows = [[f"# {titles[0]}", *titles[1:]], *cells]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]


def json_line(result: Result) -> str:
    """One result as one line of JSON."""
    return json.dumps(result, ensure_ascii=False)


def append_json(path: Path, results: Iterable[Result]) -> None:
    """Add results to the end of a JSON lines file, which is created if need be; a truncated last line is replaced."""
    with reported(path), os.fdopen(append_to(path), "r+b") as handle:
        handle.seek(0)
        whole = handle.read()
        handle.truncate(whole.rfind(b"\n") + 1)
        handle.writelines((json_line(result) + "\n").encode() for result in results)


def read_json(path: Path) -> list[Result]:
    """The results of a JSON lines file, except a truncated last line.

    Raises StorageError for any other file, naming the line; FileNotFoundError.
    """
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        try:
            result = json.loads(line)
        except ValueError:
            if not line.endswith(b"\n"):
                break
            result = None
        if not isinstance(result, dict) or "scenario" not in result:
            raise StorageError(f"{path}, line {number}: not a result of bench")
        found.append(result)
    return found


def read_results(paths: Sequence[Path]) -> list[list[Result]]:
    """The results of each file, and of each file of results (.jsonl) in a directory.

    Raises as `read_json` does, and StorageError for a directory without any.
    """
    files = [file for each in paths for file in (sorted(each.glob("*.jsonl")) if each.is_dir() else [each])]
    if not files:
        raise StorageError(f"{paths[0]}: the directory has no files of results (.jsonl)")
    return [read_json(file) for file in files]


def plot(results: Sequence[Result], path: Path | BinaryIO) -> None:
    """Events per second by scenario and engine, on a logarithmic scale, as a figure (see `figure.drawing`).

    Bars show medians, whiskers the fastest and slowest repetition.  Raises ImportError, saying what to install, without
    matplotlib.
    """
    scenarios = list(dict.fromkeys(r["scenario"] for r in results))
    series = list(dict.fromkeys((engine_of(r), r["batch"]) for r in results))
    width = 0.8 / len(series)
    size = (max(COLUMN[0], 0.7 * len(scenarios) + 1), COLUMN[1])
    with drawing(path, size, note_of(results)) as figure:
        axes = figure.subplots()
        for k, (engine, batch) in enumerate(series):
            shown = [r for r in results if (engine_of(r), r["batch"]) == (engine, batch)]
            places = [scenarios.index(r["scenario"]) + (k - (len(series) - 1) / 2) * width for r in shown]
            rates = [r["events_per_s"] for r in shown]
            slowest = [rate - r["n_events"] / r["match_s"]["max"] for rate, r in zip(rates, shown, strict=True)]
            fastest = [r["n_events"] / r["match_s"]["min"] - rate for rate, r in zip(rates, shown, strict=True)]
            axes.bar(places, rates, width, yerr=[slowest, fastest], label=f"{engine}, batch {batch:,}", **bar_look(k))
        name_bars(figure, axes, scenarios)
        axes.set(yscale="log", ylabel="events per second")
        axes.grid(visible=False, axis="x")
        engineering(axes.yaxis)
        legend_above(figure)
