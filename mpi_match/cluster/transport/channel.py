"""The travel of messages (`protocol`) between the master and a worker, also when a rank dies.

The receive for a header message, of the largest possible size, is posted before anything is sent; the header gives the size
of the body that follows.  So no message is truncated, no large message arrives unexpectedly, and a batch of one event is one
message each way.  Every receive names its source rank; MPI keeps the order of messages between two ranks, so a body needs no
number.

A rank may die.  An MPI with fault tolerance (ULFM) then fails every request that involves this rank, within milliseconds,
and no other request.  So the requests of each peer are tested separately, and the first error closes the channel to that
peer: it is `lost`, whatever MPI calls the error (process failure, revoked, plain `OTHER`), because a channel that has
skipped a message cannot be read on.  The other channels are not affected.  An MPI without fault tolerance reports nothing;
there the master finds a silent worker by the deadline of a batch, and a worker finds a silent master by its missing
heartbeats, sent every few seconds (`send_heartbeat`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from mpi_match.arrays.csr import Array
from mpi_match.cluster.transport.protocol import HEADER_BYTES, Answer, Command, Order, Tag, header_of, short_message

PIECE_BYTES = 2**30
"""Size of the pieces of a transfer, because MPI counts in 31 bits."""
_HEADER_TAG = int(Tag.HEADER)


def pieces(array: Array) -> Iterator[Array]:
    """A contiguous array as u8 pieces of at most PIECE_BYTES; none for an empty one."""
    flat = array.reshape(-1).view(np.uint8)
    return (flat[at : at + PIECE_BYTES] for at in range(0, len(flat), PIECE_BYTES))


@dataclass
class _Transfer:
    """One or more arrays in flight; `then` is called when the last piece has been sent or received."""

    arrays: object
    n_open: int
    then: Callable[[], None] | None

    def done(self) -> None:
        """Count a piece with a completed request."""
        self.n_open -= 1
        if self.n_open == 0 and self.then is not None:
            self.then()


@dataclass
class _Receiver:
    """A persistent receive for header messages, restarted after each until `handle` returns False."""

    request: MPI.Prequest
    message: memoryview
    handle: Callable[[memoryview], bool]


class _Peer:
    """Requests in flight to and from one rank: the receive for its headers, and one for each piece of a transfer."""

    def __init__(self) -> None:
        self.receiver: _Receiver | None = None
        self.requests: list[MPI.Request] = []
        self.owners: list[_Transfer] = []
        self.heartbeat_pending = False

    def __len__(self) -> int:
        return len(self.requests) + (self.receiver is not None)

    def add(self, request: MPI.Request, owner: _Transfer) -> None:
        """Track one more piece of a transfer."""
        self.requests.append(request)
        self.owners.append(owner)

    def poll(self) -> bool:
        """Make progress and call the callbacks of completed requests.  Raises MPI.Exception when a request has failed."""
        busy = False
        receiver = self.receiver
        if receiver is not None and receiver.request.Test():
            busy = True
            if receiver.handle(receiver.message):
                receiver.request.Start()
            else:
                receiver.request.Free()
                self.receiver = None
        if self.requests and (done := MPI.Request.Testsome(self.requests)):
            busy = True
            for i in done:
                self.owners[i].done()
            self.requests = [request for i, request in enumerate(self.requests) if i not in done]
            self.owners = [owner for i, owner in enumerate(self.owners) if i not in done]
        return busy


class Traffic:
    """All requests that a rank has in flight.  A transfer keeps its arrays until MPI is done with them.  `rank` and `size`
    are those of `comm`.

    A callback may start transfers and must not raise: completions found in the same poll would be lost.

    `lost`: ranks whose channel is closed, and why, in words.  Callbacks of requests to or from a lost rank are never called,
    and messages to it are dropped.  Its arrays are kept and not used again, because MPI may still write into them; the
    credits of the lost ranks bound their number.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        comm.Set_errhandler(MPI.ERRORS_RETURN)
        self._comm = comm
        self.rank, self.size = comm.rank, comm.size
        self._peers: dict[int, _Peer] = {}  # replaced, never changed: it may be in use further up
        self._kept: list[_Peer] = []
        self.lost: dict[int, str] = {}

    def listen(self, source: int, handle: Callable[[memoryview], bool]) -> None:
        """Call `handle` with every header message from a rank, u8[HEADER_BYTES], until it returns False.

        The memory is valid until `handle` returns: then the next message is received into it.
        """
        header = np.empty(HEADER_BYTES, np.uint8)
        try:
            request = self._comm.Recv_init([header, MPI.BYTE], source, Tag.HEADER)
            request.Start()
        except MPI.Exception as error:
            self._lose(source, error)
            return
        self._peer(source).receiver = _Receiver(request, header.data, handle)

    def write(self, fields: Order | Answer, body: Sequence[Array], to: int, then: Callable[[], None] | None = None) -> None:
        """Start sending a header and a body of contiguous arrays, which must not change until `then`."""
        if to in self.lost:
            if then is not None:
                then()  # MPI has not seen the arrays
            return
        short = short_message(fields, body)
        self.write_message(header_of(fields) if short is None else short, to)
        if short is None:
            self._start(to, body, _cut(body), then, lambda piece: self._comm.Isend([piece, MPI.BYTE], to, Tag.BODY))
        elif then is not None:
            then()  # the message is a copy

    def write_message(self, message: bytes, to: int) -> None:
        """Start sending a header message."""
        if to in self.lost:
            return
        try:
            request = self._comm.Isend(message, to, _HEADER_TAG)  # plain bytes: a buffer specification takes longer
            if not request.Test():  # an eager send usually completes at once
                self._peer(to).add(request, _Transfer(message, 1, None))
        except MPI.Exception as error:
            self._lose(to, error)

    def read(self, body: Sequence[Array], source: int, then: Callable[[], None]) -> None:
        """Receive the body that follows the last header into contiguous arrays of exactly the sizes that were sent."""
        self._start(source, body, _cut(body), then, lambda piece: self._comm.Irecv([piece, MPI.BYTE], source, Tag.BODY))

    def send_heartbeat(self, to: int) -> None:
        """Send a heartbeat, unless the last one has not been received yet: heartbeats must not pile up at the receiver."""
        peer = self._peers.get(to)
        if peer is None or peer.heartbeat_pending:
            return
        peer.heartbeat_pending = True
        header = header_of(Order(Command.WAIT))
        taken = functools.partial(setattr, peer, "heartbeat_pending", False)
        self._start(to, header, [header], taken, lambda piece: self._comm.Issend([piece, MPI.BYTE], to, Tag.HEADER))

    def close(self) -> None:
        """Cancel all receives: messages that still arrive stay with MPI.  Arrays of sends in flight are kept."""
        for peer in self._peers.values():
            if peer.receiver is not None:
                with suppress(MPI.Exception):  # the rank is dead
                    peer.receiver.request.Cancel()
                    peer.receiver.request.Wait()
                    peer.receiver.request.Free()
        self._kept += self._peers.values()
        self._peers = {}

    def __len__(self) -> int:
        """Requests in flight, including receives without a matching send."""
        return sum(len(peer) for peer in self._peers.values())

    def under_way(self, rank: int) -> int:
        """Requests in flight to or from a rank."""
        return len(self._peers[rank]) if rank in self._peers else 0

    def poll(self, looks: int = 1) -> bool:
        """Make progress in at most `looks` polls, and call the callbacks of completed requests.

        Returns True when a request was completed or a rank was found to be lost.
        """
        for _ in range(looks):
            busy = False
            for rank, peer in self._peers.items():
                try:
                    if peer.poll():
                        busy = True
                except MPI.Exception as error:
                    self._lose(rank, error)
                    busy = True
            if busy:
                return True
        return False

    def _start(
        self,
        rank: int,
        arrays: object,
        cut: Sequence[Array | bytes],
        then: Callable[[], None] | None,
        begin: Callable[[Array | bytes], MPI.Request],
    ) -> None:
        if rank in self.lost:
            return
        peer, transfer = self._peer(rank), _Transfer(arrays, len(cut), then)
        try:
            for piece in cut:
                request = begin(piece)
                if request.Test():
                    transfer.done()
                else:
                    peer.add(request, transfer)
        except MPI.Exception as error:
            self._lose(rank, error)

    def _peer(self, rank: int) -> _Peer:
        if rank not in self._peers:
            self._peers = {**self._peers, rank: _Peer()}
        return self._peers[rank]

    def _lose(self, rank: int, error: MPI.Exception) -> None:
        if rank not in self.lost:
            dead = rank in dead_ranks(self._comm)
            self.lost[rank] = "it died" if dead else f"MPI cannot reach it ({error.Get_error_string()})"
            self._kept.append(self._peer(rank))
            self._peers = {each: peer for each, peer in self._peers.items() if each != rank}


def dead_ranks(comm: MPI.Comm) -> list[int]:
    """The ranks that MPI knows to be dead; empty for an MPI without fault tolerance."""
    try:
        failed = comm.Get_failed()
        return sorted(failed.Translate_ranks(None, comm.Get_group()))
    except (MPI.Exception, NotImplementedError):
        return []


def _cut(arrays: Sequence[Array]) -> list[Array]:
    return [piece for array in arrays for piece in pieces(array)]
