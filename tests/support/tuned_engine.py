"""An engine on the CPU with options, for tests that pass them on; `opened` has those of its engines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mpi_match.engines.counting import Counting
from mpi_match.engines.option import Option
from mpi_match.engines.registry import Entry
from mpi_match.events.batch import EventBatch
from mpi_match.matches.matches import Matches
from mpi_match.table.table import Table

OPTIONS = (
    Option("order", "up", "which way", "1", ("up", "down")),
    Option("depth", 2, "how deep", "2.1", least=1, most=8),
    Option("share", 0.5, "how much", "2.2", least=0, most=1),
    Option("twice", False, "once more", "ours"),
)
DEFAULTS = {"order": "up", "depth": 2, "share": 0.5, "twice": False}
ENTRY = Entry("tuned_engine:Tuned", "counting with options", "tuned_engine:OPTIONS")
opened: list[dict[str, Any]] = []


class Tuned(Counting):
    """Counting; its device shows the options, and its steps count the batches."""

    name = "tuned"

    def __init__(
        self,
        table: Table,
        device: int | None = None,
        threads: int | None = None,
        *,
        live: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(table, device, threads, live=live)
        self.options = dict(options or {})
        self.device = json.dumps(self.options)
        self._timed, self._steps_s = False, {"look": 0.0, "count": 0.0}
        opened.append(self.options)

    def time_steps(self) -> None:
        self._timed = True

    @property
    def steps_s(self) -> Mapping[str, float]:
        return self._steps_s if self._timed else {}

    def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        self._steps_s["look"] += 1e-3 * len(batch)
        self._steps_s["count"] += 3e-3 * len(batch)
        return super().match(batch, filters=filters)
