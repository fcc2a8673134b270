"""Options of engines: values and their texts, the engine that an option belongs to, refusals."""

from __future__ import annotations

from itertools import product

import pytest
from random_tables import shaped
from tuned_engine import DEFAULTS, ENTRY, OPTIONS, opened

from mpi_match import api
from mpi_match.engines import REGISTRY, EngineError, OptionError, open_engine, registry
from mpi_match.engines.option import Option, OptionValue
from mpi_match.engines.registry import check_options, options_of, read_options
from mpi_match.events.events import Events
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.live import LiveMatcher
from mpi_match.matches.matches import Matches
from mpi_match.model import make_filter
from mpi_match.table.table import Table

TABLE = Table.from_filters([make_filter("i", [["x", ">", 1]])])
ORDER, DEPTH, SHARE, TWICE = OPTIONS
RESETS, ORDERS, INPUTS = ("kernel", "memset"), ("sorted", "given"), ("shared", "global")


@pytest.fixture(autouse=True)
def _tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, "tuned", ENTRY)
    opened.clear()


@pytest.mark.parametrize(
    ("option", "given", "value"),
    [
        *((ORDER, "down", "down"), (DEPTH, "8", 8), (DEPTH, 1, 1), (DEPTH, 3.0, 3), (SHARE, "1", 1.0), (SHARE, 0.25, 0.25)),
        *((TWICE, "on", True), (TWICE, "off", False), (TWICE, True, True)),
    ],
)
def test_a_value_is_given_as_itself_or_as_its_text(option: Option, given: object, value: OptionValue) -> None:
    found = option.read(given)
    assert (found, type(found)) == (value, type(option.default))
    assert option.read(option.spelled(found).partition("=")[2]) == found


@pytest.mark.parametrize(
    ("option", "given", "text"),
    [
        *((ORDER, "Up", "order is 'Up'; it can be up|down"), (ORDER, "", "it can be up|down"), (ORDER, 1, "up|down")),
        *((DEPTH, "9", "depth is '9'; it can be 1..8"), (DEPTH, 0, "1..8"), (DEPTH, "2.5", "1..8"), (DEPTH, 2.5, "1..8")),
        *(
            (DEPTH, True, "1..8"),
            (DEPTH, None, "1..8"),
            (SHARE, "nan", "0..1"),
            (SHARE, 1.5, "0..1"),
            (SHARE, "much", "0..1"),
        ),
        *((TWICE, "yes", "it can be on|off"), (TWICE, 2, "on|off")),
    ],
)
def test_a_value_that_it_cannot_have_is_refused(option: Option, given: object, text: str) -> None:
    with pytest.raises(OptionError) as refused:
        option.read(given)
    assert text in str(refused.value)


@pytest.mark.parametrize("name", REGISTRY)
def test_every_option_says_what_it_decides_and_its_default_is_one_of_its_values(name: str) -> None:
    options = options_of(name)
    assert len({option.name for option in options}) == len(options)
    for option in options:
        assert option.read(option.default) == option.default
        assert len(option.says.split()) > 3
        assert option.section
        assert "." not in option.name
    assert read_options(name, {}) == {option.name: option.default for option in options}


def test_an_engine_gets_all_its_options() -> None:
    assert open_engine("tuned", TABLE).options == DEFAULTS
    assert open_engine("tuned", TABLE, options={"depth": "3", "tuned.twice": "on"}).options == {
        **DEFAULTS,
        "depth": 3,
        "twice": True,
    }
    api.match(TABLE, [{"x": 2}], engine="tuned", options={"order": "down"})
    assert opened[-1] == {**DEFAULTS, "order": "down"}


@pytest.mark.parametrize(
    ("engines", "given", "text"),
    [
        (["tuned"], {"deep": "1"}, "tuned has no option 'deep'; it has: order, depth, share, twice"),
        (["keyed"], {"deep": "1"}, "keyed has no option 'deep'; it has none"),
        (["tuned"], {"ccm.reset": "kernel"}, "'ccm.reset' belongs to an engine that is not used; used: tuned"),
        (
            ["auto"],
            {"depth": "1"},
            "option 'depth' exists in several engines; write ENGINE.depth, with one of: keyed_cuda, keyed",
        ),
        (["auto"], {"tuned.depth": "1"}, "'tuned.depth' belongs to an engine that is not used; used: keyed_cuda, keyed"),
        (
            ["tuned", "keyed"],
            {"depth": "1"},
            "option 'depth' exists in several engines; write ENGINE.depth, with one of: tuned, keyed",
        ),
        (["tuned", "ccm"], {"ccm.reset": "memcpy"}, "reset is 'memcpy'; it can be kernel|memset"),
    ],
)
def test_options_of_no_engine_are_refused_by_name(engines: list[str], given: dict[str, object], text: str) -> None:
    with pytest.raises(OptionError) as refused:
        check_options(engines, given)
    assert str(refused.value) == text


