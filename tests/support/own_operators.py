"""Runs an operator of its own through every engine and reader: `own_operators.py interval`, `atom` or `judged`.

It follows the recipe of docs/contributing.md, "An operator", in a process of its own: the operators are there before any
other module of the package is loaded.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from mpi_match.operators import OPERATORS, Anchor, Form, Op, Operator, Takes, Type


def member(name: str, number: int) -> Op:
    """A new member of `Op`: the line `NAME = number` of the recipe."""
    op = int.__new__(Op, number)
    op._name_, op._value_ = name, number
    Op._member_map_[name], Op._value2member_map_[number] = op, op
    return op


def inside(value: Any, bounds: Any) -> bool:
    return bool(bounds[0] < value < bounds[1])


BOTH, TEXT = frozenset({Type.NUMBER, Type.STRING}), frozenset({Type.STRING})
RECORDS = {
    "interval": Operator("inside", Form.WITHIN, BOTH, inside, Takes.BOUNDS, (True, True), element=b"(", spellings=("<<",)),
    "atom": Operator(
        "tail", Form.ATOM, TEXT, lambda value, end: value.endswith(end), anchor=Anchor.END, element=b"t", spellings=(">>",)
    ),
    "judged": Operator("like", Form.ATOM, TEXT, lambda value, text: value.lower() == text.lower(), element=b"l"),
}
NUMBER_OF_ITS_OWN = max(Op) + 1
CONSTRAINTS: dict[str, list[list[Any]]] = {
    "interval": [
        ["x", "inside", [1, 3]],
        ["x", "inside", ["b", "d"]],
        ["tags", "any inside", [1, 3]],
        ["tags", "any inside", ["b", "d"]],
        ["x", "null"],
    ],
    "atom": [
        ["x", "tail", "c"],
        ["x", "tail", "bc"],
        ["x", "contains", "b"],
        ["x", "null"],
        ["y", "tail", "c"],
        ["tags", "any tail", "c"],
    ],
    "judged": [
        ["x", "like", "Bc"],
        ["x", "contains", "b"],
        ["x", "null"],
        ["y", "like", "ABC"],
        ["tags", "any like", "Bc"],
    ],
}
PREDICATES = {
    "interval": "x inside 1 and 3 or x << 'c' and 'd' and tags any inside 'b' and 'd'",
    "atom": "x tail 'c' or x >> 'bc' and tags any tail 'bC'",
    "judged": "x like 'Bc' and tags any like 'bC'",
}
VALUES: list[Any] = [
    0,
    1,
    1.5,
    2,
    3,
    4,
    "",
    "a",
    "b",
    "bc",
    "BC",
    "abc",
    "c",
    "cc",
    "d",
    "e",
    True,
    None,
    [],
    [1, 2],
    ["b", "bC"],
]


def subscriptions(kind: str) -> list[dict[str, Any]]:
    """Each constraint alone, each pair of them, some beside others, and a predicate."""
    own = CONSTRAINTS[kind]
    filters = [[each] for each in own] + [[a, b] for a in own for b in own if a is not b]
    filters += [[each, ["y", "=", 1]] for each in own] + [[each, ["y", "absent"]] for each in own] + [[["x", "=", "bc"]]]
    rows: list[dict[str, Any]] = [{"interface": f"i{k}", "constraints": each} for k, each in enumerate(filters)]
    return [*rows, {"interface": "text", "predicate": PREDICATES[kind]}]


def events() -> list[dict[str, Any]]:
    rows = [{name: value} for name in ("x", "tags") for value in VALUES]
    rows += [{"x": a, "tags": b} for a in VALUES for b in VALUES[::3]]
    return [*rows, *({**row, "y": y} for row in rows[::4] for y in (1, "abc")), {}]


def check(kind: str, folder: Path) -> None:
    """Compare every engine and every reader with the naive matcher."""
    import numpy as np

    from mpi_match import LiveMatcher, RowMatcher, make_batch, make_event, make_table, match_naive, open_engine
    from mpi_match.engines import REGISTRY
    from mpi_match.errors import EngineError
    from mpi_match.ingest.json.subscription_scanner import SubscriptionScanner
    from mpi_match.ingest.rows.judge import subscription_filters
    from mpi_match.ingest.rows.to_json import subscription_rows
    from mpi_match.table.subscriptions import Subscriptions
    from mpi_match.table.table import Table

    rows, given = subscriptions(kind), events()
    filters = [item for row in rows for item in subscription_filters(row)]
    expected = [match_naive(filters, make_event(row)) for row in given]
    assert sum(map(bool, expected)) > 50, "the operators decide something"
    table = make_table(rows)
    assert [match_naive(table.iter_filters(), make_event(row)) for row in given] == expected, "the table says the same"

    # readers of subscriptions: rows judged (above) and compiled, what a table was saved as, and rows written from it
    lines = folder / "subscriptions.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert make_table(lines) == table
    scanner = SubscriptionScanner()
    flagged = scanner.scan(np.frombuffer(bytearray(lines.read_bytes()), np.uint8))
    compiled = [
        row
        for row in rows
        if "predicate" not in row and not any(c[1].startswith("any") or c[1] == "inside" for c in row["constraints"])
    ]
    assert len(flagged) <= len(rows) - len(compiled), "compiled code reads operators of the usual form"
    table.save(folder / "table.h5")
    assert Table.load(folder / "table.h5") == table
    assert make_table(list(subscription_rows(Subscriptions.of(table.iter_filters())))) == table

    # readers of events
    path = folder / "events.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in given))
    batches = {"rows": make_batch(table, given), "lines": make_batch(table, path), "scanned": scanned(table, path)}
    plain = [{**row} for row in given if not any(isinstance(value, list) for value in row.values())]
    texts = {
        name: [row.get(name) if isinstance(row.get(name), str) else None for row in given] for name in ("x", "y", "tags")
    }
    of_texts = [match_naive(filters, make_event({n: v[i] for n, v in texts.items()})) for i in range(len(given))]

    ran = []
    for name in REGISTRY:
        try:
            engine = open_engine(name, table)
        except EngineError as error:
            sys.stdout.write(f"{name} refuses: {error}\n")
            continue
        ran.append(name)
        for how, batch in batches.items():
            answers = engine.match(batch).labels(table.labels)
            assert [*answers] == expected, (name, how)
        assert [*engine.match(make_batch(table, texts)).labels(table.labels)] == of_texts, (name, "columns")
        matcher = RowMatcher(table, engine)
        assert [matcher.match(json.dumps(row).encode()) for row in plain[:30]] == [
            match_naive(filters, make_event(row)) for row in plain[:30]
        ], name
    assert {"reference", "counting", "sff", "betree", "keyed", "twophase"} <= set(ran), ran

    # changes: without new operands, and with
    half = len(rows) // 2
    for expected_rows in (rows, ()):
        live = LiveMatcher(rows[:half], engine="keyed", expected=expected_rows)
        live.update([{"add": row} for row in rows[half:]])
        assert live.match(given) == expected
        live.update([{"remove_interface": row["interface"]} for row in rows[:half]])
        rest = [item for row in rows[half:] for item in subscription_filters(row)]
        assert live.match(given) == [match_naive(rest, make_event(row)) for row in given]
    sys.stdout.write(f"ran {' '.join(ran)}\n")


def scanned(table: Any, path: Path) -> Any:
    """The events of a file of lines as compiled code reads them."""
    import numpy as np

    from mpi_match.ingest.files.blocks import LineBlock
    from mpi_match.ingest.json.event_scanner import EventScanner
    from mpi_match.ingest.rows.judge import EventForm

    rejects: list[Any] = []
    block = LineBlock(np.frombuffer(bytearray(path.read_bytes()), np.uint8), str(path), 1)
    found = EventScanner(table.vocabulary, EventForm()).scan(block, rejects)
    assert not rejects
    return found.batch


if __name__ == "__main__":
    own = RECORDS[sys.argv[1]]
    OPERATORS[member(own.symbol.upper(), NUMBER_OF_ITS_OWN)] = own
    with tempfile.TemporaryDirectory() as made:
        check(sys.argv[1], Path(made))
