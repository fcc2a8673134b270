"""A matcher of others, in a few lines, which speaks `docs/other-matchers.md`; its argument says how it fails."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

HOLDS = {"=": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b, ">": lambda a, b: a > b}


def matches(row: dict[str, Any], attributes: dict[str, Any]) -> bool:
    return all(name in attributes and HOLDS[op](attributes[name], operand) for name, op, operand in row["constraints"])


def say(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main(failure: str) -> None:
    lines = (json.loads(line) for line in sys.stdin)
    kept: dict[str, list[Any]] = {}
    for line in lines:
        if isinstance(line, dict):
            ((what, n),) = line.items()
            kept[what] = [next(lines) for _ in range(n)]
            say("read")
        elif line == "build":
            if failure == "dies":
                sys.exit("out of luck")
            say({"error": "there are no such operators"} if failure == "errs" else "built")
        elif line == "match":
            time.sleep(60 if failure == "hangs" else 0)
            say("what?" if failure == "babbles" else "matched")
        else:
            for number, event in enumerate(kept["events"]):
                found = {row["interface"] for row in kept["subscriptions"] if matches(row, event["attributes"])}
                say(sorted(found, reverse=True) if failure != "wrong" or number != 3 else ["nobody"])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
