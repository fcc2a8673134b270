"""The dashboard: lines from simulated numbers, drawn in place, never blocking the run."""

from __future__ import annotations

import fcntl
import io
import logging
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mpirun import FLAGS, MPIRUN, TIMEOUT_S, environment, needs_mpirun
from rich.text import Text
from run_inputs import Inputs

from mpi_match.monitor.dashboard import LAST_INCIDENTS, Dashboard, Pace, frame
from mpi_match.monitor.observer import Watch
from mpi_match.monitor.screen import Screen, Terminal, terminal
from mpi_match.monitor.status import RunStatus, Share


class Clock:
    """Seconds, set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def made_up(events: dict[int, int], clock: Clock | None = None) -> RunStatus:
    """A run of 2,000,000 events in which workers have answered so many, all written."""
    status = RunStatus(2_000_000, clock or Clock())
    status.shares = {rank: Share("keyed", "cpu", "here") for rank in events}
    status.begin()
    for rank, count in events.items():
        status.sent(rank, rank, 1000)
        status.answered(rank, rank, count)
        status.wrote(count, 0)
    return status


def plain(lines: list[Text]) -> list[str]:
    """The text of lines, without colours."""
    return [line.plain for line in lines]


def test_a_frame_shows_the_status() -> None:
    clock = Clock()
    status = made_up({1: 600_000, 2: 400_000}, clock)
    clock.now = 4.0
    for batch in range(3):
        status.sent(1, 10 + batch, 1_000_000)
    status.happened("overdue", 1, 10)
    status.sent(2, 20, 500_000)
    status.happened("lost", 2)
    status.happened("resent", 1, 20)
    assert plain(frame(status, 500_000, 412_000_000, 24)) == [
        "events     ███████████░░░░░░░░░░░   50 %  1,000,000 of 2,000,000, 0:02 left",
        "rate       500 k events/s now, 250 k events/s overall in 0:04",
        "in flight  3 batches, 3 MB; master's memory 412 MB",
        "worker 1   ██████████████████████   60 %  600,000 events, 3 held; overdue",
        "worker 2   ███████████████░░░░░░░   40 %  400,000 events; lost",
        "1 overdue, 1 lost, 1 resent",
        "    4.00 s  worker 1 has not answered batch 10 in time",
        "    4.00 s  worker 2 is lost",
        "    4.00 s  batch 20 is sent to worker 1 again",
    ]


def test_a_frame_of_a_run_that_has_not_begun_and_of_one_without_events() -> None:
    assert plain(frame(RunStatus(10), 0.0, 0, 24))[0] == "events     ░░░░░░░░░░░░░░░░░░░░░░    0 %  0 of 10"
    assert plain(frame(RunStatus(0), 0.0, 0, 24))[0] == "events     ██████████████████████  100 %  0 of 0"


@pytest.mark.parametrize("room", [5, 9, 24])
def test_a_frame_fits_and_sums_up_the_workers_beyond(room: int) -> None:
    status = made_up({rank: 10_000 for rank in range(1, 33)})
    for batch in range(100):
        status.happened("dropped", 3, batch)
    lines = plain(frame(status, 1.0, 0, room))
    assert len(lines) <= room
    if room == 24:
        shown = [line for line in lines if line.startswith("worker")]
        (others,) = [line for line in lines if " more " in line]
        assert others.startswith(f"{32 - len(shown)} more")
        assert f"{10_000 * (32 - len(shown)):,} events" in others
        assert "100 dropped" in lines
        assert len([line for line in lines if "is dropped" in line]) == LAST_INCIDENTS
        assert lines[-1].endswith("batch 99 is dropped")


def test_the_current_rate_is_that_of_the_last_seconds() -> None:
    pace = Pace()
    assert pace.look(0.0, 0) == 0.0
    for tick in range(1, 41):
        pace.look(tick / 4, 100 * tick)
    assert pace.look(10.25, 4100) == pytest.approx(400)
    for tick in range(42, 60):
        found = pace.look(tick / 4, 4100)
    assert found == 0.0


# The screen


class Window(Terminal):
    """A terminal of any size, which may change."""

    def __init__(self, columns: int, lines: int) -> None:
        super().__init__(descriptor=-1)
        self.columns, self.lines = columns, lines

    def size(self) -> os.terminal_size:
        return os.terminal_size((self.columns, self.lines))


def played(text: str) -> list[str]:
    """The lines of a terminal after some output: codes that move the cursor up, erase a line or colour it, and no others."""
    lines, row, column = [""], 0, 0
    for piece in re.split(r"(\x1b\[[\d;?]*[A-Za-z]|\r|\n)", text):
        if piece == "\n":
            row, column = row + 1, 0
            lines += [""] * (row == len(lines))
        elif piece == "\r":
            column = 0
        elif piece.endswith("A") and piece[0] == "\x1b":
            row -= int(piece[2:-1])
        elif piece == "\x1b[2K":
            lines[row] = ""
        elif not re.fullmatch(r"\x1b\[[\d;]*m", piece):
            assert "\x1b" not in piece, f"a code that a terminal may not know: {piece!r}"
            lines[row] = lines[row][:column].ljust(column) + piece + lines[row][column + len(piece) :]
            column += len(piece)
    return lines


@contextmanager
def logged_to(stream: io.StringIO) -> Any:
    """Log lines of the project go to `stream`, formatted as on the command line."""
    logger, before = logging.getLogger("mpi_match"), logging.getLogger("mpi_match").handlers
    logger.handlers = [logging.StreamHandler(stream)]
    logger.handlers[0].setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    try:
        yield
    finally:
        logger.handlers = before


def texts(*lines: str) -> list[Text]:
    return [Text(line) for line in lines]


def test_lines_are_drawn_over_the_last_ones_and_log_lines_stay_above() -> None:
    stream = io.StringIO()
    with logged_to(stream):
        with Screen(Window(20, 5), stream) as screen:
            screen.draw(texts("one", "two", "three"))
            assert played(stream.getvalue()) == ["one", "two", "three", ""]
            logging.getLogger("mpi_match.cluster").warning("mind the gap [/b] :smile: 1")
            screen.draw(texts("uno", "due"))
            assert played(stream.getvalue())[:4] == ["WARNING: mind the gap [/b] :smile: 1", "uno", "due", ""]
            screen.draw(texts("x" * 30, *"abcdef"))
            assert played(stream.getvalue()) == ["WARNING: mind the gap [/b] :smile: 1", "x" * 20, "a", "b", "c", ""]
        assert played(stream.getvalue())[1:] == ["x" * 20, "a", "b", "c", "", ""]
        logging.getLogger("mpi_match.cluster").warning("after")
    assert stream.getvalue().endswith("WARNING: after\n")
    assert "\x1b[?25" not in stream.getvalue(), "a cursor that is hidden stays so when the rank is killed"


def test_a_window_may_change_its_size() -> None:
    stream, window = io.StringIO(), Window(20, 5)
    with Screen(window, stream) as screen:
        for columns, lines, drawn in (
            (20, 5, ["x" * 20, "a", "b", "c"]),
            (30, 8, ["x" * 30, *"abcdef"]),
            (10, 3, ["x" * 10, "a"]),
        ):
            window.columns, window.lines = columns, lines
            assert screen.lines == lines - 1
            screen.draw(texts("x" * 40, *"abcdef"))
            assert [line for line in played(stream.getvalue()) if line] == drawn


@pytest.mark.parametrize(("no_colour", "coloured"), [("", True), ("1", False)])
def test_lines_are_coloured_unless_no_color_is_set(no_colour: str, coloured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", no_colour)
    stream = io.StringIO()
    with Screen(Window(80, 24), stream) as screen:
        screen.draw(frame(made_up({1: 600_000}), 0.0, 0, 24))
    assert ("\x1b[32m" in stream.getvalue()) == coloured
    assert "events     ███████░░░░░░░░░░░░░░░   30 %  600,000 of 2,000,000" in played(stream.getvalue())


def test_where_there_is_no_terminal_there_is_no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert terminal(launched=False) is None
    monkeypatch.setattr(os, "getppid", lambda: 2**22 + 1)  # more processes than there can be
    assert terminal(launched=True) is None


@pytest.mark.parametrize(("term", "drawn"), [("xterm", True), ("dumb", False)])
def test_a_dumb_terminal_has_no_screen(term: str, drawn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", term)
    master, slave = pty.openpty()
    try:
        with open(slave, "w", closefd=False) as stream:
            monkeypatch.setattr(sys, "stderr", stream)
            found = terminal(launched=False)
            assert (found is not None) == drawn
            if found is not None:
                assert found.size() == (80, 24)  # it has no window
                fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
                assert found.size() == (120, 30)
    finally:
        os.close(master)
        os.close(slave)
    assert found is None or found.size() == (120, 30), "what was known when it went"


# In a thread of its own


class Stuck:
    """An observer that waits for ever, like a stopped terminal."""

    def __init__(self) -> None:
        self.looked, self.go_on = threading.Event(), threading.Event()

    def check(self) -> None:
        pass

    def begin(self, status: RunStatus) -> None:
        pass

    def look(self, status: RunStatus) -> None:
        self.looked.set()
        self.go_on.wait(TIMEOUT_S)

    def end(self, status: RunStatus, error: BaseException | None) -> None:
        raise AssertionError("it has not looked up yet")


class Failing(Stuck):
    """An observer whose disk is full."""

    def look(self, status: RunStatus) -> None:
        self.looked.set()
        raise OSError("no space left")


def test_a_stuck_observer_does_not_block_the_run(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("mpi_match.monitor.observer.LAST_LOOK_S", 0.05)
    stuck = Stuck()
    with Watch([stuck], tick_s=0.001)(RunStatus(1)):
        assert stuck.looked.wait(TIMEOUT_S)
    assert "did not return within" in caplog.text
    assert "the run ends without its last output" in caplog.text
    stuck.go_on.set()


def test_a_failing_observer_is_removed(caplog: pytest.LogCaptureFixture) -> None:
    failing, screen = Failing(), Screen(Window(80, 24), io.StringIO())
    with Watch([failing, Dashboard(screen)], tick_s=0.001)(made_up({1: 5})):
        assert failing.looked.wait(TIMEOUT_S)
        while not (failing.looked.is_set() and "Failing" in caplog.text):
            time.sleep(0.001)
    assert "the run goes on without Failing: no space left" in caplog.text
    assert caplog.text.count("no space left") == 1


def test_observers_are_called_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, status = io.StringIO(), made_up({1: 5})
    with Watch([Dashboard(Screen(Window(80, 24), stream))], tick_s=60)(status):
        status.wrote(1_999_995, 0)
        status.end()
    assert "2,000,000 of 2,000,000" in stream.getvalue()


# For real


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize("shown", [True, False], ids=["on a terminal", "into a file"])
def test_a_run_is_drawn_where_its_launcher_has_a_terminal(shown: bool, inputs: Inputs, tmp_path: Path) -> None:
    """mpirun forwards standard error through a pipe, so rank 0 has no terminal itself."""
    files = ["--table", inputs.table, "--events", inputs.events, "-o", tmp_path / "matches.h5"]
    ranks = [MPIRUN, *FLAGS, "-n", 3, sys.executable, "-m", "mpi4py", "-m", "mpi_match", "run", *files]
    words = [str(word) for word in (*ranks, "--engine", "counting", "--live")]
    master, terminal = pty.openpty()
    try:
        with (tmp_path / "errors").open("wb") as file:
            where = terminal if shown else file
            done = subprocess.run(words, stdout=file, stderr=where, env=environment(), timeout=TIMEOUT_S, check=False)
        os.close(terminal)
        drawn = b""
        while shown:
            try:
                drawn += os.read(master, 65536)
            except OSError:  # the end of a terminal without writers
                break
    finally:
        os.close(master)
    written = (tmp_path / "errors").read_text(encoding="utf-8")
    assert done.returncode == 0, drawn.decode() + written
    text = drawn.decode() if shown else written
    assert ("300 of 300" in text, "worker 2 " in text, "\x1b[" in text) == (shown, shown, shown)
    assert "300 events, " in text, "the ordinary last line"
