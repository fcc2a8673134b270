"""Lines on a terminal that are redrawn in place, by rich.

Under a launcher standard error is a pipe, which the launcher copies to its own standard error.  If that is a terminal, text
written to the pipe appears there, including the codes that move the cursor; so the launcher's standard error is examined,
also for the terminal's size.  (A shell's is not: a user of `| tee` wants a file.)

Log lines of this process are printed above the drawn lines.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

_BETWEEN = "hydra_pmi_proxy"
"""MPICH has a process between its launcher and the ranks of a host."""
_LOGGERS = ("mpi_match", "spark_prep")
_DUMB = ("dumb", "unknown")
"""TERM of terminals that cannot move their cursor."""


class Terminal:
    """A terminal, by the descriptor of a file that is open on it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._size = os.terminal_size((80, 24))

    def size(self) -> os.terminal_size:
        """The present columns and lines; the last known ones after the terminal has gone."""
        try:
            found = os.get_terminal_size(self._descriptor)
        except OSError:
            return self._size
        self._size = os.terminal_size((found.columns or 80, found.lines or 24))  # a terminal without a window has 0
        return self._size


def terminal(launched: bool) -> Terminal | None:
    """The terminal of standard error; None without one, or when it cannot move its cursor.

    `launched`: a launcher started this process, so its parent's standard error is examined as well.
    """
    if os.environ.get("TERM") in _DUMB:
        return None
    if sys.stderr.isatty():
        return Terminal(sys.stderr.fileno())
    if not launched:
        return None
    try:
        parent = os.getppid()
        if Path(f"/proc/{parent}/comm").read_text(encoding="utf-8").strip() == _BETWEEN:
            parent = int(Path(f"/proc/{parent}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
        descriptor = os.open(f"/proc/{parent}/fd/2", os.O_WRONLY | os.O_NOCTTY)
    except OSError:  # no such file system, or a parent of another user
        return None
    if os.isatty(descriptor):
        return Terminal(descriptor)
    os.close(descriptor)
    return None


class _Console(Console):
    """A console that never hides the cursor: a killed rank could not show it again."""

    def show_cursor(self, show: bool = True) -> bool:
        """Change nothing."""
        return False


class Screen:
    """A place for some lines at the end of `stream`, which ends on `terminal`; used in a `with` block."""

    def __init__(self, terminal: Terminal, stream: TextIO | None = None) -> None:
        self._terminal = terminal
        self._console = _Console(file=stream or sys.stderr, force_terminal=True, highlight=False, markup=False, emoji=False)
        self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)

    def __enter__(self) -> Screen:
        self._loggers = {name: logging.getLogger(name).handlers for name in _LOGGERS}
        for name, handlers in self._loggers.items():
            above = _Above(self._console)
            above.setFormatter(handlers[0].formatter if handlers else None)
            logging.getLogger(name).handlers = [above]
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()
        for name, handlers in self._loggers.items():
            logging.getLogger(name).handlers = handlers

    @property
    def lines(self) -> int:
        """The number of lines that fit; the cursor is on the line below them, where other processes write."""
        return self._terminal.size().lines - 1

    def draw(self, lines: Sequence[Text]) -> None:
        """Replace the drawn lines; lines are cropped to the terminal's size."""
        columns, rows = self._terminal.size()
        self._console.size = (columns, rows)
        for line in lines:
            line.no_wrap, line.overflow = True, "crop"
        self._live.update(Group(*lines[: rows - 1], Text()), refresh=True)


class _Above(logging.Handler):
    """Prints log lines above the drawn lines."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        self._console.print(self.format(record), soft_wrap=True)
