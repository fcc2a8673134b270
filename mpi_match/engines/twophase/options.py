"""Options of the two-phase matcher: techniques, synchronisation and parameters that its paper compares."""

from __future__ import annotations

from typing import NamedTuple

from mpi_match.engines.option import Option

TECHNIQUES = ("me-ip", "se-cp", "me-cp")
SYNCHRONIZATIONS = ("static", "lock", "retry")
MERGES = ("atomic", "local")
MOST_BLOCK = 2**16

TWOPHASE_OPTIONS = (
    Option(
        "technique",
        "me-ip",
        "each thread matches one event (multiple events, independent processing); all match the same one (single event, "
        "collaborative processing); or each group matches one (multiple events, collaborative processing)",
        "6.1",
        TECHNIQUES,
    ),
    Option(
        "synchronization",
        "lock",
        "division of work and merging of answers among threads: in advance; under a lock; or optimistically, with a retry "
        "after a conflict, instead of software transactional memory",
        "6.1",
        SYNCHRONIZATIONS,
    ),
    Option(
        "merge",
        "atomic",
        "threads that match an event together set bits of one vector atomically; or each has a vector of its own, and these "
        "are merged as `synchronization` says: word ranges after a barrier, under a lock, or with a retry after a conflict",
        "6.1; atomic: ours",
        MERGES,
    ),
    Option("group", 2, "threads in a group, with me-cp", "6.1, figure 11", least=1, most=256),
    Option(
        "target_us",
        0.0,
        "with me-cp: target matching time of an event, from which the size of groups follows, instead of `group`; 0: off",
        "4.3",
        least=0,
    ),
    Option("event_block", 1, "events that a thread or a group takes at a time", "ours", least=1, most=MOST_BLOCK),
    Option("attribute_block", 4, "attributes that a thread takes at a time in phase 1", "ours", least=1, most=MOST_BLOCK),
    Option(
        "access_block",
        12,
        "access predicates that a thread takes at a time in phase 2",
        "6.2, figure 13",
        least=1,
        most=MOST_BLOCK,
    ),
    Option(
        "access",
        "cost",
        "access predicate of a filter: the one that the fewest events are expected to satisfy; or any, so that nearly every "
        "predicate is an access predicate",
        "6.2, figure 13",
        ("cost", "any"),
    ),
)


class TwoPhaseVariant(NamedTuple):
    """The values of TWOPHASE_OPTIONS."""

    technique: str = "me-ip"
    synchronization: str = "lock"
    merge: str = "atomic"
    group: int = 2
    target_us: float = 0.0
    event_block: int = 1
    attribute_block: int = 4
    access_block: int = 12
    access: str = "cost"
