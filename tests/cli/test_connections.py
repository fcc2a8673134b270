"""Limits of the connections that `match` listens for: what one peer does wrong ends, at most, its own connection."""

from __future__ import annotations

import json
import os
import re
import resource
import select
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import mpi_match, only_line
from lasting import lasting
from mpirun import TIMEOUT_S
from streams import Peer, accepted_bytes, ended, matching

from mpi_match.ingest.files.listen import Limits

N_INTERFACES = 1000
INTERFACES = sorted(f"interface-number-{i}" for i in range(N_INTERFACES))
EVERYTHING = [{"event": 0, "interfaces": INTERFACES}]


@pytest.fixture
def everything(tmp_path: Path) -> Path:
    """Subscriptions that match every event: 24 kB of answers for three bytes."""
    path = tmp_path / "everything.jsonl"
    rows = ({"interface": name, "constraints": []} for name in INTERFACES)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def one(tmp_path: Path) -> Path:
    path = tmp_path / "one.jsonl"
    path.write_text('{"interface": "a", "constraints": []}\n')
    return path


def peak_bytes(process: Any) -> int:
    """The most memory that a process has had."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def cpu_s(process: Any) -> float:
    """Seconds of a core that a process has used."""
    words = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def said(process: Any, timeout_s: float = TIMEOUT_S) -> str:
    """The next line that a process says; "" if there is none in time."""
    return process.stderr.readline().decode() if select.select([process.stderr], [], [], timeout_s)[0] else ""


@pytest.mark.parametrize("engine", ["keyed", "counting"])
def test_answers_are_made_when_they_are_taken(everything: Path, engine: str) -> None:
    """The answers of all rows of this peer are 4 GB; another peer is answered before and after, and it itself, too."""
    with matching(everything, "tcp://:0", "--engine", engine, "--threads", 1, said="listening on") as (process, line):
        bad, good = Peer(line.split()[-1]), Peer(line.split()[-1])
        good.send("{}\n")
        assert good.answers(1) == EVERYTHING
        before = peak_bytes(process)
        assert accepted_bytes(bad.socket.fileno(), b"{}\n" * 10_000) > 100_000
        good.send("{}\n")
        assert good.answers(1)[0]["event"] == 1
        bad.socket.settimeout(TIMEOUT_S)
        assert bad.answers(1500) == [{**EVERYTHING[0], "event": i} for i in range(1500)]
        assert peak_bytes(process) - before < 2**29
        bad.close()
        time.sleep(0.5)
        code, _, text = ended(process)
    assert code == 0
    assert "on connections that ended or were closed" in text


def test_all_connections_together_are_limited(everything: Path) -> None:
    """Twenty peers take nothing, and wait for 2.4 GB of answers; another one is answered beside them."""
    options = ("--engine", "keyed", "--memory", "8M", "--drain", "0.5", "--threads", 1)
    with matching(everything, "tcp://:0", *options, said="listening on") as (process, line):
        good, *bad = (Peer(line.split()[-1]) for _ in range(21))
        good.send("{}\n")
        assert good.answers(1) == EVERYTHING
        before = peak_bytes(process)
        for each in bad:
            each.send("{}\n" * 5000)
        for i in range(1, 20):
            good.send("{}\n")
            assert good.answers(1)[0]["event"] == i
            time.sleep(0.1)
        assert peak_bytes(process) - before < 2**26
        code, _, text = ended(process)
    assert code == 4
    assert "without answer" in text


def test_unfinished_lines_are_limited(one: Path) -> None:
    with matching(one, "tcp://:0", "--memory", "8M", "--drain", "0.5", said="listening on") as (process, line):
        bad, good = Peer(line.split()[-1]), Peer(line.split()[-1])
        good.send("{")
        bad.send('{"a": "' + "x" * (9 << 20))
        assert "#1 is closed: it keeps" in said(process)
        good.send("}\n")
        assert len(good.answers(1)) == 1
        assert bad.rest_or_reset() == b""
        assert ended(process)[0] == 0


def test_a_line_may_be_so_long(one: Path) -> None:
    with matching(one, "tcp://:0", "--line-bytes", 1000, said="listening on") as (process, line):
        peer = Peer(line.split()[-1])
        peer.send('{"a": "' + "x" * 5000 + '"}\n{}\n' + '{"b": "' + "x" * 991 + '"}\n' + '{"b": "' + "x" * 992 + '"}\n')
        assert [row["interfaces"] for row in peer.answers(4)] == [[], ["a"], ["a"], []]
        code, _, text = ended(process)
    assert code == 0
    assert text.count("the line is longer than 1,000 bytes") == 2


def test_connections_are_limited(one: Path) -> None:
    with matching(one, "tcp://:0", "--connections", 2, said="listening on") as (process, line):
        first, _, third = (Peer(line.split()[-1]) for _ in range(3))
        third.send("{}\n")
        assert "2 connections are open; others wait until one ends (--connections)" in said(process)
        assert not select.select([third.socket], [], [], 0.5)[0]
        first.close()
        assert len(third.answers(1)) == 1
        fourth = Peer(line.split()[-1])
        third.close()
        fourth.send("{}\n")
        assert len(fourth.answers(1)) == 1
        code, _, text = ended(process)
    assert code == 0
    assert "--connections" not in text  # which was said once


def test_without_descriptors_connections_wait(one: Path, tmp_path: Path) -> None:
    """A core was busy, and no line said why."""
    with matching(one, f"unix://{tmp_path}/u", said="listening on") as (process, line):
        n = len(list(Path(f"/proc/{process.pid}/fd").iterdir())) + 4
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (n, n))
        peers = [Peer(line.split()[-1]) for _ in range(10)]
        assert f"Too many open files (ulimit -n is {n})" in said(process)
        before = cpu_s(process)
        time.sleep(2)
        assert cpu_s(process) - before < 0.3
        for each in peers[:8]:
            each.send("{}\n")
            assert len(each.answers(1)) == 1
            each.socket.shutdown(socket.SHUT_WR)
            assert each.rest() == b""
        code, _, text = ended(process)
    assert code == 0
    assert "Too many open files" not in text  # which was said once


def test_an_idle_connection_is_closed(one: Path) -> None:
    with matching(one, "tcp://:0", "--idle", 1.5, said="listening on") as (process, line):
        idle, busy = Peer(line.split()[-1]), Peer(line.split()[-1])
        for _ in range(8):
            busy.send("{}\n")
            assert len(busy.answers(1)) == 1
            time.sleep(0.3)
        assert idle.rest() == b""
        assert "#1 is closed: nothing has moved on it for 1.5 s (--idle)" in said(process)
        assert ended(process)[0] == 0


def test_a_byte_behind_a_long_line_takes_no_time(one: Path) -> None:
    """It took 2 ms a byte, and others waited."""
    with matching(one, "tcp://:0", said="listening on") as (process, line):
        peer = Peer(line.split()[-1])
        peer.send('{"a": "' + "x" * (15 << 20))
        time.sleep(1)
        before = cpu_s(process)
        for _ in range(500):
            peer.send("x")
            time.sleep(0.002)
        assert cpu_s(process) - before < 0.5
        peer.send('"}\n')
        assert len(peer.answers(1)) == 1
        assert ended(process)[0] == 0


def read_slowly(peer: Peer, most_s: float = TIMEOUT_S) -> int:
    """Answers that a peer gets which takes 2 MB/s until the connection ends."""
    found, until = bytearray(), time.monotonic() + most_s
    while time.monotonic() < until and (more := peer.socket.recv(2**15)):
        found += more
        time.sleep(1 / 64)
    return found.count(b"\n")


@pytest.mark.parametrize(("kind", "drain"), [("unix", 60), ("tcp", 1), *lasting(("unix", 1), ("tcp", 60))])
def test_the_end_says_what_was_not_taken(everything: Path, tmp_path: Path, kind: str, drain: int) -> None:
    """Of 1,000 answers 770 were dropped, and it said "answers sent", with code 0."""
    source = f"unix://{tmp_path}/u" if kind == "unix" else "tcp://:0"
    options = ("--engine", "keyed", "--drain", drain, "--json")
    with matching(everything, source, *options, said="listening on") as (process, line):
        peer = Peer(line.split()[-1])
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        peer.send("{}\n" * 1000)
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        peer.send("{}\n" * 10)  # too late: bytes that are not read must not take answers with them
        n_got = read_slowly(peer)
        code, out, text = ended(process, None)
    summary = json.loads(out)
    assert summary["events"] == 1000
    if drain == 60:
        assert (code, n_got, summary["cut_off"]) == (0, 1000, 0)
        assert "answers sent" in text
    else:
        assert code == 4
        assert n_got < 1000
        assert 1000 - n_got <= summary["cut_off"] < 1000
        assert f"{summary['cut_off']} events without answer: connections had not taken these 1 s after the end" in text
        assert f"{1000 - summary['cut_off']} answers sent, {summary['cut_off']} not" in text


def test_a_peer_that_sends_no_more_has_time_to_take_its_answers(everything: Path) -> None:
    """They were dropped without a word 5 s after its last event."""
    with matching(everything, "tcp://:0", "--engine", "keyed", "--drain", 0.1, said="listening on") as (process, line):
        peer = Peer(line.split()[-1])
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        peer.send("{}\n" * 500)
        peer.socket.shutdown(socket.SHUT_WR)
        time.sleep(1)
        assert read_slowly(peer) == 500
        assert ended(process)[0] == 0


def test_a_socket_whose_server_is_busy_is_not_waited_for(one: Path, tmp_path: Path) -> None:
    path = tmp_path / "busy"
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(str(path))
        busy.listen(0)
        waiting = []
        for _ in range(100):
            waiting.append(each := socket.socket(socket.AF_UNIX))
            each.setblocking(False)
            if each.connect_ex(str(path)):
                break
        signal.alarm(20)  # it waited for ever
        try:
            assert "exists; remove it" in only_line(mpi_match("match", one, f"unix://{path}", code=3))
        finally:
            signal.alarm(0)
            for each in waiting:
                each.close()
    assert path.exists()


def test_the_help_has_the_limits_of_the_service() -> None:
    text = mpi_match("match", "--help").stdout
    shown = re.findall(r"\[default:\s+(\S+)\]", text[text.index("--connections") :])
    limits = Limits()
    sizes = (f"{each >> 20}M" for each in (limits.line_bytes, limits.answer_bytes, limits.total_bytes))
    assert shown[:6] == [str(limits.connections), f"{limits.idle_s:g}", *sizes, f"{limits.drain_s:g}"]


def test_refusals_of_limits(one: Path, tmp_path: Path) -> None:
    for option in ("--connections", "--idle", "--line-bytes", "--answer-bytes", "--memory", "--drain"):
        assert "limits of connections are for events from" in mpi_match("match", one, "-", option, 1, code=2).stderr
    assert "at most 16M" in mpi_match("match", one, "tcp://:0", "--line-bytes", "17M", code=2).stderr
    long = tmp_path / ("x" * 150)
    assert "cannot be listened on" in only_line(mpi_match("match", one, f"unix://{long}", code=3))
    assert "cannot be listened on" in only_line(mpi_match("match", one, f"unix://{tmp_path}/none/u", code=3))
