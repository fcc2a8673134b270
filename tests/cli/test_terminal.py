"""What people are shown: a bar where it helps."""

import io
import logging
import re
import sys

import click
import pytest

from mpi_match.cli import errors, terminal


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("patience", [0, 60])
def test_a_bar_is_shown_on_a_terminal_for_what_takes_long(monkeypatch, patience):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(terminal, "PROGRESS_AFTER_S", patience)
    with terminal.Progress("events") as progress:
        for done in range(11):
            progress(done, 10)
    assert ("10/10" in sys.stderr.getvalue()) == (patience == 0)


def test_no_bar_is_shown_elsewhere(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(terminal, "PROGRESS_AFTER_S", 0)
    with terminal.Progress("events") as progress:
        progress(10, 10)
    assert sys.stderr.getvalue() == ""


@pytest.mark.parametrize(("stream", "times"), [(Terminal, 1), (io.StringIO, 0)], ids=["terminal", "elsewhere"])
def test_that_an_engine_is_compiled_is_said_on_a_terminal(monkeypatch, stream, times):
    monkeypatch.setattr(sys, "stderr", stream())

    @click.command(cls=errors.CliCommand)
    def command():
        logging.getLogger("mpi_match.compute.compile_cache").info("compiling")
        logging.getLogger("mpi_match.engines").info("engine keyed_cuda passed over")

    command([], standalone_mode=False)
    line = r"\S+ \S+ \S+ INFO mpi_match\.compute\.compile_cache: compiling\n"
    assert re.fullmatch(line * times, sys.stderr.getvalue())
