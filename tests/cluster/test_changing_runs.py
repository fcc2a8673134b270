"""Runs with changes: every event sees those before it and no others, whatever the ranks and the batches."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpirun import alone, execute, launch, needs_mpirun, said
from run_inputs import Changing, Inputs, leftovers, plain_events

from mpi_match.changes.changes import Changes
from mpi_match.changes.log import ChangeLog
from mpi_match.changes.stream import StampedChanges
from mpi_match.cluster.match_in_order import match_changing
from mpi_match.cluster.results.journal import Journal
from mpi_match.events.batch import EventBatch
from mpi_match.events.event_table import save_events
from mpi_match.ingest.rows.judge import ChangeRow
from mpi_match.journal.reader import RunIdentity, journal_of
from mpi_match.matches.file import MatchesFile
from mpi_match.matches.matches import Matches
from mpi_match.model import Change, make_filter
from mpi_match.storage import Reader
from mpi_match.table.table import Table


def test_the_changes_make_a_difference(changing: Changing, tmp_path: Path) -> None:
    with Reader(changing.changes, "changes") as reader:
        stamps, kinds = reader.array("changes/before_event"), reader.array("changes/kind")
    assert set(kinds.tolist()) == set(Change)
    assert len(np.unique(stamps)) < len(stamps)
    assert changing.n_refused < 100
    done = execute(alone(changing.table, changing.events, tmp_path / "m.h5", "engine=counting"))
    assert done.returncode == 0, done.stderr
    still = [sorted(row, key=str.encode) for row in MatchesFile.load(tmp_path / "m.h5").rows()]
    assert sum(a != b for a, b in zip(still, changing.answers, strict=True)) > 100


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize(
    ("ranks", "options"),
    [
        (2, "batch=1 credits=1 feed=file"),
        (3, "batch=7 feed=shared schedule=static"),
        (5, "placement=hybrid groups=2 batch=17"),
        *(
            pytest.param(ranks, options, marks=pytest.mark.lasting)
            for ranks, options in (
                (3, "placement=shard batch=64 piece_bytes=1000"),
                (3, "batch=7 schedule=static"),
                (3, "batch=17 feed=shared"),
                (1, "batch=50"),
                (1, "batch=1"),
                (2, "batch=1 feed=file"),
                (2, "batch=1000 schedule=static"),
                (3, "batch=1"),
                (4, "batch=17"),
                (4, "batch=64 piece_bytes=64"),
                (3, "batch=17 feed=file"),
                (3, "placement=shard batch=1"),
            )
        ),
    ],
)
def test_every_event_sees_the_changes_before_it_and_no_others(
    ranks: int, options: str, changing: Changing, expected_with_changes: bytes, tmp_path: Path
) -> None:
    output = tmp_path / "matches.h5"
    files = (changing.table, changing.events, output, f"changes={changing.changes}")
    done = execute(launch(ranks, *files, "engine=reference", *options.split()))
    assert done.returncode == 0, done.stderr
    assert output.read_bytes() == expected_with_changes


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize("options", ["batch=5", pytest.param("batch=20 schedule=static", marks=pytest.mark.lasting)])
def test_a_batch_that_is_sent_again_sees_the_changes_before_it_and_no_others(
    options: str, changing: Changing, expected_with_changes: bytes, tmp_path: Path
) -> None:
    """Every other worker has applied later changes by then, which cannot be undone."""
    output = tmp_path / "matches.h5"
    files = (changing.table, changing.events, output, f"changes={changing.changes}")
    done = execute(launch(4, *files, "engine=pausing_reference", "deadline=2", *options.split()))
    assert done.returncode == 0, said(done)
    assert "another worker gets them too" in said(done)
    assert output.read_bytes() == expected_with_changes


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize("ranks", [1, 3])
def test_a_run_with_changes_resumes_between_journalled_events(
    ranks: int, changing: Changing, expected_with_changes: bytes, tmp_path: Path
) -> None:
    output = tmp_path / "matches.h5"
    output.write_bytes(expected_with_changes)
    whole = MatchesFile.load(output)
    digests = [whole.attributes[f"{name}_digest"] for name in ("table", "events", "changes")]
    with Journal(journal_of(output), RunIdentity("interface", whole.matches.n_ids, 240, *digests), resume=False) as journal:
        for start, stop in [(0, 31), (60, 64), (200, 233)]:
            first, last = whole.matches.offsets[start], whole.matches.offsets[stop]
            journal.append(start, whole.matches.counts[start:stop], whole.matches.ids[first:last])
    output.unlink()
    files = (changing.table, changing.events, output, f"changes={changing.changes}")
    done = execute(launch(ranks, *files, "engine=reference", "batch=7", "resume=1"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["resumed"] == 68
    assert output.read_bytes() == expected_with_changes


@given(stamps=st.lists(st.integers(0, 12), max_size=8).map(sorted), n_events=st.integers(1, 10))
def test_a_batch_is_matched_in_pieces_between_its_changes(stamps: list[int], n_events: int) -> None:
    stamps = [stamp for stamp in stamps if stamp < n_events]
    table = Table.from_filters([make_filter("a", [], [0, 0, 1])])
    seen: list[int] = []

    class Recorder:
        """Answers every event with how many changes it has seen, in ids."""

        def update(self, changes: Changes) -> None:
            seen.extend(changes.area[:, 0].astype(int).tolist())

        def match(self, batch: EventBatch, *, filters: bool) -> Matches:
            return Matches.from_counts(np.full(len(batch), len(seen)), np.zeros(len(batch) * len(seen), np.int64), 99)

    n = len(stamps)
    moves = Changes.of(
        np.full(n, Change.MOVE, np.uint8),
        np.zeros(n, np.uint32),
        np.repeat(np.arange(n), 3).reshape(n, 3),
        np.zeros(0, np.uint32),
        None,
        1,
        1,
    )
    batch = EventBatch(np.zeros(n_events + 1, np.uint32), np.zeros(0, np.uint32), None, table.vocabulary.fingerprint)
    found = match_changing(Recorder(), batch, StampedChanges(np.array(stamps, np.int64), moves), filters=False)  # type: ignore[arg-type]
    assert found.counts.tolist() == [sum(stamp <= event for stamp in stamps) for event in range(n_events)]
    assert seen == list(range(n))


@pytest.mark.mpi
@needs_mpirun
def test_answers_have_one_type_also_before_the_change_that_makes_it_wider(tmp_path: Path) -> None:
    table, events, changes, output = (tmp_path / f"{name}.h5" for name in ("table", "events", "changes", "matches"))
    there = Table.from_filters([make_filter(str(i), [["n3", "exists"]]) for i in range(255)])
    there.save(table)
    save_events(plain_events(6), events, there.vocabulary)
    one_more = ChangeRow(Change.ADD, filters=(make_filter("the 256th", [["n3", "exists"]]),), before_event=4)
    ChangeLog.of(there, [one_more], []).save(changes)
    done = execute(launch(2, table, events, output, f"changes={changes}", "engine=reference", "batch=2"))
    assert done.returncode == 0, done.stderr
    assert MatchesFile.load(output).matches.counts.tolist() == [255] * 4 + [256] * 2


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize(
    ("engine", "code", "words"),
    [
        ("counting", 5, "engine 'counting' serves tables that do not change"),
        ("reference", 3, "changes.h5: the changes were compiled for another table"),
    ],
)
def test_changes_that_cannot_be_made_are_one_line(
    engine: str, code: int, words: str, changing: Changing, inputs: Inputs, tmp_path: Path
) -> None:
    table, events = (changing.table, changing.events) if code == 5 else (inputs.table, inputs.events)
    output = tmp_path / "matches.h5"
    done = execute(launch(2, table, events, output, f"changes={changing.changes}", f"engine={engine}"))
    assert done.returncode == code
    assert words in said(done).splitlines()[-1]
    assert leftovers(output) == []
