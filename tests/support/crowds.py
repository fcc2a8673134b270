"""Threads that use one engine at the same time, and interrupts at every place where Python lets one in."""

from __future__ import annotations

import dis
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import thread
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import mpi_match
from mpi_match.changes.changes import Changes
from mpi_match.changes.live_table import LiveTable
from mpi_match.engines import Engine, EngineError, match_all
from mpi_match.events.batch import EventBatch
from mpi_match.events.events import Events
from mpi_match.ingest.rows.judge import ChangeRow
from mpi_match.model import Change, Event, make_event, make_filter
from mpi_match.table.table import Table

N_THREADS = 8
WAIT_S = 120
"""After this many seconds a thread is taken to hang."""
_PACKAGE = str(Path(mpi_match.__file__).parent)
_CALLS = {number for name, number in dis.opmap.items() if name.startswith("CALL")}
_CHECKED = {number for name, number in dis.opmap.items() if name.startswith(("RESUME", "JUMP_BACKWARD"))}


def in_threads(*work: Callable[[], object]) -> None:
    """Do all of it at the same time, a thread for each.  Raises the first error; fails where one does not end."""
    errors: list[BaseException] = []

    def run(each: Callable[[], object]) -> None:
        try:
            each()
        except BaseException as error:
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads change places more often
    try:
        threads = [threading.Thread(target=run, args=(each,), daemon=True) for each in work]
        for each in threads:
            each.start()
        for each in threads:
            each.join(WAIT_S)
    finally:
        sys.setswitchinterval(interval)
    assert not any(each.is_alive() for each in threads), "a thread hangs"
    if errors:
        raise errors[0]


def crowd_matches(engine: Engine, batch: EventBatch, sizes: Sequence[int], rounds: int) -> None:
    """Match parts of a batch by several threads, interfaces and filters, at once or begun; answers are those of one."""
    parts = [batch[at : at + size] for at, size in zip(np.cumsum([0, *sizes[:-1]]).tolist(), sizes, strict=True)]
    kinds = [(part, filters) for part in parts for filters in (False, True)]
    expected = [engine.match(part, filters=filters) for part, filters in kinds]

    def by(thread_number: int) -> None:
        rng = np.random.default_rng(thread_number)
        for _ in range(rounds):
            if thread_number % 2:
                k = int(rng.integers(len(kinds)))
                assert engine.match(kinds[k][0], filters=kinds[k][1]) == expected[k], f"thread {thread_number}"
                continue
            filters = bool(rng.integers(2))
            chosen = [2 * k + filters for k in rng.integers(len(parts), size=3).tolist()]
            answers = match_all(engine, [kinds[k][0] for k in chosen], filters=filters)
            assert list(answers) == [expected[k] for k in chosen], f"thread {thread_number}"

    in_threads(*(lambda n=n: by(n) for n in range(N_THREADS)))


class Pair:
    """A live table whose interfaces `left` and `right` gain and lose a filter each, both in one update."""

    def __init__(self, n_others: int = 60) -> None:
        both = tuple(make_filter(label, [["k", "exists"]], id_=f"both {label}") for label in ("left", "right"))
        stay = [make_filter(label, [["stays", "exists"]]) for label in ("left", "right")]
        others = [make_filter(f"i{i % 7}", [[f"n{i % 11}", "exists"], ["k", "exists"]]) for i in range(n_others)]
        self.live = LiveTable(Table.from_filters([*both, *stay, *others]), expected=both)
        self.table = self.live.table
        self.left, self.right = (self.live.registry.labels.index(label) for label in ("left", "right"))
        self._both = both

    def events(self, n: int) -> EventBatch:
        """Events that both filters match."""
        events: list[Event] = [make_event({"k": 1, f"n{i % 11}": 1}) for i in range(n)]
        return Events.of(events).encode(self.table.vocabulary)

    def changes(self) -> tuple[Changes, Changes]:
        """Changes that remove both filters, and that add them again."""
        gone = self.live.apply([ChangeRow(Change.REMOVE, item.id or "") for item in self._both], [])
        back = self.live.apply([ChangeRow(Change.ADD, filters=(item,)) for item in self._both], [])
        assert gone is not None
        assert back is not None
        return gone, back

    def answered(self, engine: Engine, batch: EventBatch) -> bool:
        """True where both filters match every event, False where none matches any; fails for anything between."""
        answers = engine.match(batch)
        found = {(self.left in ids, self.right in ids) for ids in (answers[i].tolist() for i in range(len(batch)))}
        assert found <= {(True, True), (False, False)}
        assert len(found) == 1, "a match has seen half of an update"
        return found == {(True, True)}


