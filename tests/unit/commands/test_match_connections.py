"""An engine that has not enough memory for the events of one connection: that one is closed, and others are answered."""

from __future__ import annotations

import os
import socket
import threading
from types import SimpleNamespace
from typing import Any

import mpi_match
from mpi_match.arrays.strings import Strings
from mpi_match.commands.match import MatchOptions
from mpi_match.commands.match_connections import Service
from mpi_match.engines import Engine
from mpi_match.ingest.files.listen import Limits
from mpi_match.ingest.json.event_scanner import EventScanner
from mpi_match.ingest.rows.judge import PLAIN
from mpi_match.ingest.rows.reject_log import RejectLog
from mpi_match.matches.json_lines import LineWriter


class Greedy:
    """An engine without memory for events with attributes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def match(self, batch: Any, *, filters: bool = False) -> Any:
        if len(batch.attributes):
            raise MemoryError
        return self._engine.match(batch, filters=filters)


class Stop:
    """What ends the service."""

    def __init__(self) -> None:
        self.given = False
        self.descriptor, self.write = os.pipe()


def test_an_engine_without_memory_ends_one_connection() -> None:
    table = mpi_match.make_table([{"interface": "a", "constraints": []}, {"interface": "b", "constraints": [["x", ">", 1]]}])
    prepared: Any = SimpleNamespace(
        engine=Greedy(mpi_match.open_engine("counting", table)),
        reader=EventScanner(table.vocabulary, PLAIN, 1),
        stream=SimpleNamespace(n_filters=2, n_interfaces=2),
    )
    said: list[str] = []
    lines = LineWriter("interface", Strings.of([b"a", b"b"]))
    service = Service(prepared, MatchOptions(PLAIN), lines, RejectLog(None), Limits(), said.append)
    stop = Stop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=service.serve, args=(listener, stop))
        thread.start()
        good, bad = (socket.create_connection(listener.getsockname(), timeout=20) for _ in range(2))
        with good, bad:
            bad.sendall(b'{"x": 5}\n')
            assert bad.recv(1) == b""
            good.sendall(b"{}\n")
            assert good.recv(100) == b'{"event": 0, "interfaces": ["a"]}\n'
            stop.given = True
            os.write(stop.write, b"!")
            thread.join(20)
            assert not thread.is_alive()
    assert "#2 is closed: there is not enough memory for its events or their answers; 1 event without answer" in said[0]
    assert (service.n_untaken, service.n_cut_off) == (1, 0)
