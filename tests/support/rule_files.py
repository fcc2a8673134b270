"""Writes rules and events of our own, with the shapes of real ones, in the form of rule languages:

    python tests/support/rule_files.py DIRECTORY

    sigma/           detection rules of Sigma, those of `log-rules` (`lab.workloads.rules`), and some of keywords
    windows.jsonl    their events, of 2.5 KB
    eventbridge/     patterns of EventBridge, those of `patterns`
    cloud.jsonl      their events, of 1 KB

`mpi-match bench --rules DIRECTORY/sigma --language sigma --events DIRECTORY/windows.jsonl` measures the first.
"""

from __future__ import annotations

import json
import random
import sys
import uuid
from pathlib import Path
from typing import Any

from mpi_match.lab.workloads.rules import rules_and_lines

EVENTS, ONE_IN = 40_000, 40
"""Number of events of each kind; one in so many rules of Sigma asks for keywords, too."""
_MODIFIERS = {
    "= i": "",
    "in": "",
    "suffix i": "|endswith",
    "prefix i": "|startswith",
    "contains i": "|contains",
    "regexp": "|re",
    "regexp i": "|re|i",
}


def _parts(where: Any, join: str) -> list[Any]:
    """The parts of a condition with `and` or `or`, to any depth; the condition itself if it is another."""
    if isinstance(where, dict) and join in where:
        return [each for part in where[join] for each in _parts(part, join)]
    return [where]


def sigma_rule(row: dict[str, Any], keywords: list[str]) -> dict[str, Any]:
    """The rule of Sigma that asks for what a row of `log-rules` does, and for one of some keywords, if there are any."""
    detection: dict[str, Any] = {}
    asked: list[str] = []
    for part in _parts(row["where"], "and"):
        name = f"part{len(asked)}"
        is_not = isinstance(part, dict) and "not" in part
        of_part = [part["not"]] if is_not else _parts(part, "or")
        detection[name] = [{f"{field}{_MODIFIERS[op]}": operand} for field, op, operand in of_part]
        asked.append(f"not {name}" if is_not else name)
    if keywords:
        detection["keywords"] = keywords
        asked.append("keywords")
    return {
        "title": row["interface"],
        "id": str(uuid.uuid5(uuid.NAMESPACE_URL, row["interface"])),
        "logsource": {"product": "windows"},
        "detection": {**detection, "condition": " and ".join(asked)},
    }


def eventbridge_rule(row: dict[str, Any]) -> dict[str, Any]:
    """The pattern of EventBridge that asks for what a row of `patterns` does, but for events with nothing at `not`."""
    pattern: dict[str, Any] = {}
    for part in row["where"]["and"]:
        is_not = isinstance(part, dict)
        name, op, operand = part["not"] if is_not else part
        *path, last = name.split(".")
        at = pattern
        for step in path:
            at = at.setdefault(step, {})
        if op == "any between":
            at[last] = [{"numeric": [">=", operand[0], "<=", operand[1]]}]
        elif op == "any =":
            at[last] = [operand]
        else:
            said = {"any = i": "equals-ignore-case"}.get(op, op.removeprefix("any "))
            at[last] = [{"anything-but": {said: operand}} if is_not else {said: operand}]
    return {"name": row["interface"], "pattern": pattern}


def write(directory: Path, n_events: int = EVENTS, n_rules: int | None = None) -> None:
    """Write the rules and events; the usual number of rules, or `n_rules` of each language."""
    draw = random.Random("keywords")
    rows, events = rules_and_lines("log-rules", n_events, n_rules)
    words = sorted(
        {word for event in events.splitlines()[:200] for word in json.loads(event)["CommandLine"].split() if "-" in word}
    )
    for language in ("sigma", "eventbridge"):
        (directory / language).mkdir(parents=True, exist_ok=True)
    for k, row in enumerate(rows):
        keywords = [word.lstrip("-") for word in draw.sample(words, 5)] if k % ONE_IN == 0 else []
        (directory / "sigma" / f"{row['interface']}.yml").write_text(json.dumps(sigma_rule(row, keywords), indent=1))
    (directory / "windows.jsonl").write_bytes(events)
    rows, events = rules_and_lines("patterns", n_events, n_rules)
    patterns = "".join(json.dumps(eventbridge_rule(row)) + "\n" for row in rows)
    (directory / "eventbridge" / "patterns.jsonl").write_text(patterns)
    (directory / "cloud.jsonl").write_bytes(events)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
