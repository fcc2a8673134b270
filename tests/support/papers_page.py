"""The page of the papers' claims, `mpi_match/docs/papers.md`: what each paper says, with its status here.

    python tests/support/papers_page.py          writes it; tests/test_papers_page.py holds that it is current

Design claims are in `papers_audit.toml`.  Printed values come from `published.json`, and what was measured from the records.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from mpi_match.environment.machine import place_of  # noqa: E402
from mpi_match.lab.papers.catalog import EXPERIMENTS, SYSTEMS, Experiment  # noqa: E402
from mpi_match.lab.papers.claims import Claim, claims, of_experiment, parameters  # noqa: E402
from mpi_match.lab.papers.html_report import points_of_each_machine  # noqa: E402
from mpi_match.lab.papers.published import Printed, notes, printed  # noqa: E402

Record = dict[str, Any]
PAGE = REPOSITORY / "mpi_match" / "docs" / "papers.md"
AUDIT = Path(__file__).with_name("papers_audit.toml")
RECORDS = REPOSITORY / "tests" / "bench" / "records"
STATUSES = {
    "faithful": "faithful",
    "option": "an option",
    "differs": "differs",
    "cannot": "cannot be had",
}
TITLES = {
    "ccm": "CCM (Margara and Cugola, DEBS 2011)",
    "mpi-cuda": "MPI-CUDA (Shah and Kulkarni, IJCSE 2017)",
    "clcb": "CLCB (Cugola and Margara, Middleware 2012)",
    "farroukh": "Farroukh, Ferzli, Tajuddin and Jacobsen (DEBS 2009)",
    "tagmatch": "TagMatch (Rogora et al., EuroSys 2017)",
}
HEAD = """# The papers' claims

Every claim of the five papers, with its status here. `tests/support/papers_page.py` writes this page from the catalogue of
experiments, the values that the papers print, the records of measurements, and a list of design claims. A test holds that it
is current.

- **Faithful**: done as the paper has it. **An option**: done so when the option is set.
- **Differs**: done otherwise, as said. **Cannot be had**: not done, for the reason given.
- A printed value is **measured** if a record has the same quantity at the same point. The measured value is beside it; the
  papers' machines were others. Otherwise it is **not measured**, for the reason given.

`mpi-match experiment run NAME -o DIRECTORY` measures an experiment again; [experiments](experiments.md) explains how.
"""


class Entry(NamedTuple):
    """A design claim: see `papers_audit.toml`."""

    section: str
    claim: str
    status: str
    how: str = ""
    options: Sequence[str] = ()
    shown: Sequence[str] = ()


def audit() -> dict[str, list[Entry]]:
    """The design claims by system."""
    data = tomllib.loads(AUDIT.read_text(encoding="utf-8"))
    return {system: [Entry(**row) for row in data[system]] for system in SYSTEMS}


def records_of_experiments() -> list[Record]:
    """The records of experiments, in the order of the files' names and of their lines."""
    lines = (line for path in sorted(RECORDS.glob("*experiments.jsonl")) for line in path.read_text("utf-8").splitlines())
    return [record for line in lines if (record := json.loads(line)).get("experiment") in EXPERIMENTS]


def page() -> str:
    """The page."""
    records, entries = records_of_experiments(), audit()
    shown = {name: shown_claims(each, records) for name, each in EXPERIMENTS.items()}
    parts = [HEAD, *_summary(entries, shown)]
    for system in SYSTEMS:
        parts += ["", f"## {TITLES[system]}", "", *_design(entries[system])]
        for name, each in EXPERIMENTS.items():
            if each.system == system:
                parts += ["", f"### `{name}`: {each.title}", "", *_experiment(each, shown[name])]
        parts += ["", *_elsewhere(system)]
    parts += ["", "## Gaps and contradictions in the papers", "", *(f"- {each}" for each in notes())]
    return "\n".join(parts) + "\n"


class Shown(NamedTuple):
    """Every claim of an experiment, each with the number of the machine that measured it, and the machines."""

    found: list[Claim]
    machine_of: list[int]
    machines: list[str]


