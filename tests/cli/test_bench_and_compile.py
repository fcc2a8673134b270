"""`bench` and `compile`: the arguments that they pass on, and their output."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from command_line import mpi_match, only_line

from mpi_match.commands import doctor
from mpi_match.ingest.rows.judge import EventForm
from spark_prep import CompileOptions, CompileSummary


def test_bench_prints_a_json_line_for_each_result() -> None:
    few = ["--filters", 200, "--events", 50, "--repetitions", 1, "--check", 2]
    result = mpi_match("bench", "ccm", "ccm-strings", "--engine", "counting", *few)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(f["scenario"], f["engine"], f["n_filters"]) for f in found] == [
        ("ccm", "counting", 200),
        ("ccm-strings", "counting", 200),
    ]
    assert "Events/s" in result.stderr


def test_bench_adds_to_a_file(tmp_path: Path) -> None:
    few = ["--filters", 100, "--events", 20, "--repetitions", 1, "--check", 1, "-o", tmp_path / "bench.jsonl"]
    for _ in range(2):
        assert mpi_match("bench", "ccm", "--engine", "counting", *few).stdout == ""
    assert len((tmp_path / "bench.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["lines", "clcb", "--threads", 1], "lines_per_s"),
        (["lines", "contains", "--threads", 1], "lines_per_s"),
        (["lines", "log-texts", "--threads", 1], "lines_per_s"),
        (["columns", "ccm", "--threads", 1], "events_per_s"),
        (["subscriptions", "ccm-strings"], "lines_per_s"),
        (["subscriptions", "stock", "--predicates"], "lines_per_s"),
        (["rows", "clcb"], "us"),
    ],
)
def test_bench_read_compares_compiled_readers_with_python(words: list[str], key: str, tmp_path: Path) -> None:
    events = [] if words[0] == "subscriptions" else ["--events", 300]
    for _ in range(2):  # the second one takes the files of the first
        few = ["--filters", 60, "--repetitions", 1, *events, "--directory", tmp_path]
        for line in mpi_match("bench", "read", *words, *few).stdout.splitlines():
            found = json.loads(line)
            assert found["scenario"] == words[1]
            assert all(value for way in found[key].values() for value in way.values())
            assert {"machine", "commit", "command"} <= set(found)


def test_bench_read_says_what_does_not_fit(tmp_path: Path) -> None:
    def refused(*words: object, code: int = 2) -> str:
        return mpi_match("bench", "read", *words, code=code).stderr

    assert "--predicates cannot be used with lines" in refused("lines", "ccm", "--predicates")
    assert "--events cannot be used with subscriptions" in refused("subscriptions", "ccm", "--events", 3)
    assert "logs has lines only" in refused("rows", "logs")
    assert "--corpora names the folder with the data of otrf" in refused("lines", "otrf", "--corpora", tmp_path, code=3)


def test_bench_false_positives_are_about_as_many_as_predicted() -> None:
    found = json.loads(mpi_match("bench", "false-positives", "--filters", 2000, "--events", 300).stdout)
    assert found["n_events"] == 300
    assert abs(found["measured_per_query"] - found["predicted_per_query"]) < 0.05


@pytest.mark.parametrize(
    "command", [["subscriptions", "a.jsonl"], *([what, "a.jsonl", "--table", "t.h5"] for what in ("events", "changes"))]
)
def test_compile_without_spark_names_the_remedy(monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    missing = doctor.Finding(
        "Java", False, "no Java", False, "`mpi-match compile`", "apt-get install -y openjdk-17-jre-headless"
    )
    monkeypatch.setattr(doctor, "SPARK_CHECKS", (lambda: missing,))
    line = only_line(mpi_match("compile", *command, "-o", "o.h5", code=5))
    assert "no Java" in line
    assert "apt-get install" in line


def test_compile_passes_its_arguments_to_the_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Job:
        def compile_subscriptions(self, inputs: list[str], output: Path, options: CompileOptions) -> CompileSummary:
            calls.append((inputs, output, options))
            return CompileSummary(4, 3, 9, 2, 0, 1, Path("o.h5.rejects"), 0.5)

        def compile_events(
            self, inputs: list[str], table: Path, output: Path, form: EventForm, options: CompileOptions
        ) -> CompileSummary:
            calls.append((inputs, table, output, form, options))
            return CompileSummary(5, 0, 0, 0, 5, 0, None, 0.5, never_seen=("x", "y"), left_out={"when": 2, "at": 1})

        def compile_changes(self, inputs: list[str], table: Path, output: Path, **options: object) -> CompileSummary:
            calls.append((inputs, table, output, options))
            return CompileSummary(2, 1, 3, 1, 0, 0, None, 0.5, 4)

    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr("mpi_match.cli.compile._spark_job", Job)
    common = CompileOptions(format="json", rejects=Path("r"), strict=True, master="local[1]", partitions=3)
    flags = ["--format", "json", "--rejects", "r", "--strict", "--master", "local[1]", "--partitions", 3, "--json"]
    result = mpi_match("compile", "subscriptions", "a", "b/*.gz", "-o", "o.h5", *flags)
    assert calls.pop() == (["a", "b/*.gz"], Path("o.h5"), common)
    assert json.loads(result.stdout)["rejected"] == 1
    assert "1 row rejected, with reasons in o.h5.rejects" in result.stderr
    result = mpi_match("compile", "events", "a", "--table", "t.h5", "-o", "e.h5", "--location", "x,y", "--id", "n")
    assert "no event has 'x' or 'y', which --location or --id names" in result.stderr
    assert (
        "left out, because no filter names them and attributes cannot have their values: at (1 event), when (2 events)"
        in result.stderr
    )
    unset = CompileOptions(format=None, rejects=None, strict=False, master=None, partitions=None)
    assert calls.pop() == (["a"], Path("t.h5"), Path("e.h5"), EventForm(("x", "y"), "n"), unset)
    result = mpi_match("compile", "changes", "a", "--table", "t.h5", "-o", "c.h5", "--strict", "--json")
    given = {"rejects": None, "strict": True, "master": None}
    assert calls.pop() == (["a"], Path("t.h5"), Path("c.h5"), given)
    assert json.loads(result.stdout)["changes"] == 4
    assert "4 changes; 1 filter added" in result.stderr


@pytest.mark.skipif(find_spec("pyspark") is None, reason="pyspark is not installed")
def test_compile_knows_the_formats_that_spark_reads() -> None:
    from mpi_match.cli.compile import ROW_FORMATS
    from spark_prep import sources

    assert ROW_FORMATS == sources.FORMATS
