"""Rows of any form in Python are read by compiled code: Python calls nothing for each of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from mpi_match import LiveMatcher, make_batch, make_table

SUBSCRIPTIONS = [{"interface": str(i), "constraints": [["line", "contains", f"w{i} "]]} for i in range(50)]
TABLE = make_table(SUBSCRIPTIONS)
MATCHER = LiveMatcher(SUBSCRIPTIONS, engine="keyed")
READERS: dict[str, Callable[[list[dict[str, str]], Path], object]] = {
    "rows": lambda rows, path: make_batch(TABLE, rows),
    "columns": lambda rows, path: make_batch(TABLE, {"line": [row["line"] for row in rows]}),
    "file": lambda rows, path: make_batch(TABLE, path),
    "live rows": lambda rows, path: MATCHER.match(rows),
    "live file": lambda rows, path: MATCHER.match(path),
}
CALLS_OF_AN_ANSWER = 3
"""The labels of each event are a list."""


def calls_of(work: Callable[[], object]) -> int:
    """Number of calls that Python makes, of functions of any kind."""
    n = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal n
        n += event in ("call", "c_call")

    work()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return n


@pytest.mark.parametrize("name", READERS)
def test_no_row_is_walked_in_python(name: str, tmp_path: Path) -> None:
    """Text by text it took 45 times as long as the command."""
    found = []
    for n in (1000, 3000):
        rows, path = [{"line": f"w{i} w{i + 1} tail"} for i in range(n)], tmp_path / f"{n}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        found.append(calls_of(lambda: READERS[name](rows, path)))  # noqa: B023
    assert (found[1] - found[0]) / 2000 < (CALLS_OF_AN_ANSWER if name.startswith("live") else 0.5)
