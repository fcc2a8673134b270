"""Plain lines of events, see `ingest.json.flat_gpu`, and lines that are nearly plain."""

from __future__ import annotations

import random

from mpi_match.ingest.rows.flatten import Repeating
from mpi_match.ingest.rows.judge import parse_json
from mpi_match.model import make_filter
from mpi_match.table.table import Table
from mpi_match.table.vocabulary import Vocabulary

OPERANDS = (-7, -0.5, 0, 1, 2, 3, 4.5, 5, 1000, 1001, 123_456, 9_999_999, 1e300, 0.1)
OF_NUMBERS = Table.from_filters(
    [make_filter("i", [["n", op, operand]]) for op in ("<", "=") for operand in OPERANDS]
    + [make_filter("i", [[name, "=", 7]]) for name in ("m", "fifteen letters", "sixteen letters.", "a.b", "é", "q\\", "s")]
    + [make_filter("i", [["s", "=", "text"], ["z", ">", 5], ["d", "exists"]])]
).vocabulary
PLAIN_PAIRS = [
    b'"%s": %s' % (name, value)
    for name in (b"n", b"m", b"fifteen letters", b"a.b", b"d", b"unknown")
    for value in (b"0", b"-0", b"-7", b"3", b"4", b"999", b"1001", b"123456", b"-123457", b"9999999")
]


def plain_line(generator: random.Random, n: int) -> bytes:
    """A plain line with n names, or one of the same name twice."""
    pairs = generator.sample(PLAIN_PAIRS, n)
    return b"{" + generator.choice((b", ", b",")).join(pairs) + b"}"


def is_row(line: bytes) -> bool:
    """Has it no name twice?"""
    return not isinstance(parse_json(line), Repeating)


def integers_among_many_operands() -> tuple[Vocabulary, list[bytes]]:
    """Dense ones, whose codes are in a table by value, and others, which are searched; fractions, and out of range."""
    generator = random.Random(4)
    operands = {
        "dense": [*range(-9, 12), 3.5, -2.25],
        "sparse": [
            *(generator.randrange(-(10**7), 10**7) for _ in range(20)),
            10**7,
            -(10**7),
            -1e300,
            1e300,
            77.5,
            0.5,
            -0.5,
        ],
        "groups": [at + k / 4 for at in (-7_000_000, -30, 9_999_998) for k in range(9)],
        "beyond": [-1e9, 1e9],
    }
    filters = [make_filter("i", [[name, op, each]]) for name, all_ in operands.items() for each in all_ for op in ("<", "=")]
    lines = [
        b'{"%s": %d}' % (name.encode(), value)
        for name, all_ in operands.items()
        for each in all_
        for value in {max(min(int(each) + more, 9_999_999), -9_999_999) for more in (-1, 0, 1)}
    ]
    return Table.from_filters(filters).vocabulary, lines


def nearly_plain_lines() -> list[bytes]:
    """Each byte of plain lines replaced, removed or doubled now and then; and what no writer of integers does."""
    generator = random.Random(2)
    lines = [
        *(b'{"n": %s, "m": 7}' % value for value in NEARLY_INTEGERS),
        *(b'{"%s": 7, "n":3}' % name for name in NEARLY_NAMES),
        *(b'{"n": 1, %s "m": 7}' % b" ".join(b'"x%d": 1,' % i for i in range(n)) for n in (29, 30, 31, 40)),
        *(end.join((b'{"n": 1', b"")) for end in (b"} ", b"}\r", b" }", b",}", b"}}", b"", b"]", b"\n")),
        *(
            b"{%s}" % pair
            for pair in (b"", b" ", b'  "n": 1', b'\t"n": 1', b'"n" : 1', b'"n":  1', b'"n":\t1', b'"n"', b'n": 1')
        ),
        *(plain_line(generator, n) for n in (1, 3, 5) * 10),
    ]
    for _ in range(250):
        line = bytearray(plain_line(generator, 3))
        at = generator.randrange(len(line))
        line[at : at + generator.randrange(2)] = generator.choice(
            (b"", b'"', b"\\", b",", b" ", b"0", b"9", b".", b"e", b"\x80", b"}")
        )
        lines.append(bytes(line))
    return lines


NEARLY_INTEGERS = [
    *(
        b"00",
        b"01",
        b"-00",
        b"-",
        b"--1",
        b"+1",
        b"1.",
        b"1.5",
        b"-0.5",
        b"1e3",
        b"1E3",
        b"12345678",
        b"123456789012345678",
        b"1_",
    ),
    *(b"true", b"null", b'"text"', b"[]", b"{}", b"NaN", b"0x1", b"1 ", b"\xb2", b"9007199254740993", b"-9999999", b"0.1"),
]
NEARLY_NAMES = [
    *(b"", b"n", b"sixteen letters.", b"q\\\\", b"\\u006d", "é".encode(), b"m\x7f", b"m\x1f", b"m\xff", b"m\t", b"n\\"),
    *(b"seventeen letters", b"fifteen letters", b"fourteen bytes", b"eight by", b"nine byte", b"seven b", b"\x00", b"m\x00"),
]
