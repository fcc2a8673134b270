"""Errors that are found before the first batch: one line, the right exit code, and all ranks gone within 5 s.

The clock starts when the last rank has started Python and is about to call `run`, and stops when the launcher has ended,
which waits for all ranks.  Where more processes want to run than there are cores, everything takes longer by that factor,
and so may a refusal.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from mpirun import DRIVER, FLAGS, MPIRUN, TESTS, TIMEOUT_S, environment, launch, needs_mpirun, said

from mpi_match.lab.bench.kills.disturbed_run import Files

pytestmark = [pytest.mark.mpi, needs_mpirun]

LIMIT_S = 5.0


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files.make(tmp_path_factory.mktemp("refusals"), n_events=200)


@dataclass
class Mistake:
    """The options of a run to be refused, for these files; it may create more files in `directory`."""

    files: Files
    directory: Path

    def ranks(self, *options: str, table: Path | None = None, output: Path | None = None) -> list[str]:
        """Three ranks, with some options or files replaced."""
        paths = table or self.files.table, self.files.events, output or self.directory / "matches.h5"
        return launch(3, *paths, *(options or ("engine=null",)))


def another_version(mistake: Mistake) -> list[str]:
    """Rank 1 runs another version of the sources than rank 0."""
    there = mistake.directory / "other"
    shutil.copytree(TESTS.parent / "mpi_match", there / "mpi_match", ignore=shutil.ignore_patterns("__pycache__"))
    with (there / "mpi_match" / "batch.py").open("a") as source:
        source.write("\n_MAGIC = 0\n")
    files = mistake.files.table, mistake.files.events, mistake.directory / "matches.h5"
    rank = [sys.executable, "-m", "mpi4py", DRIVER, *files, "engine=null"]
    each = ["-n", 1, *rank, ":", "-n", 1, "env", f"PYTHONPATH={there}", *rank]
    return [str(word) for word in (MPIRUN, *FLAGS, *each)]


def other_events(mistake: Mistake) -> list[str]:
    """The same path is another file on rank 1 than on rank 0."""
    hosts = [mistake.directory / name for name in ("master", "worker")]
    for host, file in zip(hosts, (mistake.files.events, mistake.files.expected), strict=True):
        host.mkdir()
        shutil.copy(file, host / "events.h5")
    files = mistake.files.table, "/proc/self/cwd/events.h5", mistake.directory / "matches.h5"
    rank = [sys.executable, "-m", "mpi4py", DRIVER, *files, "engine=null", "feed=file"]
    master, worker = (["-n", 1, "--wdir", host, *rank] for host in hosts)
    return [str(word) for word in (MPIRUN, *FLAGS, *master, ":", *worker)]


def singletons(mistake: Mistake) -> list[str]:
    """Each of three processes started by a launcher is a world of one rank."""
    alone = [sys.executable, "-m", "mpi4py", str(DRIVER), str(mistake.files.table), str(mistake.files.events)]
    one = " ".join([*alone, str(mistake.directory / "matches.h5")])
    srun = "SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=3"
    return [
        "bash",
        "-c",
        "; ".join([*(f"{srun} SLURM_PROCID={rank} {one} & p{rank}=$!" for rank in range(3))]) + "; wait $p0",
    ]


MISTAKES: dict[str, tuple[Callable[[Mistake], list[str]], int, str]] = {
    "singletons": (singletons, 5, "srun started 3 processes, but each finds itself alone"),
    "one GPU": (lambda m: m.ranks("engine=one_gpu"), 5, "ranks 1 and 2 are on the same GPU of"),
    "versions": (another_version, 5, "have different versions of mpi_match"),
    "files": (other_events, 3, "with --feed file every host must have the event table there"),
    "groups": (lambda m: m.ranks("engine=null", "placement=hybrid", "groups=3"), 2, "2 workers cannot form 3 groups"),
    "no table": (lambda m: m.ranks(table=m.directory / "none.h5"), 3, "none.h5: no such file"),
    "no directory": (lambda m: m.ranks(output=m.directory / "none" / "m.h5"), 3, "none"),
    "no file": (lambda m: m.ranks(output=m.files.table.parent), 3, "is a directory"),
}
FURTHER = ("files", "no directory")
"""Those that differ from another in the file alone."""


@pytest.mark.parametrize(
    "which", [pytest.param(each, marks=pytest.mark.lasting if each in FURTHER else ()) for each in MISTAKES]
)
def test_wrong_input_is_refused_in_one_line_within_seconds(which: str, files: Files, tmp_path: Path) -> None:
    make, code, words = MISTAKES[which]
    began = tmp_path / "began"
    done = subprocess.run(
        make(Mistake(files, tmp_path)),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=environment(BEGAN=str(began)),
        check=False,
    )
    ended = time.time()
    assert done.returncode == code, done.stderr
    assert words in said(done)
    assert len(said(done).splitlines()) == 1
    starts = [float(line) for line in began.read_text().splitlines()]
    crowd = max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))
    assert 0 < ended - max(starts) < LIMIT_S * crowd
