"""Outputs that are devices and pipes, two outputs of one name, and signals that leave no half-written file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from command_line import mpi_match, only_line
from lasting import lasting
from mpirun import TESTS


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    (tmp_path / "s.jsonl").write_text('{"interface": "", "constraints": [["t", ">", 1]]}\n')
    (tmp_path / "e.jsonl").write_text('{"t": 2}\n{"t": 1}\n')
    return tmp_path


def test_answers_go_to_devices_and_pipes(inputs: Path) -> None:
    given, matches = ("match", inputs / "s.jsonl", inputs / "e.jsonl"), inputs / "m.h5"
    mpi_match(*given, "-o", matches)
    for name in ("pipe", "pipe.jsonl"):
        os.mkfifo(inputs / name)
        for command in (given, ("export", matches)):
            with ThreadPoolExecutor(1) as reader:
                text = reader.submit((inputs / name).read_text)
                mpi_match(*command, "-o", inputs / name)
            assert [json.loads(line)["interfaces"] for line in text.result().splitlines()] == [[""], []]
        assert (inputs / name).is_fifo()
    for command in (given, ("export", matches)):
        mpi_match(*command, "-o", "/dev/null")
    assert Path("/dev/null").is_char_device()
    summary = json.loads(mpi_match(*given, "-o", "/dev/null", "--json").stdout)
    assert (summary["events"], summary["matches"]) == (2, 1)


def test_a_label_without_text_is_not_an_event_without_matches(inputs: Path) -> None:
    mpi_match("match", inputs / "s.jsonl", inputs / "e.jsonl", "-o", inputs / "m.csv")
    assert (inputs / "m.csv").read_text() == 'event,interface\n0,""\n1,\n'


@pytest.mark.parametrize("name", ["o.jsonl", "o.h5"])
def test_two_outputs_of_one_name_are_called_so(inputs: Path, name: str) -> None:
    output, rejects = inputs / name, inputs / "o.jsonl"
    if name == "o.h5":
        rejects.symlink_to(output)
    said = only_line(mpi_match("match", inputs / "s.jsonl", inputs / "e.jsonl", "-o", output, "--rejects", rejects, code=3))
    assert "is another output of this command too" in said


@pytest.mark.parametrize("number", [signal.SIGTERM, *lasting(signal.SIGHUP, signal.SIGQUIT)])
def test_a_signal_leaves_no_half_written_file(inputs: Path, number: signal.Signals) -> None:
    os.mkfifo(inputs / "pipe.jsonl")
    words = [sys.executable, "-m", "mpi_match", "match", str(inputs / "s.jsonl"), str(inputs / "pipe.jsonl"), "-o"]
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
    process = subprocess.Popen(
        [*words, str(inputs / "m.h5")],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # a shell ignores SIGQUIT for what it starts with &
    )
    with (inputs / "pipe.jsonl").open("w") as events:
        events.write('{"t": 2}\n')
        events.flush()
        until = time.monotonic() + 120
        while not list(inputs.glob(".m.h5.*.writing")) and time.monotonic() < until:
            time.sleep(0.02)
        assert list(inputs.glob(".m.h5.*.writing"))
        process.send_signal(number)
        assert process.wait(60) == 130
    process.communicate()
    assert sorted(path.name for path in inputs.iterdir()) == ["e.jsonl", "pipe.jsonl", "s.jsonl"]
