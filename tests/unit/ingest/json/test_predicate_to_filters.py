"""Predicates that compiled code reads against `predicates.parse`: the same filters, and the rest is flagged."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable

import numpy as np
import pytest

from mpi_match.ingest.json.subscription_scanner import SubscriptionScanner
from mpi_match.ingest.rows.judge import parse_json, subscription_filters
from mpi_match.model import Filter, ModelError
from mpi_match.table.conditions import decompose
from mpi_match.table.subscriptions import Subscriptions
from mpi_match.table.table import Table

READ = [
    "temp > 30",
    "temp>-30.5 AND Temp <= 1e3 and t = 'it''s' or t == '' or u = ''''",
    "a <> 1 and a != 'x' or b >= 2 and b < 3 and c = True and d = false",
    "city in ('b', 'a', 'b') and n not in (3, 1, 2, 1) or n NOT  IN('x')",
    "x between -1 and 1 and y exists or y Absent",
    "p prefix 'ab' and p suffix 'é' and p contains '🦀' and p prefix ''",
    "a = 1 and (b = 2 or c = 3 and d = 4) and (e = 5 or f = 6)",
    "a in (9007199254740993, 9007199254740992, 9007199254740993, 18446744073709551615) and b > -9223372036854775807",
    "a between 9007199254740992 and 9007199254740993 or b != 9223372036854775807",
    "((a = 1)) or (b = 2 or (c = 3 and (d = 4 or e = 5)))",
    "a = 1 and b = 2 or b = 2 and a = 1 or a = 1 and b = 2",
    "a = 1 and a = 1.0 and (a = 1 or b = 2) and a = 2",
    "(a in (1, 2) or a in (2, 1)) and (a = 'x' or a in (2, 1, 1))",
    "tags has 'gpu' and tags any = 'a' and tags ANY == 'a' or has = 1 and any exists or not_ = 1 or android = 2",
    "a any in ('x', 'y') and b any  not in (2, 1) or a any > 3 and b any!=true and c any <> 1 or a has 7",
    "a any prefix 'x' and b ANY suffix '' or c any contains 'it''s' and a any between 1 and 2",
    '"a name" = 1 and "" exists and "é" has \'x\'\t\n\r and "AND" = 2',
    " or ".join(f"area{i} = {i}" for i in range(60)),
    "(a=1 or b=2 or c=3) and (d=1 or e=2 or f=3) and (g=1 or h=2)" + " " * 100,
]
CONDITIONS = [
    "a = 1 and not b = 2",
    "not a = 1",
    "not not not a = 1 or b exists",
    "NOT (a = 1 and not (b = 2 or Not c absent)) and d any = 'x'",
    "a = 1 and not b = 2 and not c = 3 and (d = 4) and (not not e = 5)",
    "a = 1 and (b = 2 and not c = 3) and not (d exists and not e = 5) and not f exists",
    "not (not a = 1 or b = 2 or not c absent)",
    "not (a = 1 or b = 2) or not (a = 1 or (b = 2)) or ((not ((b = 2))))",
    "(a = 1 and b = 2 or not c = 3) and (a = 1 and (b = 2) or not (c = 3)) and x in (3, 1, 2, 1)",
    " and ".join(f"not (a{i} = 1 and b{i} = 2)" for i in range(20)),
    "(" * 60 + "not a = 1" + ")" * 60,
    "not " * 63 + "a = 1",
    "a = 1 and not b wildcard 'x*'",
]
FLAGGED = [
    "not a exists",
    "not (a absent and b exists)",
    "not not a = 1",
    "(" * 70 + "not a = 1" + ")" * 70,
    "not " * 65 + "a = 1",
    "a = 1 and not b regexp 'x+'",
    "a = i 'x' or b in net '10.0.0.0/8'",
    "a = +7",
    "a = .5 or a = 5.",
    "a = 007",
    r"a = 'x\n'",
    '"a""b" = 1',
    "é = 1",
    "a\u00a0= 1",
    "a any contains ('x', 'y')",
    "a any = i 'é'",
    " and ".join(f"a{i} = {i}" for i in range(65)),
    "(" * 40 + "a = 1" + ")" * 40,
    " and ".join(f"(a{i} = 1 or b{i} = 2)" for i in range(9)),
    "(a=1 or b=2 or c=3 or d=4) and (e=1 or f=2 or g=3 or h=4)",
]
BAD = [
    "",
    " ",
    "a",
    "a =",
    "a = 1 or",
    "a = 1 a = 2",
    "(a = 1",
    "a = 1)",
    "()",
    "a = x",
    "a = 'x",
    '"a = 1',
    "a = 1x",
    "a = 1.2.3",
    "a => 1",
    "and = 1",
    "a = null",
    "a not 1",
    "a in ()",
    "a in (1, 'x')",
    "a in (1",
    "a between 2 and 1",
    "a between 9007199254740993 and 9007199254740992",
    "a between 1 or 2",
    "a between 'a' and 'b'",
    "a < true",
    "a prefix 3",
    "a = 18446744073709551616",
    "a = 1e999",
    "a any exists",
    "a any has 'x'",
    "a any any 'x'",
    "a any in (true)",
    "a contains",
    "a containsx 'x'",
]


def row(predicate: str, **members: object) -> bytes:
    return json.dumps({"interface": "i", "predicate": predicate} | members, ensure_ascii=False).encode()


def judged(line: bytes) -> list[Filter] | None:
    try:
        return subscription_filters(parse_json(line))
    except ModelError:
        return None


def scanned(lines: Iterable[bytes]) -> tuple[Subscriptions, list[int], set[int]]:
    """The filters of lines, the line of each, and the lines that are flagged."""
    scanner = SubscriptionScanner()
    flagged = scanner.scan(np.frombuffer(b"".join(line + b"\n" for line in lines), np.uint8))
    found, rows = scanner.take()
    return found, rows.tolist(), {line.line for line in flagged}


def assert_as_judged(lines: list[bytes]) -> set[int]:
    """The lines that are flagged; the others have the filters that `rows` finds."""
    found, rows, flagged = scanned(lines)
    expected = {at: judged(line) for at, line in enumerate(lines) if at not in flagged}
    assert None not in expected.values(), "a bad row was not flagged"
    assert [at for at, filters in expected.items() for each in filters or () for _ in decompose(each)] == rows
    assert Table.from_subscriptions(found) == Table.from_filters(
        item for filters in expected.values() for item in filters or ()
    )
    return flagged


def test_what_is_read() -> None:
    lines = [row(text) for text in [*READ, *CONDITIONS]]
    lines += [row(text, area=[1, 2, 3], id="é\n") for text in [*READ, *CONDITIONS]]
    lines += [json.dumps({"id": 7, "predicate": text, "area": None, "interface": 1}).encode() for text in READ]
    lines.append(row("a=1 or b=2 or c=3", id="x" * 100))
    assert assert_as_judged(lines) == set()


def test_what_is_flagged() -> None:
    assert all(judged(row(text)) for text in FLAGGED)
    assert not any(judged(row(text)) for text in BAD)
    lines = [row(text) for text in [*FLAGGED, *BAD]] + [
        row("a = 1", constraints=None),
        row("a = 1", filters=[]),
        row("a=1", x=1),
    ]
    lines += [
        b'{"interface": "i", "predicate": null}',
        b'{"interface": "i", "predicate": ["a = 1"]}',
        b'{"predicate": "a = 1"}',
    ]
    lines.append(b'{"interface": "i", "predicate": "a = 1", "predicate": "a = 1"}')
    assert assert_as_judged(lines) == set(range(len(lines)))


@pytest.mark.parametrize("escaped", [True, False])
@pytest.mark.untraced
def test_random_and_mutated_predicates(escaped: bool) -> None:
    generator = random.Random(escaped)
    texts = [mutated(generator, predicate(generator)) for _ in range(3000)]
    lines = [json.dumps({"interface": "i", "predicate": text}, ensure_ascii=escaped).encode() for text in texts]
    flagged = assert_as_judged(lines)
    n_good = sum(found is not None for found in map(judged, lines))
    assert n_good > 1000, "the corpus should be of both kinds"
    assert len(lines) - len(flagged) > 0.7 * n_good


NAMES = ["a", "b", "temp", "x.y", "_u", "has", "any", '"é z"', "in", "é"]
VALUES = ["1", "-1", "0", "-0", "1.5", "+7", "1e3", "true", "'t'", "'it''s'", r"'\n'", "'é'", "''", "0.1", "1e999", "t"]


def leaf(generator: random.Random) -> str:
    name, value = (generator.choice(each[:5] if generator.random() < 0.9 else each) for each in (NAMES, VALUES))
    form = generator.choice(
        (
            "{name}{op}{value}",
            "{name} {op} {value}",
            "{name} {word} 'ab'",
            "{name} {list} ({value}, 3,1)",
            "{name} between {low} and 4",
            "{name} {presence}",
            "{name} has 'gpu'",
            "{name} any {op} {value}",
            "{name} any {word} 'ab'",
            "{name} any {list} ({value}, 3,1)",
        )
    )
    op = generator.choice(("=", "==", "!=", "<>", "<", "<=", ">", ">="))
    word = generator.choice(("prefix", "Suffix", "contains"))
    presence, of_list = generator.choice(("exists", "ABSENT")), generator.choice(("in", "not in", "NOT  IN"))
    return form.format(name=name, op=op, value=value, word=word, list=of_list, presence=presence, low=generator.randrange(6))


def predicate(generator: random.Random, depth: int = 0) -> str:
    way = generator.random()
    if depth > 3 or way < 0.5:
        return leaf(generator)
    if way < 0.87:
        inner = [predicate(generator, depth + 1) for _ in range(generator.randrange(2, 4))]
        return (" and " if way < 0.7 else " or ").join(inner)
    return f"({predicate(generator, depth + 1)})" if way < 0.98 else f"not {predicate(generator, depth + 1)}"


def mutated(generator: random.Random, text: str) -> str:
    """A text, of three one with a character more, less or other."""
    if generator.random() < 0.67:
        return text
    at, byte = generator.randrange(len(text) + 1), generator.choice(" ()'\",=<>!\\aé1.\n\t\u00a0or_-+")
    return text[:at] + byte * generator.randrange(2) + text[at + generator.randrange(2) :]
