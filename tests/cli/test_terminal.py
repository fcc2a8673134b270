"""Progress bars and messages on a terminal."""

from __future__ import annotations

import io
import logging
import re
import sys

import click
import pytest

from mpi_match.cli import errors, terminal


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


@pytest.mark.parametrize(("kind", "times"), [(Terminal, 1), (io.StringIO, 0)], ids=["terminal", "elsewhere"])
def test_compiling_an_engine_is_reported_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, kind: type[io.StringIO], times: int
) -> None:
    stream = kind()
    monkeypatch.setattr(sys, "stderr", stream)

    @click.command(cls=errors.CliCommand)
    def command() -> None:
        logging.getLogger("mpi_match.compute.compile_cache").info("compiling")
        logging.getLogger("mpi_match.engines").info("engine keyed_cuda passed over")

    command([], standalone_mode=False)
    line = r"\S+ \S+ \S+ INFO mpi_match\.compute\.compile_cache: compiling\n"
    assert re.fullmatch(line * times, stream.getvalue())
