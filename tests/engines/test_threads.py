"""One engine and several threads: answers, changes beside them, interrupts, and processes that are forked.

Those marked `gpu` do the same on a real GPU; `tests/kernels/test_threads_simulated.py` does some of it under the simulator.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from crowds import (
    Pair,
    crowd_changes,
    crowd_matches,
    interrupt_matches,
    interrupt_updates,
    interrupted,
    places_of,
)
from engine_names import SLOW, chief_engines, chief_engines_on_cpu, refuses
from lasting import lasting
from random_tables import shaped
from tag_tables import random_tags

from mpi_match.engines import Engine, open_engine
from mpi_match.events.batch import EventBatch
from mpi_match.events.events import Events
from mpi_match.matches.matches import Matches
from mpi_match.table.table import Table

SIZES: Sequence[int] = (1, 1, 3, 40, 0, 700, 1, 1500)
"""Events of a batch: of one block, of several, and of none."""
SLOW_SIZES = (1, 3, 0, 5)
TAG_VARIANTS = [{"variant": "cpu"}, {"variant": "prefix-tree"}]
with_tags = pytest.mark.parametrize(
    "options", [*TAG_VARIANTS, pytest.param({}, marks=pytest.mark.gpu)], ids=lambda options: options.get("variant", "gpu")
)
ON_GPU = [pytest.param(name, marks=pytest.mark.gpu) for name in ("keyed_cuda", "clcb")]


def events_for(table: Table, events: list, n: int) -> EventBatch:
    return Events.of([events[i % len(events)] for i in range(n)]).encode(table.vocabulary)


@pytest.fixture(scope="module")
def table_and_batch() -> tuple[Table, EventBatch]:
    filters, events = shaped("every type")
    table = Table.from_filters(filters)
    return table, events_for(table, events, sum(SIZES))


@chief_engines
@pytest.mark.parametrize("threads", [2, *lasting(1)])
def test_every_thread_gets_the_answers_of_one(name: str, threads: int, table_and_batch: tuple[Table, EventBatch]) -> None:
    table, batch = table_and_batch
    sizes = SLOW_SIZES if name in SLOW else SIZES
    if name == "twophase" and threads > 1:
        sizes = (1, 1, 3, 40, 0)  # its threads spin, many more of them than there are cores
    crowd_matches(open_engine(name, table, threads=threads), batch, sizes, rounds=3 if sizes == SLOW_SIZES else 12)


@pytest.mark.gpu
def test_every_thread_gets_the_answers_of_one_from_auto(table_and_batch: tuple[Table, EventBatch]) -> None:
    table, batch = table_and_batch
    crowd_matches(open_engine("auto", table), batch, SIZES, rounds=40)


def test_every_thread_gets_the_answers_of_one_from_an_index_of_tag_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    from mpi_match.engines.keyed.tag_sets import index

    monkeypatch.setattr(index, "MANY_SETS", 0)
    filters, events = random_tags(3, 600, 300)
    table = Table.from_filters(filters)
    engine = open_engine("keyed", table, threads=2)
    assert vars(engine)["_tag_sets"] is not None
    crowd_matches(engine, events_for(table, events, sum(SIZES)), SIZES, rounds=12)


@with_tags
def test_every_thread_gets_the_answers_of_one_from_tagmatch(options: dict[str, str]) -> None:
    filters, events = random_tags(5, 300, 200)
    table = Table.from_filters(filters)
    engine = open_engine("tagmatch", table, threads=2, options=options)
    crowd_matches(engine, events_for(table, events, sum(SIZES)), SIZES, rounds=12)


@chief_engines
def test_a_match_sees_all_of_an_update_or_nothing(name: str) -> None:
    if refuses(name):
        return
    pair, sizes = Pair(), (1, 3) if name == "reference" else (1, 3, 600)
    crowd_changes(pair, open_engine(name, pair.table, threads=2, live=True), 25, sizes)


@with_tags
def test_a_match_of_tagmatch_sees_all_of_an_update_or_nothing(options: dict[str, str]) -> None:
    pair = Pair()
    crowd_changes(pair, open_engine("tagmatch", pair.table, threads=2, live=True, options=options), 25, (1, 3, 600))


@chief_engines
def test_the_match_after_an_interrupted_one_is_right(name: str, table_and_batch: tuple[Table, EventBatch]) -> None:
    table, batch = table_and_batch
    if name == "reference":  # it takes as long under a tracer as all others together
        pair = Pair(20)
        assert interrupt_matches(open_engine(name, pair.table), pair.events(3)) > 5
        return
    engine = open_engine(name, table, threads=2)
    parts = batch[:1], batch[: 3 if name in SLOW else 40 if name == "twophase" else 1200]
    most = 30 if name in (*SLOW, "rtree") else 150
    assert sum(interrupt_matches(engine, part, most=most) for part in parts) > 5


@with_tags
def test_the_match_after_an_interrupted_one_of_tagmatch_is_right(options: dict[str, str]) -> None:
    filters, events = random_tags(5, 300, 200)
    table = Table.from_filters(filters)
    engine = open_engine("tagmatch", table, threads=2, options=options)
    assert interrupt_matches(engine, events_for(table, events, 60)) > 5


def test_the_match_beside_an_interrupted_one_is_right(table_and_batch: tuple[Table, EventBatch]) -> None:
    """Threads of the interrupted one are at work on blocks of its batch, which others must not see."""
    table, batch = table_and_batch
    engine, several = open_engine("keyed", table, threads=4), batch[:1500]
    expected = engine.match(several)
    for place in places_of(lambda: engine.match(several), 30):
        interrupted(lambda: engine.match(several), place)
        assert [engine.match(several) for _ in range(3)] == [expected] * 3


@pytest.mark.parametrize("name", ["reference", "keyed", *ON_GPU])
def test_after_an_interrupted_update_an_engine_is_as_before_or_as_after_or_refuses(name: str) -> None:
    pair = Pair(20)
    interrupt_updates(pair, lambda: open_engine(name, pair.table, live=True))


@with_tags
def test_after_an_interrupted_update_tagmatch_is_as_before_or_as_after_or_refuses(options: dict[str, str]) -> None:
    pair = Pair(20)

    def opened() -> Engine:
        return open_engine("tagmatch", pair.table, live=True, options=options)

    interrupt_updates(pair, opened)


def test_a_match_within_a_match_is_answered_or_refused() -> None:
    """A signal handler may ask the engine that it has interrupted."""
    pair = Pair(20)
    engine, batch = open_engine("keyed", pair.table, live=True), pair.events(3)
    expected, inner, left = engine.match(batch), list[Matches](), 40

    def traced(frame, event, argument):  # type: ignore[no-untyped-def]
        nonlocal left
        left -= 1
        if left == 0:
            sys.settrace(None)
            inner.append(engine.match(batch))
        return traced

    sys.settrace(traced)
    try:
        assert engine.match(batch) == expected
    finally:
        sys.settrace(None)
    while not inner:
        inner.append(engine.match(batch))
    assert inner == [expected]


# Forks

FORKS = """
import os, sys, threading, time
from crowds import Pair
from mpi_match.engines import open_engine, EngineError
from mpi_match.compute import compile_cache

