"""Lines that no scenario draws: long log lines, and strings that contain others.

contains    10,637 filters, each of one word that `text` may contain; strings of 100 bytes, one in four with such a word
logs        2 KB of a service's log, nested; 50 filters on one name
log-texts   the same; 2,000 filters of `contains`, `suffix` and `prefix` on five names
wide        11 KB of an inventory; 2 filters on its first object
log-rules   Windows events of 2.5 KB and 2,000 detection rules, patterns and urls: see `lab.workloads.rules`
otrf        Windows events (sigma/events.jsonl.xz); 2 filters
easylist    requests and rules of an ad blocker (easylist), with `any prefix` and `has` on lists
citylots    city lots with coordinates as lists of objects, and rules like those of event-ruler's benchmark, with `any`

The last three are real data, read from a folder of corpora.
"""

from __future__ import annotations

import gzip
import json
import lzma
import random
from pathlib import Path
from typing import Any

import numpy as np

from mpi_match.lab.workloads.rules import SHAPES, rules_and_lines
from mpi_match.model import Json
from mpi_match.storage import StorageError

CONTAINS = "contains"
MADE = (CONTAINS, "logs", "log-texts", "wide", *SHAPES, "otrf", "easylist", "citylots")
"""The names above."""
_N_WORDS, _CONTAINER_BYTES = 10_637, 100
_WORDS = [
    "request", "completed", "upstream", "timeout", "connection", "reset", "by", "peer", "while",
    "reading", "response", "header", "from", "cache", "miss", "for", "key", "retrying",
    "with", "backoff", "user", "session", "expired", "token", "refreshed",
]  # fmt: skip
_SERVICES = [f"service-{i}" for i in range(200)]


def _text(generator: random.Random, n: int) -> str:
    return " ".join(generator.choices(_WORDS, k=n))


def _hex(generator: random.Random, n: int) -> str:
    return f"{generator.getrandbits(4 * n):0{n}x}"


def _log(generator: random.Random, i: int) -> Json:
    return {
        "@timestamp": f"2026-03-{1 + i % 28:02}T{i % 24:02}:{i % 60:02}:{i * 7 % 60:02}.{i % 1000:03}Z",
        "service": generator.choice(_SERVICES),
        "level": generator.choice(["INFO", "INFO", "INFO", "WARN", "ERROR", "DEBUG"]),
        "message": _text(generator, 30),
        "trace": {"id": _hex(generator, 32), "span": {"id": _hex(generator, 16), "parent": None}},
        "host": {
            "name": f"node-{generator.randrange(5000)}.eu-west.example.com",
            "ip": [f"10.{generator.randrange(256)}.{generator.randrange(256)}.{generator.randrange(256)}"],
            "os": {"family": "linux", "kernel": "6.8.0-45-generic"},
        },
        "kubernetes": {
            "namespace": generator.choice(["payments", "search", "catalogue"]),
            "pod": {"name": f"api-{_hex(generator, 10)}", "uid": _hex(generator, 32)},
            "labels": {"app": "api", "tier": "backend", "version": f"v{generator.randrange(40)}.{generator.randrange(10)}"},
            "containers": [{"name": "api", "restarts": generator.randrange(4)}],
        },
        "http": {
            "request": {
                "method": generator.choice(["GET", "POST", "PUT"]),
                "path": f"/api/v2/orders/{generator.randrange(10**9)}/items?sort=asc&limit={generator.randrange(100)}",
                "headers": {"accept": "application/json", "user-agent": "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101"},
                "bytes": generator.randrange(10**5),
            },
            "response": {"status": generator.choice([200, 200, 204, 404, 500]), "bytes": generator.randrange(10**6)},
            "duration_ms": round(generator.expovariate(0.02), 3),
        },
        "error": {"type": "TimeoutError", "stack": [f"  at {_text(generator, 9)} (main.go:{k * 17})" for k in range(4)]},
        "extra": {"tags": generator.sample(_WORDS, 3), "note": _text(generator, 60), "seq": i, "big": 2**63 + i},
    }


def _wide(generator: random.Random, i: int) -> Json:
    parts = [
        {
            "id": _hex(generator, 12),
            "price": {"amount": round(generator.random() * 1000, 2), "currency": "EUR"},
            "stock": [generator.randrange(100) for _ in range(4)],
            "name": _text(generator, 6),
            "active": generator.random() < 0.5,
        }
        for _ in range(66)
    ]
    return {"image": {"width": i % 800, "title": _text(generator, 3), "ids": [1, i]}, "parts": parts, "next": None}


def _constraints(generator: random.Random) -> list[Any]:
    name = generator.choice(["message", "service", "http.request.path", "host.name", "extra.note"])
    word = generator.choice(_WORDS)
    op = generator.choice(["contains", "suffix", "prefix"])
    return [
        name,
        op,
        f"{word} {generator.choice(_WORDS)}" if generator.random() < 0.7 else f"{word}{generator.randrange(99)}",
    ]


