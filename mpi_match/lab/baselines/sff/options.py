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
)