def test_options_are_refused_before_the_engine_is_built() -> None:
    with pytest.raises(OptionError, match="tuned has no option 'deep'"):
        open_engine("tuned", TABLE, options={"deep": 1})
    assert not opened
    with pytest.raises(EngineError, match="unknown engine 'quick'"):
        open_engine("quick", TABLE, options={"deep": 1})
    with pytest.raises(OptionError, match="keyed has no option 'deep'"):
        LiveMatcher(TABLE, engine="keyed", options={"deep": 1})


def test_auto_hands_options_to_the_engine_that_they_are_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "AUTO", ("tuned", "counting"))
    assert open_engine("auto", TABLE, options={"tuned.depth": 5}).options["tuned.depth"] == 5
    monkeypatch.setattr(registry, "AUTO", ("tuned",))
    assert open_engine("auto", TABLE, options={"tuned.depth": 5}).options["depth"] == 5


def test_a_repeated_engine_is_one() -> None:
    check_options(["tuned", "tuned"], {"depth": "1"})


VARIANTS = [
    *(("ccm", {"reset": r, "order": o, "input": i}) for r, o, i in product(RESETS, ORDERS, INPUTS)),
    *(("ccm", {"phases": 3, "reset": r, "input": i}) for r, i in product(RESETS, INPUTS)),
    *(("ccm", {"cover": c, "answer": a}) for c, a in product(("event", "table"), ("mask", "list"))),
    *(("clcb", {"runs": r, "groups": g}) for r in (1, 2, 4) for g in (True, False)),
    *(
        ("clcb", {"reset": r, "areas": a, "groups": g})
        for r, a, g in product(("memset", "loc"), ("rows", "columns"), (True, False))
    ),
    *(("clcb", {"bloom_bits": b, "bloom_hashes": h}) for b in (8, 16, 64) for h in (1, 2, 4)),
]


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=[f"{name} {options}" for name, options in VARIANTS])
@pytest.mark.parametrize("shape", ["areas", "long filters", "two names"])
def test_every_variant_gives_the_same_answers_on_a_gpu(name: str, options: dict[str, object], shape: str) -> None:
    """The simulator has the whole product (`kernels/test_variants`); here are thousands of filters, and graphs."""
    filters, events = shaped(shape)
    table = Table.from_filters(filters)
    engine, judge = open_engine(name, table, options=options), open_engine("counting", table)
    batch = Events.of(events).encode(table.vocabulary)
    for answer in (False, True):
        expected = judge.match(batch, filters=answer)
        assert engine.match(batch, filters=answer) == expected
        single = [engine.match(batch[i : i + 1], filters=answer) for i in range(30)]
        assert [found[0].tolist() for found in single] == [expected[i].tolist() for i in range(30)]
    engine.time_steps()
    assert engine.match(batch) == judge.match(batch)
    assert engine.match(batch[:1]) == judge.match(batch[:1])
    assert all(seconds > 0 for seconds in engine.steps_s.values())


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("scenario", "name", "options"),
    [
        ("ccm", "ccm", {"phases": 3}),
        ("ccm-10-names", "ccm", {"answer": "mask"}),
        ("ccm-10-names", "ccm", {"answer": "list", "reset": "memset"}),
        ("clcb-area-1", "clcb", {}),
        ("clcb-area-1", "clcb", {"runs": 1, "groups": False}),
    ],
)
def test_thousands_of_single_events_one_after_the_other(scenario: str, name: str, options: dict[str, object]) -> None:
    """A block that copied the answer before the others were done would do so once in a while only."""
    workload = SCENARIOS[scenario].scaled(20_000)
    table = Table.from_subscriptions(workload.subscriptions())
    batch = workload.events(3000).encode(table.vocabulary)
    engine, judge = open_engine(name, table, options=options), open_engine("keyed", table)
    for filters in (False, True):
        expected = judge.match(batch, filters=filters)
        found = Matches.concat([engine.match(batch[i : i + 1], filters=filters) for i in range(len(batch))])
        assert found.n_matches
        assert found == expected
