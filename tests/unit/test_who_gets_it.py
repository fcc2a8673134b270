"""The map on the README is the script's, and shows the matcher's answers."""

from __future__ import annotations

from pathlib import Path

import pytest
import who_gets_it
from who_gets_it import ELSEWHERE, GETS, OTHER, RIDE

from mpi_match import LiveMatcher
from mpi_match.model import make_event, match_naive

MAP = who_gets_it.MAP


def test_the_map_shows_the_matchers_answers() -> None:
    found = who_gets_it.scenes()
    matcher, event = LiveMatcher(who_gets_it.SUBSCRIPTIONS), make_event(RIDE, (RIDE["x"], RIDE["y"]))
    for changes, subscribers in zip(([], who_gets_it.CHANGES), found, strict=True):
        matcher.update(changes)
        assert [each.interface for each in subscribers if each.answer == GETS] == match_naive(matcher.filters(), event)
        assert {each.answer for each in subscribers} == {GETS, OTHER, ELSEWHERE}
    assert [[each.interface for each in scene if each.answer == GETS] for scene in found] == [["taxi 1", "van"], ["taxi 3"]]
    assert who_gets_it.description_in(MAP) == who_gets_it.described(found)


@pytest.mark.untraced
def test_the_map_is_what_the_script_draws(tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="the map needs matplotlib (extra `plot`)")
    one, two = tmp_path / "1.svg", tmp_path / "2.svg"
    for path in (one, two):
        who_gets_it.draw(who_gets_it.scenes(), path)
    assert one.read_bytes() == two.read_bytes()
    assert who_gets_it.description_in(one) == who_gets_it.description_in(MAP)
    if f"Matplotlib v{matplotlib.__version__}," not in MAP.read_text(encoding="utf-8"):
        pytest.skip(f"the map was drawn by another version than {matplotlib.__version__}, which may draw it in other bytes")
    assert one.read_bytes() == MAP.read_bytes()
