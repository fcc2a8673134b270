"""A followed run for a minute, or FOLLOW_SECONDS: files come, subscriptions change, ranks are killed, it starts again."""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from followed_stream import Stream, subscription
from following import answers_in, ranks_of, start, wait_for
from mpirun import OPEN_MPI, has_ulfm, needs_mpirun

from mpi_match.cluster.follow.answer_files import answered_in
from mpi_match.cluster.followed_files import FOLLOWING
from mpi_match.journal.manifest import read_manifest, remove_manifest

log = logging.getLogger(__name__)

SECONDS = float(os.environ.get("FOLLOW_SECONDS", "60"))
KILL_EVERY_S = (8.0, 20.0)
MOST_WAITING = 2000
"""Events that are not answered yet, at most: files wait then."""


@needs_mpirun
@pytest.mark.mpi
@pytest.mark.lasting
@pytest.mark.skipif(not OPEN_MPI, reason="the flags of Open MPI")
def test_no_event_is_lost_or_answered_twice_for_minutes(tmp_path: Path) -> None:
    stream, output, draw = Stream(tmp_path), tmp_path / "answers", random.Random(38)
    options = ("--engine", "keyed", "--file-age", "0.2", "--changes", stream.changes)
    n_kills = n_starts = 0
    began = time.monotonic()

    def begin() -> tuple[subprocess.Popen[bytes], float]:
        remove_manifest(output)  # it says when all ranks have started: a launcher does not survive earlier kills
        return start(3, stream.table, stream.events, output, *options), time.monotonic() + draw.uniform(*KILL_EVERY_S)

    process, kill_at = begin()
    number = 0
    try:
        while time.monotonic() - began < SECONDS:
            if len(stream.answers) - answered_in(output) < MOST_WAITING:
                stream.event_file(draw.randrange(1, 60))
                if draw.random() < 0.3:
                    number += 1
                    added, removed = subscription(10 + number, draw.randrange(40)), {"remove": f"s{10 + number - 12}"}
                    stream.change_file({"add": added}, *([removed] if number > 12 else []))
            if time.monotonic() > kill_at and (read_manifest(output) or {}).get("state") == FOLLOWING:
                ranks = ranks_of(process)
                if len(ranks) == 3:
                    killed = draw.choice((0, 1, 2) if has_ulfm() else (0,))
                    os.kill(ranks[killed], signal.SIGKILL)
                    n_kills += 1
                    kill_at = time.monotonic() + draw.uniform(*KILL_EVERY_S)
                elif 0 in ranks:
                    os.kill(ranks[0], signal.SIGKILL)
            if process.poll() is not None:
                n_starts += 1
                process, kill_at = begin()
            time.sleep(0.2)
        if process.poll() is not None:
            process, _ = begin()
        wait_for(lambda: answered_in(output) == len(stream.answers), process)
        os.kill(ranks_of(process)[0], signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    stream.check(output)
    log.info("%d events, %d files of changes, %d kills, %d starts", len(stream.answers), number, n_kills, n_starts)
    assert n_kills
    assert len({each["event"] for each in answers_in(output)}) == len(stream.answers)
