"""The records of input formats: the source of what help and pages say, and the only way to add a format."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from own_formats import OWN_FORMATS, logfmt_of, orc_of

from mpi_match import LiveMatcher, make_batch, make_event, make_events, make_table, match_naive, open_engine
from mpi_match.cli.main import commands
from mpi_match.cluster import RunOptions, run
from mpi_match.commands.compile_locally import compile_events_locally, compile_locally
from mpi_match.commands.export import export
from mpi_match.commands.match import MatchOptions, match_rows
from mpi_match.ingest.batches.open import open_events
from mpi_match.ingest.rows.formats import INPUT_FORMATS, START_BYTES, endings_of, format_names
from mpi_match.ingest.rows.judge import PLAIN, EventForm, Reject, subscription_filters
from mpi_match.ingest.rows.row_files import event_files, row_files
from mpi_match.matches.file import MatchesFile
from mpi_match.model import ModelError
from mpi_match.verify.verify import VerifiedFiles, verify

pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

ROOT = Path(__file__).parents[2]
SUBSCRIPTIONS: list[dict[str, Any]] = [
    {"interface": "warm", "constraints": [["temp", ">", 20]]},
    {"interface": "Milan", "constraints": [["city", "=", "Milan"]]},
    {"interface": "text", "predicate": "zip prefix '00' or temp < 3"},
]
ROWS = [{"temp": i % 50, "city": ("Milan", "Rome")[i % 2], "zip": f"0{i % 11}", "id": f"e{i}"} for i in range(3000)]
FORM = EventForm(None, "id")


def parquet_of(rows: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink, row_group_size=1000)
    return sink.getvalue()


CONTENT: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "events.logfmt": logfmt_of,
    "events.logfmt.gz": lambda rows: gzip.compress(logfmt_of(rows)),
    "events.orc": orc_of,
    "events.parquet": parquet_of,
}

FILTERS = [item for row in SUBSCRIPTIONS for item in subscription_filters(row)]
EXPECTED = [sorted(match_naive(FILTERS, make_event(row))) for row in ROWS]


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, record in OWN_FORMATS.items():
        monkeypatch.setitem(INPUT_FORMATS, name, record)


@pytest.fixture
def subscriptions(tmp_path: Path) -> Path:
    path = tmp_path / "subscriptions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in SUBSCRIPTIONS))
    return path


def answers_in(path: Path) -> list[list[str]]:
    found = MatchesFile.load(path)
    return [sorted(labels) for labels in found.matches.labels(found.labels)]


def test_records_are_told_apart() -> None:
    names = endings_of()
    assert len(set(names)) == len(names)
    assert all(bool(each.starts) == each.is_columnar for each in INPUT_FORMATS.values())
    assert all(len(start) <= START_BYTES for each in INPUT_FORMATS.values() for start in each.starts)
    assert not any(each.lines and each.columns for each in INPUT_FORMATS.values())


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.lasting) if name.endswith(".gz") else name for name in CONTENT]
)
def test_a_format_of_ones_own_is_read_by_every_reader(name: str, subscriptions: Path, tmp_path: Path) -> None:
    events = tmp_path / name
    events.write_bytes(CONTENT[name](ROWS))
    table = make_table(SUBSCRIPTIONS)
    options = MatchOptions(FORM, "counting")
    summary = match_rows(subscriptions, events, tmp_path / "m.h5", options)
    assert (summary.events, summary.rejected) == (len(ROWS), 0)
    assert answers_in(tmp_path / "m.h5") == EXPECTED
    assert LiveMatcher(SUBSCRIPTIONS, engine="reference").match(events) == EXPECTED
    assert open_engine("counting", table).match(make_batch(table, events)).labels(table.labels) == EXPECTED
    assert len(make_events(events, id="id")) == len(ROWS)
    compile_locally([str(subscriptions)], tmp_path / "t.h5")
    run(RunOptions(tmp_path / "t.h5", events, tmp_path / "r.h5", form=FORM, engine="counting", batch=700))
    assert answers_in(tmp_path / "r.h5") == EXPECTED
    assert verify(VerifiedFiles(tmp_path / "t.h5", events, tmp_path / "r.h5", form=FORM), sample=50).difference is None
    export(tmp_path / "r.h5", tmp_path / "r.jsonl", events, FORM)
    assert [json.loads(line)["id"] for line in (tmp_path / "r.jsonl").read_text().splitlines()] == [
        row["id"] for row in ROWS
    ]
    assert compile_events_locally([str(events)], tmp_path / "t.h5", tmp_path / "e.h5", FORM).events == len(ROWS)
    with open_events(events, table.vocabulary, FORM) as opened:
        found = opened.event(1234)
        assert found is not None
        assert found.attributes == make_event({k: v for k, v in ROWS[1234].items() if k != "id"}).attributes


@pytest.mark.usefixtures("own")
def test_a_format_of_subscriptions(tmp_path: Path) -> None:
    directory = tmp_path / "subscriptions"
    directory.mkdir()
    rows = [*SUBSCRIPTIONS, {"interface": "b", "constraints": [["city", "=", "Rome"]]}]
    (directory / "more.logfmt").write_bytes(logfmt_of(rows))
    (directory / "events.orc").write_bytes(orc_of(ROWS))
    assert [each.name for each in row_files(directory)] == ["more.logfmt"]
    assert make_table(directory / "more.logfmt") == make_table(rows)
    (tmp_path / "events.jsonl").write_text('{"city": "Rome", "temp": 5}\n')
    with (directory / "more.logfmt").open("ab") as file:
        file.write(b"none\n")
    summary = match_rows(directory, tmp_path / "events.jsonl", tmp_path / "m.h5", MatchOptions(PLAIN, "counting"))
    assert (summary.filters, answers_in(tmp_path / "m.h5")) == (5, [["b"]])
    ((reason, _, line, row),) = summary.first_rejects
    assert (reason, line, row) == ("is no line of logfmt", 5, "none")
    with pytest.raises(ModelError, match=r"events.orc: is a file of ORC, not JSON lines$"):
        row_files(directory / "events.orc")


@pytest.mark.usefixtures("own")
def test_a_bad_row_has_its_place_and_a_damaged_file_its_format(subscriptions: Path, tmp_path: Path) -> None:
    (tmp_path / "e.logfmt").write_bytes(logfmt_of(ROWS[:2]) + b"temp\n" + logfmt_of(ROWS[2:4]))
    log: list[Reject] = []
    assert len(make_events(tmp_path / "e.logfmt", rejects=log)) == 5
    ((reason, file, line, row),) = log
    assert (reason, file, line, row) == ("is no line of logfmt", str(tmp_path / "e.logfmt"), 3, "temp")
    whole = orc_of(ROWS)
    (tmp_path / "e.orc").write_bytes(whole[:-20])
    with pytest.raises(ModelError, match=r"e\.orc: is not a readable ORC file: "):
        match_rows(subscriptions, tmp_path / "e.orc", tmp_path / "m.h5", MatchOptions(FORM, "counting"))
    (tmp_path / "both").mkdir()
    (tmp_path / "both" / "a.orc").write_bytes(whole)
    (tmp_path / "both" / "b.logfmt").write_bytes(b"temp=1\n")
    with pytest.raises(ModelError, match=r"holds a.orc, of columns, and b.logfmt, of lines"):
        event_files(tmp_path / "both", FORM)


@pytest.mark.usefixtures("own")
def test_messages_name_all_formats(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no JSON lines, CSV, Parquet, Arrow, logfmt or ORC in this directory .*\*\.orc\)"):
        event_files(tmp_path, FORM)


@pytest.mark.parametrize("command", ["match", "run"])
def test_help_names_all_formats(command: str) -> None:
    text = " ".join(CliRunner().invoke(commands, [command, "--help"]).output.split())
    assert format_names() in text
    assert all(ending in text for each in INPUT_FORMATS.values() for ending in each.endings)


def test_the_page_on_rows_names_all_formats() -> None:
    page = (ROOT / "mpi_match" / "docs" / "rows.md").read_text(encoding="utf-8")
    assert all(each.name in page for each in INPUT_FORMATS.values())
    assert all(f"`{ending}`" in page for each in INPUT_FORMATS.values() for ending in each.endings)