def shown_claims(experiment: Experiment, records: Sequence[Record]) -> Shown:
    """The claims of an experiment; each from the machine that has it, and of several from the one with the most claims."""
    mine = [record for record in records if record["experiment"] == experiment.name]
    of_machines = sorted(
        ((claims(experiment, points, mine), points[0]) for points in points_of_each_machine(mine)),
        key=lambda one: -_n_measured(one[0]),
    )
    if not of_machines:
        return Shown(claims(experiment, []) if experiment.runs else [], [], [])
    found, machine_of = list(of_machines[0][0]), [0] * len(of_machines[0][0])
    for number, (others, _) in enumerate(of_machines):
        for i, claim in enumerate(others):
            is_better = claim.measured is not None or found[i].why == "not run"
            if found[i].measured is None and is_better:
                found[i], machine_of[i] = claim, number
    return Shown(found, machine_of, [place_of(first).partition("; commit")[0] for _, first in of_machines])


def _place(shown: Shown, number: int) -> str:
    """A machine, with the commits of the values that it measured."""
    claims_of = zip(shown.machine_of, shown.found, strict=True)
    commits = {claim.commit[:12] for n, claim in claims_of if n == number and claim.measured is not None}
    return f"{shown.machines[number]}, commit {', '.join(sorted(commits))}"


def _n_measured(found: Sequence[Claim]) -> int:
    return sum(claim.measured is not None for claim in found)


def _summary(entries: dict[str, list[Entry]], shown: dict[str, Shown]) -> Iterator[str]:
    yield "| system | design claims: faithful | an option | differs | cannot be had | printed results | measured |"
    yield "|---|---|---|---|---|---|---|"
    for system in SYSTEMS:
        count = Counter(entry.status for entry in entries[system])
        found = [claim for name, each in shown.items() if EXPERIMENTS[name].system == system for claim in each.found]
        results = sum(each.kind == "result" for each in printed() if each.system == system)
        cells = [str(count[status]) for status in STATUSES]
        yield f"| [{system}](#{_anchor(TITLES[system])}) | {' | '.join(cells)} | {results} | {_n_measured(found)} |"


def _anchor(title: str) -> str:
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -")
    return kept.replace(" ", "-")


def _design(entries: Sequence[Entry]) -> Iterator[str]:
    yield "| section | claim | status | how | shown by |"
    yield "|---|---|---|---|---|"
    for each in entries:
        options = ", ".join(f"`{option}`" for option in each.options)
        how = " ".join(filter(None, [each.how, f"Options: {options}." if options else ""])) or "-"
        by = ", ".join(f"`{_short(name)}`" for name in each.shown) or "-"
        yield f"| {each.section} | {each.claim} | {STATUSES[each.status]} | {how} | {by} |"


def _short(name: str) -> str:
    """An experiment, or the name of a test without its file."""
    return name.rpartition("::")[2]


def _experiment(experiment: Experiment, shown: Shown) -> Iterator[str]:
    if experiment.not_rerun:
        yield f"Cannot be had: {experiment.not_rerun}."
        return
    if not experiment.runs:
        yield "| parameter | under | printed | here |"
        yield "|---|---|---|---|"
        for each, own in parameters(experiment):
            yield f"| {each.metric.replace('_', ' ')} | {each.where or '-'} | {_cell(each.text)} | {own} |"
        return
    yield f"Kept: {experiment.kept}."
    yield ""
    yield f"Differs: {experiment.differs}."
    yield ""
    if not shown.found:
        yield "The text prints no value of it."
        return
    used = sorted({n for n, claim in zip(shown.machine_of, shown.found, strict=False) if claim.measured is not None})
    marks = {number: f"({chr(ord('a') + i)}) " if len(used) > 1 else "" for i, number in enumerate(used)}
    yield f"Measured on: {'; '.join(marks[n] + _place(shown, n) for n in used)}." if used else "Not measured yet."
    yield ""
    yield "| value | under | printed | status | here |"
    yield "|---|---|---|---|---|"
    for i, claim in enumerate(shown.found):
        each, status = claim.printed, "not measured" if claim.measured is None else "measured"
        mark = marks[shown.machine_of[i]] if claim.measured is not None else ""
        here = claim.here.removeprefix("not measured: ").removeprefix("not measured") or WHY_NOT[each.system, each.metric]
        name = f"{each.subject}: {each.metric.replace('_', ' ')}"
        yield f"| {name} | {each.where or '-'} | {_cell(each.text)} | {status} | {mark}{_cell(here)} |"


