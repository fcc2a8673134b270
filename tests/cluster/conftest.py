"""Fixtures of the tests of runs: compiled files, and the answers of one process, which any ranks have to reproduce."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from live_machine import Naive
from mpirun import ULFM, alone, execute, has_ulfm, said
from random_tables import Shape, random_subscriptions
from run_inputs import Changing, Inputs
from small_outputs import reference_all, run

from mpi_match.changes.live_table import Refusal
from mpi_match.changes.log import ChangeLog
from mpi_match.events.event_table import save_events
from mpi_match.events.events import Events
from mpi_match.ingest.rows.judge import ChangeRow
from mpi_match.matches.file import MatchesFile
from mpi_match.model import Area, Change, match_naive
from mpi_match.storage import StorageError
from mpi_match.table.table import Table
from mpi_match.verify.verify import VerifiedFiles, verify


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """A small table that has every type and areas, and 300 events."""
    directory = tmp_path_factory.mktemp("cluster")
    filters, events = random_subscriptions(7, Shape(n_filters=400, n_events=300, areas=0.3, sizes=(0, 3)))
    table = Table.from_filters(filters)
    table.save(directory / "table.h5")
    save_events(Events.of(events), directory / "events.h5", table.vocabulary)
    return Inputs(directory / "table.h5", directory / "events.h5", filters)


@pytest.fixture(scope="session")
def expected(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The answers of a run of this process."""
    output = tmp_path_factory.mktemp("alone") / "matches.h5"
    done = execute(alone(inputs.table, inputs.events, output, "engine=counting", "batch=1000"))
    assert done.returncode == 0, done.stderr
    return output.read_bytes()


@pytest.fixture(scope="session")
def changing(tmp_path_factory: pytest.TempPathFactory) -> Changing:
    """60 filters, 240 events, 150 changes: several before one event, none before others, some after the last."""
    directory, rng = tmp_path_factory.mktemp("changing"), np.random.default_rng(5)
    filters, published = random_subscriptions(
        3, Shape(n_filters=160, n_events=240, n_names=6, sizes=(0, 3), n_interfaces=9, areas=0.5)
    )
    named = [item._replace(id=f"f{i}") for i, item in enumerate(filters)]
    present, coming = named[:60], named[60:]
    rows = []
    for stamp in sorted(rng.integers(0, 250, 150).tolist()):
        target = f"f{rng.integers(100)}"
        kind = Change(int(rng.choice(len(Change), p=(0.35, 0.37, 0.18, 0.05, 0.05))))
        if kind is Change.ADD:
            rows.append(ChangeRow(kind, filters=(coming[int(rng.integers(100))],), before_event=stamp))
        elif kind is Change.REMOVE_INTERFACE:
            rows.append(ChangeRow(kind, str(rng.integers(9)), before_event=stamp))
        else:
            x, y = rng.integers(-20, 20, 2).tolist() if kind is Change.MOVE else (0, 0)
            circle = Area(x, y, 8.0) if kind is Change.MOVE else None
            rows.append(ChangeRow(kind, target, circle, before_event=stamp))
    table = Table.from_filters(present)
    table.save(directory / "table.h5")
    save_events(Events.of(published), directory / "events.h5", table.vocabulary)
    refused: list[Refusal] = []
    ChangeLog.of(table, rows, refused).save(directory / "changes.h5")

    naive, answers, left = Naive(present), [], list(rows)
    for number, event in enumerate(published):
        while left and left[0].before_event <= number:
            naive.apply(left.pop(0))
        answers.append(match_naive(naive.filters, event))
    table_file, events, changes = (directory / f"{name}.h5" for name in ("table", "events", "changes"))
    return Changing(table_file, events, changes, answers, len(refused))


@pytest.fixture(scope="session")
def expected_with_changes(changing: Changing, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The answers of one process, which are those of the naive matcher."""
    output = tmp_path_factory.mktemp("alone") / "matches.h5"
    files = (changing.table, changing.events, output, f"changes={changing.changes}")
    done = execute(alone(*files, "engine=reference", "batch=1000"))
    assert done.returncode == 0, done.stderr
    assert (
        said(done)
        == f"{changing.events} was not compiled for what the changes ask for: its events are encoded again on the way"
    )
    found = MatchesFile.load(output)
    assert [sorted(row, key=str.encode) for row in found.rows()] == changing.answers
    with pytest.raises(StorageError, match="its table changed during the run; name the changes"):
        verify(VerifiedFiles(changing.table, changing.events, output))
    for judge in ("naive", "counting"):
        verdict = verify(VerifiedFiles(changing.table, changing.events, output, changing.changes), sample=0, judge=judge)
        assert (verdict.difference, verdict.matches) == (None, sum(map(len, changing.answers)))
    return output.read_bytes()


@pytest.fixture(scope="session")
def ulfm() -> tuple[str, ...]:
    """The flags for fault tolerance."""
    if not has_ulfm():
        pytest.skip("this MPI has no fault tolerance (ULFM): Open MPI 5 has")
    return ULFM


@pytest.fixture(params=["copied", "referenced"])
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are copied to the journal, as short ones are, or the journal has references to them."""
    if request.param == "referenced":
        reference_all(monkeypatch)


@pytest.fixture
def referenced(monkeypatch: pytest.MonkeyPatch) -> None:
    reference_all(monkeypatch)


@pytest.fixture
def undisturbed(tmp_path: Path) -> bytes:
    """The output of an uninterrupted run."""
    run(tmp_path / "undisturbed.h5", 60)
    return (tmp_path / "undisturbed.h5").read_bytes()
