"""A run on the terminal while it goes on, drawn in place.

    events     ███████████░░░░░░░░░░░   51 %  17,104,896 of 33,554,432, 0:04 left
    rate       4.31 M events/s now, 4.12 M events/s overall in 0:04
    in flight  4 batches, 10.5 MB; master's memory 412 MB
    worker 1   ██████████████████████   62 %  10,616,832 events, 4 held
    worker 2   █████████████░░░░░░░░░   38 %  6,488,064 events; lost
    1 lost, 3 resent
        2.31 s  worker 2 is lost
        2.31 s  batch 41 is sent to worker 1 again
        ...

A worker's percentage is of all events answered so far; the longest bar is that of the worker with most of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from rich.text import Text

from mpi_match.environment.machine import resident_bytes
from mpi_match.humanize import byte_size, clock_time, plural, rate
from mpi_match.monitor.screen import Screen
from mpi_match.monitor.status import RunStatus, Share

NOW_S = 2.0
"""The current rate is the mean over this many seconds."""
BAR = 22
LAST_INCIDENTS = 6
FULL, UNFILLED = "█", "░"


class Pace:
    """The current rate of events, from the last few counts."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque([(0.0, 0)])

    def look(self, at_s: float, done: int) -> float:
        """Add a count; returns events per second in the last NOW_S, 0 before any time has passed."""
        self._looks.append((at_s, done))
        while len(self._looks) > 2 and self._looks[1][0] <= at_s - NOW_S:
            self._looks.popleft()
        since_s, before = self._looks[0]
        return (done - before) / (at_s - since_s) if at_s > since_s else 0.0


def frame(status: RunStatus, now_per_s: float, memory_bytes: int, room: int) -> list[Text]:
    """The dashboard, in at most `room` lines (but not fewer than five).

    Further workers share one line; incidents are counted, and the last ones shown.
    """
    at_s, done, shares = status.at_s, status.written, status.shares
    left = f", {clock_time((status.n_events - done) / now_per_s)} left" if now_per_s and done < status.n_events else ""
    part = done / status.n_events if status.n_events else 1.0
    n_held, held_bytes = (sum(getattr(share, name) for share in shares.values()) for name in ("held", "held_bytes"))
    lines = [
        _line("events", part, part, f"{done:,} of {status.n_events:,}{left}"),
        Text(f"{'rate':10} {rate(now_per_s)} now, {rate(done / at_s if at_s else 0)} overall in {clock_time(at_s)}"),
        Text(
            f"{'in flight':10} {plural(n_held, 'batch', 'batches')}, {byte_size(held_bytes)}; "
            f"master's memory {byte_size(memory_bytes)}"
        ),
    ]
    incidents = _incident_lines(status)
    return [*lines, *_share_lines(shares, max(room - len(lines) - len(incidents), 2)), *incidents][: max(room, 5)]


def _line(what: str, full: float, part: float, words: str, style: str = "green") -> Text:
    n_full = round(BAR * full)
    bar = (FULL * n_full, style), (UNFILLED * (BAR - n_full), "bright_black")
    return Text.assemble(f"{what:10} ", *bar, f"  {100 * part:3.0f} %  {words}")


def _share_lines(shares: Mapping[int, Share], room: int) -> list[Text]:
    total = max(sum(share.events for share in shares.values()), 1)
    most = max((share.events for share in shares.values()), default=0) or 1
    ranks = list(shares)
    shown = ranks if len(ranks) <= room else ranks[: room - 1]
    lines = []
    for rank in shown:
        share = shares[rank]
        state = "; lost" if share.lost else f", {share.held:,} held" + ("; overdue" if share.straggling else "")
        words = f"{share.events:,} events{state}"
        style = "red" if share.lost else "yellow" if share.straggling else "green"
        lines.append(_line(f"worker {rank}", share.events / most, share.events / total, words, style))
    others = [shares[rank] for rank in ranks[len(shown) :]]
    if others:
        events, lost = sum(share.events for share in others), sum(share.lost for share in others)
        words = f"{events:,} events, {sum(share.held for share in others):,} held" + (f"; {lost:,} lost" if lost else "")
        lines.append(_line(f"{len(others)} more", events / most / len(others), events / total, words))
    return lines


def _incident_lines(status: RunStatus) -> list[Text]:
    counts = ", ".join(f"{count:,} {kind}" for kind, count in status.happened_so_far.copy().items())
    last = list(status.incidents.copy())[-LAST_INCIDENTS:]
    return [Text(counts), *(Text(f"{each.at_s:8.2f} s  {each}") for each in last)] if counts else []


class Dashboard:
    """An observer (`watch`) that draws frames on a screen."""

    def __init__(self, screen: Screen) -> None:
        self._screen, self._pace = screen, Pace()

    def check(self) -> None:
        """A dashboard writes no file."""

    def begin(self, status: RunStatus) -> None:
        """Take the screen."""
        self._screen.__enter__()

    def look(self, status: RunStatus) -> None:
        """Draw the status."""
        now_per_s = self._pace.look(status.at_s, status.written)
        self._screen.draw(frame(status, now_per_s, resident_bytes(), self._screen.lines))

    def end(self, status: RunStatus, error: BaseException | None) -> None:
        """Draw the status for the last time, and leave it on the terminal."""
        self.look(status)
        self._screen.__exit__(None, None, None)
