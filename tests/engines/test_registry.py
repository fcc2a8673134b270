"""The registry of engines, refusals before anything is built, and the choice of `auto`."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import get_args

import pytest
from engine_names import CPU, TAGS, refuses

from mpi_match import engines
from mpi_match.engines import AUTO, REGISTRY, Engine, EngineError, open_engine, registry
from mpi_match.engines.entries import Need, can_serve
from mpi_match.engines.keyed.cpu import Keyed
from mpi_match.engines.reference import Reference
from mpi_match.events.batch import EventBatch
from mpi_match.events.events import Events
from mpi_match.model import make_event, make_filter
from mpi_match.table.table import Table

TABLE = Table.from_filters([make_filter("i", [["x", ">", 1]], [0, 0, 1]), make_filter("j", [["x", "=", 2]])])
BATCH = Events.of([make_event({"x": 2}, (0, 0)), make_event({"x": 1})]).encode(TABLE.vocabulary)


@pytest.mark.parametrize("name", REGISTRY)
def test_an_engine_says_that_it_serves_a_table_before_anything_is_built(name: str) -> None:
    table = Table.from_filters([make_filter("i", [["x", "exists"]])]) if name in TAGS else TABLE
    assert registry.engine_class(name).serves(table) is None
    assert registry.engine_class(name).name == name


@pytest.mark.parametrize("name", CPU)
def test_optional_methods_have_defaults(name: str) -> None:
    engine = open_engine(name, TABLE)
    assert engine.begin(BATCH, filters=True) == engine.match(BATCH, filters=True)
    asked: list[str] = []

    def example() -> EventBatch | None:
        asked.append("never")
        return None

    engine.warm_up(example)
    engine.pin(BATCH.columns)
    engine.time_steps()
    assert engine.match(BATCH).labels(TABLE.labels) == [["i", "j"], []]
    assert not asked
    assert (engine.kernel_s, engine.gpu) == (0.0, None)
    assert dict(engine.options) == registry.read_options(name, {})
    if not engine.options:
        assert engine.steps_s == {}


@pytest.mark.parametrize("name", CPU)
def test_engines_take_changes_or_refuse_them(name: str) -> None:
    assert refuses(name) != REGISTRY[name].takes_changes


@pytest.mark.parametrize("name", REGISTRY)
def test_an_entry_says_what_its_class_is(name: str) -> None:
    entry, engine = REGISTRY[name], registry.engine_class(name)
    assert entry.takes_changes == engine.takes_changes
    table = Table.from_filters([make_filter("i", [["x", "exists"]])]) if name in TAGS else TABLE
    try:
        on_gpu = open_engine(name, table).gpu is not None
    except EngineError as refusal:
        on_gpu = "GPU" in str(refusal)
    assert on_gpu == (entry.runs_on == "GPU")
    if entry.on_cpu[0]:
        (option,) = (option for option in registry.options_of(name) if option.name == entry.on_cpu[0])
        assert entry.runs_on == "GPU"
        assert set(entry.on_cpu[1]) < set(option.values.split("|"))


def test_who_takes_no_changes_names_those_that_do() -> None:
    with pytest.raises(EngineError) as refusal:
        open_engine("counting", TABLE, live=True)
    named = set(re.findall(r"\w+", str(refusal.value).partition("; ")[2])) & set(REGISTRY)
    assert named == {name for name in REGISTRY if registry.engine_class(name).takes_changes}


NEEDS = {
    "areas": make_filter("i", [["x", "exists"]], [0, 0, 1]),
    "constraints": make_filter("i", [["x", ">", 1]]),
    "conditions": make_filter("i", [], where={"not": ["x", "exists"]}),
}


@pytest.mark.parametrize("need", get_args(Need))
def test_a_refusal_names_engines_that_serve_what_it_is_about(need: Need) -> None:
    named = set(re.findall(r"\w+", can_serve(need).partition(" can serve it")[0])) & set(REGISTRY)
    assert named
    if need == "any attributes":
        event = Events.of([make_event({f"n{k}": 1 for k in range(3000)} | {"x": 1, "y": 1})])
        for name in named:
            assert open_engine(name, TABLE).match(event.encode(TABLE.vocabulary)).n_events == 1
    elif need != "any size":
        table = Table.from_filters([NEEDS[need]])
        for name in REGISTRY:
            engine = registry.engine_class(name)
            reason = engine.serves(table) if need != "conditions" else engine.serves_parts
            assert (reason is not None) == (need in REGISTRY[name].lacks), name
            assert name not in named or reason is None
    else:
        assert named == {"counting"}
        assert "reference if it changes" in can_serve(need)


def test_messages_of_engines_name_no_other_engine_by_hand() -> None:
    """The registry knows which engines serve what, and `can_serve` says so."""
    texts = []
    root = Path(engines.__file__).parent
    for path in root.rglob("*.py"):
        if path.stem in ("entries", "registry"):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        folder = path.relative_to(root).parts[0]
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                texts += [(folder, node.value)] * (" " in node.value.strip())
    folders = {"keyed_cuda": "keyed"}
    pattern = re.compile(rf"(?<![\w.'])({'|'.join(REGISTRY)})(?![\w.])")
    named = [(folder, name, text) for folder, text in texts for name in pattern.findall(text)]
    found = [text for folder, name, text in named if folder != folders.get(name, name)]
    assert found == []


def test_an_engine_without_match_is_not_instantiable() -> None:
    with pytest.raises(TypeError, match="abstract"):
        type("Half", (Engine,), {"name": "half"})()


def test_a_table_that_an_engine_cannot_serve_is_refused_before_it_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Keyed, "serves", classmethod(lambda cls, table: "too large; engine 'counting' can serve it"))
    monkeypatch.setattr(Keyed, "__init__", lambda *_, **__: pytest.fail("it was built"))
    with pytest.raises(EngineError, match="too large; engine 'counting' can serve it"):
        open_engine("keyed", TABLE)


def test_auto_takes_the_engine_that_serves_the_table_and_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(registry, "AUTO", ("keyed",))
    monkeypatch.setattr(Keyed, "serves", classmethod(lambda cls, table: "the table is too large"))
    engine = open_engine("auto", TABLE)
    assert engine.name == "counting"
    assert engine.match(BATCH).labels(TABLE.labels) == [["i", "j"], []]
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "the table is too large; using engine counting, which is slow"
    ]
    with pytest.raises(EngineError, match="the table is too large"):
        open_engine("auto", TABLE, live=True)


@pytest.mark.parametrize("choice", [AUTO, ("counting",)])
def test_auto_matches_conditions(monkeypatch: pytest.MonkeyPatch, choice: tuple[str, ...]) -> None:
    """Each stage gets an engine of its own, and none of them is in stages again."""
    monkeypatch.setattr(registry, "AUTO", choice)
    where = {"or": [["x", "=", 1], {"and": [["x", "=", 2], {"not": ["y", "exists"]}]}]}
    table = Table.from_filters([make_filter("i", [], where=where), make_filter("j", [["x", "exists"]])])
    events = [{"x": 1}, {"x": 2}, {"x": 2, "y": 1}, {"y": 1}]
    batch = Events.of([make_event(each) for each in events]).encode(table.vocabulary)
    assert open_engine("auto", table).match(batch).labels(table.labels) == [["i", "j"], ["i", "j"], ["j"], []]


def test_auto_ends_at_an_engine_that_runs_anywhere() -> None:
    assert set(AUTO) <= set(REGISTRY)
    assert AUTO[-1] in CPU
    assert registry.LAST in CPU


def test_a_module_beside_the_package_can_have_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """All it takes is an entry."""

    class Own(Reference):
        name = "own"

    monkeypatch.setattr(sys.modules[__name__], "Own", Own, raising=False)
    monkeypatch.setitem(REGISTRY, "own", registry.Entry(f"{__name__}:Own", "mine"))
    assert open_engine("own", TABLE).match(BATCH) == open_engine("reference", TABLE).match(BATCH)
