"""The workers' own parts of the output (`--results local`), opened before the first batch.

Every worker makes its part, and the master looks whether it sees all of them: that a directory is each host's own would show
only when the answers are read.
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
    """The matcher, with this rank's part of the output behind it if the run has such; `stack` closes it.  Raises Ended."""
    if options.results == "master":
        return matcher
    ranks = topology.ranks
    offer: Offer = ranks.tell()

    def create() -> PartWriter:
        return stack.enter_context(PartWriter(offer.places.part(ranks.rank), offer.places.identity))

    part = ranks.agree("opening its part of the output", create)
    ranks.attend()  # while the master looks for it
    return WrittenHere(matcher, part, offer.extents)
