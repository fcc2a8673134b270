"""Every pair of values of the options of `ccm` and `clcb`: other ways to the same answers; and the times of their steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from cases import CONJUNCTIONS, event_of, filters_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from judge import KINDS, answers, expected
from live_machine import LiveMachine, run_machine
from strategies import subscriptions_and_events

from mpi_match.engines import EngineError, open_engine
from mpi_match.engines.ccm import engine as ccm
from mpi_match.engines.ccm import one_or_many
from mpi_match.engines.ccm.bloom import bit_of
from mpi_match.engines.ccm.options import CCM_OPTIONS
from mpi_match.engines.ccm.single import CcmSingle
from mpi_match.engines.clcb.options import CLCB_OPTIONS, ClcbVariant
from mpi_match.engines.clcb.segment import filter_columns
from mpi_match.engines.option import Option, OptionValue
from mpi_match.engines.registry import options_of
from mpi_match.events.batch import EventBatch
from mpi_match.events.events import Events
from mpi_match.model import Event, Filter, make_event, make_filter
from mpi_match.table.table import Table

MODULES = ("ccm", "clcb")


def values(option: Option) -> Sequence[OptionValue]:
    if isinstance(option.default, bool):
        return [True, False]
    chosen = [choice for choice in option.choices if choice != option.measured]
    return chosen or range(int(option.least or 0), int(option.most or 0) + 1)


def variants(options: Sequence[Option]) -> list[dict[str, OptionValue]]:
    """Variants in which every value of each option meets every value of each other one; the first is the default."""
    names = [option.name for option in options]
    every = list(product(*map(values, options)))
    every.sort(key=lambda each: each != tuple(option.default for option in options))
    left = {pair for each in every for pair in combinations(enumerate(each), 2)}
    found: list[dict[str, OptionValue]] = []
    while left:
        best = max(every, key=lambda each: (not found, len(left.intersection(combinations(enumerate(each), 2)))))
        left.difference_update(combinations(enumerate(best), 2))
        found.append(dict(zip(names, best, strict=True)))
    return found


def spelled(variant: dict[str, OptionValue]) -> str:
    return " ".join(f"{key}={value}" for key, value in variant.items())


every_variant = pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param(name, variant, id=f"{name} {spelled(variant)}")
        for name, options in (("ccm", CCM_OPTIONS), ("clcb", CLCB_OPTIONS))
        for variant in variants(options)
    ],
)


@cache
def inputs() -> tuple[Table, EventBatch, dict[str, list[list[Any]]]]:
    """Filters of some cases, with and without areas; names more than any Bloom filter has bits; nearly matched events."""
    filters = [item for case in CONJUNCTIONS[::40] for item in filters_of(case)]
    filters += [item for case in CONJUNCTIONS for item in filters_of(case) if item.area is not None][::12]
    filters += [make_filter(str(i % 5), [[f"n{i}", "=", 1], [f"n{i + 1}", ">", 0]]) for i in range(0, 80, 9)]
    events = [*(event_of(case) for case in CONJUNCTIONS[::80]), make_event({"temp": 25}, (0.5, 0.5)), make_event({}, (3, 4))]
    events += [make_event({"n9": 1, "n10": 1}), make_event({"n9": 1, "n11": 1}), make_event({"n72": 1, "n73": 2, "n0": 1})]
    table = Table.from_filters(filters)
    return table, Events.of(events).encode(table.vocabulary), {kind: expected(table, events, kind) for kind in KINDS}


@every_variant
def test_every_variant_gives_the_same_answers(name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    table, batch, wanted = inputs()
    engine = open_engine(name, table, options=options)
    assert engine.options == options
    for few, (turn, kind) in product((100, 0), enumerate(KINDS if name == "ccm" else KINDS[1:])):
        monkeypatch.setattr(one_or_many, "SINGLE_EVENTS", few)
        if name == "ccm":
            monkeypatch.setattr(ccm, "MASK_INTERFACES", 64 if kind == "mask" else 0)
        for part in (slice(turn, None), slice(0, 3)):  # so that counters are used again
            assert answers(engine, table, batch[part], kind) == wanted[kind][part]


@pytest.mark.parametrize("name", MODULES)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    given_=subscriptions_and_events(max_filters=8, max_events=6, max_constraints=4),
    few=st.sampled_from([0, 8]),
    data=st.data(),
)
def test_variants_agree_with_the_model(
    given_: tuple[list[Filter], list[Event]], few: int, data: st.DataObject, name: str
) -> None:
    filters, events = given_
    table = Table.from_filters(filters)
    batch = Events.of(events).encode(table.vocabulary)
    options = {option.name: data.draw(st.sampled_from(values(option)), option.name) for option in options_of(name)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one_or_many, "SINGLE_EVENTS", few)
        engine = open_engine(name, table, options=options)
        for kind in ("list", "filters"):
            assert answers(engine, table, batch, kind) == expected(table, events, kind)


@pytest.mark.parametrize(
    "options",
    [{"runs": 1, "bloom_bits": 64, "bloom_hashes": 2, "reset": "loc"}, {"runs": 2, "groups": False, "areas": "columns"}],
    ids=spelled,
)
def test_variants_take_changes(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also filters that come later have Bloom filters of the same kind."""
    monkeypatch.setattr(LiveMachine, "open", lambda self: open_engine("clcb", self.live.table, live=True, options=options))
    run_machine("clcb", examples=2, steps=10)


