"""Options of TagMatch: parameters of its paper, what it compares itself with, and our additions."""

from __future__ import annotations

from typing import NamedTuple

from mpi_match.engines.option import Option

VARIANTS = ("hybrid", "cpu", "gpu-plain", "gpu-batched", "prefix-tree")
ON_CPU = ("cpu", "prefix-tree")
PARTITIONED = ("hybrid", "cpu")
MOST_QUERIES = 256
"""A query of a batch has a number of 8 bits in packed results."""

TAGMATCH_OPTIONS = (
    Option(
        "variant",
        "hybrid",
        "partitions are found on the CPU and matched on the GPU; or all on the CPU; or every set is looked at on the GPU, "
        "for one query at a time or for a batch; or a prefix tree of all sets on the CPU",
        "1, table 1",
        VARIANTS,
    ),
    Option("max_p", 200_000, "sets of a partition at the most", "4.3.5, figure 7", least=1),
    Option(
        "queries", 256, "queries of a partition that are matched together at the most", "3.3.1", least=1, most=MOST_QUERIES
    ),
    Option(
        "timeout_ms",
        0.0,
        "a partition's queries, of all batches that are begun, are matched after so long even if they are few; 0: when they "
        "are enough, or an answer is asked for",
        "4.3.4, figure 6",
        least=0,
    ),
    Option("streams", 10, "streams of the GPU", "4.3.3", least=1, most=64),
    Option(
        "prefix", True, "queries without the bits that all sets of a block begin with are passed over for the block", "3.3"
    ),
    Option("launch", 1, "batches of partitions that one launch matches at the most", "ours", least=1, most=4096),
    Option(
        "exact", True, "sets whose signature matches are verified; off, only in bench: false positives", "3", measured=False
    ),
    Option(
        "staged",
        65_536,
        "added filters that are scanned one by one before the engine consolidates by itself",
        "ours",
        least=0,
    ),
)


class TagMatchVariant(NamedTuple):
    """The values of TAGMATCH_OPTIONS."""

    variant: str = "hybrid"
    max_p: int = 200_000
    queries: int = 256
    timeout_ms: float = 0.0
    streams: int = 10
    prefix: bool = True
    launch: int = 1
    exact: bool = True
    staged: int = 65_536
