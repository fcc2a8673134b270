"""Results as one HTML page that needs no network: machines, figures, ratios, and limits of the numbers.

    results of experiments    a section each: printed values beside measured ones, figure, table
    other results of bench    a section for each scenario: a figure over the first parameter that varies, table
    scaling                   a section for each scenario: strong and weak

Figures are images within the page; it has no scripts.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from mpi_match.environment.machine import place_of
from mpi_match.lab.bench import report, scaling_report, sweep_report
from mpi_match.lab.bench.report import Result, engine_of, note_of
from mpi_match.lab.papers.catalog import BASELINES, EXPERIMENTS, Experiment
from mpi_match.lab.papers.claims import Claim, claims, in_words
from mpi_match.lab.papers.published import notes as published_notes
from mpi_match.lab.papers.run import shown_at
from mpi_match.storage import StorageError, atomic_write

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2328; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
h1, h2 { line-height: 1.2 }
h3 { font-size: 13px; color: #57606a; margin: 0 }
h2 { margin-top: 3rem; border-top: 1px solid #d0d7de; padding-top: 1rem }
table { border-collapse: collapse; font-size: 13px; margin: 1rem 0; font-variant-numeric: tabular-nums }
th, td { padding: .2rem .7rem; border-bottom: 1px solid #d0d7de; text-align: right } th { background: #f6f8fa }
th:first-child, td:first-child { text-align: left } td.text { text-align: left }
img { max-width: 34rem; width: 100%; display: block; margin: 1rem 0 } code { font-size: 12px } .note { color: #57606a }
.numbers td { white-space: nowrap }
nav { columns: 3; font-size: 13px } .scroll { overflow-x: auto }
"""
_CANNOT = (
    "The workloads are drawn independently: no popular combinations of names, no copied subscriptions, no events that "
    "resemble the one before. Real ones favour an index of rare combinations where they have structure.",
    "Rates of engines go from encoded events in memory to answers in memory; reading, encoding and writing are apart.",
    "Published values are of other processors and GPUs: a ratio to them is of two machines as much as of two programs.",
    "The baselines are our own programs of published algorithms, not the programs that the papers measured.",
    "Other people's matchers are timed from outside, all events together, through adapters of this project, which may "
    "not ask them in the best way.",
    "The interval of a value contains all its repetitions or seeds; on a machine that others use, all of them may be slow.",
)


BASELINE_ENGINES = (*BASELINES.values(), "duckdb")
_SIZES = ("n_filters", "n_constraints", "n_interfaces", "n_events", "batch", "repetitions", "seed")


