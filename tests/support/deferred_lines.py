"""Lines whose texts a GPU defers (`gpu.deferred_texts`), and filters on them: every relation of texts, views, elements and
all strings."""

from __future__ import annotations

import json
import random

from mpi_match.model import make_filter
from mpi_match.table.table import Table

_OF_TEXTS: list[tuple[str, str, object]] = [
    ("city", "contains", "ila"),
    ("city", "contains", "i"),
    ("city", "suffix i", "AN"),
    ("city", "=", "Milan"),
    ("name.first", "regexp", "^[A-Z]o+"),
    ("name.first", "wildcard i", "*n\u00c9*"),
    ("city2", "prefix i", "\u65e5"),
    ("tags", "any contains", "b"),
    ("tags", "any =", "b"),
    ("tags", "any in i", ["A", "milan"]),
    ("on", "contains", "\n"),
    ("on", "=", True),
    ("temp", "<", 30),
    ("id", "in net", "10.0.0.0/8"),
    ("id", "before", "2026-01-01T00:00:00Z"),
    ("log", "contains i", "c:\\users\\Public"),
    ("log", "regexp i", "run(32|dll)? /[a-z]"),
    ("log", "suffix i", "\u00e9t\u00e9"),
    ("*", "contains i", "MI"),
    ("*", "any suffix", "a"),
]
OF_TEXTS = Table.from_filters([make_filter(f"{k}", [each]) for k, each in enumerate(_OF_TEXTS)])
_PIECES = (
    "C:\\Users\\Public",
    "c:\\uSers\\public\\a",
    "run32 /a",
    'RUNDLL /Z"',
    "\u00e9t\u00e9",
    "\u00c9T\u00c9",
    "Mi",
    "\t",
    "x" * 40,
    " ",
)


def log_lines(n: int, seed: int) -> list[bytes]:
    """n lines with texts of 0 to some thousand bytes, with escapes or without."""
    chosen = random.Random(seed)

    def text() -> str:
        return "".join(chosen.choices(_PIECES, k=chosen.choice((0, 1, 2, 5, 30, 200))))

    rows = [{"log": text(), "city": text(), "other": [text(), chosen.random()], "tags": [text(), "b"]} for _ in range(n)]
    return [json.dumps(row, ensure_ascii=chosen.random() < 0.5).encode() for row in rows]


UNCERTAIN = [
    b'{"city": "a\\ud800b"}',
    b'{"log": "' + b"ab" * 40_000 + b'\\n"}',
    b'{"tags": [%s]}' % b", ".join([b'"b"'] * 500),
    b'{"on": "Milan"}\x0b',
    b' \x0c{"on": "Milan"}',
]
"""Lines with a text that is not certain, or longer than there is room for, one of too many texts, and some between bytes
that Python strips but JSON does not know."""
MORE = [
    b'{"id": "10.1.2.3", "on": "a\\nb", "city": "", "tags": ["b", "MILAN", 3, null, "a\\u00e9"]}',
    b'{"id": "2025-12-31T00:00:00Z", "city": "%s"}' % (b"Milan" * 200),
]
