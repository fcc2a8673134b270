"""Options of CCM: the variants that its paper compares.  The defaults are the variants that the paper settles on."""

from __future__ import annotations

from typing import NamedTuple

from mpi_match.engines.option import Option

CCM_OPTIONS = (
    Option(
        "reset",
        "kernel",
        "counters of the next event: reset by this one's kernel, in a second copy; or set to zero before its kernel",
        "5, figure 5",
        ("kernel", "memset"),
    ),
    Option(
        "order",
        "sorted",
        "rows of a name: by type, operator and value; or in the order of their filters",
        "5, Distribution of Names",
        ("sorted", "given"),
    ),
    Option(
        "input",
        "shared",
        "the attribute of a block: brought to shared memory by one thread; or read from global memory by every thread",
        "4.2",
        ("shared", "global"),
    ),
    Option(
        "phases",
        2,
        "2: constraints are evaluated and counted (DEBS 2011); 3: filters whose names the event has are selected before, by "
        "bit vectors, as in the base of MPI-CUDA",
        "TPDS 2014, after published code",
        (2, 3),
    ),
    Option(
        "cover",
        "event",
        "the grid of a single event covers the longest row of the names that the event has; or of all names of the table, "
        "with one CUDA graph for all events",
        "4.2; table: ours",
        ("event", "table"),
    ),
    Option(
        "answer",
        "auto",
        "a bit of each interface comes back, as the paper's array of them does; or a list of those that match; auto: bits, "
        "up to 64 interfaces",
        "4.2; list: ours",
        ("auto", "mask", "list"),
    ),
)


class CcmVariant(NamedTuple):
    """The values of CCM_OPTIONS."""

    reset: str = "kernel"
    order: str = "sorted"
    input: str = "shared"
    phases: int = 2
    cover: str = "event"
    answer: str = "auto"
