"""An input without a good row is an error, and so is an output name with the ending of another form."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, NoReturn

import pytest
from click.testing import Result
from command_line import SUBSCRIPTIONS, mpi_match, only_line

from mpi_match import engines
from mpi_match.cli.options import FORMS
from mpi_match.commands import export
from mpi_match.events.event_table import save_events
from mpi_match.events.events import Events
from mpi_match.matches.file import MatchesFile
from mpi_match.model import constraint, make_filter
from mpi_match.table.table import Table

GOOD = {"subscriptions": json.dumps(SUBSCRIPTIONS[0]), "events": '{"temp": 31}'}
NOT_JSON, ARRAY = "not JSON: Expecting value at column 1", "lines have one object each"


@pytest.fixture
def files(tmp_path: Path) -> list[Any]:
    """A good file of subscriptions and one of events, as `match` takes them."""
    for name, row in GOOD.items():
        (tmp_path / f"{name}.jsonl").write_text(row + "\n")
    return [tmp_path / "subscriptions.jsonl", tmp_path / "events.jsonl"]


def match(files: list[Any], *flags: object, code: int = 0) -> Result:
    return mpi_match("match", *files, "-o", files[0].parent / "m.h5", "--engine", "counting", *flags, code=code)


@pytest.mark.parametrize("what", ["subscriptions", "events"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no {}"),
        ("\n  \n", "holds no {}"),
        ("a,b\n1,2\n", "holds no usable {}, all 2 rows are rejected; "),
        ("3\n", "holds no usable {}, its only row is rejected; "),
        ('[{"temp": 31}]\n', ARRAY),
        ('[\n  {\n"temp": 31\n}]\n', ARRAY),
    ],
    ids=["empty", "blank", "CSV", "a number", "an array", "an array in lines"],
)
def test_an_input_without_a_good_row_is_one_line_and_writes_nothing(
    files: list[Any], tmp_path: Path, what: str, text: str, said: str
) -> None:
    (tmp_path / f"{what}.jsonl").write_text(text)
    line = only_line(match(files, code=3))
    assert f"{what}.jsonl: holds no" in line
    assert said.format(what.removesuffix("s")) in line
    assert not (tmp_path / "m.h5").exists()


def test_an_event_table_without_events_is_one_line_and_writes_nothing(tmp_path: Path) -> None:
    table, events, output = (tmp_path / f"{name}.h5" for name in ("table", "events", "m"))
    made = Table.from_filters([make_filter("a", [constraint("x", "=", 1)])])
    made.save(table)
    save_events(Events.of([]), events, made.vocabulary)
    line = only_line(mpi_match("run", "--table", table, "--events", events, "-o", output, "--engine", "counting", code=3))
    assert line.endswith("events.h5: holds no event")
    assert not output.exists()


def test_exchanged_arguments_are_guessed(files: list[Any], tmp_path: Path) -> None:
    line = only_line(match(files[::-1], "--rejects", tmp_path / "bad.jsonl", code=3))
    assert "events.jsonl: holds no usable subscription" in line
    assert f"the rows of {files[0]} are subscriptions: are two files exchanged?" in line
    assert json.loads((tmp_path / "bad.jsonl").read_text())["row"] == GOOD["events"]
    assert not (tmp_path / "m.h5").exists()
    assert "are two files" not in only_line(match([files[1], files[1]], code=3))


def test_a_subscription_of_no_filter_is_none(files: list[Any], tmp_path: Path) -> None:
    files[0].write_text('{"interface": "a", "filters": []}\n')
    assert "holds no usable subscription" in only_line(match(files, code=3))


def test_subscriptions_may_be_empty_when_changes_bring_some(
    files: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reached(name: str, table: Table, **more: object) -> NoReturn:
        raise engines.EngineError(f"opened with {table.n_filters} filters")

    changes = tmp_path / "changes.jsonl"
    files[0].write_text("")
    changes.write_text('{"before_event": 0, "add": ' + GOOD["subscriptions"] + "}\n")
    monkeypatch.setattr("mpi_match.commands.match.open_engine", reached)
    assert "opened with 0 filters" in only_line(match(files, "--changes", changes, code=5))
    changes.write_text('{"before_event": 0, "remove": "f9"}\n')
    bad = only_line(match(files, "--changes", changes, code=3))
    assert "changes.jsonl: holds no usable change, its only row is rejected" in bad


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        (["--location", "lon,lat"], "'lon' or 'lat'"),
        (["--id", "uuid"], "'uuid'"),
        (["--location", "temp,n", "--id", "m"], "'m'"),
    ],
)
def test_a_named_attribute_that_no_event_has_is_reported(files: list[Any], flags: list[str], names: str) -> None:
    files[1].write_text('{"temp": 31, "n": 1}\n{"temp": 29, "n": 1}\n')
    result = match(files, *flags, "--json")
    assert f"no event has {names}, which --location or --id names" in result.stderr
    assert json.loads(result.stdout)["never_seen"] == names.replace("'", "").split(" or ")
    assert f"no event has {names} (--strict)" in only_line(match(files, *flags, "--strict", code=3))


def test_an_attribute_of_one_event_is_not_reported(files: list[Any]) -> None:
    files[1].write_text('{"temp": 31}\n{"temp": 29, "x": 1, "y": 2, "n": "e1"}\n')
    result = match(files, "--location", "x,y", "--id", "n", "--json", "--strict")
    assert "no event has" not in result.stderr
    assert json.loads(result.stdout)["never_seen"] == []


def test_areas_without_a_location_are_reported(files: list[Any]) -> None:
    files[0].write_text(json.dumps(SUBSCRIPTIONS[1]))
    assert "1 filter with an area: without --location no event is in it" in match(files).stderr
    assert "with an area" not in match(files, "--location", "x,y").stderr


@pytest.mark.parametrize(
    "flags", [["--location", "x,x"], ["--id", ""], ["--location", "x,y", "--id", "x"], ["--id", "x", "--location", "x,y"]]
)
def test_names_that_are_no_attributes_are_wrong_usage(files: list[Any], flags: list[str]) -> None:
    result = match(files, *flags, code=2)
    assert "--location" in result.stderr or "--id needs the name of an attribute" in result.stderr


# Outputs


def test_matches_are_written_in_the_form_of_the_output_name(
    files: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    row = {"event": 0, "interfaces": ["hot"]}
    before = set(tmp_path.iterdir())
    result = mpi_match("match", *files, "-o", "-", "--engine", "counting")
    assert json.loads(result.stdout) == row
    assert "answers written to standard output" in result.stderr
    assert set(tmp_path.iterdir()) == before
    for name, read in (("o.jsonl", open), ("o.JSONL.gz", gzip.open)):
        mpi_match("match", *files, "-o", name, "--engine", "counting")
        with read(name, "rt") as lines:
            assert json.loads(lines.read()) == row
    mpi_match("match", *files, "-o", "./-", "--engine", "counting")
    assert list(MatchesFile.load(tmp_path / "-").rows()) == [["hot"]]
    assert "both be written to standard output" in mpi_match("match", *files, "-o", "-", "--json", code=2).stderr


@pytest.mark.parametrize(
    ("command", "names"),
    [
        (["export", "matches.h5"], ["o.tsv", "o", "o.h5", "o.gz", "o.txt"]),
        (["match", "subscriptions.jsonl", "events.jsonl"], ["o.tsv", "o.png", "o.gz"]),
        (["run", "--table", "table.h5", "--events", "events.h5"], ["o.csv", "o.jsonl", "o.parquet", "-"]),
        (["compile", "subscriptions", "subscriptions.jsonl"], ["o.jsonl", "-"]),
        (["bench", "ccm"], ["o.csv", "o.h5"]),
        (["plot", "r.jsonl"], ["o.gif", "o", "-"]),
        (["generate", "ccm"], ["-", ""]),
    ],
)
def test_an_output_name_of_another_form_is_wrong_usage(
    workload: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], names: list[str]
) -> None:
    monkeypatch.chdir(workload)
    before = set(workload.iterdir())
    for name in names:
        said = mpi_match(*command, "-o", name, code=2).stderr.splitlines()[-1]
        if name in ("", "-"):
            assert (
                "the name is empty" in said
                or "cannot be standard input or output here" in said
                or "does not end in" in said
                or "answers go to standard output with --follow only" in said
            )
        else:
            assert f"'{name}' does not end in ." in said
    assert set(workload.iterdir()) == before


def test_the_command_line_knows_the_forms_that_export_writes() -> None:
    forms = ("JSON lines", "packed JSON lines", "CSV", "Parquet", "Arrow")
    assert {ending for form in forms for ending in FORMS[form]} == set(export.ENDINGS)
    with pytest.raises(ValueError, match=r"o\.tsv: ends in none of \.jsonl, .*\.parquet"):
        export.check_export(Path("o.tsv"), [])
