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
)


class CcmVariant(NamedTuple):
    """The values of CCM_OPTIONS."""

    reset: str = "kernel"
    order: str = "sorted"
    input: str = "shared"
