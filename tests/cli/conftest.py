"""Fixtures of the tests of commands: a small workload, and rows of which some are bad."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from command_line import N_EVENTS, N_FILTERS, SUBSCRIPTIONS, mpi_match, run_in


@pytest.fixture(scope="session")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with table.h5, events.h5, matches.h5, filters.h5 (matched filters), subscriptions.jsonl, events.jsonl."""
    directory = tmp_path_factory.mktemp("workload")
    for format_ in ("h5", "jsonl"):
        mpi_match(
            "generate", "ccm-10-names", "-o", directory, "--filters", N_FILTERS, "--events", N_EVENTS, "--format", format_
        )
    for output, flags in (("matches.h5", []), ("filters.h5", ["--filters"])):
        run_in(directory, output, *flags)
    return directory


EVENTS = ['{"temp": 31, "pos": {"x": 3, "y": 4}, "n": "e1"}', '{"temp": 30, "n": "e2"}', '{"temp": 1e999}', '{"temp": 40}']


@pytest.fixture
def rows(tmp_path: Path) -> list[Any]:
    """Subscriptions (in a directory, packed) and events as JSON lines, one bad row in each."""
    directory = tmp_path / "subscriptions"
    directory.mkdir()
    (directory / "a.jsonl.gz").write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in SUBSCRIPTIONS).encode()))
    (tmp_path / "events.jsonl").write_text("\n".join(EVENTS) + "\n")
    return [directory, tmp_path / "events.jsonl", "-o", tmp_path / "m.h5", "--engine", "counting"]
