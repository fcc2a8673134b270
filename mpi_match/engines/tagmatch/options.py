"""Options of TagMatch: the parameters of its paper, the systems it is compared with, and our additions."""

from __future__ import annotations

from typing import NamedTuple

from mpi_match.engines.option import Option

VARIANTS = ("hybrid", "cpu", "gpu-plain", "gpu-batched", "prefix-tree")
ON_CPU = ("cpu", "prefix-tree")
PARTITIONED = ("hybrid", "cpu")
PIVOTS = ("half", "frequent")
MOST_QUERIES = 256
"""Most queries in a batch: packed results number them with 8 bits."""

TAGMATCH_OPTIONS = (
    Option(
        "variant",
        "hybrid",
        "find partitions on the CPU and match them on the GPU; or do both on the CPU; or test every set on the GPU, "
        "for one query or for a batch; or search a prefix tree of all sets on the CPU",
        "1, table 1",
        VARIANTS,
    ),
    Option("max_p", 200_000, "most sets in a partition", "4.3.5, figure 7", least=1),
    Option(
        "pivot",
        "half",
        "bit that divides a small subset whose sets share none: that which most nearly half of them have, as in every other "
        "division; or the most frequent one, which makes fewer partitions",
        "4.3.1, algorithm 1",
        PIVOTS,
    ),
    Option("queries", 256, "most queries of a partition that are matched together", "3.3.1", least=1, most=MOST_QUERIES),
    Option(
        "timeout_ms",
        0.0,
        "longest wait of a partition's queries before they are matched even if they are few; 0: wait until they fill a "
        "batch or an answer is requested",
        "4.3.4, figure 6",
        least=0,
    ),
    Option(
        "streams",
        10,
        "CUDA streams that match batches in parallel, each with a thread; at most half as many as CPU threads",
        "4.3.3",
        least=1,
        most=64,
    ),
    Option("prefix", True, "skip, for a block of sets, the queries that lack the common prefix of the sets", "3.3"),
    Option("launch", 1, "most batches of partitions in one launch", "ours", least=1, most=4096),
    Option(
        "exact", True, "verify sets whose signature matches; off, only in bench: allow false positives", "3", measured=False
    ),
    Option(
        "staged",
        65_536,
        "most added filters that are scanned one by one before the engine consolidates automatically",
        "ours",
        least=0,
    ),
)


class TagMatchVariant(NamedTuple):
    """The values of TAGMATCH_OPTIONS."""

    variant: str = "hybrid"
    max_p: int = 200_000
    pivot: str = "half"
    queries: int = 256
    timeout_ms: float = 0.0
    streams: int = 10
    prefix: bool = True
    launch: int = 1
    exact: bool = True
    staged: int = 65_536
