"""`match` on events as they come: at once, in order, bounded memory, a clean end; standard input and sockets."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import mpi_match, only_line
from mpirun import TESTS, TIMEOUT_S
from streams import Peer, accepted_bytes, ended, matching

from mpi_match.ingest.files.listen import LOOPBACK

SUBSCRIPTIONS = [
    {"interface": "hot", "constraints": [["temp", ">", 30]]},
    {"interface": "near", "constraints": [], "area": [0, 0, 5]},
]
ANSWERED_S = 0.05
BAD = "{"


@pytest.fixture
def subscriptions(tmp_path: Path) -> Path:
    path = tmp_path / "subscriptions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in SUBSCRIPTIONS))
    return path


def event(i: int) -> str:
    return json.dumps({"temp": i, "x": 100 * (i % 2), "y": 0})


def answer(number: int, i: int) -> dict[str, Any]:
    return {"event": number, "interfaces": ["hot"] * (i > 30) + ["near"] * (i % 2 == 0)}


def answers(number: int, numbers: list[int]) -> list[dict[str, Any]]:
    return [answer(number + k, i) for k, i in enumerate(numbers)]


LOCATION = ("--location", "x,y")


def test_every_line_is_answered_before_the_next_one_comes(subscriptions: Path) -> None:
    waited = []
    with matching(subscriptions, "-", *LOCATION) as (process, _):
        for i in range(28, 36):
            began = time.perf_counter()
            process.stdin.write(event(i).encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline()) == answer(i - 28, i)
            waited.append(time.perf_counter() - began)
            time.sleep(0.1)
        process.stdin.close()
        process.stdin = None
        code, rest, said = ended(process, None)
    assert (code, rest) == (0, "")
    assert "8 events" in said
    assert sorted(waited)[len(waited) // 2] < ANSWERED_S, waited


def test_answers_are_those_of_a_file(subscriptions: Path, tmp_path: Path) -> None:
    """Many events at once, bad rows, blank lines, ids, and a last line without line feed."""
    rows = [json.dumps({"temp": i % 60, "id": f"e{i}", "x": i % 7, "y": 0}) for i in range(40_000)]
    rows[100:103] = [BAD, "", '{"temp": 1e400}']
    (tmp_path / "events.jsonl").write_text("\n".join(rows))
    how = [*LOCATION, "--id", "id", "--engine", "keyed", "--rejects"]
    mpi_match("match", subscriptions, tmp_path / "events.jsonl", *how, tmp_path / "a", "-o", tmp_path / "out.jsonl")
    words = [sys.executable, "-m", "mpi_match", "match", subscriptions, "-", *how, tmp_path / "b"]
    done = subprocess.run(
        [str(word) for word in words],
        input="\n".join(rows).encode(),
        capture_output=True,
        timeout=TIMEOUT_S,
        check=True,
        env={**os.environ, "PYTHONPATH": str(TESTS.parent)},
    )
    assert done.stdout == (tmp_path / "out.jsonl").read_bytes()
    found, expected = (
        [(row["reason"], row["line"], row["row"]) for row in map(json.loads, (tmp_path / name).read_text().splitlines())]
        for name in "ab"
    )
    assert found == expected
    assert len(found) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_when_all_that_was_read_is_answered(subscriptions: Path, number: int) -> None:
    with matching(subscriptions, "-", *LOCATION) as (process, _):
        process.stdin.write("".join(event(i) + "\n" for i in range(31, 34)).encode() + b'{"temp": 3')
        process.stdin.flush()
        found = [json.loads(process.stdout.readline()) for _ in range(3)]
        code, rest, said = ended(process, number)
    assert found == answers(0, [31, 32, 33])
    assert (code, rest) == (0, "")
    assert "3 events" in said
    assert "rejected" not in said


def test_a_reader_that_waits_stops_the_writer(subscriptions: Path) -> None:
    lines = "".join(event(i) + "\n" for i in range(31, 41)).encode() * 1000
    with matching(subscriptions, "-", *LOCATION, "--engine", "keyed") as (process, _):
        taken = accepted_bytes(process.stdin.fileno(), lines)
        assert taken < 2**24
        n_events = 0
        out, _ = process.communicate(lines[len(lines) - -taken % len(lines) :], timeout=TIMEOUT_S)
        for n_events, line in enumerate(out.splitlines(), 1):
            assert json.loads(line) == answer(n_events - 1, 31 + (n_events - 1) % 10)
    assert n_events == -(-taken // len(lines)) * 10_000


def test_changes_take_effect_between_lines(subscriptions: Path, tmp_path: Path) -> None:
    changes = tmp_path / "changes.jsonl"
    changes.write_text('{"before_event": 1, "remove_interface": "hot"}\n')
    with matching(subscriptions, "-", "--changes", changes, "--engine", "reference") as (process, _):
        process.stdin.write(b'{"temp": 31}\n{"temp": 32}\n')
        process.stdin.flush()
        found = [json.loads(process.stdout.readline())["interfaces"] for _ in range(2)]
        assert ended(process)[0] == 0
    assert found == [["hot"], []]


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_every_connection_has_its_own_answers(subscriptions: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "socket"
    source = f"unix://{path}" if kind == "unix" else "tcp://:0"
    with matching(subscriptions, source, *LOCATION, said="listening on") as (process, line):
        address = line.split()[-1]
        assert address == source if kind == "unix" else address.startswith(f"tcp://{LOOPBACK}:")
        first, second = Peer(address), Peer(address)
        first.send(event(31) + "\n" + event(32)[:5])
        assert first.answers(1) == answers(0, [31])
        second.send("".join(event(i) + "\n" for i in (1, 40)) + BAD + "\n")
        assert second.answers(2) == answers(0, [1, 40])
        assert second.answers(1) == [{"event": 2, "interfaces": []}]
        first.send(event(32)[5:] + "\n")
        assert first.answers(1) == answers(1, [32])
        second.send(event(50))
        second.socket.shutdown(socket.SHUT_WR)
        assert [json.loads(line) for line in second.rest().splitlines()] == answers(3, [50])
        reset = Peer(address)
        reset.send(event(1) + "\n" + event(2))
        reset.socket.close()
        first.send(event(33) + "\n")
        assert first.answers(1) == answers(2, [33])
        code, out, said = ended(process)
        assert first.rest() == b""
    assert (code, out) == (0, "")
    assert "1 row rejected" in said
    assert f"{address}#2, line 3: not JSON" in said
    assert not path.exists()


def test_a_connection_that_takes_no_answers_waits_alone(subscriptions: Path) -> None:
    lines = "".join(event(i) + "\n" for i in range(31, 41)).encode() * 1000
    with matching(subscriptions, "tcp://:0", *LOCATION, "--engine", "keyed", said="listening on") as (process, line):
        slow, other = Peer(line.split()[-1]), Peer(line.split()[-1])
        taken = accepted_bytes(slow.socket.fileno(), lines)
        assert taken < 2**26
        other.send(event(35) + "\n")
        assert other.answers(1) == answers(0, [35])
        slow.socket.settimeout(TIMEOUT_S)
        n = min(taken // len(event(31) + "\n"), 20_000)
        assert slow.answers(n) == answers(0, [31 + k % 10 for k in range(n)])
        slow.close()
        assert ended(process)[0] == 0


def test_refusals(subscriptions: Path, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.touch()
    for source, said in (
        (f"unix://{taken}", "exists"),
        ("tcp://127.0.0.1", "an address is tcp://HOST:PORT or unix://PATH"),
        ("tcp://127.0.0.1:99999", "cannot be listened on"),
    ):
        assert said in only_line(mpi_match("match", subscriptions, source, code=3))
    assert taken.exists()
    assert "leave out -o" in mpi_match("match", subscriptions, "tcp://:0", "-o", "m.h5", code=2).stderr
    assert "Missing option '-o'" in mpi_match("match", subscriptions, subscriptions, code=2).stderr
    assert "--json" in mpi_match("match", subscriptions, "-", "--json", code=2).stderr
    changes = tmp_path / "changes.jsonl"
    changes.write_text('{"before_event": 1, "remove_interface": "hot"}\n')
    assert "its own numbers" in only_line(mpi_match("match", subscriptions, "tcp://:0", "--changes", changes, code=3))


def test_a_socket_that_nobody_listens_on_is_replaced(subscriptions: Path, tmp_path: Path) -> None:
    path = tmp_path / "left"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with matching(subscriptions, f"unix://{path}", said="listening on") as (process, _):
        assert "exists" in only_line(mpi_match("match", subscriptions, f"unix://{path}", code=3))
        assert ended(process)[0] == 0
    assert not path.exists()