WHY_NOT = {
    ("ccm", "cuda_overhead"): "memory of the driver, not of the engine",
    ("clcb", "bloom_false_positives"): "a test has 10 % with two hashes (`tests/engines/test_bloom_filters.py`)",
}
"""The reason why a printed value is not measured, by system and metric, where its claim has none."""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _elsewhere(system: str) -> Iterator[str]:
    """Printed values that stand in no table or figure of an experiment."""
    known = [each for one in EXPERIMENTS.values() if one.system == system for each in of_experiment(one)]
    rest = [each for each in printed() if each.system == system and each not in known]
    yield "### Other printed values"
    yield ""
    yield "| where | value | printed | status |"
    yield "|---|---|---|---|"
    for each in rest:
        name = f"{each.subject}: {each.metric.replace('_', ' ')}" + (f", {each.where}" if each.where else "")
        yield f"| {each.artifact} | {name} | {_cell(each.text)} | {_status_of(each)} |"


def _status_of(each: Printed) -> str:
    if each.kind == "hardware":
        return "cannot be had: the machine that measured is named at each experiment"
    if each.kind == "cited":
        return "cannot be had: a system that the paper cites"
    return REPEATED.get((each.system, each.artifact, each.metric), "not measured")


REPEATED = {
    ("ccm", "conclusions", "speedup"): "measured, as `ccm-table-2` and the figures",
    ("ccm", "method", "repetitions"): "an option: `--seeds 10`",
    ("ccm", "method", "confidence_interval"): "differs: each value has the interval of its repetitions or seeds",
    ("clcb", "method", "confidence_interval"): "differs: each value has the interval of its repetitions or seeds",
    ("clcb", "section 5", "moved_filters"): "faithful: `clcb-figure-5` moves 100 interfaces of 10 filters",
    ("clcb", "related work", "speedup"): "cannot be had: a system that the paper cites",
    ("mpi-cuda", "abstract", "speedup"): "measured, as `mpi-cuda-figure-3`",
    ("farroukh", "abstract", "matching_time_reduction"): "measured, as `farroukh-figure-7`",
    ("farroukh", "abstract", "throughput"): "measured, as `farroukh-figure-5`",
    ("farroukh", "conclusions", "matching_time_reduction"): "measured, as `farroukh-figure-7`",
    ("farroukh", "conclusions", "useful_threads"): "measured, as `farroukh-figure-7`",
    ("farroukh", "conclusions", "throughput"): "measured, as `farroukh-figure-5`",
    ("farroukh", "method", "runs"): "an option: `--seeds 5`",
    ("tagmatch", "introduction", "speedup"): "measured, as `tagmatch-table-1`",
    ("tagmatch", "conclusion", "speedup_over_twitter"): "cannot be had: the rate of a service at that time",
    ("tagmatch", "design", "bloom_bits"): "faithful",
    ("tagmatch", "design", "bloom_hashes"): "faithful",
    ("tagmatch", "design", "query_id_bits"): "faithful: a byte each",
    ("tagmatch", "design", "false_positive_probability"): "faithful: the same formula",
    ("tagmatch", "design", "waste_of_unpacked_pairs"): "faithful: results are packed by four",
    ("tagmatch", "design", "worst_case_loss"): "faithful: results are packed by four",
    ("tagmatch", "workload", "tags_per_set_mean"): "faithful: sets of 5 tags on the average",
    ("tagmatch", "workload", "extra_tags"): "faithful: 2 to 4 tags more than a set",
    ("tagmatch", "workload", "unique_sets"): "faithful: 212 million sets at full size",
    ("tagmatch", "workload", "users"): "faithful: 300 keys share 212 sets in `tagmatch-keys`",
    ("tagmatch", "workload", "tweets"): "cannot be had: the tweets are not available",
    ("tagmatch", "workload", "graph_users"): "cannot be had: the graph is not available",
    ("tagmatch", "workload", "graph_relations"): "cannot be had: the graph is not available",
    ("tagmatch", "workload", "one_language_share"): "cannot be had: the tweets are not available",
    ("tagmatch", "workload", "frequent_writers"): "cannot be had: the tweets are not available",
    ("tagmatch", "related work", "tables"): "cannot be had: the ICN matcher has no engine here",
}
"""The status of a printed value by system, artifact and metric, where no experiment has it."""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
