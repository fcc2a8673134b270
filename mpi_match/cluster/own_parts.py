"""The workers' own parts of the output (`--results local`), opened before the first batch.

Every worker makes its parts, and the master looks whether it sees the first of each: that a directory is each host's own
would show only when the answers are read.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import NamedTuple

from mpi_match.answer_parts import PartWriter
from mpi_match.cluster import ClusterError, RunOptions
from mpi_match.cluster.extents import Extents
from mpi_match.cluster.job import Job
from mpi_match.cluster.local_output import Places
from mpi_match.cluster.matcher import Matcher, ShortMatcher
from mpi_match.cluster.topology import Topology
from mpi_match.cluster.written_here import WrittenHere

MOST_PARTS = 8
"""Of a worker that has twice as many threads: a memory takes the bytes of about so many of them."""


class Offer(NamedTuple):
    """Where workers write, and which events are in which batch."""

    places: Places
    extents: Extents


def offer_parts(topology: Topology, job: Job) -> None:
    """The master's side of `open_part`: sees that the parts are where it looks for them.  Raises Ended."""
    ranks, places = topology.ranks, job.places
    if places is None:
        return
    ranks.tell(Offer(places, job.extents))
    ranks.attend()  # while the workers open them

    def look() -> None:
        unseen = [rank for rank in range(1, ranks.size) if not places.part(rank).is_file()]
        if unseen:
            raise ClusterError(
                f"{places.directory}: what rank {unseen[0]} writes there is not to be seen on the master's host; "
                "with --results local the output needs a directory that all hosts share"
            )

    ranks.agree("looking for the parts of the output", look)


def open_part(
    options: RunOptions, topology: Topology, matcher: Matcher | ShortMatcher, stack: ExitStack
) -> Matcher | ShortMatcher | WrittenHere:
    """The matcher, with this rank's parts of the output behind it if it has such; `stack` closes them.  Raises Ended."""
    if options.results == "master":
        return matcher
    ranks = topology.ranks
    offer: Offer = ranks.tell()

    n_parts = 1 if options.short_batches else min(MOST_PARTS, max((options.threads or topology.threads) // 2, 1))

    def create() -> list[PartWriter]:
        paths = [offer.places.part(ranks.rank, number) for number in range(n_parts)]
        return [stack.enter_context(PartWriter(path, offer.places.identity)) for path in paths]

    parts = ranks.agree("opening its part of the output", create)
    ranks.attend()  # while the master looks for it
    return WrittenHere(matcher, parts, offer.extents)
