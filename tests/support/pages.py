"""The fenced blocks of a page, and the commands in them.

A fenced `console` block after an HTML comment `<!-- run: NAME -->` is run: `$ ` begins a command, `> ` goes on with it, the
other lines are what it prints (standard output and error).  What differs from run to run (times, rates, how Spark divided a
file, which engine is the fastest here) is replaced on both sides before they are compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent.parent
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")

LINES_OF_CHANCE = (
    (re.compile(r"^compil(?:ed|ing) for this machine.*\n", re.MULTILINE), ""),
    (re.compile(r"\b\d[\d.,]* (µs|ms|s)\b"), "TIME"),
    (re.compile(r"\b\d[\d.,]* ([kMG] )?events/s"), "RATE"),
    (re.compile(r"; [a-z_]+ on .+, (?=\d+ workers?)"), "; ENGINE, "),
    (re.compile(r"\d[\d,]* bytes( in \d+ parts)?, digest \w+"), "SIZE"),
)


class Block(NamedTuple):
    """A fenced block: its language, the name it is to be run under (or ""), its lines."""

    language: str
    run: str
    lines: list[str]


class Step(NamedTuple):
    """A command, and its output on the page."""

    command: str
    shown: list[str]


def blocks_of(page: str) -> Iterator[Block]:
    for found in re.finditer(r"(?:^<!-- run: (\S+) -->\n)?^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        yield Block(found[2], found[1] or "", found[3].splitlines())


def section_of(page: str, title: str) -> str:
    """The text under a heading, of any level, up to the next one of the same or a higher level."""
    heading = re.search(rf"^(#+) {re.escape(title)}\n", page, re.MULTILINE)
    assert heading is not None, f"the page has no heading {title!r}"
    rest = page[heading.end() :]
    after = re.search(rf"^#{{1,{len(heading[1])}}} ", rest, re.MULTILINE)
    return rest[: after.start()] if after else rest


def steps_of(lines: list[str]) -> list[Step]:
    steps: list[Step] = []
    for line in lines:
        if line.startswith("$ "):
            steps.append(Step(line[2:], []))
        elif line.startswith("> ") and not steps[-1].shown:
            steps[-1] = Step(f"{steps[-1].command}\n{line[2:]}", [])
        else:
            steps[-1].shown.append(line)
    return steps


def without_chance(text: str) -> list[str]:
    for pattern, name in LINES_OF_CHANCE:
        text = pattern.sub(name, text)
    return text.rstrip("\n").split("\n") if text else []
