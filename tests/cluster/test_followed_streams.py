"""Followed runs of streams: standard input and the connections of sockets, through ranks; answers go back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from following import answers_in, commit, n_answered, ranks_of, wait_for
from mpirun import MPIRUN, OPEN_MPI, OPEN_MPI_FLAGS, TIMEOUT_S, environment, has_ulfm, needs_mpirun
from streams import Peer

from mpi_match.cluster import CONNECTIONS, ClusterError, RunOptions, run
from mpi_match.ingest.rows.judge import subscription_filters
from mpi_match.ingest.rows.row_files import STDIN, STDOUT
from mpi_match.table.table import Table

ROWS = [
    {"interface": "taxi", "constraints": [["seats", ">=", 2]]},
    {"interface": "desk", "constraints": [["seats", "exists"]]},
]
LINES = [b'{"seats": 1}', b'{"seats": 4}', b'{"seats"', b'{"wheels": 4}']
ANSWERS = [["desk"], ["desk", "taxi"], [], []]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "table.h5"
    Table.from_filters([item for row in ROWS for item in subscription_filters(row)]).save(path)
    return path


def answers(n: int) -> list[dict[str, Any]]:
    return [{"event": i, "interfaces": ANSWERS[i % len(ANSWERS)]} for i in range(n)]


@contextmanager
def following(ranks: int, *words: object) -> Iterator[subprocess.Popen[bytes]]:
    """A followed run of so many ranks."""
    launcher = [str(MPIRUN), *OPEN_MPI_FLAGS, "--with-ft", "ulfm", "-n", str(ranks)] if ranks > 1 else []
    command = [*launcher, sys.executable, "-m", "mpi4py", "-m", "mpi_match", "run", "--follow", "--engine", "keyed"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(
        [*command, *map(str, words)],
        env=environment(),
        start_new_session=True,
        **pipes,  # type: ignore[call-overload]
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()


def test_standard_input_is_answered_on_standard_output(table: Path, tmp_path: Path) -> None:
    """As it comes, until it ends.  Changes come from a directory meanwhile."""
    (tmp_path / "changes").mkdir()
    with following(1, "--table", table, "--events", "-", "--changes", tmp_path / "changes") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(4):
            process.stdin.write(LINES[number] + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline()) == answers(4)[number]
        commit(tmp_path / "changes", "a.jsonl", [b'{"remove_interface": "desk"}'])
        found: dict[str, object] = {}
        while found.get("interfaces") != []:
            process.stdin.write(LINES[0] + b"\n")
            process.stdin.flush()
            found = json.loads(process.stdout.readline())
        process.stdin.close()
        assert process.wait(TIMEOUT_S) == 0
        assert process.stderr is not None
        said = process.stderr.read().decode()
        assert "1 row rejected" in said
        assert "answers written to standard output" in said


def test_events_of_connections_go_into_files_of_answers(table: Path, tmp_path: Path) -> None:
    """In the order in which they were read; a second run goes on with their numbers."""
    output, address = tmp_path / "answers", f"unix://{tmp_path}/socket"
    for turn in (1, 2):
        with following(1, "--table", table, "--events", address, "-o", output, "--file-age", "0.05") as process:
            wait_for((tmp_path / "socket").exists, process)
            peer = Peer(address)
            peer.socket.sendall(b"".join(line + b"\n" for line in LINES * 5))
            wait_for(lambda n=turn: n_answered(output) == 20 * n, process)  # type: ignore[misc]
            process.send_signal(signal.SIGTERM)
            assert process.wait(TIMEOUT_S) == 0
            peer.socket.close()
        assert answers_in(output) == answers(20 * turn)


def _check_refusals(table: Path, tmp_path: Path, cases: Sequence[tuple[dict[str, object], str]]) -> None:
    for more, text in cases:
        how: dict[str, Any] = {"events": STDIN, "output": tmp_path / "answers", **more}
        with pytest.raises(ClusterError, match=text):
            run(RunOptions(table, follow=True, **how))


def test_places_that_answers_cannot_go_to_are_refused(table: Path, tmp_path: Path) -> None:
    cases: list[tuple[dict[str, object], str]] = [
        ({"events": tmp_path, "output": STDOUT}, "needs a directory of answers"),
        ({"output": CONNECTIONS}, "only events from connections"),
        ({"rejects": tmp_path / "rejects.jsonl"}, "has no --rejects"),
        ({"resume": True}, "cannot be read again"),
    ]
    _check_refusals(table, tmp_path, cases)


@needs_mpirun
@pytest.mark.mpi
@pytest.mark.skipif(not OPEN_MPI, reason="the flags of Open MPI")
def test_each_connection_gets_its_answers_though_a_worker_is_killed(table: Path, tmp_path: Path) -> None:
    """In order and with numbers of its own; the other worker takes the part of the table.  A peer that goes away, or takes
    nothing, is in no other's way."""
    address = f"unix://{tmp_path}/socket"
    with following(3, "--table", table, "--events", address, "--batch", "5", "--placement", "shard") as process:
        wait_for((tmp_path / "socket").exists, process)
        lost, idle, *peers = (Peer(address) for _ in range(4))
        lost.socket.sendall(b'{"seats": 1}\n' * 100 + b'{"se')
        lost.socket.close()
        idle.socket.sendall(b'{"seats": 4}\n' * 1000)
        sent = b"".join(line + b"\n" for line in LINES * 10)
        for turn in range(4):
            for peer in peers:
                peer.socket.sendall(sent)
            if turn == 2 and has_ulfm():
                os.kill(ranks_of(process)[1], signal.SIGKILL)
            for peer in peers:
                assert [json.loads(peer._file.readline()) for _ in range(40)] == answers(160)[40 * turn : 40 * turn + 40]
        os.kill(ranks_of(process)[0], signal.SIGTERM)
        for peer in peers:
            assert peer._file.readline() == b""
        taken = [json.loads(line) for line in idle._file]
        assert [each["event"] for each in taken] == list(range(1000))
        assert process.wait(TIMEOUT_S) == 0
