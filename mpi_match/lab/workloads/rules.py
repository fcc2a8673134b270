r"""Draws rules and events with the shapes of real corpora: conditions, texts in any case, patterns of URLs.

log-rules   detection rules like those of Sigma: a channel, numbers of events, lists of suffixes and words of paths and
            command lines in either case, and exceptions; Windows events of about 2.5 KB, most of it one message with escapes
patterns    patterns like those of EventBridge: prefixes, suffixes, wildcards, numbers, exceptions; nested events of 1 KB
urls        lists of an ad blocker: beginnings of the tails of a URL behind a host's dots, strings in it, types of requests
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Protocol

from mpi_match.languages.rows import Tree, both, either
from mpi_match.model import Json

_SYLLABLES = ("ra", "ten", "mo", "vek", "sil", "dor", "pa", "nix", "gul", "he", "tra", "bon", "cy", "lum", "fe", "zor")
_CHANNELS = ("Security", "System", "Application", *(f"Vendor-{k}/Operational" for k in range(6)))


def _word(generator: random.Random) -> str:
    return "".join(generator.choices(_SYLLABLES, k=generator.randint(2, 4)))


def _words(generator: random.Random, n: int) -> list[str]:
    return [_word(generator) for _ in range(n)]


class Shape(Protocol):
    """Rules and events of one shape; `n_rules` is the usual number of rules."""

    n_rules: int

    def rule(self, k: int) -> Json:
        """Rule number k, as a row of subscriptions."""
        ...

    def event(self, k: int) -> Json:
        """Event number k."""
        ...


class LogRules:
    """`log-rules`, for a generator of random numbers."""

    n_rules = 2000

    def __init__(self, generator: random.Random) -> None:
        self._random = generator
        self._tools, self._flags = _words(generator, 60), _words(generator, 1000)

    def rule(self, k: int) -> Json:
        """Rule number k."""
        draw = self._random
        channel: Tree = ["Channel", "= i", draw.choice(_CHANNELS)]
        numbers: Tree = ["EventID", "in", sorted(draw.sample(range(8), draw.randint(1, 3)))]
        tools = [f"\\{tool}.exe" for tool in draw.sample(self._tools, draw.randint(1, 6))]
        parts: list[Tree] = [channel, numbers, ["Image", "suffix i", tools]]
        some = [draw.sample(self._flags, draw.randint(1, 5)) for _ in range(draw.randint(1, 2))]
        words: list[Tree] = [["CommandLine", "contains i", each] for each in some]
        parts.append(either(words) if draw.random() < 0.3 else both(words))
        if draw.random() < 0.4:
            parts.append({"not": ["ParentImage", "prefix i", f"C:\\Program Files\\{_word(draw)}"]})
        if draw.random() < 0.02:
            parts.append(["Message", "contains i", draw.choice(self._flags)])
        if draw.random() < 0.02:
            parts.append(["CommandLine", "regexp i", draw.choice(self._flags) + r"\s+[0-9a-f]{8,}"])
        return {"interface": f"rule-{k}", "where": both(parts)}

    def event(self, k: int) -> Json:
        """Event number k."""
        draw = self._random
        tool, parent = (f"C:\\Windows\\{_word(draw)}\\{draw.choice(self._tools).upper()}.exe" for _ in range(2))
        command = f'"{tool}" ' + " ".join(f"-{flag} {draw.randrange(999)}" for flag in draw.choices(self._flags, k=6))
        fields = [f"{_word(draw).title()}:\t\t{draw.choice((tool, parent, _word(draw)))}" for _ in range(40)]
        return {
            "RecordNumber": k,
            "Channel": draw.choice(_CHANNELS),
            "EventID": draw.randrange(8),
            "Hostname": f"{_word(draw)}.example.com",
            "Message": "A process has been looked at.\r\n\r\n" + "\r\n\t".join(fields),
            **{f"Field{i}": _word(draw) for i in range(12)},
            "Image": tool,
            "ParentImage": parent,
            "CommandLine": command,
        }


class Patterns:
    """`patterns`, for a generator of random numbers."""

    n_rules = 500

    def __init__(self, generator: random.Random) -> None:
        self._random, self._words = generator, _words(generator, 300)

    def rule(self, k: int) -> Json:
        """Rule number k."""
        draw = self._random
        word = draw.choice(self._words)
        of_text: Tree = draw.choice(
            (
                ["detail.street", "any prefix", word[:3]],
                ["detail.street", "any suffix", word[-3:]],
                ["detail.street", "any = i", word.upper()],
                ["detail.street", "any wildcard", f"*{word[:2]}*{word[-2:]}"],
                {"not": ["detail.street", "any prefix", word[:2]]},
            )
        )
        least = draw.randint(0, 900)
        of_source: Tree = ["source", "any =", draw.choice(self._words[:40])]
        of_number: Tree = ["detail.shape.points.x", "any between", [least, least + 60]]
        return {"interface": f"pattern-{k}", "where": both([of_source, of_text, of_number])}

    def event(self, k: int) -> Json:
        """Event number k."""
        draw = self._random
        points = [{"x": round(draw.uniform(0, 1000), 2), "y": round(draw.uniform(0, 1000), 2)} for _ in range(20)]
        detail = {"street": draw.choice(self._words), "lot": k, "tags": _words(draw, 4), "shape": {"points": points}}
        return {"id": f"{draw.getrandbits(64):016x}", "source": draw.choice(self._words[:40]), "detail": detail}


class Urls:
    """`urls`, for a generator of random numbers."""

    n_rules = 20_000
    _types = ("script", "image", "document", "xmlhttprequest", "stylesheet")

    def __init__(self, generator: random.Random) -> None:
        self._random = generator
        self._hosts = [f"{_word(generator)}.{generator.choice(('com', 'net', 'example.org'))}" for _ in range(20_000)]
        self._paths = _words(generator, 4000)

    def rule(self, k: int) -> Json:
        """Rule number k."""
        draw = self._random
        kind, path = draw.random(), draw.choice(self._paths)
        host = draw.choice(self._hosts)
        if kind < 0.7:
            found: Tree = ["tails", "any prefix", host + draw.choice(("/", f"/{path}/"))]
        else:
            found = ["url", "contains", f"/{path}{draw.choice(('/', '.js?', '_'))}"]
        parts = [found]
        if draw.random() < 0.2:
            parts.append(["type", "in", draw.sample(self._types, 2)])
        if draw.random() < 0.1:
            parts.append({"not": ["page", "has", draw.choice(self._hosts)]})
        return {"interface": "block" if draw.random() < 0.9 else "allow", "where": both(parts)}

    def event(self, k: int) -> Json:
        """Event number k."""
        draw = self._random
        host = f"{_word(draw)}.{draw.choice(self._hosts)}"
        path = "/".join(draw.choices(self._paths, k=draw.randint(1, 5)))
        rest = f"{host}/{path}.js?id={draw.getrandbits(60):x}"
        labels = host.split(".")
        tails = [".".join(labels[i:]) + rest[len(host) :] for i in range(len(labels) - 1)]
        page = draw.choice(self._hosts).split(".")
        pages = [".".join(page[i:]) for i in range(len(page) - 1)]
        return {"url": f"https://{rest}", "tails": tails, "type": draw.choice(self._types), "page": pages}


SHAPES: dict[str, Callable[[random.Random], Shape]] = {"log-rules": LogRules, "patterns": Patterns, "urls": Urls}
"""The classes of rules and events by name."""


def rules_and_lines(name: str, n: int, n_rules: int | None = None) -> tuple[list[Json], bytes]:
    """Subscriptions as rows, and n lines, of one of SHAPES; at most 4,000 lines are distinct."""
    shape = SHAPES[name](random.Random(name))
    rows = [shape.rule(k) for k in range(n_rules or shape.n_rules)]
    distinct = [json.dumps(shape.event(k)).encode() + b"\n" for k in range(min(n, 4000))]
    return rows, b"".join((distinct * -(-n // len(distinct)))[:n])
