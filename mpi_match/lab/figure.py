"""The style of all figures, as papers need it: column width, embedded fonts, 300 dpi, colours that work in grey.

Colours are those of Okabe and Ito ("Color universal design", 2008), which people with any colour vision tell apart; lines
differ in their marker and dashes too, bars in their hatching.  The margin says where the numbers come from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from mpi_match.storage import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

COLUMN = (3.4, 2.6)
"""Inches: the width of one column of a paper."""
PAGE = (7.0, 4.2)
"""Inches: the width of both columns."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", "-.", ":")
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "++++", "oooo", "----")
_STYLE: Any = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "figure.labelsize": 8,
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
"""The metadata of each format that would differ between two drawings of the same numbers."""
_NOTE_POINTS = 4
"""Font size of the note in the margin, in points, if the note fits."""
_LETTER = 0.55
"""Upper bound of the width of a letter, as a share of the font size."""
_LINE_OF_LEGEND = 4.8
"""Width of the handle and gaps of a legend entry, in letter heights."""
_BESIDE_AXES = 0.8
"""Most inches beside the axes: label, numbers, margin."""
_ROWS_OF_LEGEND = 2
"""The most legend rows in a figure of normal height; more rows make the figure higher."""


@contextmanager
def drawing(path: Path | BinaryIO, size: tuple[float, float] = COLUMN, note: str = "") -> Iterator[Any]:
    """A new matplotlib `Figure`, written to `path` at the end of the body: PNG, SVG or PDF by its ending, SVG to a stream.
    The same drawing is the same bytes, with one version of matplotlib.

    `note` is printed in the margin, with a line break at its first semicolon: machine; commit and date.
    Raises ImportError, saying what to install, without matplotlib.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'mpi-match[plot]'") from error
    with matplotlib.rc_context(_STYLE):
        figure: Any = Figure(figsize=size, layout="constrained")
        if note:
            _write_note(figure, note.split("; ", 1), size)
        yield figure
        form = path.suffix[1:].lower() if isinstance(path, Path) else "svg"
        with atomic_write(path) if isinstance(path, Path) else nullcontext(path) as target:
            figure.savefig(target, format=form, metadata={name: None for name in _DATES.get(form, ())})


def _write_note(figure: Any, lines: list[str], size: tuple[float, float]) -> None:
    """Write lines into the margin, in the largest size at which the longest one fits the figure's height."""
    width, height = (72 * inches for inches in size)
    points = min(_NOTE_POINTS, height / (_LETTER * max(map(len, lines))))
    figure.get_layout_engine().set(rect=(0, 0, 1 - (1.3 * len(lines) + 0.5) * points / width, 1))
    figure.text(0.995, 0.5, "\n".join(lines), rotation=90, fontsize=points, color="0.35", ha="right", va="center")


def line_look(k: int) -> dict[str, str]:
    """Colour, marker and dashes of line `k` of a figure; the first 64 are distinct."""
    turn = k + k // len(COLOURS)
    return {
        "color": COLOURS[k % len(COLOURS)],
        "marker": MARKERS[turn % len(MARKERS)],
        "linestyle": DASHES[turn % len(DASHES)],
    }


def bar_look(k: int) -> dict[str, str]:
    """Colour and hatching of bar `k` of a figure; the first 64 are distinct."""
    turn = k + k // len(COLOURS)
    return {"color": COLOURS[k % len(COLOURS)], "hatch": HATCHES[turn % len(HATCHES)], "edgecolor": "white"}


def legend_above(figure: Figure) -> None:
    """Put one legend above all axes; none for a single unnamed entry.

    It has as many columns as fit the width; the figure grows for more than a few rows.
    """
    found = [axes.get_legend_handles_labels() for axes in figure.axes]
    entries = {label: handle for handles, labels in found for handle, label in zip(handles, labels, strict=True)}
    if not entries:
        return
    size = _STYLE["legend.fontsize"] / 72  # inches, as the figure's
    most = int(figure.get_figwidth() / (size * (_LETTER * max(map(len, entries)) + _LINE_OF_LEGEND)))
    rows = -(-len(entries) // max(most, 1))
    figure.set_figheight(figure.get_figheight() + 1.5 * size * max(rows - _ROWS_OF_LEGEND, 0))
    figure.legend(entries.values(), entries.keys(), loc="outside upper center", ncols=-(-len(entries) // rows))


def name_bars(figure: Figure, axes: Axes, names: Sequence[str]) -> None:
    """Write names below bars at 0, 1, ..., a line for each part between commas; names that would overlap are vertical, and
    the figure grows.
    """
    letter = _LETTER * _STYLE["xtick.labelsize"] / 72  # inches, as the figure's
    parts = [name.replace(", ", "\n") for name in names]
    broadest = max(len(line) for part in parts for line in part.splitlines())
    if (broadest + 1) * letter * len(names) <= figure.get_figwidth() - _BESIDE_AXES:
        axes.set_xticks(range(len(names)), parts)
        return
    axes.set_xticks(range(len(names)), names, rotation=90)
    figure.set_figheight(figure.get_figheight() + letter * max(map(len, names)))


def engineering(axis: Axis) -> None:
    """Label ticks as 0.5, 1k, 10M; a logarithmic axis of less than a decade gets evenly spaced ticks, so it has labels
    too."""
    from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    large = EngFormatter(sep="")
    low, high = axis.get_view_interval()
    if axis.get_scale() == "log":
        few, marks = high < 10 * low, (1.0,) if high > 1000 * low else (1.0, 2.0, 5.0)
        axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]) if few else LogLocator(subs=marks))
        axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda value, _: large(value) if abs(value) >= 1000 else f"{value:g}"))
