"""The HTML report: one page that needs nothing else, with every figure, table and printed value."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from mpi_match.lab.bench.engines import BenchOptions
from mpi_match.lab.bench.sweep import Axis, Sweep
from mpi_match.lab.papers.html_report import points_of_each_machine, write_report
from mpi_match.storage import StorageError

pytest.importorskip("matplotlib", reason="figures need matplotlib (extra `plot`)")
QUICK = BenchOptions(n_filters=60, n_events=20, batch=8, repetitions=1, check=1)


class Page(HTMLParser):
    """Tags and attributes of a page, its tables' cells, and its text; an unbalanced tag is an error."""

    VOID = ("meta", "img", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def images(self) -> list[str]:
        """The SVGs of the images."""
        sources = [attributes["src"] or "" for tag, attributes in self.tags if tag == "img"]
        return [unquote(source.removeprefix("data:image/svg+xml,")) for source in sources]


@pytest.fixture(scope="module")
def records() -> list[dict[str, Any]]:
    """A sweep as an experiment, another as none, and one result without parameters."""
    sweep = Sweep("ccm-strings", ("counting", "reference"), (Axis("string_share", ("0", "1")),), options=QUICK)
    of_experiment = [{**r, "experiment": "ccm-figure-11", "scale": 0.01} for found in sweep.run() for r in found]
    other = [r for found in Sweep("ccm", ("counting",), (Axis("names", ("10", "20")),), options=QUICK).run() for r in found]
    plain = [r for found in Sweep("clcb", ("counting",), options=QUICK).run() for r in found]
    return [*of_experiment, *other, *plain]


def test_a_page_has_every_figure_and_needs_nothing_else(records: list[dict[str, Any]], tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report([{**records[0], "command": "bench '<b>' & more"}, *records[1:]], path)
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert not {tag for tag, _ in page.tags} & {"script", "link", "iframe", "object"}
    references = [value for _, attributes in page.tags for key, value in attributes.items() if key in ("src", "href")]
    assert all(value is not None and value.startswith(("data:", "#")) for value in references)
    assert "bench '<b>' & more" in "".join(page.words), "commands are text"
    first, second, third = page.images()
    assert all(f"<!-- {word} -->" in first for word in ("string share", "counting", "reference"))
    assert all(f"<!-- {word} -->" in second for word in ("names", "counting"))
    assert "<!-- clcb -->" in third


def test_a_table_says_what_was_the_same_and_how_engines_compare(records: list[dict[str, Any]], tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    as_sff = [{**each, "engine": "sff", "engine_options": {}} if each["engine"] == "reference" else each for each in records]
    write_report(as_sff, path)
    text = path.read_text(encoding="utf-8")
    sizes = "filters 60, constraints 236 to 244, interfaces 10, events 20, batch 8, repetitions 1, seed 0"
    assert re.search(rf"Scenario <code>ccm-strings</code>: {re.sub('236 to 244', '[0-9 to]+', sizes)}", text)
    assert "<th>times counting</th><th>times sff</th>" in text, "the first engine, and the baseline"
    rows = re.findall(r"<tr><td>(counting|sff)</td><td>[01]</td>(.*?)</tr>", text)
    cells = {(name, i): re.findall("<td>(.*?)</td>", rest) for i, (name, rest) in enumerate(rows)}
    assert len(cells) == 4
    for (name, _), found in cells.items():
        assert found[3 if name == "counting" else 4] == "1", "times itself"
    assert "<td>ccm-figure-6</td>" in text, "what is not here is listed"
    assert "it is of MongoDB alone" in text


def at_rate(record: dict[str, Any], events_per_s: float) -> dict[str, Any]:
    """The record with another rate in all repetitions."""
    seconds = record["n_events"] / events_per_s
    return {**record, "events_per_s": events_per_s, "match_s": dict.fromkeys(("median", "min", "max"), seconds)}


def test_other_peoples_matchers_stand_beside_engines(records: list[dict[str, Any]], tmp_path: Path) -> None:
    ours = [record for record in records if record["scenario"] == "ccm"]
    program = {
        "engine": "theirs",
        "beside": "./their <matcher>",
        "batch": 20,
        "engine_options": {},
        "checked": {"equal": 20},
    }
    theirs = [at_rate({**record, **program}, record["events_per_s"] / 4) for record in ours]
    failed = {**theirs[0], "engine": "worse", "failure": {"how": "dies", "step": "build", "why": "it ended"}}
    write_report([*ours, *theirs, failed], tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<th>times counting</th><th>times theirs</th><th>build (s)</th><th>memory (MB)</th>" in text
    rows = [re.findall("<td>(.*?)</td>", row) for row in re.findall("<tr>(.*?)</tr>", text)]
    assert [row[5:7] for row in rows if row and row[0] == "counting"] == 2 * [["1", "4"]]
    assert [row[5:7] for row in rows if row and row[0] == "theirs"] == 2 * [["0.25", "1"]]
    assert "theirs is <code>./their &lt;matcher&gt;</code>" in text
    assert "worse dies at build on ccm: it ended" in text


def test_what_is_not_measured_of_an_experiment_is_said(records: list[dict[str, Any]], tmp_path: Path) -> None:
    def left_out(records: list[dict[str, Any]]) -> list[str]:
        write_report(records, tmp_path / "report.html")
        return re.findall("Not measured here: (.*?)\\.</b>", (tmp_path / "report.html").read_text(encoding="utf-8"))

    assert left_out(records) == ["the engines ccm, sff, keyed, keyed_cuda"], "values are of tables of another size"
    engines = ("ccm", "sff", "keyed")
    full = [{**record, "engine": engine, "scale": 1.0} for engine in engines for record in records[:4]]
    assert left_out(full) == ["the engine keyed_cuda", "string_share=0.25,0.5,0.75"]


def test_a_page_has_notes_and_says_what_absent_experiments_need(records: list[dict[str, Any]], tmp_path: Path) -> None:
    write_report(records[:4], tmp_path / "report.html", ["two at a time & <alone>"])
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<li>two at a time &amp; &lt;alone&gt;</li>" in text
    assert "<td>no results in these files; it needs tables of 212,000,000 filters</td>" in text
    assert "<td>no results in these files; it needs 4 GPUs, one for each worker</td>" in text
    assert "<td>no results in these files</td>" in text


def test_machines_are_apart_and_of_a_point_the_last_result_is_shown(records: list[dict[str, Any]], tmp_path: Path) -> None:
    plain = records[-1]
    later = at_rate({**plain, "date": "2999-01-01T00:00:00+00:00"}, 123_456.0)
    elsewhere = at_rate({**plain, "machine": {**plain["machine"], "cpu": "Another CPU", "cores": 3}}, 654_321.0)
    write_report([later, plain, elsewhere], tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<h3>Another CPU, 3 cores" in text
    assert text.count("<h3>") == 2, "each has its own"
    assert len(Page(text).images()) == 2
    assert ("<td>123,456</td>" in text, "<td>654,321</td>" in text, text.count("<td>counting</td>")) == (True, True, 2)


def test_printed_values_stand_beside_measured_ones(records: list[dict[str, Any]], tmp_path: Path) -> None:
    write_report(records, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert re.search(r"<td>workload: interfaces selected</td><td>numerical_share 100</td><td>~ 7 %</td>", text)
    assert "280 of 10,000 pairs" in text, "contradictions stay visible"
    assert "With 0.01 of the paper" in text
    assert "What these numbers cannot show" in text
    assert text.count("<h2") == 6, "places, three sections, what is not here, limits"


def test_no_results_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no results to report"):
        write_report([], tmp_path / "report.html")


def test_a_point_measured_again_with_more_options_or_events_hides_the_earlier_one() -> None:
    """The median of both stood as one value, with the commits of both."""
    of = {"experiment": "ccm-table-2", "machine": {"cpu": "x"}, "scenario": "ccm-strings", "parameters": {}, "scale": 1.0}
    old = {**of, "engine": "ccm", "engine_options": {"order": "sorted"}, "seed": 0, "n_events": 1000, "date": "2026-01-01"}
    new = {**old, "engine_options": {"order": "sorted", "sat": "codes"}, "n_events": 2000, "date": "2026-01-02"}
    others = [{**new, "seed": 1}, {**old, "engine_options": {"order": "given"}}, {**old, "scale": 0.5}]
    (points,) = points_of_each_machine([new, old, *others])
    assert points == [new, *others]
    unnamed = [{**each, "experiment": None} for each in (old, new)]
    assert points_of_each_machine(unnamed) == [unnamed], "what is of no experiment has all results"
