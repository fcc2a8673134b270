"""Options of BE-Tree."""

from __future__ import annotations

from mpi_match.engines.option import Option

BETREE_OPTIONS = (
    Option(
        "bucket",
        20,
        "most filters of a bucket, beyond which it is divided if it can be; 20 suits the workloads of CCM and CLCB",
        "space partitioning",
        least=1,
        most=100_000,
    ),
    Option(
        "halvings",
        32,
        "most times that the values of a name are halved; 32 ends at single values, 0 turns clustering off",
        "space clustering",
        least=0,
        most=32,
    ),
    Option(
        "area",
        "last",
        "the area of a filter is tested when its constraints are satisfied; or it is constraints on the coordinates, "
        "by which the tree is divided, as in the paper of CLCB",
        "CLCB, table 2",
        ("last", "constraints"),
    ),
)
