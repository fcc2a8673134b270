"""The tables of `mpi_match/docs/bias.md`: where records say that others are better than our engines; see `results`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mpi_match.lab.bench.comparison import verdict
from mpi_match.lab.bench.report import engine_of
from mpi_match.lab.bench.sweep_report import QUANTITIES, Measured, measured, quantity, varied
from mpi_match.lab.papers.catalog import OURS

Record = dict[str, Any]

PAGE = Path(__file__).resolve().parents[2] / "mpi_match" / "docs" / "bias.md"
BEGIN, END = "<!-- losses: written by tests/support/results.py -->\n", "<!-- end of losses -->\n"
COMPARED = ("us_per_event", "build_s", "whole_bytes", "one_move_us")
"""Less is better, of each of these."""
_OF_REPETITIONS = ("us_per_event",)
"""Whose interval is that of the repetitions: one of them has none."""


class Loss(NamedTuple):
    """One point at which another engine is better than ours, and by how many times."""

    key: str
    ours: str
    other: str
    times: float
    where: str
    commit: str


def of_experiments(records: Path) -> list[Record]:
    """The records of engines in the files of experiments."""
    lines = [line for file in sorted(records.glob("*-experiments.jsonl")) for line in file.read_text().splitlines()]
    return [record for record in map(json.loads, lines) if record.get("what") != "ranks"]


def losses(records: Sequence[Record]) -> tuple[list[Loss], dict[tuple[str, str, str], int]]:
    """All losses, and the number of points that were compared, by quantity, our engine and the other."""
    found, compared = [], dict[tuple[str, str, str], int]()
    points: dict[str, list[Record]] = {}
    for record in records:
        own = {key: value for key, value in (record.get("parameters") or {}).items() if "." not in key}
        at = [record["experiment"], record["scenario"], own, record.get("scale"), record["commit"], record["machine"]["cpu"]]
        points.setdefault(json.dumps(at), []).append(record)
    vary = {
        name: set(varied([record for record in records if record["experiment"] == name]))
        for name in {record["experiment"] for record in records}
    }
    for point, group in points.items():
        experiment, _, own, *_ = json.loads(point)
        where = " ".join([experiment, *(f"{key}={value}" for key, value in own.items() if key in vary[experiment])])
        for key in COMPARED:
            sure = [r for r in group if key not in _OF_REPETITIONS or r["repetitions"] > 1]
            values = {engine_of(r): measured([r], key) for r in sure if quantity(r, key) is not None}
            for ours in (name for name in OURS if name in values):
                for other, value in values.items():
                    if other not in OURS:
                        compared[key, ours, other] = compared.get((key, ours, other), 0) + 1
                        if _is_less(value, values[ours]):
                            times = values[ours].median / value.median
                            found.append(Loss(key, ours, other, times, where, group[0]["commit"]))
    return found, compared


def _is_less(value: Measured, than: Measured) -> bool:
    """Less, and not by noise: intervals do not overlap."""
    return verdict(than, value) == "worse" and value.median > 0


def tables(records: Sequence[Record]) -> str:
    """For each quantity, how often anything is better than ours, and a row for each engine that is, with the worst point."""
    found, compared = losses(records)
    parts = []
    for key in COMPARED:
        mine = [loss for loss in found if loss.key == key]
        if not mine:
            continue
        of_all = {ours: sum(n for (of, name, _), n in compared.items() if (of, name) == (key, ours)) for ours in OURS}
        lost = [f"`{ours}` at {sum(loss.ours == ours for loss in mine):,} of {n:,}" for ours, n in of_all.items() if n]
        rows = [
            f"### {QUANTITIES[key][0].upper()}{QUANTITIES[key][1:]}\n",
            f"Another engine is better than {', than '.join(lost)} comparisons.\n",
            f"| better | {' | '.join(f'than `{ours}`, at points; by, at most; there' for ours in OURS)} |",
            f"|---{'|---' * len(OURS)}|",
        ]
        for other in dict.fromkeys(loss.other for loss in mine):
            cells = [_worst([loss for loss in mine if (loss.ours, loss.other) == (ours, other)], compared) for ours in OURS]
            rows.append(f"| `{other}` | {' | '.join(cells)} |")
        parts.append("\n".join(rows) + "\n")
    return "\n".join(parts)


def _worst(mine: Sequence[Loss], compared: dict[tuple[str, str, str], int]) -> str:
    """How often one engine of ours loses against another one, and where by most; "-" where it never does."""
    if not mine:
        return "-"
    worst = max(mine, key=lambda loss: loss.times)
    times = f"{worst.times:,.0f}" if worst.times >= 100 else f"{worst.times:.3g}"
    points = f"{len(mine)} of {compared[worst.key, worst.ours, worst.other]}"
    return f"{points}; {times} ×; {worst.where}, `{worst.commit[:12]}`"


def with_losses(page: str, records: Path) -> str:
    """The page with its tables made anew."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{tables(of_experiments(records))}\n{END}{rest.split(END)[1]}"
