"""Other people's matchers: one that is right, and those that hang, die, err, babble and are wrong, each recorded as such."""

from __future__ import annotations

import shlex
import sys
import time
from importlib.util import find_spec
from typing import Any

import pytest
from mpirun import TESTS

from mpi_match.lab.bench.adapters import cel
from mpi_match.lab.bench.adapters.protocol import Unsupported
from mpi_match.lab.bench.beside import Beside
from mpi_match.lab.bench.engines import BenchOptions, compare
from mpi_match.lab.bench.report import failures, measured_ones, text_table
from mpi_match.lab.bench.sweep import Sweep

MATCHER = shlex.join([sys.executable, str(TESTS / "support" / "small_matcher.py")])
SMALL = BenchOptions(n_events=30, repetitions=2, warm_up_s=0, n_filters=200)


def with_others(*others: Beside, scenario: str = "ccm-10-names") -> list[dict[str, Any]]:
    options = BenchOptions(**{**vars(SMALL), "beside": others})
    return compare(scenario, ["counting"], options)


def test_one_that_is_right_is_measured() -> None:
    ours, other = with_others(Beside("small", MATCHER))
    assert (other["engine"], other["beside"], other["scenario"]) == ("small", MATCHER, "ccm-10-names")
    assert other["matches"] == ours["matches"] > 0
    assert other["checked"] == {"equal": 30}
    for key in ("build_s", "read_s", "events_per_s", "engine_bytes", "ratio"):
        assert other[key] > 0, key
    assert "small" in text_table([ours, other])


@pytest.mark.parametrize(
    ("failure", "how", "step", "why"),
    [
        ("dies", "dies", "build", "ended at 'build' with exit code 1: out of luck"),
        ("errs", "errs", "build", "there are no such operators"),
        ("babbles", "errs", "match", "said 'what?' at 'match', expected 'matched'"),
        ("wrong", "wrong", "answers", "event 3: found ['nobody'], expected ["),
    ],
)
def test_one_that_fails_is_recorded_so(failure: str, how: str, step: str, why: str) -> None:
    ours, other = with_others(Beside("small", f"{MATCHER} {failure}"))
    found = other["failure"]
    assert (found["how"], found["step"]) == (how, step)
    assert found["why"].startswith(why)
    assert "events_per_s" not in other
    assert measured_ones([ours, other]) == [ours]
    assert failures([ours, other]) == [f"small {how} at {step} on ccm-10-names: {found['why']}"]


def test_one_that_hangs_is_ended_and_the_next_is_measured() -> None:
    began = time.monotonic()
    _, first, second = with_others(Beside("slow", f"{MATCHER} hangs", limit_s=2), Beside("small", MATCHER))
    assert time.monotonic() - began < 30
    assert first["failure"] == {"how": "hangs", "step": "match", "why": "no answer to 'match' within 2 s"}
    assert second["checked"] == {"equal": 30}


def test_one_that_is_not_there_is_recorded_so() -> None:
    _, other = with_others(Beside("none", "./no-such-program"))
    assert other["failure"] == {"how": "dies", "step": "start", "why": "cannot be started: No such file or directory"}


def test_a_sweep_is_resumed_with_them() -> None:
    options = BenchOptions(n_events=5, repetitions=1, warm_up_s=0, n_filters=20, beside=(Beside("small", MATCHER),))
    sweep = Sweep("ccm", ("counting",), options=options)
    found = [record for records in sweep.run() for record in records]
    assert [record["engine"] for record in found] == ["counting", "small"]
    assert list(sweep.run(found)) == []
    other = Sweep("ccm", ("counting",), options=BenchOptions(**{**vars(options), "beside": (Beside("small", "true"),)}))
    assert len(list(other.run(found))) == 1, "it is another command"


@pytest.mark.skipif(not find_spec("cel"), reason="the package common-expression-language is not installed")
def test_cel_is_right_and_says_what_it_cannot() -> None:
    command = shlex.join([sys.executable, "-m", "mpi_match.lab.bench.adapters.cel"])
    for scenario in ("ccm-10-names", "ccm-strings"):
        _, found = with_others(Beside("cel", command), scenario=scenario)
        assert found["checked"] == {"equal": 30}
    _, areas = with_others(Beside("cel", command), scenario="clcb")
    assert areas["failure"] == {"how": "errs", "step": "build", "why": "there are no areas"}


def test_a_filter_as_an_expression_of_cel() -> None:
    symbols: dict[str, str] = {}
    row = {"constraints": [["a b", "!=", 3], ["s", "prefix", 'é"'], ["t", "absent"], ["u", "=", True]]}
    there = {name: f"has(e.{name}) && type(e.{name}) == " for name in ("n0", "n1", "n3")}
    assert cel.expression(row, symbols).split(" && ") == [
        *f"{there['n0']}double && e.n0 != 3.0".split(" && "),
        *f'{there["n1"]}string && e.n1.startsWith("é\\"")'.split(" && "),
        "!has(e.n2)",
        *f"{there['n3']}bool && e.n3 == true".split(" && "),
    ]
    assert symbols == {"a b": "n0", "s": "n1", "t": "n2", "u": "n3"}
    for constraint in (["x", "in", [1, 2]], ["x", "between", [1, 2]]):
        with pytest.raises(Unsupported, match="there is no"):
            cel.expression({"constraints": [constraint]}, {})


@pytest.mark.skipif(not find_spec("rule_engine"), reason="the package rule-engine is not installed")
def test_rule_engine_is_right_and_says_what_it_cannot() -> None:
    command = shlex.join([sys.executable, "-m", "mpi_match.lab.bench.adapters.rule_engine"])
    _, numbers = with_others(Beside("rule-engine", command))
    assert numbers["checked"] == {"equal": 30}
    _, areas = with_others(Beside("rule-engine", command), scenario="clcb")
    assert areas["failure"] == {"how": "errs", "step": "build", "why": "there are no areas"}
