"""Progress bars and messages on a terminal."""

from __future__ import annotations

import io
import logging
import re
import sys
import time
from pathlib import Path

import click
import pytest

from mpi_match.cli import errors, terminal
from mpi_match.compute import compile_cache, compile_notice
from mpi_match.compute.compile_cache import compile_once


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("delay_s", [0, 60])
def test_a_bar_is_shown_on_a_terminal_for_long_work(monkeypatch: pytest.MonkeyPatch, delay_s: int) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(terminal, "PROGRESS_AFTER_S", delay_s)
    with terminal.Progress("events") as progress:
        for done in range(11):
            progress(done, 10)
    assert ("10/10" in stream.getvalue()) == (delay_s == 0)


def test_no_bar_is_shown_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(terminal, "PROGRESS_AFTER_S", 0)
    with terminal.Progress("events") as progress:
        progress(10, 10)
    assert stream.getvalue() == ""


@pytest.mark.parametrize("kind", [Terminal, io.StringIO], ids=["terminal", "elsewhere"])
def test_long_compiling_is_said_once_with_a_bar_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: type[io.StringIO]
) -> None:
    stream = kind()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(terminal, "PROGRESS_AFTER_S", 0)
    monkeypatch.setattr(terminal, "LOOK_S", 0.001)
    monkeypatch.setattr(compile_cache, "directory", lambda: tmp_path)
    monkeypatch.setattr(compile_notice, "show", terminal.compiling)
    terminal._say_compiling.cache_clear()
    (tmp_path / "part").mkdir()
    deadline = time.monotonic() + 60
    for what in ("one", "other"):
        with compile_once(what, 2):
            (tmp_path / "part" / f"{what}.nbc").touch()
            while "compiling for" not in stream.getvalue() or (kind is Terminal and "1/2" not in stream.getvalue()):
                assert time.monotonic() < deadline
                time.sleep(0.001)
    assert stream.getvalue().count("compiling for this machine") == 1
    assert kind is Terminal or stream.getvalue().count("\n") == 1


@pytest.mark.parametrize(("kind", "times"), [(Terminal, 1), (io.StringIO, 0)], ids=["terminal", "elsewhere"])
def test_compiling_an_engine_is_reported_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, kind: type[io.StringIO], times: int
) -> None:
    stream = kind()
    monkeypatch.setattr(sys, "stderr", stream)

    @click.command(cls=errors.CliCommand)
    def command() -> None:
        logging.getLogger("mpi_match.compute.compile_cache").info("compiling")
        logging.getLogger("mpi_match.engines").info("engine keyed_cuda skipped")

    command([], standalone_mode=False)
    line = r"\S+ \S+ \S+ INFO mpi_match\.compute\.compile_cache: compiling\n"
    assert re.fullmatch(line * times, stream.getvalue())
