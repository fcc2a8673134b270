"""Refused runs: one line from one rank, an exit code, and no file."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from lasting import lasting
from mpirun import DRIVER, FLAGS, MPIRUN, TESTS, alone, execute, launch, needs_mpirun, said
from run_inputs import Inputs, leftovers, plain_events

from mpi_match.cluster import ClusterError, RunOptions
from mpi_match.cluster.run_files import RunFiles
from mpi_match.events.event_table import save_events
from mpi_match.table.table import Table


def damage(source: Path, path: Path, what: str) -> Path:
    """A copy of a table with an error in it."""
    if what == "missing":
        return path
    if what == "another version":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("mpi_match.storage.writer.FORMAT_VERSION", 99)
            Table.from_filters([]).save(path)
        return path
    content = source.read_bytes()
    if what == "not HDF5":
        content = b"interface,constraints\n" * 100
    elif what == "truncated":
        content = content[: len(content) // 2]
    path.write_bytes(content)
    return path


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("another version", "format_version found 99, expected 2 or 3"),
        *lasting(("missing", "no such file"), ("not HDF5", "not a readable HDF5 file"), ("truncated", "truncated")),
    ],
)
def test_a_table_that_cannot_be_used_is_one_line_and_exit_code_3(
    what: str, words: str, inputs: Inputs, tmp_path: Path
) -> None:
    table, output = damage(inputs.table, tmp_path / "table.h5", what), tmp_path / "matches.h5"
    done = execute(launch(3, table, inputs.events, output, "engine=counting"))
    assert done.returncode == 3
    assert words in said(done)
    assert said(done).startswith(str(table))
    assert len(said(done).splitlines()) == 1
    assert leftovers(output) == []


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ("engine=counting schedule=sometimes", 2, "schedule is 'sometimes'; there is: dynamic, static"),
        pytest.param("engine=nonsense", 5, "unknown engine 'nonsense'", marks=pytest.mark.lasting),
        ("engine=refusing", 5, "this table is not for me; use reference (and 1 more ranks)"),
        ("engine=one_gpu", 5, "ranks 1 and 2 are on the same GPU of"),
        ("engine=counting gpu_map=0", 2, "--gpu-map has GPUs for 1 workers of a host, but there are more here"),
    ],
)
def test_a_run_that_cannot_start_is_one_line(options: str, code: int, words: str, inputs: Inputs, tmp_path: Path) -> None:
    output = tmp_path / "matches.h5"
    done = execute(launch(3, inputs.table, inputs.events, output, *options.split()))
    assert done.returncode == code
    assert words in said(done)
    assert len(said(done).splitlines()) == 1
    assert leftovers(output) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"placement": "everywhere"}, "placement is 'everywhere'; there is: replicate, shard, hybrid"),
        ({"results": "local", "placement": "shard"}, "with placement 'shard' no worker has a whole answer"),
        ({"route": True}, "--route does not go with --placement replicate, where every worker has all filters"),
        (
            {"route": True, "placement": "shard", "feed": "shared"},
            "where events do not pass through the master",
        ),
        ({"route": True, "placement": "shard", "changes": Path("c.h5")}, "--route does not go with --changes"),
        ({"route": True, "placement": "shard", "follow": True}, "--route does not go with --follow"),
        ({"results": "nowhere"}, "results is 'nowhere'; there is: master, local"),
        ({"feed": "carrier pigeon"}, "feed is 'carrier pigeon'; there is: master, shared, file"),
        ({"credits": 0}, "credits is 0; it must be at least 1"),
        ({"batch": -1}, "batch is -1; it must be at least 1"),
        ({"threads": 0}, "threads is 0; it must be at least 1"),
        ({"deadline": 0.0}, "deadline is 0; it must be more than 0 seconds"),
        ({"setup_limit": -1.0}, "setup_limit is -1; it must be more than 0 seconds"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=re.escape(words)) as caught:
        RunOptions(tmp_path / "table.h5", tmp_path / "events.h5", tmp_path / "matches.h5", **options).check()
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("events", ["rows.jsonl", "directory"])
def test_rows_are_not_routed_which_is_told_before_the_table_is_divided(events: str, tmp_path: Path) -> None:
    """A large table takes minutes to divide."""
    (tmp_path / "directory").mkdir()
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n')
    options = RunOptions(tmp_path / "table.h5", tmp_path / events, tmp_path / "matches.h5", placement="shard", route=True)
    with pytest.raises(ClusterError, match=f"{events}: is not an event table") as caught, RunFiles(options, 2):
        pass
    assert caught.value.exit_code == 2


def test_the_output_never_overwrites_an_input(inputs: Inputs) -> None:
    before = inputs.events.read_bytes()
    done = execute(alone(inputs.table, inputs.events, inputs.events, "engine=counting"))
    assert done.returncode == 2
    assert "would overwrite an input" in done.stderr
    assert inputs.events.read_bytes() == before


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize(
    ("there", "words"),
    [("nothing", "events.h5: no such file"), ("others", "is another event table here than on the master's")],
)
def test_feed_file_needs_the_same_file_on_every_host(there: str, words: str, inputs: Inputs, tmp_path: Path) -> None:
    """One path that is another file on each rank, as it may be on several hosts."""
    output, hosts = tmp_path / "matches.h5", [tmp_path / "master", tmp_path / "worker"]
    for host in hosts:
        host.mkdir()
    shutil.copy(inputs.events, hosts[0] / "events.h5")
    if there == "others":
        save_events(plain_events(300), hosts[1] / "events.h5", Table.load(inputs.table).vocabulary)
    rank = [sys.executable, "-m", "mpi4py", DRIVER, inputs.table, "/proc/self/cwd/events.h5", output, "feed=file"]
    master, worker = (["-n", 1, "--wdir", host, *rank] for host in hosts)
    done = execute([str(each) for each in (MPIRUN, *FLAGS, *master, ":", *worker)])
    assert done.returncode == 3
    assert words in said(done)
    assert "rank 1 on " in said(done)
    assert len(said(done).splitlines()) == 1
    assert leftovers(output) == []


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("variables", "cure"),
    [
        ({"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "0"}, "start the run with the mpirun of Open MPI"),
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "0"}, "srun --mpi=pmix"),
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "1"}, None),
    ],
)
@needs_mpirun
def test_silent_singletons_are_refused(variables: dict[str, str], cure: str | None, inputs: Inputs, tmp_path: Path) -> None:
    """Three launched processes, each of which is rank 0 of 1 in MPI; only the first reports it."""
    output = tmp_path / "matches.h5"
    command = [sys.executable, "-m", "mpi4py", str(DRIVER), str(inputs.table), str(inputs.events), str(output)]
    done = execute(command, **variables)
    assert done.returncode == 5
    assert said(done) == "" if cure is None else cure in said(done)
    assert len(said(done).splitlines()) == (cure is not None)
    assert leftovers(output) == []


@pytest.mark.mpi
@needs_mpirun
def test_ranks_with_another_version_of_the_package_are_refused(inputs: Inputs, tmp_path: Path) -> None:
    shutil.copytree(TESTS.parent / "mpi_match", tmp_path / "mpi_match", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "mpi_match" / "batch.py").open("a") as source:
        source.write("\n_MAGIC = 0\n")
    rank = [sys.executable, "-m", "mpi4py", DRIVER, inputs.table, inputs.events, tmp_path / "matches.h5"]
    other = ["-n", 1, "env", f"PYTHONPATH={tmp_path}", *rank]
    done = execute([str(each) for each in (MPIRUN, *FLAGS, "-n", 1, *rank, ":", *other)])
    assert done.returncode == 5
    assert "have different versions of mpi_match" in said(done)
    assert len(said(done).splitlines()) == 1
