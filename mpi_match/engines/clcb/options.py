"""Options of CLCB: the parameters of its paper, and our additions."""

from __future__ import annotations

from typing import NamedTuple

from mpi_match.engines.option import Option

CLCB_OPTIONS = (
    Option(
        "runs",
        4,
        "events that share a word of counters, which is zeroed once for all of them; fewer if a filter has more "
        "than 255 constraints",
        "4.3, Reducing memory accesses",
        (1, 2, 4),
    ),
    Option("bloom_bits", 32, "size of a filter's Bloom filter of names, in bits", "4.3, Data structures", (8, 16, 32, 64)),
    Option(
        "bloom_hashes",
        2,
        "bits that a name sets in it; the paper's rates need two. The first is the name's number modulo the size, so with "
        "one bit, as many names as bits are told apart",
        "4.3, Data structures",
        least=1,
        most=4,
    ),
    Option(
        "reset",
        "memset",
        "counters are zeroed by a memset after the last event that shares their words; or by Loc before the first",
        "4.3; memset: ours",
        ("memset", "loc"),
    ),
    Option(
        "areas",
        "rows",
        "areas in memory: x, y and radius of a filter side by side, moved by one copy; or one column each, so that "
        "neighbouring threads read neighbouring values",
        "4.3, Data structures; rows: ours",
        ("rows", "columns"),
    ),
    Option("groups", True, "skip the rows of 256 filters together if none of them passed Loc", "ours"),
)


class ClcbVariant(NamedTuple):
    """The values of CLCB_OPTIONS."""

    runs: int = 4
    bloom_bits: int = 32
    bloom_hashes: int = 2
    reset: str = "memset"
    areas: str = "rows"
    groups: bool = True