# What an option does, besides giving the same answers.


def launched(name: str, **options: OptionValue) -> dict[str, int]:
    """How often the kernels of an engine are launched, and memory is set to zero, for single events."""
    from mpi_match.gpu.device_memory import Stream
    from mpi_match.gpu.kernels import KernelLaunch

    table, batch, _ = inputs()
    engine = open_engine(name, table, options=options)
    for _ in range(4):  # the next run is the first of a word
        engine.match(batch[:1])
    counts = {"zero": 0, "launch": 0}

    def counted(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            counts[what] += 1
            return function(*arguments)

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stream, "zero", counted("zero", Stream.zero))
        patch.setattr(KernelLaunch, "__call__", counted("launch", KernelLaunch.__call__))
        for _ in range(8):
            engine.match(batch[:1])
    return counts


def test_the_kernel_resets_or_memory_is_set_to_zero() -> None:
    """An event is fetched by a kernel and matched by another, which delivers the answer too."""
    assert launched("ccm") == {"zero": 0, "launch": 2 * 8}
    assert launched("ccm", reset="memset") == {"zero": 2 * 8, "launch": 2 * 8}  # fetching sets how many were found to zero


def test_three_phases_evaluate_only_constraints_of_filters_whose_names_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from mpi_match.engines.ccm import kernel

    filters = [make_filter(str(i), [["a", "exists"], [f"n{i}", "exists"]]) for i in range(20)]
    filters += [make_filter("a", [["a", ">", 0], ["b", "absent"]]), make_filter("all", [])]
    table, looked_at = Table.from_filters(filters), list[int]()
    batch = Events.of([make_event({"a": 1, "n3": 2})]).encode(table.vocabulary)
    kernel.ccm_kernel.cache_clear()
    plain = kernel.satisfied

    def noted(rows: Any, words: Any, row: int, code: int) -> Any:
        looked_at.append(row)
        return plain(rows, words, row, code)

    monkeypatch.setattr(kernel, "satisfied", noted)
    n_rows = {}
    for phases in (2, 3):
        engine = open_engine("ccm", table, options={"phases": phases})
        looked_at.clear()
        assert engine.match(batch).labels(table.labels) == [["3", "a", "all"]]
        n_rows[phases] = len(looked_at)
    kernel.ccm_kernel.cache_clear()
    assert n_rows == {2: 22, 3: 3}