def _number(text: list[Any]) -> list[list[Any]]:
    pairs = list(zip(text[::2], text[1::2], strict=True))
    return [[f"any {op}", value] for op, value in pairs]


def _of_pattern(name: str, pattern: Json) -> list[list[Any]] | None:
    """The constraints of an event-ruler pattern, `any` on every field; None if filters lack one of its operators."""
    found: list[list[Any]] = []
    for key, value in pattern.items():
        inner = f"{name}.{key}" if name else key
        if isinstance(value, dict):
            more = _of_pattern(inner, value)
            if more is None:
                return None
            found += more
            continue
        [item] = value
        if not isinstance(item, dict):
            found.append([inner, "any =", item])
            continue
        [(kind, operand)] = item.items()
        if kind == "numeric":
            found += [[inner, *each] for each in _number(operand)]
        elif kind in ("prefix", "suffix") and isinstance(operand, str):
            found.append([inner, f"any {kind}", operand])
        elif kind == "anything-but" and isinstance(operand, list):
            found.append([inner, "any not in", operand])
        else:
            return None
    return found


def _contained(n_lines: int, n_words: int) -> tuple[list[Json], bytes]:
    generator = random.Random(0)
    words: set[str] = set()
    while len(words) < n_words:
        words.add("".join(generator.choices("abcdefghijklmnopqrstuvwxyz/.-=0123456789", k=generator.randrange(6, 25))))
    ordered = sorted(words)
    rows = [{"interface": f"i{k % 500}", "constraints": [["text", "contains", word]]} for k, word in enumerate(ordered)]
    letters = np.random.default_rng(0).integers(ord("a"), ord("z") + 1, (n_lines, _CONTAINER_BYTES), np.uint8)
    for line in range(0, n_lines, 4):
        word = generator.choice(ordered).encode()
        at = generator.randrange(_CONTAINER_BYTES - len(word))
        letters[line, at : at + len(word)] = list(word)
    before, after = (np.tile(list(part), (n_lines, 1)).astype(np.uint8) for part in (b'{"text": "', b'"}\n'))
    return rows, np.hstack([before, letters, after]).tobytes()


def made_lines(what: str, n: int, corpora: Path, n_words: int | None = None) -> tuple[list[Json], bytes]:
    """Subscriptions as rows, and about `n` lines, of one of MADE; `n_words` filters of CONTAINS, or of SHAPES.

    Raises StorageError where `corpora` lacks the data.
    """
    if what == CONTAINS:
        return _contained(n, n_words or _N_WORDS)
    if what in SHAPES:
        return rules_and_lines(what, n, n_words)
    try:
        return _long_lines(what, n, corpora)
    except OSError as error:
        raise StorageError(
            f"{error.filename}: cannot be read; --corpora names the folder with the data of {what}"
        ) from error


def _long_lines(what: str, n: int, corpora: Path) -> tuple[list[Json], bytes]:
    generator = random.Random(what.partition("-")[0])
    rows: list[dict[str, Any]]
    if what in ("logs", "log-texts", "wide"):
        make = _wide if what == "wide" else _log
        distinct = [json.dumps(make(generator, i)).encode() + b"\n" for i in range(min(n, 2000))]
        lines = b"".join(distinct) * -(-n // len(distinct))
        if what == "log-texts":
            rows = [{"interface": f"i{k % 50}", "constraints": [_constraints(generator)]} for k in range(2000)]
        elif what == "wide":
            rows = [{"interface": k, "constraints": [["image.width", "=", 100 * k]]} for k in (1, 2)]
        else:
            rows = [{"interface": f"i{k}", "constraints": [["service", "=", _SERVICES[3 * k]]]} for k in range(50)]
        return rows, lines
    if what == "otrf":
        lines = lzma.decompress((corpora / "sigma" / "events.jsonl.xz").read_bytes())
        return [{"interface": k, "constraints": [["EventID", "=", k]]} for k in (4673, 5156)], lines
    if what == "easylist":
        lines = (corpora / "easylist" / "events.jsonl").read_bytes()
        text = gzip.decompress((corpora / "easylist" / "subscriptions.jsonl.gz").read_bytes())
        rows = [json.loads(line) for line in text.splitlines()]
    else:
        lines = gzip.decompress((corpora / "citylots" / "events.jsonl.gz").read_bytes())
        rules = gzip.decompress((corpora / "citylots" / "rules.jsonl.gz").read_bytes())
        patterns = [(rule["name"], _of_pattern("", rule["rule"])) for rule in map(json.loads, rules.splitlines())]
        rows = [{"interface": name, "constraints": found} for name, found in patterns if found is not None]
    return rows, lines * -(-n // lines.count(b"\n"))
