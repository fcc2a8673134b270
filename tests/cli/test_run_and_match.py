"""`run` and `match`: the same answers, a summary, and rejected rows; under mpirun one rank prints."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import N_EVENTS, SUBSCRIPTIONS, mpi_match, only_line, run_in
from mpirun import execute, launch, needs_mpirun

from mpi_match.cli import main
from mpi_match.compute import compile_cache
from mpi_match.engines import Engine, open_engine
from mpi_match.events.event_table import EventTable
from mpi_match.matches.file import MatchesFile
from mpi_match.model import match_naive
from mpi_match.table.table import Table

SUMMARY_KEYS = {"events", "matches", "wall_s", "events_per_s", "engine", "device", "workers", "rejected"}


def test_run_and_match_agree_with_each_other_and_with_match_naive(workload: Path, tmp_path: Path) -> None:
    rows = [workload / "subscriptions.jsonl", workload / "events.jsonl"]
    result = mpi_match("match", *rows, "-o", tmp_path / "m.h5", "--engine", "counting", "--json")
    by_rows, by_tables = MatchesFile.load(tmp_path / "m.h5"), MatchesFile.load(workload / "matches.h5")
    assert list(by_rows.rows()) == list(by_tables.rows())
    table = Table.load(workload / "table.h5")
    filters = list(table.iter_filters())
    with EventTable(workload / "events.h5", table.vocabulary) as events:
        expected = [match_naive(filters, events.event(i)) for i in range(20)]
    assert any(expected)
    assert list(by_rows.rows())[:20] == expected

    found = json.loads(result.stdout)
    assert set(found) >= SUMMARY_KEYS
    assert (found["events"], found["matches"], found["engine"]) == (N_EVENTS, by_tables.matches.n_matches, "counting")
    assert (found["workers"], found["rejected"]) == (1, 0)


def test_run_prints_its_summary_and_nothing_else_on_standard_output(workload: Path) -> None:
    result = run_in(workload, "again.h5", "--json", "--batch", 7, "--schedule", "static")
    found = json.loads(result.stdout)
    more = {
        "round_trip_us",
        "routed_share",
        "resumed",
        "compile_s",
        "engine_options",
        "flagged",
        "scanned_on_gpu",
        "never_seen",
        "doubts",
        "latency_us",
        "untaken",
        "cut_off",
    }
    assert set(found) == SUMMARY_KEYS | more
    assert found["events"] == N_EVENTS
    assert f"{N_EVENTS} events" in result.stderr
    assert (workload / "again.h5").read_bytes() == (workload / "matches.h5").read_bytes()
    assert run_in(workload, "again.h5").stdout == ""


@pytest.mark.parametrize("command", ["match", "run"])
def test_compile_time_is_reported_apart_from_matching(
    command: str, workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_slowly(name: str, table: Table, **options: Any) -> Engine:
        with compile_cache.compile_once("an engine of this test"):
            time.sleep(0.1)
        return open_engine(name, table, **options)

    where = {"match": "commands.match", "run": "cluster.local_run"}[command]
    monkeypatch.setattr(f"mpi_match.{where}.open_engine", open_slowly)
    monkeypatch.setattr(compile_cache, "directory", lambda: tmp_path)
    monkeypatch.setattr(main, "WORTH_SAYING_S", 0.05)
    rows = (workload / "subscriptions.jsonl", workload / "events.jsonl")
    files = {"match": rows, "run": ("--table", workload / "table.h5", "--events", workload / "events.h5")}[command]
    first, second = (mpi_match(command, *files, "-o", tmp_path / "m.h5", "--engine", "counting", "--json") for _ in range(2))
    assert "compiled for this machine in 1" in first.stderr
    assert 0.1 <= json.loads(first.stdout)["compile_s"] < 1
    assert "compiled" not in second.stderr
    assert json.loads(second.stdout)["compile_s"] == 0


def test_match_sets_bad_rows_aside_with_reason_file_and_line(rows: list[Any], tmp_path: Path) -> None:
    result = mpi_match(
        "match", *rows, "--location", "pos.x,pos.y", "--id", "n", "--rejects", tmp_path / "bad.jsonl", "--json"
    )
    assert list(MatchesFile.load(tmp_path / "m.h5").rows()) == [["hot", "near"], [], [], ["hot"]]
    assert json.loads(result.stdout)["rejected"] == 2
    assert "events.jsonl, line 3: attribute 'temp': the number 1e999 is beyond the range of a double" in result.stderr
    bad = [json.loads(line) for line in (tmp_path / "bad.jsonl").read_text().splitlines()]
    assert [(Path(b["file"]).name, b["line"]) for b in bad] == [("a.jsonl.gz", 3), ("events.jsonl", 3)]
    assert json.loads(bad[0]["row"])["interface"] == "broken"


def test_match_counts_the_rejects_that_it_does_not_show(rows: list[Any], tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text("[]\n" * 20 + "{}\n")
    result = mpi_match("match", *rows)
    assert "rejected: 16 more (--rejects FILE keeps them)" in result.stderr
    assert result.stderr.count("rejected: ") == 6


def test_match_filters_answers_with_filters(rows: list[Any], tmp_path: Path) -> None:
    mpi_match("match", *rows, "--filters", "--location", "pos.x,pos.y")
    found = MatchesFile.load(tmp_path / "m.h5")
    assert found.attributes["unit"] == "filter"
    assert list(found.rows()) == [["0", "1"], [], [], ["0"]]


@pytest.mark.parametrize("bad", ["subscriptions", "events"])
def test_match_strict_stops_at_a_bad_row_and_writes_nothing(rows: list[Any], tmp_path: Path, bad: str) -> None:
    if bad == "events":
        (tmp_path / "subscriptions" / "a.jsonl.gz").write_bytes(gzip.compress(json.dumps(SUBSCRIPTIONS[0]).encode()))
    result = mpi_match("match", *rows, "--strict", code=3)
    line = only_line(result)
    assert "line 3: " in line
    assert "--strict" in line
    assert ("a.jsonl.gz" in line) == (bad == "subscriptions")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events.jsonl", "subscriptions"]


@pytest.mark.parametrize("flag", ["-o", "--rejects"])
def test_inputs_are_never_overwritten(rows: list[Any], tmp_path: Path, flag: str) -> None:
    before = (tmp_path / "events.jsonl").read_bytes()
    assert "is an input" in only_line(mpi_match("match", *rows, flag, tmp_path / "events.jsonl", code=3))
    assert (tmp_path / "events.jsonl").read_bytes() == before
    mpi_match("match", *rows)
    answers = (tmp_path / "m.h5").rename(tmp_path / "m.jsonl")
    assert "is an input" in only_line(mpi_match("export", answers, "-o", answers, code=3))
    assert MatchesFile.load(answers).matches.n_events == 4


@pytest.mark.mpi
@needs_mpirun
def test_under_mpi_one_rank_prints_and_the_answers_are_the_same(workload: Path) -> None:
    files = ["--table", workload / "table.h5", "--events", workload / "events.h5", "-o", workload / "ranks.h5"]
    command = ("-m", "mpi4py", "-m", "mpi_match", "run", "--engine", "counting", "--batch", 50, "--json")
    done = execute(launch(3, *files, python=command))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["events"], found["workers"]) == (N_EVENTS, 2)
    assert done.stderr.count("ranks.h5 written") == 1
    assert (workload / "ranks.h5").read_bytes() == (workload / "matches.h5").read_bytes()


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize("error", ["RuntimeError('boom')", "FileNotFoundError(2, 'No such file', 'lost')"])
def test_under_mpi_an_error_on_one_rank_ends_all_of_them_also_without_python_m_mpi4py(tmp_path: Path, error: str) -> None:
    script = tmp_path / "waits.py"
    script.write_text(
        "import click\nfrom mpi4py import MPI\nfrom mpi_match.cli.errors import CliCommand, run_as_program\n"
        "@click.command(cls=CliCommand)\ndef waits():\n    if MPI.COMM_WORLD.rank == 1:\n"
        f"        raise {error}\n    MPI.COMM_WORLD.barrier()\nrun_as_program(waits)\n"
    )
    done = execute(launch(2, python=(script,)))
    assert done.returncode == (1 if "boom" in error else 3)
    assert ("boom" in done.stderr) == ("boom" in error)
    assert ("mpi-match: lost: No such file" in done.stderr) == ("lost" in error)


def test_filters_of_a_thousand_constraints_are_matched(tmp_path: Path) -> None:
    rows = [
        {"interface": "all", "constraints": [[f"n{i}", ">", i] for i in range(1_500)]},
        {"interface": "none", "constraints": [[f"n{i}", "absent"] for i in range(1_500)]},
    ]
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    full = {f"n{i}": i + 1 for i in range(1_500)}
    events = [full, full | {"n1499": 1499}, {}, {"n1499": 1}]
    (tmp_path / "e.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    result = mpi_match("match", tmp_path / "s.jsonl", tmp_path / "e.jsonl", "-o", tmp_path / "m.h5", "--json")
    assert list(MatchesFile.load(tmp_path / "m.h5").rows()) == [["all"], [], ["none"], []]
    assert json.loads(result.stdout)["engine"].startswith("keyed")


def test_options_come_from_the_environment_where_they_are_not_given(
    workload: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = ("--table", workload / "table.h5", "--events", workload / "events.h5", "-o", tmp_path / "matches.h5")
    monkeypatch.setenv("MPI_MATCH_RUN_ENGINE", "reference")
    monkeypatch.setenv("MPI_MATCH_RUN_JSON", "1")
    assert json.loads(mpi_match("run", *files).stdout)["engine"] == "reference"
    assert json.loads(mpi_match("run", *files, "--engine", "counting").stdout)["engine"] == "counting"
    monkeypatch.setenv("MPI_MATCH_RUN_BATCH", "none")
    assert "MPI_MATCH_RUN_BATCH" in mpi_match("run", *files, code=2).stderr
    monkeypatch.setenv("MPI_MATCH_BENCH_REPETITIONS", "0")
    assert "MPI_MATCH_BENCH_REPETITIONS" in mpi_match("bench", "ccm", code=2).stderr
    monkeypatch.setenv("MPI_MATCH_GENERATE_OUTPUT", str(tmp_path / "made"))
    mpi_match("generate", "ccm", "--filters", "5", "--events", "5")
    assert (tmp_path / "made" / "table.h5").exists()
