"""A figure of the same numbers is the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpi_match.figure import drawing


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
