"""Messages of the batches that will be sent next, made before they are needed, a block of batches at a time.

    read ─► wire forms of a batch and of those behind it ─► messages by batch ─► the next order to an idle worker

It serves batches that are read in less time than it takes to wake a thread; `prefetch.ReadAhead` reads longer ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.cluster.transport.protocol import HEADER_BYTES, Command, body_of, message_of

_MATCH = int(Command.MATCH)


class PreparedMessages:
    """Orders to match batches for the first time, without changes; a context manager, as `ReadAhead` is.

    `read(batch)` gives the wire forms of a batch and of any number behind it.
    """

    def __init__(self, read: Callable[[int], Iterable[bytes]]) -> None:
        self._read = read
        self._messages: dict[int, bytes] = {}

    def __enter__(self) -> PreparedMessages:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def want(self, batches: Iterable[int]) -> None:
        """Make the messages of these batches and of those that are read with them.  If one cannot be read now, `take` tries
        again."""
        messages = self._messages
        for batch in batches:
            if batch not in messages:
                try:
                    for number, wire in enumerate(self._read(batch), batch):
                        messages[number] = message_of((_MATCH, number, 0, 0, len(wire), 0), wire)
                except Exception:
                    return

    def is_ready(self, batch: int) -> bool:
        """Returns True: `take` never waits for a thread."""
        return True

    def pop(self, batch: int) -> bytes | None:
        """The whole message of a batch, returned once; None if none was made, or if it is too long to be sent in one
        piece."""
        message = self._messages.get(batch)
        if message is None or len(message) > HEADER_BYTES:
            return None
        del self._messages[batch]
        return message

    def take(self, batch: int) -> tuple[Array, None]:
        """The wire form of a batch, even if its message was made already.  The second value is None: the caller has no
        buffer to give back.

        Raises what reading it raises.
        """
        message = self._messages.pop(batch, None)
        return np.frombuffer(next(iter(self._read(batch))) if message is None else body_of(message), np.uint8), None
