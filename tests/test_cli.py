"""The command line: every command end to end on a small workload, how commands end, and that all of it is documented."""

import gzip
import io
import json
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import click
import numpy as np
import pytest
from click.testing import CliRunner

from mpi_match import doctor, engines, exits, mpirun, terminal, verify, workloads
from mpi_match.cli import commands
from mpi_match.event_table import EventTable
from mpi_match.matches import Matches, MatchesFile, MatchesWriter
from mpi_match.model import covers
from mpi_match.strings import Strings
from mpi_match.table import Table

SUMMARY_KEYS = {"events", "matches", "wall_s", "events_per_s", "engine", "device", "workers", "rejected"}
N_FILTERS, N_EVENTS = 2_000, 300


def mpi_match(*arguments, code=0):
    """Run a command in this process; its result, once its exit code is as expected."""
    result = CliRunner().invoke(commands, [str(a) for a in arguments])
    assert result.exit_code == code, (result.exit_code, result.stderr, result.exception)
    return result


def in_a_process(*command, check=True):
    """Run a command in a process of its own, which finds this tree also when it is not installed."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=60, check=check, env=environment)


def only_line(result):
    """The one line that a command said on standard error."""
    assert "Traceback" not in result.stderr
    (line,) = result.stderr.splitlines()
    return line


@pytest.fixture(scope="module")
def workload(tmp_path_factory):
    """A directory with table.h5, events.h5, matches.h5, filters.h5 (matched filters), subscriptions.jsonl, events.jsonl."""
    directory = tmp_path_factory.mktemp("workload")
    for format_ in ("h5", "jsonl"):
        mpi_match(
            "generate", "ccm-10-names", "-o", directory, "--filters", N_FILTERS, "--events", N_EVENTS, "--format", format_
        )
    for output, flags in (("matches.h5", []), ("filters.h5", ["--filters"])):
        run_in(directory, output, *flags)
    return directory


def run_in(directory, output, *flags, code=0):
    files = ["--table", directory / "table.h5", "--events", directory / "events.h5", "-o", directory / output]
    return mpi_match("run", *files, "--engine", "counting", *flags, code=code)


def verify_in(directory, *flags, matches="matches.h5", code=0):
    files = ["--table", directory / "table.h5", "--events", directory / "events.h5", "--matches", directory / matches]
    return mpi_match("verify", *files, *flags, code=code)


# Generate, run, match


def test_generate_says_what_it_wrote(tmp_path):
    result = mpi_match("generate", "ccm-strings", "-o", tmp_path / "new" / "d", "--filters", 50, "--events", 20, "--json")
    found = json.loads(result.stdout)
    assert (found["filters"], found["events"], found["scenario"]) == (50, 20, "ccm-strings")
    assert Table.load(found["subscriptions"]).n_filters == 50
    assert "50 filters" in result.stderr


def test_generate_is_the_same_for_the_same_seed(tmp_path):
    digests = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        mpi_match("generate", "ccm", "-o", tmp_path / name, "--filters", 50, "--events", 20, "--seed", seed)
        digests.append([(tmp_path / name / file).read_bytes() for file in ("table.h5", "events.h5")])
    assert digests[0] == digests[1]
    assert digests[0][0] != digests[2][0]
    assert digests[0][1] != digests[2][1]


def test_many_events_are_written_in_parts_and_are_the_same_events(tmp_path, monkeypatch):
    for name in ("whole", "parts"):
        mpi_match("generate", "ccm", "-o", tmp_path / name, "--filters", 100, "--events", 1000)
        monkeypatch.setattr("mpi_match.workload_files.events_of_a_part", lambda scenario: 300)
    assert len(list((tmp_path / "parts" / "events.h5.parts").iterdir())) == 4
    vocabulary = Table.load(tmp_path / "parts" / "table.h5").vocabulary
    with (
        EventTable(tmp_path / "whole" / "events.h5", vocabulary) as a,
        EventTable(tmp_path / "parts" / "events.h5", vocabulary) as b,
    ):
        assert b.encoded_for_vocabulary
        assert np.array_equal(a.batch(0, 1000).attributes, b.batch(0, 1000).attributes)
        assert a.event(999) == b.event(999)


def test_run_and_match_agree_with_each_other_and_with_covers(workload, tmp_path):
    rows = [workload / "subscriptions.jsonl", workload / "events.jsonl"]
    result = mpi_match("match", *rows, "-o", tmp_path / "m.h5", "--engine", "counting", "--json")
    by_rows, by_tables = MatchesFile.load(tmp_path / "m.h5"), MatchesFile.load(workload / "matches.h5")
    assert list(by_rows.rows()) == list(by_tables.rows())
    table = Table.load(workload / "table.h5")
    filters = list(table.iter_filters())
    with EventTable(workload / "events.h5", table.vocabulary) as events:
        expected = [covers(filters, events.event(i)) for i in range(20)]
    assert any(expected)
    assert list(by_rows.rows())[:20] == expected

    found = json.loads(result.stdout)
    assert set(found) >= SUMMARY_KEYS
    assert (found["events"], found["matches"], found["engine"]) == (N_EVENTS, by_tables.matches.n_matches, "counting")
    assert (found["workers"], found["rejected"]) == (1, 0)


def test_run_prints_its_summary_and_nothing_else_on_standard_output(workload):
    result = run_in(workload, "again.h5", "--json", "--batch", 7, "--schedule", "static")
    found = json.loads(result.stdout)
    assert set(found) == SUMMARY_KEYS | {"round_trip_us", "resumed"}
    assert found["events"] == N_EVENTS
    assert f"{N_EVENTS} events" in result.stderr
    assert (workload / "again.h5").read_bytes() == (workload / "matches.h5").read_bytes()
    assert run_in(workload, "again.h5").stdout == ""


SUBSCRIPTIONS = [
    {"interface": "hot", "constraints": [["temp", ">", 30]]},
    {"interface": "near", "constraints": [], "area": [0, 0, 5]},
    {"interface": "broken", "constraints": [["temp", ">", None]]},
]
EVENTS = ['{"temp": 31, "pos": {"x": 3, "y": 4}, "n": "e1"}', '{"temp": 30, "n": "e2"}', '{"temp": 1e999}', '{"temp": 40}']


@pytest.fixture
def rows(tmp_path):
    """Subscriptions (in a directory, packed) and events as JSON lines, one bad row in each."""
    directory = tmp_path / "subscriptions"
    directory.mkdir()
    (directory / "a.jsonl.gz").write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in SUBSCRIPTIONS).encode()))
    (tmp_path / "events.jsonl").write_text("\n".join(EVENTS) + "\n")
    return [directory, tmp_path / "events.jsonl", "-o", tmp_path / "m.h5", "--engine", "counting"]


def test_match_sets_bad_rows_aside_with_reason_file_and_line(rows, tmp_path):
    result = mpi_match(
        "match", *rows, "--location", "pos.x,pos.y", "--id", "n", "--rejects", tmp_path / "bad.jsonl", "--json"
    )
    assert list(MatchesFile.load(tmp_path / "m.h5").rows()) == [["hot", "near"], [], ["hot"]]
    assert json.loads(result.stdout)["rejected"] == 2
    assert "events.jsonl, line 3: the number 1e999 is beyond the range of a double" in result.stderr
    bad = [json.loads(line) for line in (tmp_path / "bad.jsonl").read_text().splitlines()]
    assert [(Path(b["file"]).name, b["line"]) for b in bad] == [("a.jsonl.gz", 3), ("events.jsonl", 3)]
    assert json.loads(bad[0]["row"])["interface"] == "broken"


def test_match_counts_the_rejects_that_it_does_not_show(rows, tmp_path):
    (tmp_path / "events.jsonl").write_text("[]\n" * 20)
    result = mpi_match("match", *rows)
    assert "rejected: 16 more (--rejects FILE keeps them)" in result.stderr
    assert result.stderr.count("rejected: ") == 6


def test_match_filters_answers_with_filters(rows, tmp_path):
    mpi_match("match", *rows, "--filters", "--location", "pos.x,pos.y")
    found = MatchesFile.load(tmp_path / "m.h5")
    assert found.attributes["unit"] == "filter"
    assert list(found.rows()) == [["0", "1"], [], ["0"]]


@pytest.mark.parametrize("bad", ["subscriptions", "events"])
def test_match_strict_stops_at_a_bad_row_and_writes_nothing(rows, tmp_path, bad):
    if bad == "events":
        (tmp_path / "subscriptions" / "a.jsonl.gz").write_bytes(gzip.compress(json.dumps(SUBSCRIPTIONS[0]).encode()))
    result = mpi_match("match", *rows, "--strict", code=3)
    line = only_line(result)
    assert "line 3: " in line
    assert "--strict" in line
    assert ("a.jsonl.gz" in line) == (bad == "subscriptions")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events.jsonl", "subscriptions"]


@pytest.mark.parametrize("flag", ["-o", "--rejects"])
def test_inputs_are_never_overwritten(rows, tmp_path, flag):
    before = (tmp_path / "events.jsonl").read_bytes()
    assert "is an input" in only_line(mpi_match("match", *rows, flag, tmp_path / "events.jsonl", code=3))
    assert (tmp_path / "events.jsonl").read_bytes() == before
    mpi_match("match", *rows)
    assert "is an input" in only_line(mpi_match("export", tmp_path / "m.h5", "-o", tmp_path / "m.h5", code=3))
    assert MatchesFile.load(tmp_path / "m.h5").matches.n_events == 3


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("patience", [0, 60])
def test_a_bar_is_shown_on_a_terminal_for_what_takes_long(monkeypatch, patience):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(terminal, "PATIENCE_S", patience)
    with terminal.Progress("events") as progress:
        for done in range(11):
            progress(done, 10)
    assert ("10/10" in sys.stderr.getvalue()) == (patience == 0)


def test_no_bar_is_shown_elsewhere(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(terminal, "PATIENCE_S", 0)
    with terminal.Progress("events") as progress:
        progress(10, 10)
    assert sys.stderr.getvalue() == ""


@pytest.mark.parametrize(("seconds", "said"), [(2e-6, "2 µs"), (0.0123, "12.3 ms"), (65.0, "65.00 s")])
def test_durations_are_readable(seconds, said):
    assert terminal.seconds(seconds) == said


@pytest.mark.parametrize(("rate", "said"), [(850, "850 events/s"), (12345, "12.3 k events/s"), (4.2e6, "4.2 M events/s")])
def test_rates_are_readable(rate, said):
    assert terminal.rate(rate) == said


# Inspect


def test_inspect_shows_a_table(workload):
    found = json.loads(mpi_match("inspect", workload / "table.h5", "--json", "--rows", 2).stdout)
    table = Table.load(workload / "table.h5")
    assert (found["kind"], found["filters"], found["interfaces"]) == ("table", N_FILTERS, 10)
    assert sum(row["constraints"] for row in found["operators"]) == found["constraints"] == table.n_constraints
    assert found["bytes"] == (workload / "table.h5").stat().st_size
    assert [row["filter"] for row in found["first"]] == [0, 1]
    text = mpi_match("inspect", workload / "table.h5").stdout
    assert "2,000" in text
    assert str(table.filter(0)).split(": ")[1] in text


def test_inspect_shows_one_filter(workload):
    found = json.loads(mpi_match("inspect", workload / "table.h5", "--filter", 7).stdout)
    whole = Table.load(workload / "table.h5").filter(7)
    assert found == {"filter": 7, "interface": whole.interface, "asks": " and ".join(map(str, whole.constraints))}
    assert "no filter 2000; it has 2,000" in only_line(
        mpi_match("inspect", workload / "table.h5", "--filter", N_FILTERS, code=3)
    )


def test_inspect_shows_events_with_ids_and_locations(tmp_path):
    from mpi_match import api
    from mpi_match.event_table import save_events

    events = api.make_events([{"x": 1, "y": 2.5, "n": "e1"}, {"x": 2}], id="n")
    located = api.make_events([{"x": 1, "y": 2.5, "n": "e1"}], id="n", location="x,y")
    save_events(events, tmp_path / "a.h5", api.make_table([]).vocabulary)
    save_events(located, tmp_path / "b.h5", api.make_table([]).vocabulary)
    found = json.loads(mpi_match("inspect", tmp_path / "a.h5", "--json").stdout)
    assert (found["events"], found["with_id"], found["with_location"]) == (2, 1, 0)
    assert found["attributes"] == {"least": 1, "mean": 1.5, "most": 2}
    assert found["first"] == [
        {"event": 0, "attributes": {"x": 1, "y": 2.5}, "id": "e1"},
        {"event": 1, "attributes": {"x": 2}},
    ]
    found = json.loads(mpi_match("inspect", tmp_path / "b.h5", "--json").stdout)
    assert found["first"][0]["location"] == [1, 2.5]
    assert found["with_location"] == 1


def test_inspect_shows_answers(workload):
    file = MatchesFile.load(workload / "matches.h5")
    found = json.loads(mpi_match("inspect", workload / "matches.h5", "--json").stdout)
    assert (found["unit"], found["events"], found["matches"]) == ("interface", N_EVENTS, file.matches.n_matches)
    assert [row["matches"] for row in found["first"]] == list(file.rows())[:3]
    assert "table digest" in mpi_match("inspect", workload / "matches.h5").stdout
    assert json.loads(mpi_match("inspect", workload / "filters.h5", "--json").stdout)["unit"] == "filter"


# Verify


@pytest.mark.parametrize("judge", ["auto", "naive", "counting"])
@pytest.mark.parametrize("matches", ["matches.h5", "filters.h5"])
def test_verify_is_content_with_right_answers_and_says_who_judged(workload, judge, matches):
    result = verify_in(workload, "--judge", judge, "--sample", 40, "--json", matches=matches)
    found = json.loads(result.stdout)
    assert (found["verified"], found["checked"], found["events"], found["difference"]) == (True, 40, N_EVENTS, None)
    assert found["matches"] > 0
    assert ("naive matcher on all 2,000 filters" in result.stderr) == (judge != "counting")
    assert ("counting engine on all 2,000 filters" in result.stderr) == (judge == "counting")


def test_verify_samples_half_among_the_answered(workload):
    assert verify._sample(np.array([0] * 990 + [1] * 10), 16, 0).tolist()[-8:] >= [990] * 8
    assert np.array_equal(verify._sample(np.array([0, 1, 0]), 0, 0), [0, 1, 2])
    assert np.array_equal(verify._sample(np.array([0, 1, 0]), 9, 0), [0, 1, 2])
    sample = verify._sample(np.array([3] * 10), 6, 1)
    assert len(set(sample.tolist())) == 6


def rewritten(workload, output, change, source="matches.h5", **attributes):
    """A copy of answers in which `change` edited one list of ids per event."""
    file = MatchesFile.load(workload / source)
    found = [ids.tolist() for ids in (file.matches[i] for i in range(len(file.matches)))]
    change(found)
    unit = str(file.attributes["unit"])
    with MatchesWriter(workload / output, file.matches.n_ids, file.labels, unit, **attributes) as writer:
        writer.append(Matches.of(found, file.matches.n_ids))


@pytest.mark.parametrize("judge", ["naive", "counting"])
def test_verify_shows_the_first_wrong_answer(workload, judge):
    file = MatchesFile.load(workload / "matches.h5")
    event = next(i for i in range(100, N_EVENTS) if 0 < len(file.matches[i]) < 10)
    missing, extra = int(file.matches[event][0]), next(i for i in range(10) if i not in file.matches[event])

    def swap(found):
        found[event] = [extra if i == missing else i for i in found[event]]
        found[event + 1] = []

    rewritten(workload, "wrong.h5", swap)
    result = verify_in(workload, "--sample", 0, "--judge", judge, "--json", matches="wrong.h5", code=1)
    assert f"event {event} {{" in result.stderr
    assert f"missing   interface-{missing}, because of filter" in result.stderr
    assert f"too much  interface-{extra}, of whose " in result.stderr
    assert result.stderr.splitlines()[-1] == f"mpi-match: {workload / 'wrong.h5'}: event {event} is answered wrongly"
    assert json.loads(result.stdout)["verified"] is False


def test_verify_shows_wrong_filters(workload):
    rewritten(workload, "wrong.h5", lambda found: found[3].append(5), source="filters.h5")
    result = verify_in(workload, "--sample", 0, matches="wrong.h5", code=1)
    assert "too much  filter 5 (interface-" in result.stderr


def test_verify_does_not_believe_the_counting_engine_either(workload, monkeypatch):
    class Silent(type(engines.open_engine("counting", Table.load(workload / "table.h5")))):
        def match(self, batch, *, filters=False):
            return Matches.of([[]], self._table.n_filters)

    monkeypatch.setattr(verify, "open_engine", lambda name, table: Silent(table))
    rewritten(workload, "wrong.h5", lambda found: [ids.clear() for ids in found])
    result = verify_in(workload, "--sample", 0, "--judge", "counting", matches="wrong.h5", code=1)
    assert "the naive matcher says it matches, the counting engine that it does not" in result.stderr


def test_verify_refuses_files_of_different_runs(workload, tmp_path):
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


# Export


def test_export_writes_json_lines_to_standard_output(workload):
    result = mpi_match("export", workload / "matches.h5")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    expected = MatchesFile.load(workload / "matches.h5").rows()
    assert rows == [{"event": i, "interfaces": labels} for i, labels in enumerate(expected)]
    first = json.loads(mpi_match("export", workload / "filters.h5").stdout.splitlines()[0])
    assert first == {"event": 0, "filters": MatchesFile.load(workload / "filters.h5").matches[0].tolist()}


def test_export_adds_ids_and_writes_parquet(rows, tmp_path):
    from mpi_match import api
    from mpi_match.event_table import save_events

    mpi_match("match", *rows, "--id", "n")
    made = api.make_events(tmp_path / "events.jsonl", id="n", rejects=[])
    save_events(made, tmp_path / "events.h5", api.make_table([]).vocabulary)
    expected = [("e1", ["hot"]), ("e2", []), (None, ["hot"])]
    output = tmp_path / "out.jsonl"
    mpi_match("export", tmp_path / "m.h5", "--events", tmp_path / "events.h5", "-o", output)
    found = [json.loads(line) for line in output.read_text().splitlines()]
    assert found == [{"event": i, "id": id_, "interfaces": labels} for i, (id_, labels) in enumerate(expected)]

    pq = pytest.importorskip("pyarrow.parquet")
    mpi_match("export", tmp_path / "m.h5", "--events", tmp_path / "events.h5", "-o", tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").to_pylist() == found
    mpi_match("export", tmp_path / "m.h5", "-o", tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").column_names == ["event", "interfaces"]


def test_export_refuses_events_of_another_run(workload, tmp_path):
    mpi_match("generate", "ccm", "-o", tmp_path, "--filters", 10, "--events", 5)
    result = mpi_match(
        "export", workload / "matches.h5", "--events", tmp_path / "events.h5", "-o", tmp_path / "o.jsonl", code=3
    )
    assert "answers 300 events" in only_line(result)
    assert not (tmp_path / "o.jsonl").exists()


def test_export_without_pyarrow_says_what_to_install(workload, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    line = only_line(mpi_match("export", workload / "matches.h5", "-o", tmp_path / "o.parquet", code=5))
    assert "pip install" in line
    assert list(tmp_path.iterdir()) == []


# Doctor, bench, compile


def test_doctor_finds_what_this_machine_has():
    findings = {f["name"]: f for f in json.loads(mpi_match("doctor", "--json").stdout)["findings"]}
    assert {"Python", "numpy", "numba", "h5py", "mpi4py", "MPI", "GPU", "Java", "pyspark"} <= set(findings)
    assert findings["Python"]["ok"]
    assert "HDF5" in findings["h5py"]["found"]
    assert all(f["ok"] or f["fix"] or f["name"] == "GPU" for f in findings.values())


def test_doctor_names_what_is_missing_and_the_command(monkeypatch):
    monkeypatch.setattr(doctor, "_CHECKS", (doctor._python, doctor._package("no-such-package", "dreams", required=True)))
    result = mpi_match("doctor", code=5)
    ok, missing, fix = result.stdout.splitlines()
    assert ok.startswith("ok       Python")
    assert missing.startswith("MISSING  no-such-package")
    assert "needed for dreams" in fix
    assert "-m pip install 'no-such-package'" in fix


def test_doctor_reads_java_versions(monkeypatch, tmp_path):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert doctor.java_version() is None
    for said, version in (('openjdk version "17.0.15" 2025-04-15', 17), ('java version "1.8.0_392"', 1), ("nonsense", None)):
        java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
        java.chmod(0o755)
        assert doctor.java_version() == version
        assert doctor._java().ok == (version == 17)
    assert "point JAVA_HOME at" in doctor._java().fix


@pytest.mark.parametrize(("newest", "well"), [("13.0", True), ("12.9", True), ("12.4", False), ("11.8", False)])
def test_doctor_compares_the_driver_with_the_compiler_of_kernels(monkeypatch, newest, well):
    card = SimpleNamespace(index=0, name="NVIDIA H200", memory_bytes=140 << 30)
    fake = SimpleNamespace(driver_versions=lambda: ("550.1", newest), visible_gpus=lambda: [card])
    monkeypatch.setattr(engines, "_cuda", fake, raising=False)
    monkeypatch.setitem(sys.modules, "mpi_match.engines._cuda", fake)
    monkeypatch.setattr(doctor, "_cuda_compiler", lambda: "12.9")
    found = doctor._gpu()
    assert found.ok == well
    assert f"0: NVIDIA H200, 140 GiB; driver 550.1, CUDA {newest}" in found.found
    assert ("update the driver" in found.fix) != well


def test_doctor_without_a_gpu_says_why(monkeypatch):
    def none():
        raise engines.EngineError("no usable GPU on this machine: no driver")

    fake = SimpleNamespace(driver_versions=none)
    monkeypatch.setattr(engines, "_cuda", fake, raising=False)
    monkeypatch.setitem(sys.modules, "mpi_match.engines._cuda", fake)
    found = doctor._gpu()
    assert (found.ok, found.required) == (False, False)
    assert "no driver" in found.found


def test_bench_prints_a_json_line_for_each_result():
    few = ["--filters", 200, "--events", 50, "--repetitions", 1, "--check", 2]
    result = mpi_match("bench", "ccm", "ccm-strings", "--engine", "counting", *few)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(f["scenario"], f["engine"], f["n_filters"]) for f in found] == [
        ("ccm", "counting", 200),
        ("ccm-strings", "counting", 200),
    ]
    assert "Events/s" in result.stderr


def test_bench_adds_to_a_file(tmp_path):
    few = ["--filters", 100, "--events", 20, "--repetitions", 1, "--check", 1, "-o", tmp_path / "bench.jsonl"]
    for _ in range(2):
        assert mpi_match("bench", "ccm", "--engine", "counting", *few).stdout == ""
    assert len((tmp_path / "bench.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    "command", [["subscriptions", "a.jsonl"], *([what, "a.jsonl", "--table", "t.h5"] for what in ("events", "changes"))]
)
def test_compile_without_spark_says_what_fixes_it(monkeypatch, command):
    missing = doctor.Finding(
        "Java", False, "no Java", False, "`mpi-match compile`", "apt-get install -y openjdk-17-jre-headless"
    )
    monkeypatch.setattr(doctor, "SPARK_CHECKS", (lambda: missing,))
    line = only_line(mpi_match("compile", *command, "-o", "o.h5", code=5))
    assert "no Java" in line
    assert "apt-get install" in line


def test_compile_hands_its_arguments_to_the_job(monkeypatch, tmp_path):
    from spark_prep import CompileSummary

    class Job:
        def compile_subscriptions(self, inputs, output, **options):
            calls.append((inputs, output, options))
            return CompileSummary(4, 3, 9, 2, 0, 1, Path("o.h5.rejects"), 0.5)

        def compile_events(self, inputs, table, output, **options):
            calls.append((inputs, table, output, options))
            return CompileSummary(5, 0, 0, 0, 5, 0, None, 0.5)

        def compile_changes(self, inputs, table, output, **options):
            calls.append((inputs, table, output, options))
            return CompileSummary(2, 1, 3, 1, 0, 0, None, 0.5, 4)

    calls = []
    monkeypatch.setattr("mpi_match.cli_compile._spark_job", Job)
    common = {"format": "json", "rejects": Path("r"), "strict": True, "master": "local[1]", "partitions": 3}
    flags = ["--format", "json", "--rejects", "r", "--strict", "--master", "local[1]", "--partitions", 3, "--json"]
    result = mpi_match("compile", "subscriptions", "a", "b/*.gz", "-o", "o.h5", *flags)
    assert calls.pop() == (["a", "b/*.gz"], Path("o.h5"), common)
    assert json.loads(result.stdout)["rejected"] == 1
    assert "1 row rejected, with reasons in o.h5.rejects" in result.stderr
    mpi_match("compile", "events", "a", "--table", "t.h5", "-o", "e.h5", "--location", "x,y", "--id", "n")
    unset = {"format": None, "rejects": None, "strict": False, "master": None, "partitions": None}
    assert calls.pop() == (["a"], Path("t.h5"), Path("e.h5"), {"location": "x,y", "id": "n", **unset})
    result = mpi_match("compile", "changes", "a", "--table", "t.h5", "-o", "c.h5", "--strict", "--json")
    unset = {"rejects": None, "strict": True, "master": None}
    assert calls.pop() == (["a"], Path("t.h5"), Path("c.h5"), unset)
    assert json.loads(result.stdout)["changes"] == 4
    assert "4 changes; 1 filter added" in result.stderr


# How commands end


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--table", "no.h5", "--events", "no.h5", "-o", "m.h5"], "no.h5: no such file"),
        (["match", "no.jsonl", "no.jsonl", "-o", "m.h5"], "no.jsonl: no such file"),
        (["match", __file__, __file__, "-o", "no/m.h5"], "the directory no does not exist"),
        (["match", ".", ".", "-o", "m.h5"], "no JSON lines in this directory"),
        (["inspect", "no.h5"], "no.h5: no such file"),
        (["inspect", __file__], "is not a file of mpi-match"),
        (["export", __file__], "is not a readable HDF5 file"),
        (["verify", "--table", "no.h5", "--events", "no.h5", "--matches", "no.h5"], "no.h5: no such file"),
    ],
)
def test_bad_input_is_one_line_and_code_3(tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    line = only_line(mpi_match(*arguments, code=3))
    assert line.startswith("mpi-match: ")
    assert said in line
    assert list(tmp_path.iterdir()) == []


def test_exchanged_files_are_refused(workload):
    files = ["--table", workload / "events.h5", "--events", workload / "table.h5", "-o", workload / "x.h5"]
    assert "holds 'events', expected 'table'" in only_line(mpi_match("run", *files, code=3))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["generate", "nonsense", "-o", "d"], "there is no 'nonsense'; there are: ccm, ccm-strings"),
        (["generate", "ccm"], "Missing option '-o'"),
        (
            ["run", "--table", "a", "--events", "b", "-o", "c", "--engine", "fast"],
            "there is no 'fast'; there are: auto, reference",
        ),
        (["run", "--table", "a", "--events", "b", "-o", "c", "--credits", "0"], "0 is not in the range x>=1"),
        (
            ["run", "--table", "a", "--events", "b", "-o", "c", "--gpu-map", "0,-1"],
            "'0,-1' is no list of GPU numbers such as 0,1",
        ),
        (
            ["run", "--table", "a", "--events", "b", "-o", "c", "--schedule", "odd"],
            "'odd' is not one of 'dynamic', 'static'",
        ),
        (["match", "a", "b", "-o", "c", "--location", "x"], "--location needs two attribute names"),
        (["compile", "events", "a", "--table", "t", "-o", "e", "--location", "x,"], "--location needs two attribute names"),
        (["compile", "subscriptions", "-o", "e"], "Missing argument 'IN...'"),
        (["nonsense"], "No such command 'nonsense'"),
    ],
)
def test_wrong_usage_is_code_2(arguments, said):
    assert said in mpi_match(*arguments, code=2).stderr


def test_an_engine_that_cannot_run_is_code_5(rows, monkeypatch):
    def refuse(name, table, threads=None, live=False):
        raise engines.EngineError("no GPU here")

    monkeypatch.setattr("mpi_match.local.open_engine", refuse)
    assert only_line(mpi_match("match", *rows, code=5)) == "mpi-match: no GPU here"


@pytest.mark.parametrize("signal", [KeyboardInterrupt, "SIGTERM"])
def test_an_interrupted_command_leaves_nothing_and_is_code_130(rows, tmp_path, monkeypatch, signal):
    def interrupted(*args, **kwargs):
        if signal is KeyboardInterrupt:
            raise KeyboardInterrupt
        os.kill(os.getpid(), 15)
        time.sleep(10)  # the handler runs first

    monkeypatch.setattr("mpi_match.local.Events.of", interrupted)
    assert only_line(mpi_match("match", *rows, code=130)) == "mpi-match: interrupted"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events.jsonl", "subscriptions"]


def test_a_mistake_in_the_project_keeps_its_traceback(rows, monkeypatch):
    monkeypatch.setattr("mpi_match.local.Events.of", lambda block: 1 / 0)
    result = CliRunner().invoke(commands, [*map(str, ["match", *rows])])
    assert isinstance(result.exception, ZeroDivisionError)


def test_exit_codes_of_foreseen_errors():
    from mpi_match.cluster import ClusterError
    from mpi_match.experiments import WrongAnswer
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
    assert {error: exits.exit_code_of(error) for error in expected} == expected


def test_a_rank_that_is_not_the_first_leaves_the_talking_to_it(monkeypatch):
    monkeypatch.setattr(exits, "QUIET_S", 0)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    for rank, lines in (("0", 1), ("1", 0)):
        monkeypatch.setenv("OMPI_COMM_WORLD_RANK", rank)
        assert mpi_match("run", code=2).stderr.count("Missing option") == lines


def test_verbose_logs_decisions_on_standard_error(workload):
    files = ["--table", workload / "table.h5", "--events", workload / "events.h5", "-o", workload / "v.h5"]
    done = in_a_process(sys.executable, "-m", "mpi_match", "run", "-v", "--engine", "counting", *files)
    assert "INFO mpi_match.cluster.alone: engine counting" in done.stderr
    assert done.stdout == ""


def in_ranks(n, *command, check=True):
    flags = ["--oversubscribe", "--allow-run-as-root", "--bind-to", "none", "--mca", "btl", "vader,tcp,self"]
    version = in_a_process(mpirun.find(), "--version").stdout
    return in_a_process(mpirun.find(), *(flags if "Open MPI" in version else []), "-n", n, *command, check=check)


needs_mpirun = pytest.mark.skipif(mpirun.find() is None, reason="no mpirun beside this Python or on PATH")


@pytest.mark.mpi
@needs_mpirun
def test_under_mpi_one_rank_speaks_and_the_answers_are_the_same(workload):
    files = ["--table", workload / "table.h5", "--events", workload / "events.h5", "-o", workload / "ranks.h5"]
    command = [
        sys.executable,
        "-m",
        "mpi4py",
        "-m",
        "mpi_match",
        "run",
        "--engine",
        "counting",
        "--batch",
        50,
        "--json",
        *files,
    ]
    done = in_ranks(3, *command)
    found = json.loads(done.stdout)
    assert (found["events"], found["workers"]) == (N_EVENTS, 2)
    assert done.stderr.count("ranks.h5 written") == 1
    assert (workload / "ranks.h5").read_bytes() == (workload / "matches.h5").read_bytes()


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize("error", ["RuntimeError('boom')", "FileNotFoundError(2, 'No such file', 'lost')"])
def test_under_mpi_an_error_on_one_rank_ends_all_of_them_also_without_python_m_mpi4py(tmp_path, error):
    script = tmp_path / "waits.py"
    script.write_text(
        "import click\nfrom mpi4py import MPI\nfrom mpi_match.exits import Command, run_as_program\n"
        "@click.command(cls=Command)\ndef waits():\n    if MPI.COMM_WORLD.rank == 1:\n"
        f"        raise {error}\n    MPI.COMM_WORLD.barrier()\nrun_as_program(waits)\n"
    )
    done = in_ranks(2, sys.executable, script, check=False)
    assert done.returncode == (1 if "boom" in error else 3)
    assert ("boom" in done.stderr) == ("boom" in error)
    assert ("mpi-match: lost: No such file" in done.stderr) == ("lost" in error)


# Documentation


def every_command(group=commands, path=()):
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from every_command(command, (*path, name))
        else:
            yield (*path, name), command


def test_every_command_and_option_is_documented():
    found = dict(every_command())
    names = ["bench", "doctor", "export", "generate", "inspect", "match", "plot", "run", "supervise", "verify"]
    assert set(found) == {(name,) for name in names} | {("compile", what) for what in ("subscriptions", "events", "changes")}
    for path, command in found.items():
        shown = mpi_match(*path, "--help").stdout
        assert "Exit codes: 0 done" in shown, path
        assert len(command.help.split()) >= 8, path
        for option in command.params:
            if isinstance(option, click.Option):
                assert option.help, (path, option.name)
                assert option.help[0].isupper() or ":" in option.help, (path, option.name)
                assert all(name in shown for name in option.opts)
        valued = [
            o for o in command.params if isinstance(o, click.Option) and o.default not in (None, False) and not o.is_flag
        ]
        assert not valued or "[default: " in shown, path


def test_help_lists_every_scenario_and_engine():
    shown = mpi_match("generate", "--help").stdout
    assert all(f"  {name} " in shown for name in workloads.SCENARIOS)
    assert f"[{'|'.join(['auto', *engines.ENGINES])}]" in mpi_match("run", "--help").stdout


@pytest.mark.skipif(find_spec("pyspark") is None, reason="pyspark is not installed")
def test_compile_knows_the_formats_that_spark_reads():
    from mpi_match.cli_compile import FORMATS
    from spark_prep import sources

    assert FORMATS == sources.FORMATS


def test_version():
    assert mpi_match("--version").stdout.startswith("mpi-match ")


def test_the_command_line_loads_none_of_the_heavy_modules():
    heavy = "{'numba', 'numpy', 'h5py', 'mpi4py', 'mpi4py.MPI', 'pyspark'}"
    code = f"import sys; import mpi_match.cli; print(sorted({heavy} & set(sys.modules)))"
    assert in_a_process(sys.executable, "-c", code).stdout.strip() == "[]"
