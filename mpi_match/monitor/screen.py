"""Lines on a terminal that are drawn again and again in the same place.

Under a launcher standard error is a pipe, which the launcher empties onto its own standard error.  If that is a terminal,
what is written to the pipe appears there, the codes that move the cursor too; so it is the launcher that is asked.  (A shell
is never asked: where people put `| tee`, a file is meant.)

Log lines of this process go above what is drawn.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import TextIO

UP, TO_END_OF_LINE, TO_END = "\x1b[{}A", "\x1b[K", "\x1b[J"
_BETWEEN = "hydra_pmi_proxy"
"""MPICH has a process between its launcher and the ranks of a host."""
_LOGGERS = ("mpi_match", "spark_prep")


def terminal_size(launched: bool) -> os.terminal_size | None:
    """Columns and lines of the terminal that standard error ends on; None when it does not end on one.

    `launched` says that a launcher started this process, whose parent is then looked at as well.
    """
    if sys.stderr.isatty():
        return os.get_terminal_size(sys.stderr.fileno())
    if not launched:
        return None
    try:
        parent = os.getppid()
        if Path(f"/proc/{parent}/comm").read_text(encoding="utf-8").strip() == _BETWEEN:
            parent = int(Path(f"/proc/{parent}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
        descriptor = os.open(f"/proc/{parent}/fd/2", os.O_WRONLY | os.O_NOCTTY)
    except OSError:  # no such file system, or a parent of another user
        return None
    try:
        return os.get_terminal_size(descriptor) if os.isatty(descriptor) else None
    finally:
        os.close(descriptor)


class Screen:
    """A place for some lines at the end of `stream`, a terminal of `size`; used in a `with` block."""

    def __init__(self, size: os.terminal_size, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self.columns, self.lines = size.columns or 80, size.lines or 24  # a terminal without a window says 0
        self._drawn: list[str] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Screen:
        self._loggers = {name: logging.getLogger(name).handlers for name in _LOGGERS}
        for name, handlers in self._loggers.items():
            above = _Above(self)
            above.setFormatter(handlers[0].formatter if handlers else None)
            logging.getLogger(name).handlers = [above]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for name, handlers in self._loggers.items():
            logging.getLogger(name).handlers = handlers

    def draw(self, lines: list[str]) -> None:
        """Put lines where the last ones are; what is too long or too much for the terminal is cut."""
        with self._lock:
            self._write("", [line[: self.columns - 1] for line in lines[: self.lines - 1]])

    def above(self, text: str) -> None:
        """A line that stays, above what is drawn."""
        with self._lock:
            self._write(f"{text}{TO_END_OF_LINE}\n", self._drawn)

    def _write(self, first: str, lines: list[str]) -> None:
        up = UP.format(len(self._drawn)) if self._drawn else ""
        self._stream.write(up + first + "".join(f"{line}{TO_END_OF_LINE}\n" for line in lines) + TO_END)
        self._stream.flush()
        self._drawn = lines


class _Above(logging.Handler):
    """Log lines above what is drawn."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        self._screen.above(self.format(record))
