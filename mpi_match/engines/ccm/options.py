"""Options of CCM: the variants that its paper compares.  The defaults are the paper's final choices."""

from __future__ import annotations

from typing import NamedTuple

from mpi_match.engines.option import Option

CCM_OPTIONS = (
    Option(
        "reset",
        "kernel",
        "counters for the next event: reset in a second copy by this event's kernel; or zeroed before its own kernel",
        "5, figure 5",
        ("kernel", "memset"),
    ),
    Option(
        "order",
        "sorted",
        "order of a name's rows: by type, operator and value; or by filter",
        "5, Distribution of Names",
        ("sorted", "given"),
    ),
    Option(
        "input",
        "shared",
        "the attribute of a block: loaded into shared memory by one thread; or read from global memory by every thread",
        "4.2",
        ("shared", "global"),
    ),
    Option(
        "sat",
        "codes",
        "what a thread compares: codes of values, made when events are encoded; or, as published and only in bench, types, "
        "operators, numbers and the bytes of strings",
        "4.2, sat; codes: ours",
        ("codes", "published"),
        measured="published",
    ),
    Option(
        "phases",
        2,
        "2: evaluate and count constraints (DEBS 2011); 3: first select the filters whose names the event has, by "
        "bit vectors, as in the base of MPI-CUDA",
        "TPDS 2014, after published code",
        (2, 3),
    ),
    Option(
        "cover",
        "event",
        "the grid of a single event covers the longest run of the names that the event has; or of all names of the table, "
        "with one CUDA graph for all events",
        "4.2; table: ours",
        ("event", "table"),
    ),
    Option(
        "answer",
        "auto",
        "answers are a bit for each interface, like the paper's array; or a list of those that match; auto: bits for "
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
    sat: str = "codes"
    phases: int = 2
    cover: str = "event"
    answer: str = "auto"
