"""A map of subscribers, their areas and an event: which of them match it, before and after a few changes.

    python tests/support/who_gets_it.py [-o mpi_match/docs/who_gets_it.svg]

It is the picture on the README.  A ride is wanted; taxis subscribe to the rides that they would take, where they are.  The
subscribers that get the event are determined by a `LiveMatcher`, and why the others do not, by the model: the event is
outside of one's area, another asks for something else.  Then there are changes, and the same event is matched again.

The file is the same bytes each time, with the same version of matplotlib (extra `plot`): it has no date, and no names drawn
by lot.  What is drawn stands in its description as JSON, so that a test can tell a map that is out of date also without
matplotlib.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from mpi_match import LiveMatcher  # noqa: E402
from mpi_match.model import Area, Constraint, inside, is_satisfied, make_event  # noqa: E402

MAP = REPOSITORY / "mpi_match" / "docs" / "who_gets_it.svg"
SIZE = (10.0, 7.0)
RIDE: dict[str, Any] = {"seats": 3, "dog": True, "x": 4.9, "y": 3.6}
SUBSCRIPTIONS: list[dict[str, Any]] = [
    {"interface": "taxi 1", "id": "t1", "constraints": [["seats", "<=", 4]], "area": [3.5, 4.6, 2.0]},
    {"interface": "taxi 2", "id": "t2", "constraints": [["seats", "<=", 4], ["dog", "absent"]], "area": [6.4, 4.9, 2.05]},
    {"interface": "taxi 3", "id": "t3", "constraints": [["seats", "<=", 6]], "area": [8.4, 2.4, 1.5]},
    {"interface": "taxi 4", "id": "t4", "constraints": [["seats", "=", 1]], "area": [9.1, 6.0, 0.75]},
    {"interface": "van", "id": "van", "constraints": [["seats", ">=", 3]], "area": [4.7, 2.0, 1.9]},
]
CHANGES: list[dict[str, Any]] = [
    {"move": "t3", "area": [5.6, 2.4, 1.5]},
    {"move": "van", "area": [2.0, 2.0, 1.9]},
    {"remove_interface": "taxi 1"},
    {"add": {"interface": "bus", "id": "bus", "constraints": [["seats", ">=", 9]], "area": [3.6, 4.9, 2.0]}},
]
STYLE = {
    "svg.hashsalt": "who gets it",
    "svg.fonttype": "none",
    "font.sans-serif": ["DejaVu Sans", "Verdana"],
    "font.size": 9,
}
"""Text stays text, in the font that it was laid out with or one as wide."""
GETS, OTHER, ELSEWHERE = "gets the event", "event in its area, content not asked for", "event not in its area"
LOOKS: dict[str, dict[str, Any]] = {
    GETS: {"edgecolor": "#1a7f37", "facecolor": "#2da44e40", "linewidth": 2.2, "linestyle": "-"},
    OTHER: {"edgecolor": "#bc4c00", "facecolor": "#fb8f4420", "linewidth": 1.4, "linestyle": (0, (6, 3))},
    ELSEWHERE: {"edgecolor": "#6e7781", "facecolor": "#afb8c118", "linewidth": 1.1, "linestyle": (0, (1.5, 2.5))},
}
"""Differ in colour and in line, for readers that cannot tell the colours apart, and for print."""
STAR: dict[str, Any] = {"marker": "*", "markersize": 14, "color": "#0969da", "markeredgecolor": "white"}


class Subscriber(NamedTuple):
    """A subscriber as it is drawn: what it asks for in words, its area, and what becomes of the event."""

    interface: str
    asks: list[str]
    area: Area
    answer: str


def scene(matcher: LiveMatcher) -> list[Subscriber]:
    """The present subscribers."""
    event = make_event(RIDE, (RIDE["x"], RIDE["y"]))
    (gets,) = matcher.match([RIDE], location="x,y")
    found = []
    for item in matcher.filters():
        assert item.area is not None, "every subscriber here has an area"
        asked = all(is_satisfied(c, event.attributes) for c in item.constraints)
        here = inside(event.location, item.area)
        assert (item.interface in gets) == (asked and here), "the matcher and the model agree"
        answer = GETS if item.interface in gets else OTHER if here else ELSEWHERE
        found.append(Subscriber(item.interface, [in_words(c) for c in item.constraints], item.area, answer))
    return sorted(found)


def in_words(asked: Constraint) -> str:
    return str(asked).removesuffix(".0").replace("<=", "≤").replace(">=", "≥")


def scenes() -> list[list[Subscriber]]:
    """The subscribers before the changes and after them."""
    matcher = LiveMatcher(SUBSCRIPTIONS, engine="reference")
    before = scene(matcher)
    matcher.update(CHANGES)
    return [before, scene(matcher)]


def described(found: list[list[Subscriber]]) -> str:
    """What is drawn, as JSON; `description_in` reads it from a file."""
    return json.dumps({"event": RIDE, "scenes": found}, ensure_ascii=False)


def description_in(path: Path) -> str:
    """The description in a file."""
    (said,) = ElementTree.parse(path).iter("{http://purl.org/dc/elements/1.1/}description")
    return said.text or ""


def draw(found: list[list[Subscriber]], path: Path) -> None:
    """Both scenes, side by side, as SVG.  Needs matplotlib."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    with matplotlib.rc_context(dict[Any, Any](STYLE)):
        figure = Figure(figsize=(9.6, 4.1))
        figure.subplots_adjust(left=0.05, right=0.99, top=0.92, bottom=0.21, wspace=0.08)
        panels = figure.subplots(1, 2, sharey=True)
        before = {each.interface: each.area for each in found[0]}
        for axes, subscribers, title in zip(panels, found, ("an event", "the same event after four changes"), strict=True):
            axes.set(xlim=(0, SIZE[0]), ylim=(0, SIZE[1]), aspect="equal", xlabel="x (km)", title=title)
            axes.grid(color="#d0d7de", linewidth=0.5)
            axes.set_axisbelow(True)
            panel(axes, subscribers, {} if subscribers is found[0] else before)
        panels[0].set_ylabel("y (km)")
        said = ", ".join(f"{name} = {json.dumps(RIDE[name])}" for name in ("seats", "dog"))
        star = Line2D([], [], **STAR, linestyle="none", label=f"the event: {said}")
        keys = [star, *(Patch(label=what, **look) for what, look in LOOKS.items())]
        figure.legend(handles=keys, loc="lower center", ncols=4, frameon=False, handlelength=2.4, columnspacing=1.6)
        figure.savefig(path, format="svg", metadata={"Date": None, "Description": described(found)})


