"""Verification of answers: a sample of events is matched again, by judges that share nothing with the fast engines.

The judge is the naive matcher of `model`: it takes events as published (the raw columns, not the encoded ones) and filters
decoded to objects of the model.  On a large table it cannot check every filter for every event, so there are two ways:

    naive      every filter, every event of the sample
    counting   the counting engine answers in full; the naive matcher checks every filter that it matched, and a random
               sample of those that it did not

A run with changes is verified with them: they are applied again, event by event (`replay`).

Half of the sample is drawn from events with answers in the file (if there are any), half from all of them: if most events
match nothing, a uniform sample would mostly compare empty answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.changes.log import CHANGES, ChangeLog
from mpi_match.engines import open_engine
from mpi_match.events.event_table import EventTable
from mpi_match.events.events import Events
from mpi_match.ingest.batches.column_files import ColumnFiles
from mpi_match.ingest.batches.line_files import LineFiles
from mpi_match.ingest.batches.open import open_events
from mpi_match.ingest.rows.judge import PLAIN, EventForm
from mpi_match.matches.file import MatchesFile
from mpi_match.model import Event, Filter, matches
from mpi_match.storage import Reader, StorageError
from mpi_match.storage.schema import Schema
from mpi_match.table.schema import TABLE
from mpi_match.table.table import Table
from mpi_match.verify.replay import Replay

NAIVE_FILTERS = 100_000
NAIVE_LOOKS = 5_000_000
"""`auto` is `naive` up to this many filters, and filters times events (a check takes about a microsecond)."""
UNMATCHED = 2_000
"""Unmatched filters that the naive matcher checks beside the counting engine, drawn at random for every event."""
SHOWN = 5

Progress = Callable[[int, int], None]


class Difference(NamedTuple):
    """The first event with a wrong answer: its number, the event (None for a rejected row), and the ids that are missing
    from the answer or wrong in it, each with the reason.
    """

    number: int
    event: Event | None
    missing: list[str]
    extra: list[str]

    def __str__(self) -> str:
        if self.event is None:
            return "\n".join([f"event {self.number}, a rejected row", *self._lines()])
        where = "" if self.event.location is None else f" at ({self.event.location[0]!r}, {self.event.location[1]!r})"
        named = "" if self.event.id is None else f" (id {self.event.id})"
        shown = {name: value for name, value in self.event.attributes.items() if isinstance(name, str)}  # no scopes
        title = f"event {self.number}{named} {json.dumps(shown, ensure_ascii=False, default=str)}{where}"
        return "\n".join([title, *self._lines()])

    def _lines(self) -> Iterator[str]:
        for what, found in (("missing", self.missing), ("too much", self.extra)):
            yield from (f"  {what:8}  {line}" for line in found[:SHOWN])
            if len(found) > SHOWN:
                yield f"  {what:8}  ... and {len(found) - SHOWN:,} more"


@dataclass(frozen=True)
class Verdict:
    """The result: `judge` as text, and the first difference, if any.

    `events` of the file, `checked` of them, `with_matches` of those, `matches` pairs in their right answers.
    """

    events: int
    checked: int
    with_matches: int
    matches: int
    judge: str
    difference: Difference | None


class VerifiedFiles(NamedTuple):
    """The files of a run: its inputs and its answers.  `events` are as in `RunOptions`, and `form` is of lines."""

    table: Path
    events: Path
    matches: Path
    changes: Path | None = None
    form: EventForm = PLAIN


def verify(
    files: VerifiedFiles,
    sample: int = 100,
    seed: int = 0,
    judge: str = "auto",
    progress: Progress | None = None,
) -> Verdict:
    """Check the answers in `files` for `sample` events (0: all), drawn with `seed`; `judge` is auto, naive or counting.

    Stops at the first event with a wrong answer.  Raises StorageError or ModelError when a file cannot be used or the files
    do not belong together.
    """
    table = Table.load(files.table)
    answers = MatchesFile.load(files.matches)
    by_filter = answers.attributes["unit"] == "filter"
    stream = None if files.changes is None else ChangeLog.load(files.changes).stream(table)
    now = Replay(table, stream)
    events = open_events(files.events, (table if stream is None else stream.table).vocabulary, files.form)
    with events:
        _check_belonging(files, events, answers)
        _check_sizes(files, now, events, answers)
        numbers = _sample(answers.matches.counts, sample, seed)
        if judge == "auto":
            small = table.n_filters <= NAIVE_FILTERS and table.n_filters * len(numbers) <= NAIVE_LOOKS
            judge = "naive" if small else "counting"
        court = (_Naive if judge == "naive" else _Counting)(table, seed)
        n_matches = n_with = checked = 0
        difference = None
        for number in numbers.tolist():
            event = events.event(number)
            now.advance(number)
            by_table, wrong = court.matched(event)
            right = now.matched(event, by_table)
            expected = right if by_filter else sorted({now.interface(f) for f in right})
            found = answers.matches[number].tolist()
            checked += 1
            n_matches += len(expected)
            n_with += bool(expected)
            if wrong or found != expected:
                difference = _difference(now, number, event, set(right), set(found), by_filter)
                if wrong and found == expected:
                    difference = Difference(number, event, wrong, [])
                break
            if progress is not None:
                progress(checked, len(numbers))
    return Verdict(answers.matches.n_events, checked, n_with, n_matches, court.words(checked), difference)


def _check_belonging(files: VerifiedFiles, events: EventTable | LineFiles | ColumnFiles, answers: MatchesFile) -> None:
    """Refuse files of different runs, by the digests that they state."""
    if ("changes_digest" in answers.attributes) != (files.changes is not None):
        without = files.changes is None
        says = "its table changed during the run; name the changes" if without else "is of a run without changes"
        raise StorageError(f"{files.matches}: {says} (--changes)")
    found = {"table": (files.table, _digest(files.table, TABLE)), "events": (files.events, events.digest)}
    if files.changes is not None:
        found["changes"] = files.changes, _digest(files.changes, CHANGES)
    for kind, (path, digest) in found.items():
        stated = answers.attributes.get(f"{kind}_digest")
        if stated is not None and stated != digest:
            other = " (or other --location, --id)" if not isinstance(events, EventTable) and kind == "events" else ""
            raise StorageError(
                f"{files.matches}: was made with another file of {kind} than {path}{other}: found its digest {stated}, "
                f"expected {digest}"
            )


def _digest(path: Path, schema: Schema) -> str:
    with Reader(path, schema) as reader:
        return str(reader.attributes["digest"])


def _check_sizes(
    files: VerifiedFiles, now: Replay, events: EventTable | LineFiles | ColumnFiles, answers: MatchesFile
) -> None:
    """Refuse files of different runs by counts and labels, which they always state."""
    by_filter = answers.attributes["unit"] == "filter"
    n_ids = now.n_filters if by_filter else len(now.labels)
    if answers.matches.n_ids != n_ids or not (by_filter or list(answers.labels) == list(now.labels)):
        raise StorageError(
            f"{files.matches}: its {answers.attributes['unit']}s are not those of {files.table}; "
            "which table was it made with?"
        )
    if answers.matches.n_events != events.n_events:
        raise StorageError(
            f"{files.matches}: answers {answers.matches.n_events:,} events, {files.events} holds {events.n_events:,}"
        )


def _sample(counts: Array, sample: int, seed: int) -> Array:
    """Sorted numbers of the events to check: half among those with answers, the rest among all others."""
    n_events = len(counts)
    if sample == 0 or sample >= n_events:
        return np.arange(n_events)
    rng = np.random.default_rng(seed)
    answered = np.flatnonzero(counts)
    first = rng.choice(answered, min(sample // 2, len(answered)), replace=False)
    rest = np.setdiff1d(np.arange(n_events), first, assume_unique=True)
    return np.sort(np.concatenate([first, rng.choice(rest, sample - len(first), replace=False)]))


class _Naive:
    """The naive matcher on every filter."""

    def __init__(self, table: Table, seed: int) -> None:
        self._filters = list(table.iter_filters())

    def matched(self, event: Event | None) -> tuple[list[int], list[str]]:
        """Filters that match the event; and disagreements, of which a single judge has none."""
        return [i for i, item in enumerate(self._filters) if matches(item, event)], []

    def words(self, n_events: int) -> str:
        return f"naive matcher on all {len(self._filters):,} filters"


class _Counting:
    """The counting engine, and the naive matcher on its matches and on a random sample of the other filters."""

    def __init__(self, table: Table, seed: int) -> None:
        self._table = table
        self._engine = open_engine("counting", table)
        self._decoded: dict[int, Filter] = {}
        self._drawn = (
            np.random.default_rng(seed).choice(table.n_filters, min(UNMATCHED, table.n_filters), replace=False).tolist()
        )
        self._n_matched = 0

    def matched(self, event: Event | None) -> tuple[list[int], list[str]]:
        """Filters that match the event; and lines about filters on which the two judges disagree."""
        right = self._engine.match(Events.of([event]).encode(self._table.vocabulary), filters=True)[0].tolist()
        self._n_matched += len(right)
        found = set(right)
        wrong = []
        for i in (*right, *self._drawn):
            item = self._decoded.setdefault(i, self._table.filter(i)) if i not in self._decoded else self._decoded[i]
            if matches(item, event) != (i in found):
                says = ("the counting engine", "the naive matcher")
                wrong.append(
                    f"filter {i} ({item}): {says[i not in found]} says it matches, {says[i in found]} that it does not"
                )
        return right, wrong

    def words(self, n_events: int) -> str:
        return (
            f"counting engine on all {self._table.n_filters:,} filters; naive matcher on the {self._n_matched:,} filters "
            f"it matched and, for every event, on {len(self._drawn):,} drawn at random"
        )


def _difference(
    now: Replay, number: int, event: Event | None, right: set[int], found: set[int], by_filter: bool
) -> Difference:
    """Both sides of a wrong answer as text."""

    def described(i: int) -> str:
        return f"filter {i} ({now.filter(i) or 'not there at this event'})"

    if by_filter:
        return Difference(number, event, *(list(map(described, sorted(some))) for some in (right - found, found - right)))
    because = {now.interface(i): i for i in sorted(right, reverse=True)}
    missing = [f"{now.label(i)}, because of {described(because[i])}" for i in sorted(set(because) - found)]
    extra = [f"{now.label(i)}, of whose {len(now.on(i)):,} filters none matches" for i in sorted(found - set(because))]
    return Difference(number, event, missing, extra)
