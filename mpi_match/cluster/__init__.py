"""The cluster: rank 0 is the master, every other rank a worker with one engine.

    rank 0   files ─► table once, then batches, `credits` at a time ─► worker   engine.match
             answers written in event order ◄─ counts and ids ◄────

`run` is the entry point.  Importing `mpi_run` or its dependencies starts MPI; that happens only in a run that was launched
as several ranks.
"""

from __future__ import annotations

import os
import warnings

from mpi_match.cluster.options import CONNECTIONS as CONNECTIONS
from mpi_match.cluster.options import FEEDS as FEEDS
from mpi_match.cluster.options import PLACEMENTS as PLACEMENTS
from mpi_match.cluster.options import RESULTS as RESULTS
from mpi_match.cluster.options import SCHEDULES as SCHEDULES
from mpi_match.cluster.options import ClusterError as ClusterError
from mpi_match.cluster.options import RunOptions as RunOptions
from mpi_match.cluster.options import RunSummary as RunSummary
from mpi_match.cluster.options import Summary as Summary


def run(options: RunOptions) -> RunSummary | None:
    """Match all events of a run and write the answers; call it on every rank with the same options.

    Returns the summary on rank 0 and None on the others.  The answers are the same bytes whatever the ranks, the batch
    size, the placement, the schedule and the feed; with the results `local`, the same answers in several files.  A process
    without a launcher (or a job of one rank) does everything itself and imports no MPI.

    Raises, after all ranks have left and no file is half written: ClusterError, StorageError, EngineError;
    KeyboardInterrupt in a run of one process (several ranks end with code 130).  After a failed run of several ranks MPI is
    finalised.
    """
    from mpi_match.cluster.transport.launcher import found_in

    launch = found_in(os.environ)
    if launch is None or launch.size == 1:
        from mpi_match.cluster.local_run import run_alone

        return run_alone(options)
    from mpi_match.cluster.transport.initialize import initialize

    initialize(launch, options.setup_limit)
    with warnings.catch_warnings():  # mpi4py's own, of a launcher that is not its library's: `mpi_run` refuses in one line
        warnings.filterwarnings("ignore", "suspicious MPI execution environment")
        from mpi_match.cluster.mpi_run import run_ranks
    return run_ranks(options, launch)