def panel(axes: Any, subscribers: list[Subscriber], before: dict[str, Area]) -> None:
    """One scene, with arrows from the places `before`."""
    from matplotlib.patches import Circle

    for subscriber in sorted(subscribers, key=lambda each: list(LOOKS).index(each.answer), reverse=True):
        x, y, r = subscriber.area
        look = LOOKS[subscriber.answer]
        axes.add_patch(Circle((x, y), r, **look))
        axes.plot(x, y, "o", markersize=4, color=look["edgecolor"])
        was = before.get(subscriber.interface, subscriber.area)
        if was != subscriber.area:
            arrow = {"arrowstyle": "->", "color": look["edgecolor"], "shrinkA": 0, "shrinkB": 4, "linewidth": 1}
            axes.annotate("", (x, y), was[:2], arrowprops=arrow)
        text = {"textcoords": "offset points", "ha": "center", "color": look["edgecolor"]}
        axes.annotate(subscriber.interface, (x, y), (0, 5), weight="bold", **text)
        axes.annotate("\n".join(subscriber.asks), (x, y), (0, -5), size=8, va="top", **text)
    axes.plot(RIDE["x"], RIDE["y"], linestyle="none", zorder=5, **STAR)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=MAP)
    draw(scenes(), parser.parse_args().output)


if __name__ == "__main__":
    main()
