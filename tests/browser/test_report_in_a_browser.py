"""The HTML report as a person sees it: in a headless Chromium, whose screenshot has the plots."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from command_line import mpi_match

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1000,2400",
)
BLUE, ORANGE = (0, 0x72, 0xB2), (0xD5, 0x5E, 0)
"""The first two colours of figures."""


@pytest.mark.browser
def test_the_plots_are_on_the_screen(tmp_path: Path) -> None:
    browser = shutil.which("chromium")
    assert browser is not None, "there is no chromium, and it could not be installed"
    quick = ("--filters", 60, "--events", 20, "--repetitions", 1, "--check", 1, "--engine", "counting,reference")
    mpi_match("bench", "ccm", *quick, "--vary", "names=10,20", "-o", tmp_path / "names.jsonl")
    mpi_match("report", tmp_path / "names.jsonl", "-o", tmp_path / "report.html")
    shot = tmp_path / "report.png"
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    words = [browser, *FLAGS, profile, f"--screenshot={shot}", (tmp_path / "report.html").as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert shot.exists(), done.stderr
    from matplotlib.image import imread

    pixels = np.rint(imread(shot)[..., :3] * 255).astype(int)
    for colour in (BLUE, ORANGE):
        found = np.count_nonzero((np.abs(pixels - np.array(colour)) < 25).all(axis=2))
        assert found > 200, f"a line of {colour} is not to be seen"
    assert np.count_nonzero((pixels < 80).all(axis=2)) > 2_000, "there is no text"
