"""`explain` as users have it: tables and rows, events in every form, its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import mpi_match, only_line

ROWS = [
    {"interface": "soc", "id": "shell", "where": {"or": [["image", "suffix i", ".EXE"], ["port", "<", 1024]]}},
    {"interface": "ops", "constraints": [["level", "=", "error"]], "area": [0, 0, 5]},
]
EVENTS = [{"image": "a.sh", "port": 8080, "user": "ada"}, {"image": "b.exe"}, {"level": "error", "port": 10**30}]


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    for name, rows in (("subs", ROWS), ("events", EVENTS)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    mpi_match("compile", "subscriptions", "--local", tmp_path / "subs.jsonl", "-o", tmp_path / "t.h5")
    mpi_match(
        "compile", "events", "--local", "--table", tmp_path / "t.h5", tmp_path / "events.jsonl", "-o", tmp_path / "e.h5"
    )
    (tmp_path / "events.csv").write_text("image,port,user\na.sh,8080,ada\n")
    return tmp_path


@pytest.mark.parametrize("table", ["t.h5", "subs.jsonl"])
@pytest.mark.parametrize("events", ["events.jsonl", "e.h5", "events.csv"])
def test_what_the_nearest_filters_miss(table: str, events: str, inputs: Path) -> None:
    found = mpi_match("explain", "--table", inputs / table, "--events", inputs / events, code=6)
    lines = found.stdout.splitlines()
    assert lines[0] == "no filter of 2 matches:"
    assert "  - `image` = 'a.sh', asked: suffix i '.exe'" in lines
    assert "  - `port` = 8080, asked: < 1024" in lines
    assert lines[-1] == "attributes that no filter names: `user`"


def test_exit_codes_and_json(inputs: Path) -> None:
    files = ("explain", "--table", inputs / "t.h5", "--events", inputs / "events.jsonl")
    found = json.loads(mpi_match(*files, "--event", 1, "--json").stdout)
    assert (found["matches"], [each["id"] for each in found["matched"]]) == (True, ["shell"])
    found = json.loads(mpi_match(*files, "--interface", "ops", "--json", code=6).stdout)
    assert found["nearest"][0]["missing"] == [
        {"name": "level", "absent": True, "asked": ["=", "error"]},
        {"area": [0.0, 0.0, 5.0], "location": None},
    ]
    assert mpi_match(*files, "--event", 2, code=3).stdout.startswith(
        "a rejected row, which no filter matches: attribute 'port'"
    )
    assert mpi_match(*files, "--event", 1, "--filter", "shell").stdout.startswith("1 filter of 1 matches:")
    assert "has no event 3; it has 3" in only_line(mpi_match(*files, "--event", 3, code=3))
    assert "no filter has the id 'shel'; there is `shell`" in only_line(mpi_match(*files, "--filter", "shel", code=3))
    mpi_match(*files, "--filter", "shell", "--interface", "ops", code=2)


def test_rules_of_a_language_are_explained(inputs: Path) -> None:
    (inputs / "p.json").write_text(json.dumps({"name": "shell", "pattern": {"image": [{"suffix": ".sh"}]}}, indent=1))
    files = ("explain", "--table", inputs / "p.json", "--events", inputs / "events.jsonl")
    found = mpi_match(*files, "--language", "eventbridge", "--json")
    assert json.loads(found.stdout)["matched"][0]["interface"] == "shell"
    said = only_line(mpi_match(*files, code=3))
    assert "p.json: holds no usable subscription, all " in said
    assert said.endswith("p.json seems to hold EventBridge and Event Ruler patterns: add --language eventbridge")
    compiled = ("explain", "--table", inputs / "t.h5", "--events", inputs / "events.jsonl", "--language", "eventbridge")
    assert "t.h5 is compiled; --language is for rules" in mpi_match(*compiled, code=2).stderr


def test_a_table_without_subscriptions_is_no_answer(inputs: Path) -> None:
    (inputs / "none.jsonl").write_text("")
    said = mpi_match("explain", "--table", inputs / "none.jsonl", "--events", inputs / "events.jsonl", code=3)
    assert only_line(said).endswith("none.jsonl: holds no subscription")
