"""Commands on a full disk: one line that names the file, exit code 1, nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from lasting import lasting
from mpirun import TIMEOUT_S

TESTS = Path(__file__).parent.parent
FULL = """
import resource, runpy, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.argv[:2] = ["mpi-match"]
runpy.run_module("mpi_match", run_name="__main__")
"""
"""A limit on the size of files is met as a full disk is: by an error of the write."""


@pytest.mark.parametrize(
    ("limit", "words", "written"),
    [
        (500, "match subscriptions.jsonl events.jsonl --engine counting -o OUT/m.h5", "m.h5"),
        (0, "match subscriptions.jsonl bad.jsonl --engine counting --rejects OUT/r.jsonl -o -", "r.jsonl"),
        (500, "compile subscriptions --local subscriptions.jsonl -o OUT/t.h5", "t.h5"),
        (500, "compile events --local events.jsonl --table table.h5 -o OUT/e.h5", "e.h5"),
        (0, "run --table table.h5 --events events.h5 --engine counting -o OUT/m.h5", "m.h5.journal"),
        (0, "run --table table.h5 --events events.h5 --engine counting --no-journal -o OUT/m.h5", "m.h5"),
        (1, "export matches.h5 -o OUT/m.jsonl", "m.jsonl"),
        (1, "export matches.h5 -o OUT/m.parquet", "m.parquet"),
        (1, "bench ccm --filters 10 --events 10 --engine counting --repetitions 1 -o OUT/b.jsonl", "b.jsonl"),
        (1, "generate ccm --filters 10 --events 10 --format jsonl -o OUT/w", "w/subscriptions.jsonl"),
        *lasting((1, "export matches.h5 -o OUT/m.csv", "m.csv"), (1, "export matches.h5 -o OUT/m.arrow", "m.arrow")),
    ],
)
def test_a_full_disk_is_a_failure_that_names_the_file(
    limit: int, words: str, written: str, workload: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "bad.jsonl").write_text("{}\nbad\n")
    for each in workload.iterdir():
        (tmp_path / each.name).symlink_to(each)
    command = [sys.executable, "-c", FULL, str(limit), *words.replace("OUT", str(out)).split()]
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 1, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last == f"mpi-match: {out / written}: cannot be written: File too large"
    assert not [*out.rglob("*.writing")]
