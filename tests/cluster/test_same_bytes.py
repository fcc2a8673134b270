"""Runs of one and of several ranks: the same bytes from all of them, whatever batches, schedule, feed and placement."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from lasting import lasting
from mpirun import TESTS, execute, launch, needs_mpirun, said
from run_inputs import Inputs, leftovers, plain_events

from mpi_match.cluster import FEEDS
from mpi_match.events.event_table import EventTable, save_events
from mpi_match.events.events import Events
from mpi_match.exit_codes import ExitCode
from mpi_match.matches.file import MatchesFile
from mpi_match.model import make_filter, match_naive
from mpi_match.table.table import Table


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize(
    ("ranks", "options"),
    [
        (2, "batch=1 credits=1"),
        (4, "batch=7 schedule=dynamic credits=2 feed=file"),
        (3, "batch=31 feed=shared schedule=static"),
        (3, "placement=shard schedule=static batch=17 piece_bytes=1000"),
        *(
            pytest.param(ranks, options, marks=pytest.mark.lasting)
            for ranks, options in (
                (5, "placement=hybrid groups=2 batch=31"),
                (1, "batch=17"),
                (2, "batch=1 feed=file"),
                (3, "batch=16 schedule=static"),
                (2, "batch=1000 schedule=static"),
                (3, "batch=100 piece_bytes=64"),
                (3, "batch=100 feed=shared piece_bytes=64"),
                (1, "batch=100 feed=file"),
                (1, "batch=100 feed=shared"),
                (3, "placement=shard batch=1 credits=1"),
                (3, "batch=17 feed=shared placement=shard"),
                (5, "placement=hybrid groups=2 schedule=static batch=100 feed=file"),
                (4, "batch=31 feed=file schedule=static credits=1"),
            )
        ),
    ],
)
def test_any_ranks_batch_size_schedule_feed_and_placement_give_the_same_bytes(
    ranks: int, options: str, inputs: Inputs, expected: bytes, tmp_path: Path
) -> None:
    output = tmp_path / "matches.h5"
    done = execute(launch(ranks, inputs.table, inputs.events, output, "engine=counting", *options.split()))
    assert done.returncode == 0, done.stderr
    assert said(done) == ""
    assert output.read_bytes() == expected
    summary = json.loads(done.stdout)
    assert (summary["events"], summary["workers"], summary["engine"]) == (300, max(1, ranks - 1), "counting")
    if ranks == 1:
        assert summary["round_trip_us"] is None
    else:
        assert 0 < summary["round_trip_us"]["p50"] <= summary["round_trip_us"]["p99"] < 1e6 * summary["wall_s"]
    assert leftovers(output) == ["matches.h5", "matches.h5.run.json"]


@pytest.mark.mpi
@needs_mpirun
def test_the_command_line_gives_the_same_bytes(inputs: Inputs, expected: bytes, tmp_path: Path) -> None:
    output = tmp_path / "matches.h5"
    files = ("--table", inputs.table, "--events", inputs.events, "-o", output)
    command = ("-m", "mpi4py", "-m", "mpi_match", "run")
    done = execute(launch(3, *files, "--engine", "counting", "--batch", 64, "--json", python=command))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["workers"] == 2
    assert output.read_bytes() == expected


def test_the_answers_are_those_of_the_naive_matcher(inputs: Inputs, expected: bytes, tmp_path: Path) -> None:
    path = tmp_path / "matches.h5"
    path.write_bytes(expected)
    rows = list(MatchesFile.load(path).rows())
    assert len(rows) == 300
    with EventTable(inputs.events, Table.load(inputs.table).vocabulary) as events:
        for i in range(0, 300, 10):
            assert rows[i] == match_naive(inputs.filters, events.event(i))
    assert any(rows)


@pytest.mark.mpi
@needs_mpirun
def test_filters_instead_of_interfaces(inputs: Inputs, tmp_path: Path) -> None:
    outputs = [tmp_path / f"{ranks}.h5" for ranks in (1, 3)]
    for ranks, output in zip((1, 3), outputs, strict=True):
        done = execute(launch(ranks, inputs.table, inputs.events, output, "engine=counting", "batch=50", "filters=1"))
        assert done.returncode == 0, done.stderr
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
    found = MatchesFile.load(outputs[0])
    assert found.attributes["unit"] == "filter"
    assert found.matches.n_matches > 0


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize("feed", ["file", *lasting(*(feed for feed in FEEDS if feed != "file"))])
def test_events_compiled_for_another_table_are_encoded_again(
    feed: str, inputs: Inputs, expected: bytes, tmp_path: Path
) -> None:
    other = Table.from_filters([make_filter("x", [["n3", ">", 1]])])
    with EventTable(inputs.events, other.vocabulary) as events:
        save_events(events.raw_part(0), tmp_path / "events.h5", other.vocabulary)
    output = tmp_path / "matches.h5"
    done = execute(launch(3, inputs.table, tmp_path / "events.h5", output, "engine=counting", "batch=50", f"feed={feed}"))
    assert done.returncode == 0, done.stderr
    assert said(done) == f"{tmp_path / 'events.h5'} was compiled for another table: its events are encoded again on the way"
    assert MatchesFile.load(output).matches == _matches(expected, tmp_path)


def _matches(content: bytes, directory: Path) -> Any:
    (directory / "expected.h5").write_bytes(content)
    return MatchesFile.load(directory / "expected.h5").matches


@pytest.mark.mpi
@needs_mpirun
def test_no_events_are_refused(inputs: Inputs, tmp_path: Path) -> None:
    save_events(Events.of([]), tmp_path / "events.h5", Table.load(inputs.table).vocabulary)
    output = tmp_path / "matches.h5"
    done = execute(launch(2, inputs.table, tmp_path / "events.h5", output, "engine=counting"))
    assert done.returncode == ExitCode.BAD_INPUT
    assert "events.h5: holds no event" in done.stderr
    assert not output.exists()


@pytest.mark.mpi
@needs_mpirun
def test_workers_of_a_host_share_one_read_only_copy_of_the_table(inputs: Inputs, tmp_path: Path) -> None:
    done = execute(launch(4, inputs.table, inputs.events, tmp_path / "matches.h5", "engine=whereabouts"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["device"].startswith("3 x read-only memory ")  # one memory, by its inode


@pytest.mark.mpi
@needs_mpirun
def test_answers_larger_than_any_buffer_before_are_not_cut(inputs: Inputs, tmp_path: Path) -> None:
    """The engine answers the first batches without matches and the last with every interface for every event."""
    events = tmp_path / "events.h5"
    save_events(plain_events(20_000), events, Table.load(inputs.table).vocabulary)
    outputs = [tmp_path / f"{ranks}.h5" for ranks in (1, 3)]
    for ranks, output in zip((1, 3), outputs, strict=True):
        done = execute(launch(ranks, inputs.table, events, output, "engine=growing", "batch=1000"))
        assert done.returncode == 0, done.stderr
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
    found = MatchesFile.load(outputs[0]).matches
    assert found.n_matches == 1000 * sum(i % found.n_ids + 1 for i in range(20))


def test_alone_needs_no_mpi(inputs: Inputs, expected: bytes, tmp_path: Path) -> None:
    output = tmp_path / "matches.h5"
    script = f"""
import sys
sys.modules["mpi4py"] = None  # as if it were not installed
sys.path.insert(0, {str(TESTS / "support")!r})
from cluster_driver import main
sys.exit(main([{str(inputs.table)!r}, {str(inputs.events)!r}, {str(output)!r}, "engine=counting"]))
"""
    done = execute([sys.executable, "-c", script], SLURM_NTASKS="8", SLURM_JOB_ID="1")  # a shell inside an allocation
    assert done.returncode == 0, done.stderr
    assert output.read_bytes() == expected
