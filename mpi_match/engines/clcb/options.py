"""Options of CLCB: parameters of its paper, and our additions."""

from __future__ import annotations

from typing import NamedTuple

from mpi_match.engines.option import Option

CLCB_OPTIONS = (
    Option(
        "runs",
        4,
        "events that share the words of counters, which are set to zero once for all of them; fewer where a filter has more "
        "than 255 constraints",
        "4.3, Reducing memory accesses",
        (1, 2, 4),
    ),
    Option("bloom_bits", 32, "bits of a filter's Bloom filter of names", "4.3, Data structures", (8, 16, 32, 64)),
    Option(
        "bloom_hashes",
        2,
        "bits that a name sets in it; the paper's rates need two. The first is the name's number modulo the bits, so with "
        "one, names are told apart up to the number of bits",
        "4.3, Data structures",
        least=1,
        most=4,
    ),
    Option(
        "reset",
        "memset",
        "counters are set to zero by a memset behind the last event that shares their words; or by Loc, before the first",
        "4.3; memset: ours",
        ("memset", "loc"),
    ),
    Option(
        "areas",
        "rows",
        "areas in memory: x, y and radius of a filter side by side, which one copy moves; or a column of each, of which "
        "threads read neighbours",
        "4.3, Data structures; rows: ours",
        ("rows", "columns"),
    ),
    Option("groups", True, "rows of 256 filters of which Loc left none are passed over together", "ours"),
)


class ClcbVariant(NamedTuple):
    """The values of CLCB_OPTIONS."""

    runs: int = 4
    bloom_bits: int = 32
    bloom_hashes: int = 2
    reset: str = "memset"
    areas: str = "rows"
    groups: bool = True
