"""`generate`: the same files for the same seed, in one part or many."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import mpi_match

from mpi_match.events.event_table import EventTable
from mpi_match.table.table import Table


def test_generate_reports_its_files(tmp_path: Path) -> None:
    result = mpi_match("generate", "ccm-strings", "-o", tmp_path / "new" / "d", "--filters", 50, "--events", 20, "--json")
    found = json.loads(result.stdout)
    assert (found["filters"], found["events"], found["scenario"]) == (50, 20, "ccm-strings")
    assert Table.load(found["subscriptions"]).n_filters == 50
    assert "50 filters" in result.stderr


def test_generate_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    digests = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        mpi_match("generate", "ccm", "-o", tmp_path / name, "--filters", 50, "--events", 20, "--seed", seed)
        digests.append([(tmp_path / name / file).read_bytes() for file in ("table.h5", "events.h5")])
    assert digests[0] == digests[1]
    assert digests[0][0] != digests[2][0]
    assert digests[0][1] != digests[2][1]


def test_many_events_are_written_in_parts_and_are_the_same_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("whole", "parts"):
        mpi_match("generate", "ccm", "-o", tmp_path / name, "--filters", 100, "--events", 1000)
        monkeypatch.setattr("mpi_match.lab.workloads.files.events_of_a_part", lambda scenario: 300)
    assert len(list((tmp_path / "parts" / "events.h5.parts").iterdir())) == 4
    vocabulary = Table.load(tmp_path / "parts" / "table.h5").vocabulary
    with (
        EventTable(tmp_path / "whole" / "events.h5", vocabulary) as a,
        EventTable(tmp_path / "parts" / "events.h5", vocabulary) as b,
    ):
        assert b.encoded_for_vocabulary
        assert np.array_equal(a.batch(0, 1000).attributes, b.batch(0, 1000).attributes)
        assert a.event(999) == b.event(999)
