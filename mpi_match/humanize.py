"""Formats numbers and rows for people: `2,000 filters`, `4.2 M events/s`, `1:02:45`, aligned columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_OBEYED = re.compile("[\\x00-\\x09\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069]")


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


def table_lines(rows: Iterable[Mapping[str, object]]) -> list[str]:
    """Return rows with the same keys as aligned lines under a heading; numbers are right-aligned."""
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


def visible(text: str) -> str:
    r"""A text in which every character that a terminal would obey is escaped, such as `\x1b` and `\u202e`.

    These are control characters other than a line feed, those that change the direction of text, and line separators.
    """
    return _OBEYED.sub(lambda found: _escaped(found[0]), text)


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
