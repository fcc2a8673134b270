"""A small table with one of everything; `docs/format.md` prints its arrays as the worked example."""

from __future__ import annotations

from typing import Any

from mpi_match.model import Filter, make_filter, whole_condition
from mpi_match.table.scopes import is_scope, with_scopes


def example_filters() -> list[Filter]:
    """Four filters on two interfaces: numbers, strings, a boolean, a prefix, an atom, a set, absence, an area and an id."""
    return [
        make_filter("mobile-7", [["city", "=", "Milan"], ["temp", ">", 30]]),
        make_filter("mobile-7", [["city", "prefix", "Mi"], ["temp", "between", [20, 30]]], [9.2, 45.5, 1.0], "summer"),
        make_filter("desk", [["temp", "in", [20, 25]], ["city", "contains", "la"]]),
        make_filter("desk", [["alarm", "=", True], ["city", "absent"]]),
    ]


def filters_of_integers() -> list[Filter]:
    """Filters on integers that share their nearest doubles, and on elements that do."""
    near = [2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, 2.0**63, 2**63 + 1, 2**64 - 1, 2.0**64, -(2**63), -(2**63) + 1]
    return [
        *(make_filter(f"i{i}", [["uid", op, n]]) for i, n in enumerate(near) for op in ("=", "!=", "<", ">=")),
        *(make_filter(f"any{i}", [["uid", f"any {op}", n]]) for i, n in enumerate(near) for op in ("=", "!=", "<", ">=")),
        make_filter("list", [["uid", "in", near[:5]], ["uid", "any in", near[5:]], ["uid", "any not in", near[::2]]]),
        make_filter("range", [["uid", "between", near[2:4]], ["uid", "any between", near[4:6]]]),
    ]


def content(item: Filter) -> Any:
    """The content of a filter, with its constraints sorted; `consistent` only if it asks for scopes."""
    asks = any(is_scope(each.name) for each in whole_condition(with_scopes(item)).leaves())
    return item._replace(constraints=tuple(sorted(item.constraints, key=repr)), consistent=asks)