def crowd_changes(pair: Pair, engine: Engine, rounds: int, sizes: Sequence[int]) -> None:
    """One thread changes the engine, and sees its changes; others match meanwhile and see all of an update or nothing."""
    updates = [pair.changes() for _ in range(rounds)]
    batches, is_over = [pair.events(n) for n in sizes], threading.Event()
    assert pair.answered(engine, batches[0])

    def change() -> None:
        try:
            for gone, back in updates:
                engine.update(gone)
                assert not pair.answered(engine, batches[0])
                engine.update(back)
                assert pair.answered(engine, batches[-1])
        finally:
            is_over.set()

    def match(number: int) -> None:
        while not is_over.is_set():
            pair.answered(engine, batches[number % len(batches)])

    in_threads(change, *(lambda n=n: match(n) for n in range(N_THREADS - 1)))
    assert pair.answered(engine, batches[0])


def interrupted(work: Callable[[], object], after: int) -> int:
    """Do some work with a KeyboardInterrupt at the place number `after` of those where Python may raise one in this
    package: behind a call, at the beginning of a function, and where a loop goes back.  Returns how many places it had.
    """
    n_places, was_call = 0, dict[FrameType, bool]()

    def looked_at(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal n_places
        if event == "opcode":
            code = frame.f_code.co_code[frame.f_lasti]
            if was_call.get(frame) or code in _CHECKED:
                n_places += 1
                if n_places == after + 1:
                    sys.settrace(None)
                    raise KeyboardInterrupt
            was_call[frame] = code in _CALLS
        return looked_at

    def entered(frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code  # what a finalizer raises is only printed, and one may close a generator
        if code.co_name in {"weakref_cb", "<genexpr>"} or not code.co_filename.startswith((_PACKAGE, thread.__file__)):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return looked_at

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        work()
    except KeyboardInterrupt:
        assert n_places == after + 1
    finally:
        sys.settrace(before)
    return n_places


def places_of(work: Callable[[], object], most: int) -> list[int]:
    """Places of some work where it may be interrupted: all of them, or `most` that are spread over it."""
    n = interrupted(work, sys.maxsize) or interrupted(work, sys.maxsize)  # 3.12 sees no opcodes at first
    return sorted(set(np.linspace(0, n - 1, min(n, most)).astype(int).tolist()))


def interrupt_matches(engine: Engine, batch: EventBatch, most: int = 150) -> int:
    """Interrupt a match at all places, or at `most` of them; the next one is right.  Returns the number of places."""
    expected = engine.match(batch)
    places = places_of(lambda: engine.match(batch), most)
    for place in places:
        interrupted(lambda: engine.match(batch), place)
        assert engine.match(batch) == expected, f"after an interrupt at place {place}"
    return len(places)


def interrupt_updates(pair: Pair, opened: Callable[[], Engine], most: int = 100) -> None:
    """Interrupt an update at all places, or at `most` of them: the engine is as before or as after it, or it refuses."""
    engine, batch, n_refused = opened(), pair.events(3), 0
    gone, back = pair.changes()
    places = places_of(lambda: engine.update(gone), most)
    engine.update(back)
    for place in places:
        interrupted(lambda: engine.update(gone), place)  # noqa: B023
        if not engine.is_broken:
            if not pair.answered(engine, batch):
                engine.update(back)
            continue
        n_refused += 1
        for use in (lambda: engine.match(batch), lambda: engine.update(back)):  # noqa: B023
            with pytest.raises(EngineError, match="was interrupted half-way"):
                use()
        engine = opened()
    assert len(places) > n_refused > 0
