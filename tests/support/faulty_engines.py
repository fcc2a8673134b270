"""Engines that fail, die, stall or report something, for ranks of the tests (`cluster_driver`)."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import numpy as np

from mpi_match.arrays.csr import offsets_of
from mpi_match.cluster.transport.launcher import found_in
from mpi_match.engines import Engine, EngineError
from mpi_match.engines.counting import Counting
from mpi_match.engines.reference import Reference
from mpi_match.events.batch import EventBatch
from mpi_match.matches.matches import Matches, id_dtype
from mpi_match.table.table import Table


class Null(Engine):
    """Answers every event with as many ids as it has attributes, at once: the time left is that of the communication."""

    name = "null"
    device = "nothing"
    nbytes = 0

    def __init__(self, table: Table, device: int | None = None, threads: int | None = None, *, live: bool = False) -> None:
        self._n_ids = table.n_interfaces

    def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        n = batch.n_events // 2
        offsets = offsets_of(np.repeat((1, 0), (n, batch.n_events - n)))
        return Matches.from_offsets(offsets, np.zeros(n, id_dtype(self._n_ids)), self._n_ids)


class Failing(Null):
    """Fails on the tenth batch that it gets."""

    name = "failing"
    n_matched = 0

    def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        self.n_matched += 1
        if self.n_matched == 10:
            raise ZeroDivisionError("an engine's mistake")
        return super().match(batch, filters=filters)


class FailingLater(Counting):
    """Answers rightly, and fails from the tenth batch on."""

    name = "failing_later"
    n_matched = 0

    def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        self.n_matched += 1
        if self.n_matched >= 10:
            raise ZeroDivisionError("an engine's mistake")
        return super().match(batch, filters=filters)


class Broken(Failing):
    """Fails from the tenth batch on."""

    name = "broken"

    def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        self.n_matched = min(self.n_matched, 9)
        return super().match(batch, filters=filters)


class Picky(Null):
    """Fails on the batch that has event 150, on every rank: see `plain_events`."""

    name = "picky"

    def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        if batch.offsets[0] <= 150 < batch.offsets[-1]:
            raise ZeroDivisionError("I do not like event 150")
        return super().match(batch, filters=filters)


class _Stalls:
    """An engine that on rank 1 stalls at its third batch, longer than the test's deadline."""

    n_matched = 0

    def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        self.n_matched += 1
        launch = found_in(os.environ)
        if launch is not None and launch.rank == 1 and self.n_matched == 3:
            time.sleep(8)
        found: Matches = super().match(batch, filters=filters)  # type: ignore[misc]  # that of the engine beside it
        return found


class Pausing(_Stalls, Null):
    """`Null`, which stalls."""

    name = "pausing"


class PausingReference(_Stalls, Reference):
    """The reference, which stalls."""

    name = "pausing_reference"


class Silent(Null):
    """Never answers."""

    name = "silent"

    def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        time.sleep(3600)
        return super().match(batch, filters=filters)


class Refusing(Null):
    """Cannot be opened."""

    name = "refusing"

    def __init__(self, table: Table, device: int | None = None, threads: int | None = None, *, live: bool = False) -> None:
        raise EngineError("this table is not for me; use reference")


class Dying(Null):
    """Kills its process when it is opened on rank 2."""

    name = "dying"

    def __init__(self, table: Table, device: int | None = None, threads: int | None = None, *, live: bool = False) -> None:
        super().__init__(table)
        launch = found_in(os.environ)
        if launch is not None and launch.rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)


class DyingLater(Reference):
    """Kills its process at its third batch on rank 2."""

    name = "dying_later"
    n_matched = 0

    def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        self.n_matched += 1
        launch = found_in(os.environ)
        if launch is not None and launch.rank == 2 and self.n_matched == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().match(batch, filters=filters)


class Stuck(Null):
    """Stops its process when it is opened on rank 2."""

    name = "stuck"

    def __init__(self, table: Table, device: int | None = None, threads: int | None = None, *, live: bool = False) -> None:
        super().__init__(table)
        launch = found_in(os.environ)
        if launch is not None and launch.rank == 2:
            os.kill(os.getpid(), signal.SIGSTOP)


class OneGpu(Null):
    """On the same GPU in every rank."""

    name = "one_gpu"
    gpu = "GPU-0"


class Slow(Null):
    """Takes 0.2 s for a batch."""

    name = "slow"

    def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        time.sleep(0.2)
        return super().match(batch, filters=filters)


class Growing(Null):
    """Answers an event with more ids, the later it is published: see `plain_events`."""

    name = "growing"

    def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        each = int(batch.offsets[0]) // 1000 % self._n_ids + 1
        offsets = offsets_of(np.full(batch.n_events, each))
        return Matches.from_offsets(
            offsets, np.tile(np.arange(each), batch.n_events).astype(id_dtype(self._n_ids)), self._n_ids
        )


class Weighing(Null):
    """Reports the size of its table."""

    name = "weighing"

    def __init__(self, table: Table, device: int | None = None, threads: int | None = None, *, live: bool = False) -> None:
        super().__init__(table)
        self.device = f"{table.nbytes} bytes"


class Whereabouts(Null):
    """Reports the memory of its table."""

    name = "whereabouts"

    def __init__(self, table: Table, device: int | None = None, threads: int | None = None, *, live: bool = False) -> None:
        super().__init__(table)
        lo = table.constraints.lo
        maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
        bounds = [[int(end, 16) for end in line[0].split("-")] for line in maps]
        (line,) = [line for line, (first, last) in zip(maps, bounds, strict=True) if first <= lo.ctypes.data < last]
        access = "writable" if "w" in line[1] else "read-only" if lo.flags.writeable else "marked, and compiled for again,"
        self.device = f"{access} memory {line[4]} {line[5]} of {socket.gethostname()}"


class Numbered(Null):
    """Reports the GPU that it was assigned, and the visible ones."""

    name = "numbered"

    def __init__(self, table: Table, device: int | None = None, threads: int | None = None, *, live: bool = False) -> None:
        super().__init__(table)
        self.device = f"{socket.gethostname()} GPU {device} of {os.environ.get('CUDA_VISIBLE_DEVICES', 'all')}"


FAULTY_ENGINES = (
    Broken,
    Dying,
    DyingLater,
    Failing,
    FailingLater,
    Growing,
    Null,
    Numbered,
    OneGpu,
    Pausing,
    PausingReference,
    Picky,
    Refusing,
    Silent,
    Slow,
    Stuck,
    Weighing,
    Whereabouts,
)
