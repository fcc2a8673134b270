"""`inspect`: the content of files."""

from __future__ import annotations

import json
from pathlib import Path

from command_line import N_EVENTS, N_FILTERS, mpi_match, only_line

from mpi_match.matches.file import MatchesFile
from mpi_match.table.table import Table


def test_inspect_shows_a_table(workload: Path) -> None:
    found = json.loads(mpi_match("inspect", workload / "table.h5", "--json", "--rows", 2).stdout)
    table = Table.load(workload / "table.h5")
    assert (found["kind"], found["filters"], found["interfaces"]) == ("table", N_FILTERS, 10)
    assert sum(row["constraints"] for row in found["operators"]) == found["constraints"] == table.n_constraints
    assert found["bytes"] == (workload / "table.h5").stat().st_size
    assert [row["filter"] for row in found["first"]] == [0, 1]
    text = mpi_match("inspect", workload / "table.h5").stdout
    assert "2,000" in text
    assert str(table.filter(0)).split(": ")[1] in text


def test_inspect_shows_one_filter(workload: Path) -> None:
    found = json.loads(mpi_match("inspect", workload / "table.h5", "--filter", 7).stdout)
    whole = Table.load(workload / "table.h5").filter(7)
    assert found == {"filter": 7, "interface": whole.interface, "asks": " and ".join(map(str, whole.constraints))}
    assert "no filter 2000; it has 2,000" in only_line(
        mpi_match("inspect", workload / "table.h5", "--filter", N_FILTERS, code=3)
    )


def test_inspect_shows_events_with_ids_and_locations(tmp_path: Path) -> None:
    from mpi_match import api
    from mpi_match.events.event_table import save_events

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


def test_inspect_shows_answers(workload: Path) -> None:
    file = MatchesFile.load(workload / "matches.h5")
    found = json.loads(mpi_match("inspect", workload / "matches.h5", "--json").stdout)
    assert (found["unit"], found["events"], found["matches"]) == ("interface", N_EVENTS, file.matches.n_matches)
    assert [row["matches"] for row in found["first"]] == list(file.rows())[:3]
    assert "table digest" in mpi_match("inspect", workload / "matches.h5").stdout
    assert json.loads(mpi_match("inspect", workload / "filters.h5", "--json").stdout)["unit"] == "filter"