name, is_live = sys.argv[1], sys.argv[2] == "live"
options = {"variant": sys.argv[3]} if len(sys.argv) > 3 else None
how = dict(threads=2, live=is_live, options=options)
pair = Pair()
few, many = pair.events(3), pair.events(700 if name not in ("reference", "counting", "duckdb") else 5)
engine = open_engine(name, pair.table, **how)
expected = engine.match(many)
is_over = threading.Event()

def match():
    while not is_over.is_set():
        engine.match(many)

def change():
    while not is_over.is_set():
        for each in pair.changes():
            engine.update(each)
            time.sleep(0.001)

def compile_():
    with compile_cache._compiling:
        is_over.wait()

def child():
    inherited = "answers"
    try:
        pair.answered(engine, few)
        pair.answered(engine, many)
    except EngineError as error:
        inherited = str(error)
    assert open_engine(name, pair.table, **how).match(many) == expected
    return inherited

threads = [threading.Thread(target=each, daemon=True) for each in (match, match, compile_, *([change] * is_live))]
for each in threads:
    each.start()
said, hangs = set(), 0
for _ in range(6):
    time.sleep(0.02)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, child().encode())
            os._exit(0)
        except BaseException as error:
            os.write(writer, repr(error).encode())
            os._exit(1)
    end = time.monotonic() + 60
    os.close(writer)
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            hangs += 1
            break
        time.sleep(0.01)
    said.add(os.read(reader, 1000).decode())
    os.close(reader)
is_over.set()
for each in threads:
    each.join(60)  # compiled code of a daemon thread may end the process with an abort
print(f"{hangs} hang;", *sorted(said), sep="\\n")
"""


def forked(*arguments: str) -> list[str]:
    """How many children hang that are forked while the parent matches, changes and compiles, and what the others say."""
    support = Path(__file__).parent.parent / "support"
    found = subprocess.run(
        [sys.executable, "-c", FORKS, *arguments],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(support), *sys.path])},
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


@chief_engines_on_cpu
def test_a_forked_child_matches(name: str) -> None:
    assert forked(name, "fixed") == ["0 hang;", "answers"]


@pytest.mark.parametrize("options", [(), ("cpu",)], ids=["keyed", "tagmatch"])
def test_a_child_that_is_forked_beside_changes_matches_or_refuses(options: tuple[str, ...]) -> None:
    """Where the fork comes in the middle of an update, the child's engine knows neither the old filters nor the new ones."""
    told = forked("tagmatch" if options else "keyed", "live", *options)
    assert told[0] == "0 hang;"
    assert all(each == "answers" or "was interrupted half-way" in each for each in told[1:])
