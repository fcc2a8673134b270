"""`verify` accepts right answers, and reports a wrong one with its reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command_line import N_EVENTS, N_FILTERS, mpi_match, only_line, verify_in

from mpi_match.arrays.strings import Strings
from mpi_match.engines.counting import Counting
from mpi_match.events.batch import EventBatch
from mpi_match.matches.file import MatchesFile, MatchesWriter
from mpi_match.matches.matches import Matches
from mpi_match.verify import verify


@pytest.mark.parametrize("judge", ["auto", "naive", "counting"])
@pytest.mark.parametrize("matches", ["matches.h5", "filters.h5"])
def test_verify_accepts_right_answers_and_names_the_judge(workload: Path, judge: str, matches: str) -> None:
    result = verify_in(workload, "--judge", judge, "--sample", 40, "--json", matches=matches)
    found = json.loads(result.stdout)
    assert (found["verified"], found["checked"], found["events"], found["difference"]) == (True, 40, N_EVENTS, None)
    assert found["matches"] > 0
    assert ("naive matcher on all 2,000 filters" in result.stderr) == (judge != "counting")
    assert ("counting engine on all 2,000 filters" in result.stderr) == (judge == "counting")


def test_verify_samples_half_among_the_answered(workload: Path) -> None:
    assert verify._sample(np.array([0] * 990 + [1] * 10), 16, 0).tolist()[-8:] >= [990] * 8
    assert np.array_equal(verify._sample(np.array([0, 1, 0]), 0, 0), [0, 1, 2])
    assert np.array_equal(verify._sample(np.array([0, 1, 0]), 9, 0), [0, 1, 2])
    sample = verify._sample(np.array([3] * 10), 6, 1)
    assert len(set(sample.tolist())) == 6


def rewritten(workload: Path, output: str, change: Callable[[list[list[int]]], object], source: str = "matches.h5") -> None:
    """A copy of answers in which `change` edited one list of ids per event."""
    file = MatchesFile.load(workload / source)
    found = [ids.tolist() for ids in (file.matches[i] for i in range(len(file.matches)))]
    change(found)
    unit = str(file.attributes["unit"])
    with MatchesWriter(workload / output, file.matches.n_ids, file.labels, unit) as writer:
        writer.append(Matches.of(found, file.matches.n_ids))


@pytest.mark.parametrize("judge", ["naive", "counting"])
def test_verify_shows_the_first_wrong_answer(workload: Path, judge: str) -> None:
    file = MatchesFile.load(workload / "matches.h5")
    event = next(i for i in range(100, N_EVENTS) if 0 < len(file.matches[i]) < 10)
    missing, extra = int(file.matches[event][0]), next(i for i in range(10) if i not in file.matches[event])

    def swap(found: list[list[int]]) -> None:
        found[event] = [extra if i == missing else i for i in found[event]]
        found[event + 1] = []

    rewritten(workload, "wrong.h5", swap)
    result = verify_in(workload, "--sample", 0, "--judge", judge, "--json", matches="wrong.h5", code=1)
    assert f"event {event} {{" in result.stderr
    assert f"missing   interface-{missing}, because of filter" in result.stderr
    assert f"too much  interface-{extra}, of whose " in result.stderr
    assert result.stderr.splitlines()[-1] == f"mpi-match: {workload / 'wrong.h5'}: event {event} is answered wrongly"
    assert json.loads(result.stdout)["verified"] is False


def test_verify_shows_wrong_filters(workload: Path) -> None:
    rewritten(workload, "wrong.h5", lambda found: found[3].append(5), source="filters.h5")
    result = verify_in(workload, "--sample", 0, matches="wrong.h5", code=1)
    assert "too much  filter 5 (interface-" in result.stderr


def test_verify_checks_the_counting_engine_too(workload: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(Counting):
        def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
            return Matches.of([[]], self._table.n_filters)

    monkeypatch.setattr(verify, "open_engine", lambda name, table: Silent(table))

    def clear(found: list[list[int]]) -> None:
        for ids in found:
            ids.clear()

    rewritten(workload, "wrong.h5", clear)
    result = verify_in(workload, "--sample", 0, "--judge", "counting", matches="wrong.h5", code=1)
    assert "the naive matcher says it matches, the counting engine that it does not" in result.stderr


def test_verify_refuses_files_of_different_runs(workload: Path, tmp_path: Path) -> None:
    mpi_match("generate", "ccm-10-names", "-o", tmp_path, "--filters", N_FILTERS, "--events", N_EVENTS, "--seed", 5)
    files = {"table": workload / "table.h5", "events": workload / "events.h5", "matches": workload / "matches.h5"}
    for what in ("table", "events"):
        changed = {**files, what: tmp_path / f"{what}.h5"}
        line = only_line(mpi_match("verify", *(x for k, v in changed.items() for x in (f"--{k}", v)), code=3))
        assert f"matches.h5: was made with another file of {what}" in line
    rewritten(workload, "short.h5", lambda found: found.pop())
    assert "answers 299 events" in only_line(verify_in(workload, matches="short.h5", code=3))
    with MatchesWriter(workload / "other.h5", 10, Strings.of(b"%d" % i for i in range(10))) as writer:
        writer.append(Matches.of([[]] * N_EVENTS, 10))
    assert "its interfaces are not those of" in only_line(verify_in(workload, matches="other.h5", code=3))
