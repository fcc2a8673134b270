"""Listening on an address, tcp://HOST:PORT or unix://PATH, and the limits of a service for its connections."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from mpi_match.ingest.rows.row_files import TCP, UNIX
from mpi_match.model import ModelError

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Limits:
    """The limits of a service for its connections.

    connections    open at a time; others wait until one ends
    idle_s         seconds after which a connection on which nothing moves is closed; 0: never
    line_bytes     of a line; a longer one is a bad row
    answer_bytes   of answers of a connection that it has not taken; those of one event may be more
    total_bytes    of lines, events and answers that are kept for all connections
    drain_s        seconds for taking answers after the end of the command, and before a connection is closed because all
                   together keep too much
    """

    connections: int = 256
    idle_s: float = 600.0
    line_bytes: int = 2**24
    answer_bytes: int = 2**20
    total_bytes: int = 2**29
    drain_s: float = 5.0


def is_address(name: str) -> bool:
    """Tells the address of a socket from the name of a file."""
    return name.startswith((TCP, UNIX))


@contextmanager
def listener_on(source: str) -> Iterator[socket.socket | None]:
    """The socket that listens on an address; None for standard input.  Raises ModelError."""
    if not is_address(source):
        yield None
        return
    if source.startswith(UNIX):
        path = Path(source.removeprefix(UNIX))
        _remove_stale(path)
        with socket.socket(socket.AF_UNIX) as listener:
            try:
                listener.bind(str(path))
            except OSError as error:
                raise ModelError(f"{source}: cannot be listened on: {error}") from None
            listener.listen()
            try:
                yield listener
            finally:
                path.unlink(missing_ok=True)
        return
    host, _, port = source.removeprefix(TCP).rpartition(":")
    if not port.isdecimal():
        raise ModelError(f"{source}: an address is {TCP}HOST:PORT or {UNIX}PATH")
    host = host.strip("[]") or LOOPBACK
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, int(port)), family=family)
    except (OSError, OverflowError) as error:
        raise ModelError(f"{source}: cannot be listened on: {error}") from None
    with listener:
        yield listener


def _remove_stale(path: Path) -> None:
    """Remove a socket on which no process listens.  Raises ModelError if the name is anything else."""
    if not path.exists():
        return
    if path.is_socket():
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)  # a server that is busy or stopped has a full backlog
            try:
                refused = probe.connect_ex(str(path)) == errno.ECONNREFUSED
            except OSError:  # a path that is too long for a socket's name
                refused = False
        if refused:
            with suppress(FileNotFoundError):
                path.unlink()
            return
    raise ModelError(f"{UNIX}{path}: exists; remove it, or give another path")


def address_of(listener: socket.socket) -> str:
    """The address that a socket listens on, as a user writes it."""
    name = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        return f"{UNIX}{name}"
    return f"{TCP}[{name[0]}]:{name[1]}" if ":" in name[0] else f"{TCP}{name[0]}:{name[1]}"
