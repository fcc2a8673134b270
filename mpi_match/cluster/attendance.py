"""The first and the last words between the master and its workers: who has come, and who has left.

    worker ── ready ──► master      after the last common step of set-up
    master ── leave ──► worker
    worker ── gone  ──► master      its last word

Neither is a collective call, where who dies or stops holds up all others.  The master waits for everybody, and for nobody
for ever: a run begins without workers that do not come, and ends without those that do not leave.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Set
from typing import TYPE_CHECKING

from mpi_match.cluster.farewell import rank_was_lost
from mpi_match.cluster.patience import Backoff, Silence

if TYPE_CHECKING:
    from mpi_match.cluster.channel import Order, Traffic

log = logging.getLogger(__name__)

MEETING_S = 30.0
"""How long workers may take to leave the last common step, in which they have nothing to do any more."""
FAREWELL_S = 30.0
"""How long workers may take to leave before the master leaves without them."""
LATE_FAREWELL_S = 5.0
"""The same for workers that have stood still for longer than their deadline, if the job may end without them."""
HASTY_FAREWELL_S = 1.0
"""The same when the master was interrupted, and who did that may soon kill it."""


def absent_of(
    workers: Collection[int], traffic: Traffic, ready: Set[int], let_interruptions_through: Callable[[], None]
) -> dict[int, str]:
    """Wait until all workers are `ready`, or lost; those that are neither when nothing has come for MEETING_S, and why they
    are not waited for any longer, in words.

    `ready` grows while `traffic` is looked at.
    """
    backoff, silence = Backoff(), Silence()
    while absent := set(workers) - ready - traffic.lost.keys():
        let_interruptions_through()
        if traffic.poll():
            silence.broken()
        elif silence.seconds() > MEETING_S:
            return dict.fromkeys(sorted(absent), f"it was not ready {MEETING_S:.0f} s after the others")
        else:
            backoff.wait()
    return {}


def dismiss(
    workers: Collection[int],
    traffic: Traffic,
    order: Order,
    *,
    lost: Set[int],
    late: Set[int],
    gone: Set[int],
    patience_s: float = FAREWELL_S,
) -> None:
    """Tell all workers to leave and wait until they have; what still comes in is received and dropped.

    `lost` ones are not waited for, those that are `late` anyway not long, and none for ever: one that does not leave in time
    is left to find out by itself.  `gone` grows while `traffic` is looked at.
    """
    if lost or traffic.lost:
        rank_was_lost()
        order = order._replace(attempt=1)
    for worker in workers:
        traffic.write(order, [], worker)
    backoff, began = Backoff(), time.monotonic()
    while left := [
        worker
        for worker in workers
        if worker not in lost and worker not in traffic.lost and (worker not in gone or traffic.under_way(worker))
    ]:
        if traffic.poll():
            backoff.reset()
        elif time.monotonic() - began > (min(patience_s, LATE_FAREWELL_S) if late >= set(left) else patience_s):
            log.warning("rank %s did not leave in time; the run ends without it", ", ".join(map(str, left)))
            rank_was_lost()
            return
        else:
            backoff.wait()
