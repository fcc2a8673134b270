"""The values that the papers print, as data (`published.json`; its `fields` describe each field)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from mpi_match.model import Json


class Printed(NamedTuple):
    """One printed value.

    system, paper    one of the five systems; authors, venue, year
    artifact         table, figure or part of the paper; `section` where it stands
    kind             parameter, result, hardware, cited
    subject, metric  the engine or variant; the quantity measured or set
    relation, value, unit
                     as printed: `= 0.144 ms`, `> 13 x`; a list is a range, or several values
    parameters       conditions under which it holds
    baseline         the reference of a ratio, if not the paper's usual one
    note             contradictions and derivations
    """

    system: str
    paper: str
    artifact: str
    kind: str
    subject: str
    metric: str
    relation: str
    value: Any
    unit: str
    parameters: Mapping[str, Any]
    section: str
    baseline: str = ""
    note: str = ""

    @property
    def text(self) -> str:
        """The value as printed, with its unit."""
        value = " to ".join(map(str, self.value)) if isinstance(self.value, list) else str(self.value)
        relation = "" if self.relation == "=" else f"{self.relation} "
        return f"{relation}{value} {self.unit}".rstrip()

    @property
    def where(self) -> str:
        """The parameters under which it holds, as text."""
        return ", ".join(f"{key} {value}" for key, value in self.parameters.items())


@cache
def printed() -> tuple[Printed, ...]:
    """All printed values, in the order of the papers."""
    return tuple(Printed(**record) for record in _data()["records"])


@cache
def titles() -> dict[tuple[str, str], str]:
    """Title of each table and figure, by system and artifact."""
    return {(each["system"], each["artifact"]): each["title"] for each in _data()["artifacts"]}


def notes() -> list[str]:
    """Gaps and contradictions in the papers at hand."""
    return list(_data()["notes"])


@cache
def _data() -> Json:
    data: dict[str, Any] = json.loads(files(__package__).joinpath("published.json").read_text(encoding="utf-8"))
    return data
