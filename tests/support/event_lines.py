"""Lines of events for scanners: every kind of line, their mutants, and the vocabulary and forms that they are read with."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from nested_event_lines import nested_line
from random_rows import random_event, random_subscription

from mpi_match.ingest.rows.judge import PLAIN, EventForm, subscription_filters
from mpi_match.model import Filter, make_filter
from mpi_match.table.table import Table
from mpi_match.table.vocabulary import Vocabulary

FORM = EventForm(("x", "y"), "id")
NAMED_LATER = EventForm(("position.x", "wind"), "name.first")
"""The names of constraints hold coordinates and the id."""


def vocabulary_of_rows(others: Sequence[Filter] = ()) -> Vocabulary:
    generator = random.Random(5)
    found = (subscription_filters(random_subscription(generator)) for _ in range(200))
    more = [
        make_filter("i", [["nested.a.b", "=", 1], ["temp", "=", 0.1], ["temp", ">", 1e300], ["x", "<", 3], ["", "=", "m"]]),
        make_filter("i", [["temp", "<", 5e-324], ["temp", "<=", float("inf")], ["temp", ">", float("-inf")]]),
        make_filter(
            "i", [["city", "contains", "🦀"], ["city", "suffix", "ilan"], ["on", "contains", "l"], ["city", "=", "🦀"]]
        ),
    ]
    asked = ("temp", "city", "x", "y", "id", "tags", "name.first", "name.last", "nested.a.b", "")
    more += [make_filter("i", [[name, "null"]]) for name in asked]
    return Table.from_filters([item for each in found for item in each] + more + [*others]).vocabulary


VOCABULARY = vocabulary_of_rows()
WITH_EVERY_STRING = vocabulary_of_rows([make_filter("i", [["*", op, "a"]]) for op in ("contains i", "=")])

PLAINLY_GOOD = [
    b'{"temp": 25, "city": "Milan", "wind": 0.1, "on": true, "id": "a", "x": 9.190000000000001, "y": 45.4642035}',
    b'{"name": {"first": "Rome", "last": null}, "nested": {"a": {"b": 1, "c": {}}, "d": "x"}, "e": {}}',
    b"{}",
    b' {"temp":-0.0,"city":"","wind":1e-7,"on":false,"x":-0,"y":0.0e5,"id":-0}\t\r',
    '{"city": "\\ud83e\\udd80", "\\u0063ity2": "日本", "é": "\\u00e9", "t\\u0065mp": 3}'.encode(),
    b'{"on": "a\\u0000b\\n\\"\\\\\\/"}',
    '{"city": "🦀 Milan", "é": "é", "\\u65e5": 1, "on": "lan", "a": "Mi"}'.encode(),
    b'{"temp": 5e-324, "wind": 1.7976931348623157e308, "a": 9007199254740992, "id": 12345678901234567890123}',
    b'{"temp": 0.3e1, "wind": 123456789012345678901234567890.5, "a": 0.1000000000000000055511151231257827}',
    b'{"temp": null, "id": null, "x": null, "y": null, "position": {"x": 1.5}}',
    b'{"tags": ["Milan", "", 1, 2.5, true, -0.0, "M\\u0069", "Milan"], "temp": [1, 2], "city" : [ ], "z": [ "x" , false ]}',
    '{"tags": "é", "on": ["é"], "nested": {"tags": ["日本"]}}'.encode(),
    b'{"tags": null, "wind": [0]}',
    b'\xef\xbb\xbf{"temp": 1}',
    b'\x0b\x0c {"": "m", "nested.a.b": 2} \t',
]
GOOD = [
    *PLAINLY_GOOD,
    b'{"scores": 1}',
    b'{"scores": [1, "Milan"]}',
    b'{"tags": [' + b", ".join(b"%d" % i for i in range(2000)) + b"]}",
    b'{"a.b": null, "a": {"b": 1}}',
    b'{"nested": ' * 20 + b"{}" + b"}" * 20,
    b'{"q": ' + b'[{"q": ' * 200 + b"{}" + b"}]" * 200 + b"}",
    b"{" + b", ".join(b'"n%d": %d' % (i, i) for i in range(2000)) + b"}",
    b'{"q": [1, [2, {"a": null}], 1e400, 12345678901234567890123], "q": {"temp": 1, "temp": 2}, "u": "\\ud800"}',
    b'{"tags": [null, ["Milan", [1]], {"x": 1}], "scores": [[1, null], {"y": [2]}, []], "temp": []}',
    b'{"name": [{"first": "Rome", "last": 1}, {"first": ["Mi", null]}, 7, [{"first": true}]]}',
    b'{"nested": [{"a": [{"b": 1}]}]}',
]
BAD = [
    b'{"temp": 1, "temp": 2}',
    b'{"nested": {"a": {"b": 1}}, "nested.a.b": 2}',
    b'{"nested": {"a": {"b": 1}, "a": null}}',
    b'{"temp": [1, [2]]}',
    b'{"tags": [null]}',
    b'{"tags": ["a" "b"]}',
    b'{"tags": ["a",]}',
    b'{"tags": [,]}',
    b'{"tags": [}',
    b'{"tags": ["a"',
    b'{"tags": ["a"}]',
    b'{"tags": [{}]}',
    b'{"tags": ["\\ud800"]}',
    b'{"tags": [9007199254740993]}',
    b'{"x": [1], "y": 2}',
    b'{"temp": 9007199254740993}',
    b'{"temp": 1e400}',
    b'{"temp": 1e-400}',
    b'{"temp": 01}',
    b'{"temp": 1.}',
    b'{"temp": .5}',
    b'{"temp": 1e}',
    b'{"temp": +1}',
    b'{"temp": -}',
    b'{"temp": tr}',
    b'{"temp": nul',
    b'{"temp": "a\tb"}',
    b'{"temp": "a',
    b'{"temp": "\\x41"}',
    b'{"temp": "\\ud800"}',
    b'{"temp": "\\udc00"}',
    b'{"temp": "\\ud800\\u0041"}',
    b'{"temp": "\\u12g4"}',
    b'{"temp": "\xff"}',
    b'{"temp": "\xed\xa0\x80"}',
    b'{"temp": "\xc0\xaf"}',
    b'{"temp": "\xf4\x90\x80\x80"}',
    b'{"temp": 1,}',
    b"{,}",
    b'{"temp" 1}',
    b'{"temp": }',
    b'{"temp": 1} x',
    b'{"temp": 1}}',
    b"{temp: 1}",
    b"[1]",
    b"7",
    b'"a"',
    b"null",
    b'{"x": 1}',
    b'{"x": 1, "y": "a"}',
    b'{"x": 1, "y": true}',
    b'{"id": 1.5}',
    b'{"id": true}',
    b'{"id": [1]}',
    b'\xef\xbb\xbf\xef\xbb\xbf{"temp": 1}',
    b"\xef\xbb",
    b'{"temp": 1}\x0b{"temp": 2}',
]
JUDGED_GOOD = [
    b'{"temp": NaN, "wind": Infinity, "on": -Infinity}',
    b'{"tags": ["a", NaN]}',
    b'{"\\ud800": null}',
    b'{"temp": 9007199254740993.00000000000000000000000000000000001}',
    b'{"city": "' + b"\\n" * 70_000 + b'"}',
]
BLANK = [b"", b" ", b"\t\r", b"\x0b\x0c", b"\xef\xbb\xbf", b"\xef\xbb\xbf \r"]
FORMS = [PLAIN, FORM, NAMED_LATER]

SCRIPTS = (
    "Milano",
    "Ελλάδα",
    "Москва",
    "日本語",
    "हिन्दी",
    "العربية",
    "🦀🚀",
    'quote " and \\ and \n',
    "Zürich",
    "한국어",
    "\u2028",
)
"""Texts in many scripts, some with what JSON escapes."""

TOKENS = [
    *(bytes([byte]) for byte in b'{}[]:,"\\-+.eE0123456789 \t\r\x00\x0b\x7fu/bnatrfls'),
    *(
        b"null",
        b"true",
        b"false",
        b"NaN",
        b"-Infinity",
        b"1e5",
        b"-0",
        b"0.1",
        b"9007199254740993",
        b"1e400",
        b'"a"',
        b"\\u00e9",
    ),
    *(
        b"\\ud83e",
        b"\\udd80",
        b'{"a":',
        b'"temp":',
        b'"id":',
        b'"x":',
        b'"y":',
        b"}}",
        b", ",
        b": ",
        b'""',
        b"\\n",
        b"\\u0000",
    ),
    *(
        b"\xc3\xa9",
        b"\xe6\x97\xa5",
        b"\xf0\x9f\xa6\x80",
        b"\x80",
        b"\xff",
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
        b"\xc3",
        b"\xf0\x9f",
    ),
]


def mutated(generator: random.Random, corpus: list[bytes]) -> bytes:
    """A line of the corpus with a few changes, mostly such that it may still be JSON."""
    line = bytearray(generator.choice(corpus))
    for _ in range(generator.choice((0, 1, 1, 1, 2, 3))):
        at = generator.randrange(len(line) + 1)
        match generator.randrange(6):
            case 0:
                line[at:at] = generator.choice(TOKENS)
            case 1:
                line[at : at + 1] = generator.choice(TOKENS)
            case 2:
                del line[at : at + generator.randint(1, 4)]
            case 3:
                line[at:at] = line[at : at + generator.randint(1, 20)]
            case 4:
                other = generator.choice(corpus)
                line[at:] = other[generator.randrange(len(other) + 1) :]
            case _:
                digits = [i for i, byte in enumerate(line) if byte in b"0123456789"]
                if digits:
                    line[generator.choice(digits)] = generator.choice(b"0123456789eE.-")
    return bytes(line).replace(b"\n", b" ")


_LONG = 1000


def mutated_lines(n: int, seed: int = 19) -> list[bytes]:
    """Mutants of all kinds of lines."""
    generator = random.Random(seed)
    made = (json.dumps(random_event(generator), ensure_ascii=generator.random() < 0.5).encode() for _ in range(300))
    nested = (nested_line(generator) for _ in range(300))
    corpus = [*(line for line in GOOD if len(line) < _LONG), *BAD, *JUDGED_GOOD[:-1], *made, *nested]
    corpus += corpus[: len(GOOD)] * 9
    return [mutated(generator, corpus) for _ in range(n)]
