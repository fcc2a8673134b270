"""A stream of files of events and changes for followed runs, with the naive matcher's answers."""

from __future__ import annotations

import json
import random
from pathlib import Path

from following import answers_in, commit

from mpi_match.cluster import RunOptions
from mpi_match.ingest.rows.judge import event_of_row, parse_json, subscription_filters
from mpi_match.model import Filter, match_naive
from mpi_match.table.table import Table


def subscription(number: int, least: int, name: str = "temp") -> dict[str, object]:
    """A subscription with an operand that no other has."""
    return {"interface": f"i{number}", "constraints": [[name, ">=", least]], "id": f"s{number}"}


class Stream:
    """Events and changes as one sequence, with the naive matcher's answers."""

    def __init__(self, directory: Path) -> None:
        self.events, self.changes = directory / "events", directory / "changes"
        for each in (self.events, self.changes):
            each.mkdir()
        rows = [subscription(number, number) for number in range(4)]
        self._filters: dict[str, list[Filter]] = {str(row["id"]): list(subscription_filters(row)) for row in rows}
        self.table = directory / "table.h5"
        Table.from_filters([item for found in self._filters.values() for item in found]).save(self.table)
        self.answers: list[list[str]] = []
        self._n_files = 0

    def event_file(self, n_rows: int) -> None:
        draw = random.Random(self._n_files)
        rows = [json.dumps({"temp": draw.randrange(12), "new": draw.randrange(12)}).encode() for _ in range(n_rows)]
        filters = [item for found in self._filters.values() for item in found]
        self.answers += [sorted(match_naive(filters, event_of_row(parse_json(row)))) for row in rows]
        self._commit(self.events, rows)

    def change_file(self, *rows: object) -> None:
        for row in rows:
            match row:
                case {"add": dict(added)}:
                    self._filters[str(added["id"])] = list(subscription_filters(added))
                case {"remove": str(name)}:
                    self._filters.pop(name, None)
        self._commit(self.changes, [json.dumps(row).encode() for row in rows])

    def _commit(self, directory: Path, rows: list[bytes]) -> None:
        self._n_files += 1
        commit(directory, f"{-self._n_files}.jsonl", rows)

    def options(self, output: Path, **more: object) -> RunOptions:
        how = {"changes": self.changes, "engine": "keyed", "file_s": 0.05, "follow": True} | more
        return RunOptions(self.table, self.events, output, **how)  # type: ignore[arg-type]

    def check(self, output: Path) -> None:
        found = answers_in(output)
        assert [each["event"] for each in found] == list(range(len(self.answers)))
        assert [sorted(each["interfaces"]) for each in found] == self.answers