def write_report(records: Sequence[Result], path: Path, notes: Sequence[str] = ()) -> None:
    """Write the page, with notes on the measurements.

    Raises StorageError when there is nothing to show, ImportError without matplotlib, OSError.
    """
    if not records:
        raise StorageError("no results to report")
    sections = list(_sections(records))
    links = "".join(f'<li><a href="#s{i}">{escape(title)}</a></li>' for i, (title, _) in enumerate(sections))
    bodies = "".join(f'<h2 id="s{i}">{escape(title)}</h2>\n{body}' for i, (title, body) in enumerate(sections))
    cannot = "".join(f"<li>{escape(text)}</li>" for text in (*_CANNOT, *published_notes()))
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>mpi-match: results</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body>\n<h1>mpi-match: results</h1>\n<nav><ul>{links}</ul></nav>\n"
        f"<h2>What ran where</h2>\n{_places(records)}\n{_listed(notes)}{bodies}\n"
        f"{_not_here(records)}<h2>What these numbers cannot show</h2>\n<ul>{cannot}</ul>\n</body></html>\n"
    )
    with atomic_write(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _sections(records: Sequence[Result]) -> Iterator[tuple[str, str]]:
    """Title and body of each section."""
    for name, experiment in EXPERIMENTS.items():
        if mine := [record for record in records if record.get("experiment") == name]:
            yield f"{name}: {experiment.title}", _of_each_machine(mine, partial(_experiment, experiment))
    rest = [record for record in records if record.get("experiment") not in EXPERIMENTS]
    for scenario in dict.fromkeys(record["scenario"] for record in rest):
        mine = [record for record in rest if record["scenario"] == scenario]
        scaled = [record for record in mine if record.get("what") == "scaling"]
        engines = [record for record in mine if record.get("what") != "scaling"]
        if engines:
            yield f"{scenario}: engines", _engines(engines)
        if scaled:
            drawn = _image(lambda stream, shown=scaled: scaling_report.plot_scaling(shown, stream), f"scaling of {scenario}")  # type: ignore[misc]
            yield f"{scenario}: scaling", drawn + f"<pre>{escape(scaling_report.scaling_table(scaled))}</pre>"


def _of_each_machine(records: Sequence[Result], show: Callable[[Sequence[Result]], str]) -> str:
    """The body for each machine, with the last record of each point; ratios across machines would mean nothing."""
    return "\n".join(f"<h3>{escape(note_of(mine))}</h3>\n{show(mine)}" for mine in points_of_each_machine(records))


def points_of_each_machine(records: Sequence[Result]) -> list[list[Result]]:
    """The records of each machine, without records of points that were measured again later."""
    of_machine: dict[str, dict[str, Result]] = {}
    for record in records:
        point = json.dumps(_point_of(record))
        points = of_machine.setdefault(json.dumps(record["machine"]), {})
        if point not in points or points[point]["date"] <= record["date"]:
            points[point] = record
    return [list(points.values()) for points in of_machine.values()]


def _point_of(record: Result) -> list[object]:
    """The point that a record measured.  Of an experiment, also when it was measured with more events or options before."""
    if record.get("experiment") in EXPERIMENTS:
        return [record["experiment"], record.get("scale"), shown_at(record)]
    return [record.get(key) for key in _SAME_POINT]


_SAME_POINT = (
    *("what", "scenario", "parameters", "engine", "engine_options", "beside", "n_filters", "n_events", "batch", "rate"),
    *("moved", "seed", "workers", "scale"),
)


def _not_here(records: Sequence[Result]) -> str:
    """The experiments without results, with the reason if they cannot be run; empty if no experiment has results."""
    have = {record.get("experiment") for record in records}
    if have.isdisjoint(EXPERIMENTS):
        return ""
    rows = []
    for name, each in EXPERIMENTS.items():
        if name not in have:
            why = each.not_rerun or (
                f"no results in these files{_needs(each)}" if each.runs else "parameters, not measurements"
            )
            rows.append([name, each.title, why])
    return f"<h2>Tables and figures that are not here</h2>\n{_table(['name', 'title', 'why'], rows)}" if rows else ""


def _needs(experiment: Experiment) -> str:
    """The special needs of an experiment: large tables, GPUs."""
    filters = [int(value) for value in _axes_of(experiment).get("filters", ())]
    filters += [int(run.fixed["filters"]) for run in experiment.runs if "filters" in run.fixed]
    workers = [n for runs in experiment.ranks for n in runs.workers]
    needs = [f"tables of {max(filters):,} filters"] if filters else []
    needs += [f"{max(workers)} GPUs, one for each worker"] if workers else []
    return f"; it needs {' and '.join(needs)}" if needs else ""


def _listed(texts: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>\n" if texts else ""


def _places(records: Sequence[Result]) -> str:
    """The machines and commits, with the number of results, and the commands."""
    of_place: dict[str, list[Result]] = {}
    for record in records:
        of_place.setdefault(place_of(record).rpartition(";")[0], []).append(record)
    rows = [
        [place, str(len(mine)), min(r["date"] for r in mine)[:10], max(r["date"] for r in mine)[:10]]
        for place, mine in of_place.items()
    ]
    commands = "".join(f"<li><code>{escape(each)}</code></li>" for each in dict.fromkeys(r["command"] for r in records))
    return _table(["machine and commit", "results", "from", "to"], rows) + f"<ul>{commands}</ul>"


def _experiment(experiment: Experiment, records: Sequence[Result]) -> str:
    scale = {record.get("scale", 1.0) for record in records} - {1.0}
    parts = [
        f"<p>Kept: {escape(experiment.kept)}.<br>Different: {escape(experiment.differs)}.</p>",
        *(f"<p><b>With {each:g} of the paper's filters.</b></p>" for each in scale),
        *(f"<p><b>Not measured here: {escape(each)}.</b></p>" for each in _left_out(experiment, records)),
        _claims(claims(experiment, records)),
    ]
    if experiment.x:
        parts.append(_figure(records, experiment.x, experiment.y, experiment.title))
    if any(record.get("steps_s") for record in records):
        parts.append(_image(lambda stream: sweep_report.draw_steps(records, stream), f"{experiment.title}: times of phases"))
    parts += [
        _records([r for r in records if r["scenario"] == each]) for each in dict.fromkeys(r["scenario"] for r in records)
    ]
    return "\n".join(parts)


def _left_out(experiment: Experiment, records: Sequence[Result]) -> Iterator[str]:
    """Engines, numbers of workers and full-size parameter values of an experiment that no record covers."""
    engines = {name: None for run in experiment.runs for name in run.engines}
    if left := [name for name in engines if all(record["engine"] != name for record in records)]:
        yield f"the engines {', '.join(left)}" if len(left) > 1 else f"the engine {left[0]}"
    with_ranks = {record["workers"] for record in records if record.get("what") == "ranks"}
    if left := [str(n) for n in sorted({n for runs in experiment.ranks for n in runs.workers} - with_ranks)]:
        yield f"runs with {','.join(left)} workers, which need as many GPUs"
    most = {"threads": max(record["machine"]["cores"] for record in records)}
    for key, values in _axes_of(experiment).items() if all(r.get("scale", 1.0) == 1 for r in records) else ():
        seen = {str((record.get("parameters") or {}).get(key)) for record in records}
        own = [value for value in values if key not in most or int(value) <= most[key]]
        if left := [value for value in own if value not in seen]:
            yield f"{key}={','.join(left)}"


def _axes_of(experiment: Experiment) -> dict[str, list[str]]:
    """All values of each parameter that an experiment varies."""
    found: dict[str, dict[str, None]] = {}
    for axis in (*(axis for run in experiment.runs for axis in run.axes), *(r.axis for r in experiment.ranks if r.axis)):
        found.setdefault(axis.key, {}).update(dict.fromkeys(axis.values))
    return {key: list(values) for key, values in found.items()}


def _claims(found: Sequence[Claim]) -> str:
    """Printed and measured values, with their ratios."""
    rows = [
        [
            f"{each.printed.subject}: {each.printed.metric.replace('_', ' ')}",
            each.printed.where or "-",
            each.printed.text,
            each.here,
            _times(each),
            ", ".join(f"{name} {in_words(value)}" for name, value in each.ours.items()) or "-",
            each.printed.note,
        ]
        for each in found
    ]
    titles = ["value", "under", "printed", "here", "here / printed", "our engines", "note"]
    return _table(titles, rows) if rows else '<p class="note">The text of the paper prints no value of it.</p>'


def _times(claim: Claim) -> str:
    printed = claim.printed.value
    is_number = isinstance(printed, (int, float)) and printed
    return _short(claim.measured / printed) if is_number and isinstance(claim.measured, float) else "-"


def _engines(records: Sequence[Result]) -> str:
    failed = "".join(f"<li>{escape(line)}</li>" for line in report.failures(records))
    shown = f"<p>Not measured:</p><ul>{failed}</ul>" if failed else ""
    records = report.measured_ones(records)
    return _of_each_machine(records, _measured_engines) + shown


def _measured_engines(records: Sequence[Result]) -> str:
    if over := sweep_report.varied(records):
        drawn = _figure(records, over[0], "events_per_s", records[0]["scenario"])
    else:
        drawn = _image(lambda stream: report.plot(records, stream), f"events per second of {records[0]['scenario']}")
    return drawn + _records(records)


def _figure(records: Sequence[Result], x: str, y: str, title: str) -> str:
    told_apart = sweep_report.told_apart_by(records, x)
    return _image(lambda stream: sweep_report.draw(records, stream, x, told_apart, y), f"{title}: {y} over {x}")


def _records(records: Sequence[Result]) -> str:
    """The common conditions, and a line for each point and engine with its ratios to the first engine, to baselines and to
    external matchers.
    """
    keys = sweep_report.varied(records)
    groups = sweep_report.together(records)
    rates = [sweep_report.measured(group, "events_per_s") for group in groups]
    rate_of = _Rates((group[0], rate.median) for group, rate in zip(groups, rates, strict=True))
    beside = _compared_with(records)
    own = {title: show for title, show in _OWN.items() if any(show(record) != "-" for record in records)}
    sizes = {"events": "n_events"} | ({} if keys else {"filters": "n_filters"})
    sizes = {title: key for title, key in sizes.items() if len({record[key] for record in records}) > 1}
    rows = []
    for group, rate in zip(groups, rates, strict=True):
        found = group[0]
        checked = ", ".join(f"{n} by {judge}" for judge, n in found["checked"].items())
        others = (rate_of.beside(found, name) for name in beside)
        rows.append(
            [
                engine_of(found),
                *(str((found.get("parameters") or {}).get(key, "")) for key in keys),
                *(f"{found[key]:,}" for key in sizes.values()),
                f"{rate.median:,.0f}",
                f"{rate.least:,.0f} to {rate.most:,.0f}",
                _short(1e6 / rate.median, 4),
                *("-" if other is None else _short(rate.median / other) for other in others),
                *(show(found) for show in own.values()),
                checked,
            ]
        )
    titles = [
        *("engine", *keys, *sizes, "events/s", "interval", "µs/event"),
        *(f"times {beside[name]}" for name in beside),
        *(*own, "events judged"),
    ]
    return _conditions(records, keys) + _table(titles, rows, "numbers") + _commands_of_others(records)


_OWN: dict[str, Callable[[Result], str]] = {
    "events/s offered": lambda record: f"{record['rate']:,.0f}" if record.get("rate") else "-",
    "build (s)": lambda record: f"{record['build_s']:.3g}" if "build_s" in record else "-",
    "memory (MB)": lambda record: (
        "-" if (found := sweep_report.quantity(record, "whole_bytes")) is None else f"{found / 1e6:,.3g}"
    ),
}
"""Columns shown beside rates if records have them."""


def _compared_with(records: Sequence[Result]) -> dict[str, str]:
    """The engines that ratios refer to, with the names shown: the first engine, baselines, external matchers. Empty for a
    single engine.
    """
    shown = {record["engine"]: engine_of(record) for record in reversed(records)}
    if len({engine_of(record) for record in records}) == 1:
        return {}
    first, others = records[0]["engine"], (record["engine"] for record in records if record.get("beside"))
    return {name: shown[name] for name in dict.fromkeys([first, *BASELINE_ENGINES, *others]) if name in shown}


class _Rates:
    """Rates by engine and point; for an engine with variants, the first.

    A point consists of the filters, the parameters without options of engines, and the batch.  External matchers get all
    events at once and are compared with an engine's first batch.  The number of events does not distinguish points, because
    rates are for single events.
    """

    def __init__(self, rates: Iterable[tuple[Result, float]]) -> None:
        self._at: dict[tuple[str, str, int], float] = {}
        self._first: dict[tuple[str, str], float] = {}
        self._others: set[str] = set()
        for record, rate in rates:
            name, where = record["engine"], self._where(record)
            self._at.setdefault((name, where, record["batch"]), rate)
            self._first.setdefault((name, where), rate)
            self._others |= {name} if record.get("beside") else set()

    def beside(self, record: Result, name: str) -> float | None:
        """The rate of an engine at a record's point, or None."""
        where = self._where(record)
        if name in self._others or record.get("beside"):
            return self._first.get((name, where))
        return self._at.get((name, where, record["batch"]))

    @staticmethod
    def _where(record: Result) -> str:
        given = {key: value for key, value in (record.get("parameters") or {}).items() if "." not in key}
        return repr([record["n_filters"], sorted(given.items())])


def _commands_of_others(records: Sequence[Result]) -> str:
    """The commands of external matchers; empty if there are none."""
    commands = dict.fromkeys((record["engine"], record["beside"]) for record in records if record.get("beside"))
    words = ", ".join(f"{escape(name)} is <code>{escape(command)}</code>" for name, command in commands)
    text = "Other people's matchers, which get all events at once and answer them through a pipe"
    return f'<p class="note">{text}: {words}.</p>' if words else ""


def _conditions(records: Sequence[Result], keys: Sequence[str]) -> str:
    """The parameters of a table as text: those that all records share, and the range of sizes."""
    given = {key: value for record in records for key, value in (record.get("parameters") or {}).items() if key not in keys}
    words = [f"{name.removeprefix('n_')} {_span(records, name)}" for name in _SIZES if all(name in r for r in records)]
    words += [f"{key}={value}" for key, value in given.items()]
    named = ", ".join(dict.fromkeys(record["scenario"] for record in records))
    return f'<p class="note">Scenario <code>{escape(named)}</code>: {escape(", ".join(words))}.</p>'


def _span(records: Sequence[Result], name: str) -> str:
    least, most = (pick(record[name] for record in records) for pick in (min, max))
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _short(number: float, digits: int = 3) -> str:
    """A number with this many significant digits, without an exponent."""
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.{digits}g}"


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]], style: str = "words") -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>\n" for row in rows)
    return (
        f'<div class="scroll"><table class="{style}"><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>\n'
    )


_IN_A_URL = " !$'()*+,-./:;<=>@[]^_`{|}~"
"""Characters that stand for themselves in the address of an image: text keeps the page, and its diffs, small."""


def _image(draw: Callable[[BinaryIO], object], words: str) -> str:
    """A figure as an image within the page."""
    stream = io.BytesIO()
    draw(stream)
    data = quote(stream.getvalue().replace(b"\n", b" "), safe=_IN_A_URL)
    return f'<img alt="{escape(words)}" src="data:image/svg+xml,{data}">\n'
