"""Reads lines as they arrive, such as from a pipe, in blocks of all whole lines that have arrived.

A line is in a block as soon as its line feed has arrived.  While a block is worked on, the next ones gather in the pipe,
which is bounded, so a writer that is faster than its reader waits.
"""

from __future__ import annotations

import fcntl
import os
import select
from collections.abc import Callable, Iterator
from contextlib import suppress

from mpi_match.ingest.files import blocks
from mpi_match.ingest.files.blocks import LineBlock, blocks_of
from mpi_match.model import ModelError

_PIPE_BYTES = 2**20
"""Bytes of the buffer of a pipe, sixteen times the default."""


class StreamStopped(ModelError):
    """Reading was stopped before the end of the stream."""


def read_stream(descriptor: int, name: str, wait: Callable[[int], bool]) -> Iterator[LineBlock]:
    """The lines of a pipe or file until its end; `name` is that of rejects.

    `wait(descriptor)` returns when something can be read from it, or it has ended; or False, to stop: then StreamStopped is
    raised, after all whole lines that were read.  Raises OSError.
    """
    with suppress(OSError):  # it is no pipe
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def read() -> tuple[bytes, ModelError | None]:
        return (_available(descriptor), None) if wait(descriptor) else (b"", StreamStopped(f"{name}: stopped"))

    return blocks_of(read, name)


def _available(descriptor: int) -> bytes:
    """The bytes that can be read now, at most READ_BYTES; none at the end."""
    pieces, missing, poll = [], blocks.READ_BYTES, select.poll()
    poll.register(descriptor, select.POLLIN)
    while missing:
        piece = os.read(descriptor, missing)
        pieces.append(piece)
        missing -= len(piece)
        if not piece or not poll.poll(0):
            break
    return b"".join(pieces)
