"""`match` on events as they come, in a process of its own, and the peers of its connections."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from mpirun import TESTS, TIMEOUT_S


@contextmanager
def matching(subscriptions: Path, *arguments: object, said: str = "ready in") -> Iterator[tuple[Any, str]]:
    """`match` in a process of its own, once it waits for events; with the line that says so."""
    words = [sys.executable, "-m", "mpi_match", "match", "--engine", "counting", subscriptions, *arguments]
    process = subprocess.Popen(
        [str(word) for word in words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(TESTS.parent), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
        },
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline().decode()
        while line.startswith("compil"):  # for these sources and this machine, once
            line = process.stderr.readline().decode()
        if said not in line:
            process.kill()  # it may wait for events for ever
            pytest.fail(line + process.stderr.read().decode())
        yield process, line
    finally:
        process.kill()
        process.communicate()


def ended(process: Any, signal_: int | None = signal.SIGTERM) -> tuple[int, str, str]:
    """Exit code, and the rest of the output and of what was said."""
    if signal_ is not None:
        process.send_signal(signal_)
    out, err = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, out.decode(), err.decode()


def accepted_bytes(descriptor: int, data: bytes) -> int:
    """How much of endless data somebody takes who waits for his own reader."""
    os.set_blocking(descriptor, False)
    taken, at = 0, 0
    while select.select([], [descriptor], [], 1.0)[1]:
        n = os.write(descriptor, data[at : at + 2**16])
        at = (at + n) % len(data)
        taken += n
    os.set_blocking(descriptor, True)
    return taken


class Peer:
    """A connection to `match`."""

    def __init__(self, address: str) -> None:
        if address.startswith("unix://"):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(address.removeprefix("unix://"))
        else:
            host, _, port = address.removeprefix("tcp://").rpartition(":")
            self.socket = socket.create_connection((host, int(port)))
        self.socket.settimeout(TIMEOUT_S)
        self._file = self.socket.makefile("rb")

    def send(self, text: str) -> None:
        self.socket.sendall(text.encode())

    def answers(self, n: int) -> list[dict[str, Any]]:
        return [json.loads(self._file.readline()) for _ in range(n)]

    def rest(self) -> bytes:
        """Read until the connection is closed."""
        return self._file.read()

    def rest_or_reset(self) -> bytes:
        """Read until the connection is closed, or reset: so it ends if the other side had not read all that was sent."""
        with suppress(ConnectionResetError):
            return self.rest()
        return b""

    def close(self) -> None:
        """End the connection; answers that have come and were not read are lost."""
        self._file.close()
        self.socket.close()
