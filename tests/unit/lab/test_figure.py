"""A figure of the same numbers is the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpi_match.lab.figure import bar_look, drawing, line_look


@pytest.mark.parametrize("ending", ["svg", "pdf", "png"])
def test_a_drawing_is_the_same_bytes(ending: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="figures need matplotlib (extra `plot`)")
    paths = [tmp_path / f"{i}.{ending}" for i in range(2)]
    for path in paths:
        with drawing(path, note="here") as figure:
            axes = figure.subplots()
            axes.errorbar([1, 2], [3, 4], yerr=[1, 1], label="a line")
            axes.set_title(str(path.suffix))
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_lines_and_bars_are_told_apart() -> None:
    for look in (line_look, bar_look):
        assert len({tuple(look(k).values()) for k in range(64)}) == 64
