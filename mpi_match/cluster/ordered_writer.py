"""Writes answers in the order of their batches, in a thread or joined.

    long batches    each goes to the writer thread, which merges the answers of a group's members and writes them
    short ones      are kept for a while (`flush`), up to a size, and those of consecutive events are written in one call

Writing an answer takes as long as the round trip of a short batch, so nothing is written between two of these.  Short
answers of several members of a group, or written by workers, cannot be joined: each is written at once.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from mpi_match.cluster.followed_files import FollowedAnswers
from mpi_match.cluster.messages import WRITTEN_DTYPE, Body, Written
from mpi_match.cluster.run_files import BatchedAnswers
from mpi_match.matches.write_behind import Writer

if TYPE_CHECKING:
    from mpi_match.cluster.inbox import Inbox  # which loads MPI, and a run of one process has none

KEPT_BYTES = 2**20
"""Short answers are kept up to this size."""
Parts = dict[int, Body]
"""The answer of a group, by member."""


class OrderedWriter:
    """The answers of a run; a context manager.  Leaving it without `finish` drops the queue of the thread.

    in_parts   an answer consists of the answers of several members of a group
    joins      where possible, answers to consecutive events are kept, and written in one call by `flush`

    Bodies that are written are given back to `inbox`.  An error of writing is raised by a later call.
    """

    def __init__(
        self, answers: BatchedAnswers | FollowedAnswers, inbox: Inbox, writer: Writer, *, in_parts: bool, joins: bool
    ) -> None:
        self._answers, self._inbox = answers, inbox
        if in_parts:
            from mpi_match.cluster.distribution.merge import merge  # loads Numba

            self._merge = merge
        self._joins = joins and not in_parts and not answers.by_workers
        self._written = writer(self._write)
        self._kept: list[Body] = []
        self._first = self._until = self._n_bytes = 0

    def __enter__(self) -> OrderedWriter:
        self._written.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.flush()
        finally:
            self._written.__exit__(kind, error, trace)

    def put(self, batch: int, parts: Parts) -> None:
        """Take the answers of the next batch."""
        if not self._joins:
            self._written.put((batch, parts))
            return
        kept = self._kept
        if not kept or batch != self._first + len(kept) or batch >= self._until:
            self.flush()
            kept, self._first, self._until = self._kept, batch, self._answers.ranges.gap_after(batch)
        for body in parts.values():
            kept.append(body)
            self._n_bytes += len(body.first) + len(body.second)
        if self._n_bytes > KEPT_BYTES:
            self.flush()

    def set_aside(self, batch: int) -> None:
        """Record that the next batch has no answers."""
        self.flush()
        self._written.put((batch, {}))

    def flush(self) -> None:
        """Write the short answers that are kept, which are to consecutive events."""
        if self._kept:
            kept, self._kept, self._n_bytes = self._kept, [], 0
            counts, ids = b"".join([body.first for body in kept]), b"".join([body.second for body in kept])
            found = np.frombuffer(counts, self._inbox.count_dtype), np.frombuffer(ids, self._inbox.id_dtype)
            for number, body in enumerate(kept, self._first):
                self._answers.report(number, body.report)
            self._answers.write(self._first, *found)
            self._inbox.give_back(kept)

    def finish(self) -> None:
        """Wait until all are written."""
        self.flush()
        self._written.finish()

    def _write(self, answers: tuple[int, Parts]) -> None:
        """Write the answers of the next batch, given by member, if it has any; runs in the writer thread."""
        batch, parts = answers
        if not parts:
            self._answers.set_aside(batch)
            return
        self._answers.report(batch, next(iter(parts.values())).report)  # all members of a group have scanned the same rows
        if self._answers.by_workers:
            ((worker, said),) = parts.items()
            part, end, n_ids = np.frombuffer(said.second, WRITTEN_DTYPE).tolist()
            self._answers.wrote(batch, n_ids, worker, Written(part, end))
            return
        types = self._inbox.count_dtype, self._inbox.id_dtype
        bodies = [parts[each] for each in sorted(parts)]
        found = [(np.frombuffer(body.first, types[0]), np.frombuffer(body.second, types[1])) for body in bodies]
        self._answers.write(batch, *(found[0] if len(found) == 1 else self._merge(found)))
        self._inbox.give_back(parts.values())
