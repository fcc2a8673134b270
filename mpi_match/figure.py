"""The style of all figures, fit for a paper: a column's width, embedded fonts, 300 dots an inch, colours that survive grey.

Colours are those of Okabe and Ito ("Color universal design", 2008), which people with any colour vision tell apart; lines
differ in their marker and dashes too, bars in their hatching.  The margin says where the numbers come from.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

COLUMN = (3.4, 2.6)
"""Inches: the width of one column of a paper."""
PAGE = (7.0, 4.2)
"""Inches: the width of both columns."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", "-.", ":", "-", "--", "-.", ":")
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "++++", "oooo", "----")
"""For lines and bars of one figure, in order."""
_STYLE: dict[str, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "errorbar.capsize": 2,
    "hatch.linewidth": 0.4,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # TrueType, which publishers ask for
    "ps.fonttype": 42,
    "savefig.dpi": 300,
    "svg.hashsalt": "mpi-match",  # else every drawing has other ids
}
_DATES = {"svg": ("Date",), "pdf": ("CreationDate",)}
"""The metadata of each format that would differ from one drawing of the same numbers to the next."""
_NOTE_POINTS = 4
"""Size of the note in the margin, where it fits the height."""
_LETTER = 0.55
"""Width of a letter for its size, of most fonts at most."""
_COLUMN_OF_LEGEND = 22
"""Letters: with longer entries a legend has one column."""


@contextmanager
def drawing(path: Path | BinaryIO, size: tuple[float, float] = COLUMN, note: str = "") -> Iterator[Any]:
    """A new matplotlib `Figure`, written to `path` at the end of the body: PNG, SVG or PDF by its ending, SVG to a stream.
    The same drawing is the same bytes, with one version of matplotlib.

    `note` stands in the margin, what is before its first semicolon on a line of its own: machine; commit and date.
    Raises ImportError, saying what to install, without matplotlib.
    """
    try:
        import matplotlib
        from cycler import cycler
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'mpi-match[plot]'") from error
    cycle: Any = cycler(color=COLOURS) + cycler(marker=MARKERS) + cycler(linestyle=DASHES)
    style: Any = {**_STYLE, "axes.prop_cycle": cycle}
    with matplotlib.rc_context(style):
        figure: Any = Figure(figsize=size, layout="constrained")
        if note:
            _write_note(figure, note.split("; ", 1), size)
        yield figure
        form = path.suffix[1:].lower() if isinstance(path, Path) else "svg"
        figure.savefig(path, format=form, metadata={name: None for name in _DATES.get(form, ())})


def _write_note(figure: Any, lines: list[str], size: tuple[float, float]) -> None:
    """Write lines into the margin, as large as lets the longest one be as long as the figure is high."""
    width, height = (72 * inches for inches in size)
    points = min(_NOTE_POINTS, height / (_LETTER * max(map(len, lines))))
    figure.get_layout_engine().set(rect=(0, 0, 1 - (1.3 * len(lines) + 0.5) * points / width, 1))
    figure.text(0.995, 0.5, "\n".join(lines), rotation=90, fontsize=points, color="0.35", ha="right", va="center")


def legend_above(figure: Any, axes: Any) -> None:
    """The legend above the axes, where no data is; none for a single entry without a name."""
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        several = len(labels) > 1 and max(map(len, labels)) <= _COLUMN_OF_LEGEND
        figure.legend(handles, labels, loc="outside upper center", ncols=2 if several else 1)


def engineering(axis: Any) -> None:
    """Tick labels as 0.5, 1k, 10M, and some on every axis: a logarithmic one of less than a decade is divided evenly."""
    from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    large = EngFormatter(sep="")
    low, high = axis.get_view_interval()
    if axis.get_scale() == "log":
        few, marks = high < 10 * low, (1.0,) if high > 1000 * low else (1.0, 2.0, 5.0)
        axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]) if few else LogLocator(subs=marks))
        axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda value, _: large(value) if abs(value) >= 1000 else f"{value:g}"))
