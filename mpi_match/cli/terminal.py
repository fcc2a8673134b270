"""What people see: lines and a progress bar on standard error, so that standard output holds nothing but data."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

import click

PATIENCE_S = 1.0
"""A bar appears when something takes longer than this."""


def say(text: str) -> None:
    """One line for people."""
    click.echo(text, err=True)


def plural(count: int, noun: str, nouns: str | None = None) -> str:
    """`1 filter`, `2,000 filters`, `0 matches`."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def seconds(value: float) -> str:
    """A duration in the unit that reads best: `850 µs`, `12.3 ms`, `4.20 s`."""
    if value < 1e-3:
        return f"{value * 1e6:.0f} µs"
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"


def rate(value: float) -> str:
    """Events per second: `850 events/s`, `12.3 k events/s`, `4.20 M events/s`."""
    for scale, prefix in ((1e9, "G "), (1e6, "M "), (1e3, "k ")):
        if value >= scale:
            return f"{value / scale:.3g} {prefix}events/s"
    return f"{value:.3g} events/s"


def byte_size(value: float) -> str:
    """A number of bytes: `850 B`, `19.1 MB`, `4.20 GB` (decimal, like the sizes of disks and the rates of networks)."""
    for scale, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.0f} B"


def clock_time(seconds: float) -> str:
    """A duration as on a clock: `0:07`, `2:45`, `1:02:45`."""
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def table_lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Rows with the same keys as aligned lines under a heading; numbers to the right."""
    rows = list(rows)
    if not rows:
        return []
    cells = [[str(value) for value in row.values()] for row in rows]
    heads = list(rows[0])
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    right = [isinstance(value, (int, float)) or str(value)[:1].isdigit() for value in rows[0].values()]

    def line(items: list[str]) -> str:
        padded = (i.rjust(w) if r else i.ljust(w) for i, w, r in zip(items, widths, right, strict=True))
        return "  ".join(padded).rstrip()

    return [line(heads), *(line(row) for row in cells)]


def print_json(summary: Mapping[str, Any]) -> None:
    """One object on standard output."""
    click.echo(json.dumps(summary, ensure_ascii=False, default=str))


class Progress:
    """A bar on the terminal once the work has lasted `PATIENCE_S`; nothing at all elsewhere (a pipe, a log).

    `with Progress("events") as progress: ... progress(done, total)` with counts from 0, as often as one likes.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self._shown = sys.stderr.isatty()
        self._started = time.monotonic()
        self._bar: Any = None
        self._done = 0

    def __enter__(self) -> Progress:
        return self

    def __call__(self, done: int, total: int) -> None:
        """`done` of `total` are done."""
        if not self._shown or (self._bar is None and time.monotonic() - self._started < PATIENCE_S):
            return
        if self._bar is None:
            self._bar = click.progressbar(length=total, label=self._label, file=sys.stderr, show_pos=True)
            self._bar.__enter__()
        self._bar.update(done - self._done)
        self._done = done

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.__exit__(kind, error, trace)
