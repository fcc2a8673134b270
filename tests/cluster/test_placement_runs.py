"""Runs with a sharded table: the same bytes as from one worker, and tables too large for one worker."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from mpirun import DRIVER, FLAGS, MPIRUN, TIMEOUT_S, alone, execute, launch, needs_mpirun, said
from run_inputs import Changing, Inputs

from mpi_match.changes.log import ChangeLog
from mpi_match.cluster import ClusterError, RunOptions
from mpi_match.cluster.distribution.partition import Division
from mpi_match.engines.keyed.cpu import Keyed
from mpi_match.events.event_table import save_events
from mpi_match.ingest.rows.judge import change_of_row, subscription_filters
from mpi_match.lab.bench.kills.disturbed_run import DisturbedRun, Files
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.matches.file import MatchesFile
from mpi_match.storage import Writer
from mpi_match.table.range_reader import RangeReader
from mpi_match.table.table import Table

pytestmark = [pytest.mark.mpi, needs_mpirun]


def test_any_placement_gives_the_same_filters(inputs: Inputs, tmp_path: Path) -> None:
    outputs = [tmp_path / f"{name}.h5" for name in ("alone", "shard", "hybrid")]
    how = (inputs.table, inputs.events), ("engine=counting", "batch=50", "filters=1")
    for command in (
        alone(*how[0], outputs[0], *how[1]),
        launch(3, *how[0], outputs[1], *how[1], "placement=shard"),
        launch(5, *how[0], outputs[2], *how[1], "placement=hybrid", "groups=2", "schedule=static"),
    ):
        done = execute(command)
        assert done.returncode == 0, done.stderr
    first, *others = (output.read_bytes() for output in outputs)
    assert all(other == first for other in others)
    assert MatchesFile.load(outputs[0]).matches.n_matches > 1000


@pytest.mark.parametrize("filters", [0, pytest.param(1, marks=pytest.mark.lasting)])
@pytest.mark.parametrize("some_match_all", [False, pytest.param(True, marks=pytest.mark.lasting)])
def test_events_that_are_routed_get_the_same_answers(
    some_match_all: bool, filters: int, inputs: Inputs, tmp_path: Path
) -> None:
    """Batches of one event are sent and answered as longer ones are, and events that go to every shard as those to one."""
    table, events = inputs.table, inputs.events
    if not some_match_all:
        drawn = SCENARIOS["packets"].scaled(2000)
        of_packets = Table.from_subscriptions(drawn.subscriptions())
        table, events = tmp_path / "table.h5", tmp_path / "events.h5"
        of_packets.save(table)
        save_events(drawn.events(300), events, of_packets.vocabulary)
    outputs = [tmp_path / f"{name}.h5" for name in ("alone", "shard", "one", "hybrid")]
    how, shares = ((table, events), ("engine=counting", f"filters={filters}")), []
    for command in (
        alone(*how[0], outputs[0], *how[1]),
        launch(3, *how[0], outputs[1], *how[1], "placement=shard", "route=1", "batch=50", "piece_bytes=300"),
        launch(3, *how[0], outputs[2], *how[1], "placement=shard", "route=1", "batch=1", "credits=1"),
        launch(5, *how[0], outputs[3], *how[1], "placement=hybrid", "groups=2", "schedule=static", "route=1", "batch=50"),
    ):
        done = execute(command)
        assert done.returncode == 0, done.stderr
        shares.append(json.loads(done.stdout)["routed_share"])
    first, *others = (output.read_bytes() for output in outputs)
    assert all(other == first for other in others)
    assert MatchesFile.load(outputs[0]).matches.n_matches > 50
    assert shares[0] is None, "nothing is routed"
    assert shares[1:] == [shares[1]] * 3, "each group has two shards"
    assert shares[1] == 1 if some_match_all else 0.5 < shares[1] < 0.8


def test_rows_that_workers_encode_are_not_routed(inputs: Inputs, tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text('{"n1": 1}\n')
    done = execute(launch(3, inputs.table, events, tmp_path / "m.h5", "engine=counting", "placement=shard", "route=1"))
    assert done.returncode == 2
    assert "compile it (`mpi-match compile events`), or leave out --route" in said(done)
    assert len(said(done).splitlines()) == 1


def test_parts_of_a_table_of_ranges_have_bitmaps_and_the_same_answers(tmp_path: Path) -> None:
    scenario, files = SCENARIOS["intervals-narrow"].scaled(6000), (tmp_path / "table.h5", tmp_path / "events.h5")
    table = Table.from_subscriptions(scenario.subscriptions())
    table.save(files[0])
    save_events(scenario.events(400), files[1], table.vocabulary)
    outputs = [tmp_path / f"{name}.h5" for name in ("alone", "shard")]
    for command in (
        alone(*files, outputs[0], "engine=counting", "batch=50", "filters=1"),
        launch(3, *files, outputs[1], "engine=keyed", "batch=50", "filters=1", "placement=shard"),
    ):
        done = execute(command)
        assert done.returncode == 0, done.stderr
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
    assert MatchesFile.load(outputs[0]).matches.n_matches
    half = Keyed(Table.from_filters([*table.iter_filters()][:3000]))
    assert len(half.bitmap.filters) == 3000


def test_changed_filters_are_answered_by_their_numbers(changing: Changing, tmp_path: Path) -> None:
    outputs = [tmp_path / "alone.h5", tmp_path / "shard.h5"]
    rest = f"changes={changing.changes}", "engine=reference", "batch=40", "filters=1"
    files = changing.table, changing.events
    commands = alone(*files, outputs[0], *rest), launch(4, *files, outputs[1], *rest, "placement=shard")
    for command in commands:
        done = execute(command)
        assert done.returncode == 0, done.stderr
    assert outputs[0].read_bytes() == outputs[1].read_bytes()


def test_a_table_with_conditions_is_divided(tmp_path: Path) -> None:
    """Its changes add more of them, and remove some.  Every fourth filter asks for one object of a list."""
    of_one_object = [
        {
            "interface": f"o{i % 9}",
            "id": f"f{i}",
            "constraints": [["l.x", "has", i % 3], ["l.y", "has", i % 4]],
            "arrays": "consistent",
        }
        for i in range(60)
    ]
    rows = [
        of_one_object[i]
        if i % 4 == 0
        else {
            "interface": f"i{i % 9}",
            "id": f"f{i}",
            "where": {"or": [["a", "=", i % 7], {"and": [["s", "prefix i", "X"], {"not": ["b", "=", i % 3]}]}]},
        }
        for i in range(60)
    ]
    events: list[dict[str, Any]] = [{"a": i % 8, "b": i % 3, "s": "xyz"[i % 3 :]} for i in range(150)]
    for i, event in enumerate(events):
        event["l"] = [{"x": i % 3, "y": i % 5}, {"x": i % 4, "y": i % 3}]
    table = Table.from_filters(item for row in rows[:50] for item in subscription_filters(row))
    table.save(tmp_path / "t.h5")
    changes: list[dict[str, Any]] = [{"before_event": 30 + i, "add": row} for i, row in enumerate(rows[50:])]
    changes += [{"before_event": 60 + i, "remove": f"f{2 * i}"} for i in range(28)]
    refused: list[Any] = []
    ChangeLog.of(table, map(change_of_row, changes), refused).save(tmp_path / "c.h5")
    assert not refused
    (tmp_path / "e.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    files = tmp_path / "t.h5", tmp_path / "e.jsonl"
    rest = "engine=reference", "batch=40", "filters=1", f"changes={tmp_path / 'c.h5'}"
    outputs = [tmp_path / f"{name}.h5" for name in ("alone", "shard", "hybrid")]
    for command in (
        alone(*files, outputs[0], *rest),
        launch(3, *files, outputs[1], *rest, "placement=shard"),
        launch(5, *files, outputs[2], *rest, "placement=hybrid", "groups=2"),
    ):
        done = execute(command)
        assert done.returncode == 0, done.stderr
    first, *others = (output.read_bytes() for output in outputs)
    assert all(other == first for other in others)
    assert MatchesFile.load(outputs[0]).matches.n_matches > 150


def test_a_table_over_the_limit_of_a_worker_runs_divided_and_not_whole(
    inputs: Inputs, expected: bytes, tmp_path: Path
) -> None:
    """Refused in one line, which names the number of workers needed; with that number no worker exceeds the limit."""
    output = tmp_path / "matches.h5"
    with RangeReader(inputs.table) as large:
        whole, limit = large.n_bytes, large.outline_bytes + int(large.grain_bytes.sum()) * 2 // 5
    files = inputs.table, inputs.events, output
    for n_workers, placement in ((1, "replicate"), (3, "replicate"), (2, "shard")):
        options = RunOptions(*files, placement=placement, memory_limit=limit)
        with pytest.raises(ClusterError) as refused:
            Division(options, n_workers)
        assert str(refused.value) == (
            f"{inputs.table}: takes {whole:,} bytes in memory, a worker may have {limit:,} (--memory-limit); divide it with "
            "--placement shard among at least 3 workers, or more to a group"
        )
        assert refused.value.exit_code == 2  # the same command would never do better, so `supervise` must not repeat it
    done = execute(launch(4, *files, "engine=weighing", "placement=shard", f"memory_limit={limit}"))
    assert done.returncode == 0, done.stderr
    sizes = [int(size) for size in re.findall(r"(\d+) bytes", json.loads(done.stdout)["device"])]
    assert 0 < max(sizes) <= limit < whole
    done = execute(launch(4, *files, "engine=counting", "placement=shard", f"memory_limit={limit}"))
    assert done.returncode == 0, done.stderr
    assert output.read_bytes() == expected


def test_placements_that_cannot_be_are_refused(inputs: Inputs, tmp_path: Path) -> None:
    options = "engine=counting", "placement=hybrid", "groups=2"
    done = execute(launch(4, inputs.table, inputs.events, tmp_path / "m.h5", *options))
    assert done.returncode == 2
    assert said(done).startswith("3 workers cannot form 2 groups of one size; start 3 or 5 ranks")


@pytest.mark.parametrize("wrong", [{"placement": "hybrid"}, {"groups": 2}, {"placement": "shard", "groups": 2}])
def test_groups_are_for_hybrid(wrong: dict[str, Any], tmp_path: Path) -> None:
    options = RunOptions(tmp_path / "t.h5", tmp_path / "e.h5", tmp_path / "m.h5", **wrong)
    with pytest.raises(ClusterError, match="--placement hybrid needs --groups, and no other has it"):
        options.check()


def test_a_limit_below_the_outline_is_refused(inputs: Inputs, tmp_path: Path) -> None:
    options = RunOptions(inputs.table, inputs.events, tmp_path / "m.h5", placement="shard", memory_limit=100)
    with pytest.raises(
        ClusterError, match=r"bytes of names, operands and labels are needed by every worker .* in 100; raise"
    ) as refused:
        Division(options, 4)
    assert refused.value.exit_code == 2


def test_a_part_that_is_no_table_is_refused_by_the_master(inputs: Inputs, tmp_path: Path) -> None:
    table, path = Table.load(inputs.table), tmp_path / "wrong.h5"
    with Writer(path, "table") as writer:
        for name, count in table.counts().items():
            writer.attribute(name, count)
        for name, array in table.arrays():
            wrong = array.copy()
            if name == "filters/interface":
                wrong[-1] = 10_000
            writer.array(name, wrong)
    done = execute(launch(3, path, inputs.events, tmp_path / "m.h5", "engine=counting", "placement=shard"))
    assert done.returncode == 3
    assert said(done) == f"{path}: is not a valid table: filters/interface holds 10,000, and there are 50; compile it again"


# A member dies


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files.make(tmp_path_factory.mktemp("members"), n_events=600)


def test_other_groups_take_over_for_a_group_that_loses_a_member(files: Files, ulfm: tuple[str, ...], tmp_path: Path) -> None:
    with DisturbedRun.of(files, tmp_path / "matches.h5", 4, "--placement", "hybrid", "--groups", "2", flags=ulfm) as run:
        run.begun(TIMEOUT_S)
        os.kill(run.pids()[3], signal.SIGKILL)
        assert run.wait(TIMEOUT_S)
        assert run.output.read_bytes() == files.expected.read_bytes(), run.said


@pytest.mark.parametrize(
    ("n_workers", "how", "killed", "loaded"),
    [
        pytest.param(4, ("--placement", "shard"), (3,), 1, marks=pytest.mark.lasting),
        (3, ("--placement", "shard"), (1, 2), 2),
        (3, ("--placement", "shard", "--route"), (1, 2), 2),
        pytest.param(4, ("--placement", "hybrid", "--groups", "2"), (2, 3), 0, marks=pytest.mark.lasting),  # 1, 4: a group
        (4, ("--placement", "hybrid", "--groups", "2"), (2, 4), 1),
        pytest.param(4, ("--placement", "hybrid", "--groups", "2", "--route"), (2, 4), 1, marks=pytest.mark.lasting),
    ],
)
def test_shards_of_lost_members_are_loaded_by_others(
    n_workers: int,
    how: tuple[str, ...],
    killed: tuple[int, ...],
    loaded: int,
    files: Files,
    ulfm: tuple[str, ...],
    tmp_path: Path,
) -> None:
    with DisturbedRun.of(files, tmp_path / "matches.h5", n_workers, *how, flags=ulfm) as run:
        run.begun(TIMEOUT_S)
        pids = run.pids()
        for rank in killed:
            os.kill(pids[rank], signal.SIGKILL)
        assert run.wait(TIMEOUT_S)
    assert run.process.returncode == 0, run.said
    assert run.output.read_bytes() == files.expected.read_bytes(), run.said
    assert sum("which a lost one had" in line for _, line in run.said) >= loaded, run.said


@pytest.mark.parametrize("options", [pytest.param("batch=1", marks=pytest.mark.lasting), "batch=17 credits=1 filters=1"])
def test_shards_of_lost_members_are_loaded_with_their_changes(
    options: str, changing: Changing, ulfm: tuple[str, ...], tmp_path: Path
) -> None:
    outputs = [tmp_path / "alone.h5", tmp_path / "shard.h5"]
    files, how = (changing.table, changing.events), (f"changes={changing.changes}", *options.split())
    done = execute(alone(*files, outputs[0], "engine=reference", *how))
    assert done.returncode == 0, done.stderr
    rest = (*files, outputs[1], "engine=dying_later", "placement=shard", *how)
    done = execute([str(each) for each in (MPIRUN, *FLAGS, *ulfm, "-n", 4, sys.executable, "-m", "mpi4py", DRIVER, *rest)])
    assert done.returncode == 0, done.stderr
    assert "which a lost one had" in said(done)
    assert outputs[1].read_bytes() == outputs[0].read_bytes()


def test_when_no_worker_has_memory_for_a_lost_shard_the_run_is_incomplete_and_can_be_resumed(
    files: Files, ulfm: tuple[str, ...], tmp_path: Path
) -> None:
    with RangeReader(files.table) as large:
        limit = large.outline_bytes + int(large.grain_bytes.sum()) * 3 // 4
    how = ("--placement", "shard", "--memory-limit", str(limit))
    with DisturbedRun.of(files, tmp_path / "matches.h5", 2, *how, flags=ulfm) as run:
        run.begun(TIMEOUT_S)
        os.kill(run.pids()[2], signal.SIGKILL)
        assert run.wait(TIMEOUT_S)
        assert [line for _, line in run.said if "too few workers are left to have all filters" in line], run.said
        assert run.process.returncode != 0
        assert not run.output.exists()
    resume = [sys.executable, "-m", "mpi_match", *files.arguments(run.output), "--resume"]
    assert execute(resume).returncode == 0
    assert run.output.read_bytes() == files.expected.read_bytes()
