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
_NOTE_SHARE = 0.035
"""Share of the width that the note in the margin takes."""


@contextmanager
def drawing(path: Path | BinaryIO, size: tuple[float, float] = COLUMN, note: str = "") -> Iterator[Any]:
    """A new matplotlib `Figure`, written to `path` at the end of the body: PNG, SVG or PDF by its ending, SVG to a stream.
    The same drawing is the same bytes, with one version of matplotlib.

    `note` stands in the margin: machine, commit and date.  Raises ImportError, saying what to install, without matplotlib.
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
            figure.get_layout_engine().set(rect=(0, 0, 1 - _NOTE_SHARE, 1))
            figure.text(0.995, 0.5, note, rotation=90, fontsize=4, color="0.35", ha="right", va="center")
        yield figure
        form = path.suffix[1:].lower() if isinstance(path, Path) else "svg"
        figure.savefig(path, format=form, metadata={name: None for name in _DATES.get(form, ())})


def legend_above(figure: Any, axes: Any) -> None:
    """The legend above the axes, where no data is; none for a single entry without a name."""
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        figure.legend(handles, labels, loc="outside upper center", ncols=2 if len(labels) > 1 else 1)


def engineering(axis: Any) -> None:
    """Tick labels as 1k, 10M, and some on every axis: a logarithmic one of less than a decade is divided evenly."""
    from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullFormatter

    low, high = axis.get_view_interval()
    if axis.get_scale() == "log":
        few, marks = high < 10 * low, (1.0,) if high > 1000 * low else (1.0, 2.0, 5.0)
        axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]) if few else LogLocator(subs=marks))
        axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(EngFormatter(sep=""))
