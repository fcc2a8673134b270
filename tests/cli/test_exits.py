"""The end of commands: one line and an exit code for expected errors, a traceback for bugs."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import pytest
from click.testing import CliRunner
from command_line import in_a_process, mpi_match, only_line
from mpirun import TIMEOUT_S, environment

from mpi_match import engines
from mpi_match.cli import errors
from mpi_match.cli.main import commands
from mpi_match.cluster.signals import SIGNALS
from mpi_match.exit_codes import ExitCode
from mpi_match.table.table import Table


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--table", "no.h5", "--events", "no.h5", "-o", "m.h5"], "no.h5: no such file"),
        (["match", "no.jsonl", "no.jsonl", "-o", "m.h5"], "no.jsonl: no such file"),
        (["match", __file__, __file__, "-o", "no/m.h5"], "the directory no does not exist"),
        (["match", ".", ".", "-o", "m.h5"], "no JSON lines in this directory"),
        (["inspect", "no.h5"], "no.h5: no such file"),
        (["inspect", __file__], "is not a readable HDF5 file: it does not begin as one"),
        (["export", __file__], "is not a readable HDF5 file"),
        (["verify", "--table", "no.h5", "--events", "no.h5", "--matches", "no.h5"], "no.h5: no such file"),
    ],
)
def test_bad_input_is_one_line_and_code_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    line = only_line(mpi_match(*arguments, code=3))
    assert line.startswith("mpi-match: ")
    assert said in line
    assert list(tmp_path.iterdir()) == []


def test_exchanged_files_are_refused(workload: Path) -> None:
    files = ["--table", workload / "events.h5", "--events", workload / "table.h5", "-o", workload / "x.h5"]
    assert "holds 'events', expected 'table'" in only_line(mpi_match("run", *files, code=3))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["generate", "nonsense", "-o", "d"], "there is no 'nonsense'; there are: ccm, ccm-original"),
        (["generate", "ccm"], "Missing option '-o'"),
        (["translate", "rules"], "Missing option '--language'. Choose from: eventbridge, sigma\n"),
        (
            ["run", "--table", "a", "--events", "b", "-o", "c", "--engine", "fast"],
            "there is no 'fast'; there are: auto, reference",
        ),
        (["run", "--table", "a", "--events", "b", "-o", "c", "--credits", "0"], "0 is not in the range x>=1"),
        (
            ["run", "--table", "a", "--events", "b", "-o", "c", "--gpu-map", "0,-1"],
            "'0,-1' is not a list of GPU numbers such as 0,1",
        ),
        (
            ["run", "--table", "a", "--events", "b", "-o", "c", "--schedule", "odd"],
            "'odd' is not one of 'dynamic', 'static'",
        ),
        (["match", "a", "b", "-o", "c", "--location", "x"], "--location needs two attribute names"),
        (["compile", "events", "a", "--table", "t", "-o", "e", "--location", "x,"], "--location needs two attribute names"),
        (["compile", "subscriptions", "-o", "e"], "Missing argument 'IN...'"),
        (["nonsense"], "No such command 'nonsense'"),
        (
            ["compile", "--table", "t", "events", "a"],
            "--table is an option of `commands compile changes`, `commands compile events`, behind that name",
        ),
        (
            ["compile", "changes", "a", "--partitions", "3"],
            "--partitions is not an option here, but of `commands compile events`, `commands compile subscriptions`.",
        ),
        (["--strict", "match", "a", "b"], "--strict is an option of `commands match`, `commands run`"),
        (["compile", "subscriptions", "a", "-o", "s3a://b/x.h5"], "s3a://b/x.h5: is an address of another file system"),
        (["compile", "events", "a", "--table", "hdfs:///t", "-o", "x"], "hdfs:///t: is an address of another file system"),
        (
            ["run", "--follow", "--table", "t", "--events", "kafka://broker:9092/topic"],
            "kafka://broker:9092/topic: topics of Kafka are matched by Spark, which has a client: spark_prep.matched(spark",
        ),
        (["match", "a", "kafka://broker:9092/topic"], "kafka://broker:9092/topic: topics of Kafka are matched by Spark"),
        (["match", "a", "b", "--rejects", "gs://b/r"], "gs://b/r: is an address of another file system, and a local file"),
    ],
)
def test_wrong_usage_is_code_2(arguments: list[str], said: str) -> None:
    assert said in mpi_match(*arguments, code=2).stderr


def test_an_engine_that_cannot_run_is_code_5(rows: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, table: Table, **more: object) -> NoReturn:
        raise engines.EngineError("no GPU here")

    monkeypatch.setattr("mpi_match.commands.match.open_engine", refuse)
    assert only_line(mpi_match("match", *rows, code=5)) == "mpi-match: no GPU here"


@pytest.mark.parametrize("signal", [KeyboardInterrupt, "SIGTERM"])
def test_an_interrupted_command_leaves_nothing_and_is_code_130(
    rows: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signal: type[BaseException] | str
) -> None:
    def interrupted(*args: object, **kwargs: object) -> None:
        if signal is KeyboardInterrupt:
            raise KeyboardInterrupt
        os.kill(os.getpid(), 15)
        time.sleep(10)  # the handler runs first

    monkeypatch.setattr("mpi_match.commands.match.EventScanner.scan", interrupted)
    assert only_line(mpi_match("match", *rows, code=130)) == "mpi-match: interrupted"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events.jsonl", "subscriptions"]


def test_a_bug_keeps_its_traceback(rows: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpi_match.commands.match.EventScanner.scan", lambda scanner, block, rejects: 1 / 0)
    result = CliRunner().invoke(commands, [*map(str, ["match", *rows])])
    assert isinstance(result.exception, ZeroDivisionError)


def test_exit_codes_of_expected_errors() -> None:
    from mpi_match.cluster import ClusterError
    from mpi_match.lab.bench.engines import WrongAnswer
    from mpi_match.model import ModelError
    from mpi_match.storage import StorageError
    from spark_prep import SparkPrepError, SparkUnavailableError

    expected = {
        StorageError("x"): 3,
        ModelError("x"): 3,
        SparkPrepError("x"): 3,
        FileNotFoundError(2, "x"): 3,
        ClusterError("x"): 1,
        ClusterError("x", 5): 5,
        WrongAnswer("x"): 1,
        OSError(28, "No space left on device"): 1,
        engines.EngineError("x"): 5,
        SparkUnavailableError("x"): 5,
        ValueError("x"): None,
    }
    assert {error: errors.exit_code_of(error) for error in expected} == expected


def test_the_meaning_of_130_names_all_signals_that_end_a_command() -> None:
    assert set(re.findall("SIG[A-Z]+", ExitCode.INTERRUPTED.meaning)) == {number.name for number in SIGNALS}


@pytest.mark.parametrize(("rank", "exit_report"), [("0", "2\n"), ("1", None)])
def test_rank_0_reports_its_exit_code_in_a_file(rank: str, exit_report: str | None, tmp_path: Path) -> None:
    own = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": rank, "MPI_MATCH_EXIT_REPORT": str(tmp_path / "exit_report")}
    command = [sys.executable, "-m", "mpi_match", "run", "--nosuch"]
    done = subprocess.run(command, env=environment(**own), capture_output=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 2
    written = (tmp_path / "exit_report").read_text() if (tmp_path / "exit_report").exists() else None
    assert written == exit_report


def test_only_rank_0_reports_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "QUIET_S", 0)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    for rank, lines in (("0", 1), ("1", 0)):
        monkeypatch.setenv("OMPI_COMM_WORLD_RANK", rank)
        assert mpi_match("run", code=2).stderr.count("Missing option") == lines


def test_verbose_logs_decisions_on_standard_error(workload: Path) -> None:
    files = ["--table", workload / "table.h5", "--events", workload / "events.h5", "-o", workload / "v.h5"]
    done = in_a_process(sys.executable, "-m", "mpi_match", "run", "-v", "--engine", "counting", *files)
    assert "INFO mpi_match.cluster.local_run: engine counting" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(("rank", "where"), [(None, ""), ("3", " rank 3")])
def test_a_log_line_has_time_and_rank(rank: str, where: str, workload: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if rank is not None:
        monkeypatch.setenv("OMPI_COMM_WORLD_RANK", rank)
        monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "1")
    files = ["--table", workload / "table.h5", "--events", workload / "events.h5", "-o", workload / "where.h5"]
    done = mpi_match("run", "-v", "--engine", "counting", *files)
    host = re.escape(socket.gethostname())
    line = rf"^\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{{3}} {host}{where} INFO mpi_match\.cluster\.local_run: engine counting"
    assert re.search(line, done.stderr, re.MULTILINE), done.stderr
