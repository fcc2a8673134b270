"""Options of Siena Fast Forwarding: the parameter of its preprocessing."""

from __future__ import annotations

from mpi_match.engines.option import Option

SFF_OPTIONS = (
    Option(
        "rounds",
        10,
        "names of the selectivity table that are looked up in an event before it is matched, as many as in the program SFF",
        "selectivity table",
        least=0,
        most=1000,
    ),
    Option(
        "area",
        "last",
        "the area of a filter is tested when its constraints are satisfied; or it is constraints on the coordinates, "
        "counted with the others, as in the paper of CLCB",
        "CLCB, table 2",
        ("last", "constraints"),
    ),
)
