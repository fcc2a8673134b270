"""The scanner of subscriptions against `rows`: the same table and rejects for any bytes, and few flagged lines."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import CASES
from event_lines import BLANK, TOKENS, mutated
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from random_rows import random_subscription

from mpi_match.ingest.files import blocks
from mpi_match.ingest.json import subscription_scanner
from mpi_match.ingest.json.subscription_scanner import SubscriptionScanner, read_subscriptions
from mpi_match.ingest.rows.judge import Reject, read_lines, read_rows, subscription_filters
from mpi_match.ingest.rows.to_json import subscription_rows
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.model import ANY_OPS, OPS
from mpi_match.table.subscriptions import Subscriptions
from mpi_match.table.table import Table


@pytest.fixture(autouse=True)
def scans_every_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for few in ("FEW_BYTES", "FEW_UNCOMPILED_BYTES"):
        monkeypatch.setattr(subscription_scanner, few, -1)


def lines_file(tmp_path: Path, lines: Iterable[bytes]) -> Path:
    path = tmp_path / "subscriptions.jsonl"
    path.write_bytes(b"\n".join(lines))
    return path


def judged(path: Path) -> tuple[Table, list[Reject]]:
    """The result of `rows` for a file."""
    rejects: list[Reject] = []
    found = read_rows([path], subscription_filters, rejects)
    return Table.from_filters(item for each in found for item in each or ()), rejects


def assert_as_judged(path: Path) -> tuple[Table, list[Reject]]:
    expected, expected_rejects = judged(path)
    rejects: list[Reject] = []
    read = read_subscriptions([path], rejects)
    found = Table.from_subscriptions(read.subscriptions)
    assert read.n_rows == sum(1 for _ in read_lines([path]))
    assert rejects == expected_rejects
    assert found == expected
    assert found.digest == expected.digest
    return expected, rejects


def n_flagged(lines: Iterable[bytes]) -> int:
    return len(SubscriptionScanner().scan(np.frombuffer(b"".join(line + b"\n" for line in lines), np.uint8)))


RESERVED = "\U0010ffff&" + "0" * 32
SPECIAL: list[dict[str, Any]] = [
    *({"interface": "i", "constraints": [each]} for each in (["*", "=", "x"], ["*", "has", "x"], ["*", "exists"])),
    *({"interface": "i", "constraints": [["x", op, "(a"]]} for op in ("regexp", "any regexp", "wildcard", "regexp i")),
    {"interface": "i", "constraints": [["x", "regexp", "a+"], ["x", "wildcard", "a*"]]},
    {"interface": "i", "constraints": [[RESERVED, "exists"]]},
    {"interface": RESERVED, "constraints": [["x", "=", 1]]},
    {"interface": RESERVED, "predicate": "x = 1"},
    {"interface": "i", "constraints": [["x", "=", 1]], "id": RESERVED},
    *({"interface": "i", "predicate": each} for each in ("\"*\" = 'x'", '"*" exists', "x regexp '(a'", "x regexp 'a'")),
    {"interface": "i", "predicate": f'"{RESERVED}" = 1'},
    {"interface": "*", "constraints": [["x*", "=", 1], ["x", "=", "*"]]},
]
"""Rows with names and labels that mean something of their own, and with operands that are checked."""

GOOD = [
    b'{"interface": "a", "constraints": [["x", "=", 1], ["x", "=", 1], ["y", "!=", true], ["", "<", "\xc3\xa9"]]}',
    b'{"constraints":[["n","in",[3,1,2,1,-0.0,0]],["s","not in",["b","a","b","ab",""]]],"id":7,"interface":-0}',
    b' {"area": [1, -2.5, 0], "interface": 12345678901234567890123, "constraints": null, "id": null}\t\r',
    b'\xef\xbb\xbf{"interface": "", "filters": [{"constraints": []}, {"area": [0, 0, 1e-3], "id": "f"}]}',
    b'{"filters": [{"id": "", "constraints": [["x", "between", [1, 1]]], "area": null}], "interface": "\\u00e9\\n"}',
    b'{"interface": "\\ud83e\\udd80", "constraints": [["p\\u00e9", "prefix", "\\u0041b"], ["p", "prefix", ""]]}',
    b'{"interface": "a", "constraints": [ [ "x" , "exists" ] , [ "y" , "absent" ] ] , "area" : [ 1 , 2 , 3 ] }',
    b'{"interface": "a", "constraints": [["s", "suffix", "an"], ["s", "contains", "\xf0\x9f\xa6\x80"], ["x", ">=", 0.1]]}',
    b'{"interface":\r0, "constraints": []}\x0b\x0c',
    b'{"tags": ["gpu", "\\u00e9", "", "gpu"], "interface": "t", "constraints": [["x", "=", "gpu"]], "id": "i"}',
    b'{"interface": "t", "tags":[], "area": [1, 2, 3]}',
    b'{"interface": "t", "filters": [{"tags": ["a" , "b"]}, {"tags": null, "constraints": [["tags", "any =", "a"]]}]}',
    b'{"interface": "a", "predicate": "x > 1 and (y exists or z in (2, 1)) or s prefix \'a\'", "area": [1, 2, 3], "id": 7}',
    b'{"interface": "t", "constraints": [["t\\u00e9", "has" , "\\n" ], ["x", "any =", ""]]}',
    b'{"interface": "a", "constraints": [["x", "any =", 1], ["x", "any in", ["a"]], ["x", "any <", 3], ["x", "has", -0.0]]}',
    b'{"interface": "a", "constraints": [["x", "any !=" , 1] , ["x", "any >=", "a\\u00e9"], ["x", "any !=", true]]}',
    b'{"interface": "a", "constraints": [["x", "any in", ["b", "", "a", "b"]], ["x", "any not in", [2, -0.0, 1, 0, 2]]]}',
    b'{"interface": "a", "constraints": [["x", "any between", [-0.0, 9007199254740993]], ["x", "has", false]]}',
    b'{"interface": "a", "constraints": [["x", "any in", [18446744073709551615, 0.1, -9223372036854775807]]]}',
    b'{"interface": "a", "constraints": [["x", "any prefix", ""], ["x", "any suffix", "z"], ["", "any contains", "\\n"]]}',
    b'{"interface": "a", "constraints": [["x", "any contains", ["a", "b"]], ["x", "any = i", "A"]]}',
    b'{"interface": "a", "constraints": [["x", "= i", "aB\\nC"], ["x", "in i", ["b", "B", "A"]], ["x", "prefix i", ""]]}',
    b'{"interface": "a", "constraints": [["x", "!= i", "A"]], "tags": ["A"]}',
    b'{"interface": "a", "constraints": [["x", "not in i", ["X"]], ["x", "any in i", ["B" , "a"]], ["x", "any != i", "Z"]]}',
    b'{"interface": "a", "constraints": [["x", "contains i", ["Z", "a", "z"]], ["y", "suffix", ["a"]]]}',
    b'{"interface": "a", "constraints": [["y", "any prefix i", ["Ab", "C"]]]}',
    b"{\"interface\": \"a\", \"predicate\": \"x = i 'Ab' and y ANY prefix I 'aB' or z not in i ('A', 'a') and z = 'A'\"}",
    b'{"interface": "a", "predicate": "x any not in (2, 1) and y any prefix \'a\' or x any between 1 and 2 and x any > 3"}',
    b'{"interface": "a", "constraints": [["x", "wildcard", "a*\\\\?\xc3\xa9"], ["x", "wildcard i", "*Ab?"]]}',
    b'{"interface": "a", "constraints": [["x", "any wildcard", "*a\\\\"], ["x", "any wildcard i", ["B*", "a?"]]]}',
    b'{"interface": "a", "constraints": [["x", "wildcard", ""], ["x", "any wildcard", ""]]}',
    b'{"interface": "a", "constraints": [["x", "wildcard", ["b*", "a*"]], ["x", "wildcard", "' + b"*" * 65_536 + b'"]]}',
    b'{"interface": "a", "predicate": "x wildcard \'*a\' or y any wildcard i \'Ab*\'"}',
    b'{"interface": "a", "where": {"or": [["x", "wildcard", "*a"], {"not": ["y", "wildcard i", "B?"]}]}}',
    b'{"interface": "a", "constraints": [["x", "in net", "10.1.2.3/8"], ["t", "at", "2000-02-29"]]}',
    b'{"interface": "a", "constraints": [["x", "in net", ["1.2.3.4\\u002f016", "FE80::1.2.3.4/97" , "1.2.3.4"]]]}',
    b'{"interface": "a", "constraints": [["t", "between" , [ "0000-01-01T00:00:00.5+23:59","9999-12-31 23:59:59z" ] ]]}',
    b'{"interface": "a", "where": {"not": {"and": [["x", "in net", ["::1"]], ["t", "before", "2261-01-01"]]}}, "id": 1}',
]
JUDGED_GOOD = [
    b'{"interface": "a", "constraints": [["x", "any in net", "10.0.0.0/8"], ["t", "any after", "2000-01-01"]]}',
    b'{"interface": "a", "constraints": [["x", "in net", ["10.0.0.0/8", "10.1.0.0/8"]]]}',
    b'{"interface": "a", "constraints": [["*", "in net", "::/1"], ["t", "any between", ["2000-01-01", "2000-01-02"]]]}',
    b'{"interface": "a", "predicate": "not x exists or y = .5"}',
    b'{"interface": "a", "constraints": [["x", "exists", null]]}',
    b'{"\\u0069nterface": "a", "constraints": []}',
    b'{"interface": "' + b"\\n" * 70_000 + b'", "constraints": []}',
    b'{"interface": "a", "constraints": [["x", "\\u003d", 1]]}',
    b'{"interface": "a", "tags": ["a", 7, true]}',
    b'{"interface": "a", "constraints": [["x", "any contains", ["a", "b"]], ["x", "any = i", "\xc3\x89"]]}',
    b'{"interface": "a", "constraints": [["x", "prefix", ["a", "a"]]]}',
    b'{"interface": "a", "constraints": [["x", "wildcard", "' + "\u00e9".encode() * 40_000 + b'"]]}',
    b'{"interface": "a", "tags": ["' + b"x" * 70_000 + b'"]}',
    b'{"interface": "a", "constraints": [["x", "any in", ' + str(list(range(9000))).encode() + b"]]}",
]
BAD = [
    b'{"interface": "a", "constraints": [["x", "wildcard", "' + b"a" * 65_537 + b'"]]}',
    b'{"interface": "a", "constraints": [["x", "wildcard", 1]]}',
    *(
        b'{"interface": "a", "constraints": [["x", "%s", %s]]}' % (op, operand)
        for op, operand in (
            *((b"in net", each) for each in (b'"1.2.3.4/33"', b'"1.2.3.4/"', b'"::/129"', b'"::/0008"', b'""')),
            *((b"in net", each) for each in (b"[]", b"7", b'["::1", 7]', b'["::1", "x"]', b'"::1%eth0"', b'"1.2.3.4/1/1"')),
            *((b"before", each) for each in (b'"2001-02-29"', b'["2001-02-28"]', b'"2001-02-28T24:00:00Z"', b'""', b"7")),
            *((b"between", each) for each in (b'["2001-02-28", "2001-02-27"]', b'["2001-02-28"]', b'["2001-02-28", 7]')),
            (b"between", b'["2001-01-01", "2001-01-02", "2001-01-03"]'),
            *((op, b'"2001-01-01"') for op in (b"at i", b"before i", b"in net i", b"between")),
        )
    ),
    b'{"interface": "a"}',
    b'{"constraints": []}',
    b'{"interface": null, "constraints": []}',
    b'{"interface": 1.0, "constraints": []}',
    b'{"interface": "a", "constraints": null}',
    b'{"interface": "a", "constraints": null, "area": null}',
    b'{"interface": "a", "constraints": [], "constraints": []}',
    b'{"interface": "a", "constraints": [], "filters": [{"constraints": []}]}',
    b'{"interface": "a", "constraints": null, "filters": [{"constraints": []}]}',
    b'{"interface": "a", "tags": null}',
    b'{"interface": "a", "tags": "a"}',
    b'{"interface": "a", "tags": ["a", null]}',
    b'{"interface": "a", "tags": ["a",]}',
    b'{"interface": "a", "tags": ["a"], "filters": [{"constraints": []}]}',
    b'{"interface": "a", "constraints": [["x", "has"]]}',
    b'{"interface": "a", "constraints": [["x", "has", "a", "b"]]}',
    b'{"interface": "a", "constraints": [["x", "has", ["a"]]]}',
    b'{"interface": "a", "constraints": [["x", "any exists"]]}',
    b'{"interface": "a", "constraints": [["x", "any has", "a"]]}',
    b'{"interface": "a", "constraints": [["x", "any in", [true]]]}',
    b'{"interface": "a", "constraints": [["x", "= i", 1]]}',
    b'{"interface": "a", "constraints": [["x", "in i", [1]]]}',
    b'{"interface": "a", "constraints": [["x", "any = i", true]]}',
    b'{"interface": "a", "constraints": [["x", "has i", "a"]]}',
    b'{"interface": "a", "constraints": [["x", "< i", "a"]]}',
    b'{"interface": "a", "constraints": [["x", "exists i"]]}',
    b'{"interface": "a", "constraints": [["x", " i", "a"]]}',
    b'{"interface": "a", "constraints": [["x", "contains", []]]}',
    b'{"interface": "a", "constraints": [["x", "contains", ["a", 1]]]}',
    b'{"interface": "a", "constraints": [["x", "=", ["a"]]]}',
    b'{"interface": "a", "predicate": "x has i \'a\'"}',
    b'{"interface": "a", "predicate": "x exists i"}',
    b'{"interface": "a", "constraints": [["x", "any between", ["a", "b"]]]}',
    b'{"interface": "a", "constraints": [["x", "any <", false]]}',
    b'{"interface": "a", "constraints": [["x", "any prefix", 1]]}',
    b'{"interface": "a", "constraints": [["x", "any  =", 1]]}',
    b'{"interface": "a", "filters": []}',
    b'{"interface": "a", "filters": null}',
    b'{"interface": "a", "filters": [{}]}',
    b'{"interface": "a", "filters": [{"interface": null, "constraints": []}]}',
    b'{"interface": "a", "filters": [{"filters": null, "constraints": []}]}',
    b'{"interface": "a", "filters": [{"constraints": [], "constraints": []}]}',
    b'{"interface": "a", "filters": [1]}',
    b'{"interface": "a", "constraints": [["x"]]}',
    b'{"interface": "a", "constraints": [["x", "="]]}',
    b'{"interface": "a", "constraints": [["x", "=", null]]}',
    b'{"interface": "a", "constraints": [["x", "=", 1, 2]]}',
    b'{"interface": "a", "constraints": [["x", "=", [1]]]}',
    b'{"interface": "a", "constraints": [["x", "exists", 1]]}',
    b'{"interface": "a", "constraints": [["x", "between", [2, 1]]]}',
    b'{"interface": "a", "constraints": [["x", "between", [1]]]}',
    b'{"interface": "a", "constraints": [["x", "between", [1, 2, 3]]]}',
    b'{"interface": "a", "constraints": [["x", "between", ["a", "b"]]]}',
    b'{"interface": "a", "constraints": [["x", "in", []]]}',
    b'{"interface": "a", "constraints": [["x", "in", [1, "a"]]]}',
    b'{"interface": "a", "constraints": [["x", "in", [true]]]}',
    b'{"interface": "a", "constraints": [["x", "in", 1]]}',
    b'{"interface": "a", "constraints": [["x", "prefix", 1]]}',
    b'{"interface": "a", "constraints": [["x", "<", true]]}',
    b'{"interface": "a", "constraints": [["x", "=", 18446744073709551616]]}',
    b'{"interface": "a", "constraints": [["x", "=", 1e400]]}',
    b'{"interface": "a", "constraints": [["x", "=", "\\ud800"]]}',
    b'{"interface": "a", "constraints": [["x", "above", 1]]}',
    b'{"interface": "a", "constraints": [[1, "=", 1]]}',
    b'{"interface": "a", "constraints": [["x", "=", 1],]}',
    b'{"interface": "a", "constraints": [["x" "=", 1]]}',
    b'{"interface": "a", "constraints": {}}',
    b'{"interface": "a", "area": [1, 2, -1]}',
    b'{"interface": "a", "area": [1, 2]}',
    b'{"interface": "a", "area": [1, 2, 3, 4]}',
    b'{"interface": "a", "area": [1, 2, NaN]}',
    b'{"interface": "a", "area": [1, 2, "3"]}',
    b'{"interface": "a", "constraints": [], "id": 1.5}',
    b'{"interface": "a", "constraints": [], "name": 1}',
    b'{"interface": "a", "constraints": []} x',
    b'{"interface": "a", "constraints": [}',
    b'{"interface": "a\xff", "constraints": []}',
    b"[]",
    b"7",
]


@pytest.mark.parametrize("escaped", [True, False])
def test_special_names_and_checked_operands(escaped: bool, tmp_path: Path) -> None:
    """`regexp` was read as another operator, and `*` as the name of an attribute."""
    lines = [json.dumps(row, ensure_ascii=escaped).encode() for row in SPECIAL]
    table, rejects = assert_as_judged(lines_file(tmp_path, lines))
    assert table.n_filters > 5
    assert len(rejects) > 5


def test_the_rows_of_all_cases(tmp_path: Path) -> None:
    rows = [row for case in CASES for row in case["subscriptions"]]
    _, rejects = assert_as_judged(lines_file(tmp_path, [json.dumps(row).encode() for row in rows]))
    assert not rejects


@pytest.mark.untraced
@pytest.mark.parametrize("ends_with_a_line_feed", [True, False])
def test_every_kind_of_line(ends_with_a_line_feed: bool, tmp_path: Path) -> None:
    lines = [line for kind in (GOOD, BLANK, BAD, BLANK, JUDGED_GOOD, GOOD) for line in kind]
    _, rejects = assert_as_judged(lines_file(tmp_path, [*lines, *([b""] if ends_with_a_line_feed else [])]))
    assert len(rejects) == len(BAD)


def test_what_is_flagged() -> None:
    assert [n_flagged(lines) for lines in (GOOD, JUDGED_GOOD, BAD, BLANK)] == [0, len(JUDGED_GOOD), len(BAD), 0]


@pytest.mark.parametrize("alone", [GOOD[:1], JUDGED_GOOD[:1], BAD[:1], BLANK[:1], []])
def test_files_of_one_kind(alone: list[bytes], tmp_path: Path) -> None:
    assert_as_judged(lines_file(tmp_path, alone))


@pytest.mark.untraced
def test_mutated_lines(tmp_path: Path) -> None:
    generator = random.Random(23)
    made = (json.dumps(random_subscription(generator), ensure_ascii=generator.random() < 0.5) for _ in range(300))
    corpus = [*GOOD * 10, *BAD, *JUDGED_GOOD[:2], *(line.encode() for line in made)]
    _, rejects = assert_as_judged(lines_file(tmp_path, (mutated(generator, corpus) for _ in range(20_000))))
    assert 4000 < len(rejects) < 16_000, "the corpus should be of both kinds"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**54), 2**54) | st.floats() | st.text(max_size=8),
    lambda inner: st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
operators = st.sampled_from([*OPS, *ANY_OPS, ""])
constraints = st.lists(
    st.tuples(st.sampled_from(["x", "é", ""]), operators, json_values | st.lists(json_values, max_size=3))
)
areas = st.lists(st.floats(-3, 3) | st.integers(-3, 3), min_size=3, max_size=3)
filters = st.fixed_dictionaries({}, optional={"constraints": constraints, "area": areas | st.none(), "id": json_values})
subscriptions = st.tuples(
    st.fixed_dictionaries({"interface": json_values}),
    filters | st.fixed_dictionaries({"filters": st.lists(filters, max_size=3)}) | st.dictionaries(st.text(), json_values),
).map(lambda made: json.dumps({**made[0], **made[1]}).encode(errors="surrogatepass"))


@settings(max_examples=examples(150))
@given(lines=st.lists(subscriptions | st.binary(max_size=30), max_size=12))
def test_any_lines(lines: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> None:
    assert_as_judged(lines_file(tmp_path_factory.mktemp("lines"), lines))


nets = st.one_of(
    st.builds("{}/{}".format, st.ip_addresses(v=4), st.integers(0, 40)),
    st.builds("{}/{}".format, st.ip_addresses(v=6), st.integers(0, 140) | st.sampled_from(["007", "", "+8", "8/8", "٣"])),
    st.ip_addresses().map(str),
)
instants = st.builds(
    "{}{}{}".format,
    st.dates().map(str) | st.sampled_from(["0000-02-29", "9999-12-31"]),
    st.sampled_from(
        ["", "T00:00:00", " 23:59:59", "t12:34:56.7", "T01:02:03.123456789", "T01:02:03.1000000000", "T24:00:00"]
    ),
    st.sampled_from(["", "Z", "z", "+23:59", "-00:01"]),
)


@st.composite
def texts_of_views(draw: st.DrawFn) -> str:
    """The text of a network or an instant, perhaps with a character changed."""
    text = draw(nets | instants)
    at = draw(st.integers(0, 3 * len(text)))
    return (
        text
        if at >= len(text)
        else text[:at] + draw(st.sampled_from(".:/-+0f9Tx \u0663")) + text[at + draw(st.integers(0, 1)) :]
    )


constraints_on_views = st.one_of(
    st.tuples(st.just("x"), st.just("in net"), nets | texts_of_views() | st.lists(nets, max_size=3)),
    st.tuples(st.just("t"), st.sampled_from(["before", "after", "at", "any at"]), instants | texts_of_views()),
    st.tuples(st.just("t"), st.just("between"), st.lists(instants, min_size=1, max_size=3)),
)


@settings(max_examples=150)
@given(asked=st.lists(constraints_on_views, min_size=1, max_size=8), escaped=st.booleans())
def test_networks_and_instants(asked: list[Any], escaped: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    rows: list[dict[str, Any]] = [{"interface": "a", "constraints": [each]} for each in asked]
    rows += [{"interface": "a", "id": "b", "where": {"or": [{"not": each}, ["x", "exists"]]}} for each in asked]
    lines = [json.dumps(row, ensure_ascii=escaped).encode() for row in rows]
    assert_as_judged(lines_file(tmp_path_factory.mktemp("lines"), lines))


def test_tokens_in_every_place(tmp_path: Path) -> None:
    lines = [line[:at] + token + line[at:] for line in GOOD[1:4] for at in range(len(line)) for token in TOKENS[:40:3]]
    assert_as_judged(lines_file(tmp_path, (line.replace(b"\n", b" ") for line in lines)))


@pytest.mark.parametrize("name", ["ccm-strings", "clcb", "packets", "many-interfaces", "debs2009"])
@pytest.mark.parametrize("escaped", [True, False])
def test_subscriptions_of_workloads_are_not_flagged(name: str, escaped: bool, tmp_path: Path) -> None:
    made = subscription_rows(SCENARIOS[name].scaled(500).subscriptions(3))
    lines = [json.dumps(row, ensure_ascii=escaped).encode() for row in made]
    assert_as_judged(lines_file(tmp_path, lines))
    assert n_flagged(lines) == 0


def test_names_strings_and_labels_beyond_the_first_room(tmp_path: Path) -> None:
    """Every pool grows several times, also in the midst of a line, also for one long string."""

    def row(i: int) -> dict[str, Any]:
        texts = [f"s{i}-{k}" for k in range(7)]
        return {"interface": f"i{i}", "constraints": [[f"n{i}", "=", "x" * i], ["s", "in", texts], ["s", "prefix", f"p{i}"]]}

    lines = [json.dumps(row(i)).encode() for i in range(3000)]
    lines.append(json.dumps({"interface": "long", "constraints": [["x", "=", "é" * 300_000]]}).encode())
    table, _ = assert_as_judged(lines_file(tmp_path, lines))
    assert table.n_filters == 3001


def test_long_lists(tmp_path: Path) -> None:
    generator = random.Random(1)
    values = [generator.randrange(3000) / 7 for _ in range(5000)]
    rows: list[dict[str, Any]] = [{"interface": "a", "constraints": [["x", "in", values]]}]
    rows.append({"interface": "a", "constraints": [["s", "not in", [f"{value:.2f}" for value in values]]]})
    assert_as_judged(lines_file(tmp_path, (json.dumps(row).encode() for row in rows)))


@pytest.mark.untraced
@pytest.mark.parametrize("size", [200, 1000])
def test_blocks_of_any_size(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "READ_BYTES", size)
    lines = [line for kind in (GOOD, BAD, BLANK, GOOD) for line in kind] * 3
    assert_as_judged(lines_file(tmp_path, lines))


def test_few_lines_are_read_without_compiling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription_scanner, "SubscriptionScanner", None)
    for few in ("FEW_BYTES", "FEW_UNCOMPILED_BYTES"):
        monkeypatch.setattr(subscription_scanner, few, 2**21)
    lines = [line for kind in (GOOD, BLANK, BAD, JUDGED_GOOD) for line in kind]
    assert_as_judged(lines_file(tmp_path, lines))


@pytest.mark.untraced
def test_many_lines_are_compiled_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, made = lines_file(tmp_path, GOOD * 50), []

    def created() -> SubscriptionScanner:
        made.append(SubscriptionScanner())
        return made[-1]

    monkeypatch.setattr(subscription_scanner, "SubscriptionScanner", created)
    size = path.stat().st_size + 1  # with the last line feed
    for compiled, few, uncompiled, n in (
        (True, size - 1, size, 1),
        (True, size, 0, 0),
        (False, 0, size - 1, 1),
        (False, 0, size, 0),
    ):
        monkeypatch.setattr(subscription_scanner, "is_compiled", lambda _, compiled=compiled: compiled)
        monkeypatch.setattr(subscription_scanner, "FEW_BYTES", few)
        monkeypatch.setattr(subscription_scanner, "FEW_UNCOMPILED_BYTES", uncompiled)
        made.clear()
        read_subscriptions([path], [])
        assert len(made) == n


def test_parts_are_joined_with_their_ids_and_areas() -> None:
    scanner = SubscriptionScanner()
    parts = []
    for line in (GOOD[0], GOOD[1], GOOD[3]):
        assert scanner.scan(np.frombuffer(line + b"\n", np.uint8)) == []
        parts.append(scanner.take().subscriptions)
    expected = [
        item for line in (GOOD[0], GOOD[1], GOOD[3]) for item in subscription_filters(json.loads(line.decode("utf-8-sig")))
    ]
    assert Table.from_subscriptions(Subscriptions.concat(parts)) == Table.from_filters(expected)


def test_the_room_of_a_pool_follows_what_it_holds() -> None:
    """It grew fourfold with each doubling of the strings: 64 GiB for two million."""
    scanner = SubscriptionScanner()
    lines = [b'{"interface": %d, "constraints": []}' % i for i in range(20_000)]
    assert scanner.scan(np.frombuffer(b"\n".join([*lines, b""]), np.uint8)) == []
    assert sum(array.nbytes for array in scanner._pools[0]._arrays) < 2**21