@pytest.mark.parametrize("cover", ["event", "table"])
def test_a_single_event_covers_its_own_longest_row_or_that_of_the_table(cover: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from mpi_match.engines.ccm import kernel

    monkeypatch.setattr(kernel, "CCM_BLOCK", 4)
    filters = [make_filter("i", [["often", ">", i]]) for i in range(40)] + [make_filter("j", [["seldom", "exists"]])]
    table = Table.from_filters(filters)
    batch = Events.of([make_event(e) for e in ({"seldom": 1}, {"often": 40}, {}, {"seldom": 2})]).encode(table.vocabulary)
    engine = open_engine("ccm", table, options={"cover": cover})
    assert engine.match(batch).labels(table.labels) == [["j"], ["i"], [], ["j"]]
    assert isinstance(engine, ccm.Ccm)
    assert {n for one in engine._one.values() if isinstance(one, CcmSingle) for n in one._launches} == (
        {1, 10} if cover == "event" else {10}
    )


def test_a_mask_has_any_number_of_interfaces_up_to_a_bound() -> None:
    filters = [make_filter(f"{i:04}", [["a", "=", i % 3]]) for i in range(130)]
    table = Table.from_filters(filters)
    events = [make_event({"a": a}) for a in (0, 1, 5)]
    batch = Events.of(events).encode(table.vocabulary)
    for part in (batch, batch[:1], batch[1:2]):
        found = {answer: open_engine("ccm", table, options={"answer": answer}).match(part) for answer in ("mask", "list")}
        assert found["mask"] == found["list"] == open_engine("counting", table).match(part)
    many = Table.from_filters([make_filter(str(i), []) for i in range(ccm.MOST_MASK_INTERFACES + 1)])
    with pytest.raises(EngineError, match=r"has 4,097 interfaces; ccm\.answer=mask serves at most 4,096, .*=list more"):
        open_engine("ccm", many, options={"answer": "mask"})


@pytest.mark.parametrize("runs", [1, 2, 4])
def test_counters_are_zeroed_once_for_so_many_runs(runs: int) -> None:
    assert launched("clcb", runs=runs) == {"zero": 2 * 8 // runs, "launch": 4 * 8}, "fetched, and delivered by Zip"
    assert launched("clcb", runs=runs, reset="loc")["zero"] == 2 * 8 // runs, "groups and interfaces"
    assert launched("clcb", runs=runs, reset="loc", groups=False)["zero"] == 8 // runs, "interfaces only"


def test_rows_are_sorted_or_as_filters_are_given() -> None:
    from mpi_match.engines.ccm.layout import SECTION, ccm_rows

    table = Table.from_filters([make_filter(f"{i:02}", [["x", ">", (7 * i) % 10]]) for i in range(10)])

    def filters_of_rows(by_filter: bool) -> list[int]:
        rows = ccm_rows(table, by_filter=by_filter)
        first, end = (int(rows.words[SECTION[name]]) for name in ("row_filter", "counters"))
        return list(map(int, rows.words[first:end]))

    assert filters_of_rows(True) == list(range(10))
    assert sorted(filters_of_rows(False)) == list(range(10)) != filters_of_rows(False)


@pytest.mark.parametrize(("bits", "hashes"), [*product((8, 16, 32, 64), (1, 2, 3))])
def test_a_bloom_filter_has_the_bits_of_its_names_and_no_others(bits: int, hashes: int) -> None:
    rng = np.random.default_rng(bits + hashes)
    names = [sorted(rng.choice(500, rng.integers(0, 6), replace=False).tolist()) for _ in range(40)]
    filters = [make_filter("i", [[f"n{name:03}", "exists"] for name in some]) for some in names]
    table = Table.from_filters([*filters, make_filter("all", [[f"n{name:03}", "absent"] for name in range(500)])])
    found, _ = filter_columns(table, np.arange(table.n_filters), ClcbVariant(bloom_bits=bits, bloom_hashes=hashes))
    columns = found.reshape(-1, table.n_filters)
    assert len(columns) == 1 + max(bits // 32, 1)
    for f, item in enumerate(table.iter_filters()):
        asked = [int(c.name[1:]) for c in item.constraints if c.op.symbol == "exists"]
        wanted = {int(bit_of(name, nth, bits.bit_length() - 1)) for name in asked for nth in range(hashes)}
        assert wanted == {32 * w + b for w, column in enumerate(columns[1:]) for b in range(32) if column[f] >> b & 1}
        assert max(wanted, default=0) < bits


def test_more_hashes_pass_fewer_filters() -> None:
    """The paper's rate, one name in ten that is not there, needs two of them where a filter asks for six of many names."""
    names, rng = np.arange(10_000), np.random.default_rng(0)

    def passed(hashes: int) -> float:
        bit = np.zeros(len(names), np.int64)
        for nth in range(hashes):
            bit |= 1 << bit_of(names, nth, 5).astype(np.int64)
        events = np.bitwise_or.reduce(bit[rng.integers(0, len(names), (20_000, 6))], axis=1)
        asked = bit[rng.integers(0, len(names), 20_000)]
        return float(np.mean(asked & ~events == 0))

    assert passed(1) == pytest.approx(0.17, abs=0.02)
    assert passed(2) == pytest.approx(0.10, abs=0.02)


# Steps


@pytest.mark.parametrize(
    ("name", "few", "options", "steps"),
    [
        ("ccm", 0, {}, ["pack", "copy in", "reset", "kernel", "copy out", "unpack"]),
        ("ccm", 100, {}, ["copy in", "kernel", "copy out"]),
        ("ccm", 100, {"reset": "memset"}, ["copy in", "reset", "kernel", "copy out"]),
        ("clcb", 0, {}, ["pack", "copy in", "zero", "Loc", "Cont", "Zip", "copy out", "unpack"]),
        ("clcb", 100, {"runs": 2}, ["copy in", "Loc", "Cont", "Zip", "copy out", "zero"]),
    ],
)
def test_steps_are_timed_on_request(
    name: str, few: int, options: dict[str, Any], steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_or_many, "SINGLE_EVENTS", few)
    table, batch, wanted = inputs()
    engine = open_engine(name, table, options=options)
    assert answers(engine, table, batch, "list") == wanted["list"]
    assert engine.steps_s == {}
    engine.time_steps()
    assert answers(engine, table, batch, "list") == wanted["list"]
    assert list(engine.steps_s) == steps
    assert all(seconds > 0 for seconds in engine.steps_s.values())
    before = dict(engine.steps_s)
    assert answers(engine, table, batch, "list") == wanted["list"]
    assert all(engine.steps_s[step] > before[step] for step in steps)
