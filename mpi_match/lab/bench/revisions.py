"""Measures two revisions of the sources side by side: each in a copy of its own, by turns, with the same `bench`.

    old: git archive OLD | tar  ──► bench ... ──► records   ┐
    new: git archive NEW | tar  ──► bench ... ──► records   ┘ repeated for each round

The first round compiles and is not counted; it has the same arguments as the others.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mpi_match.errors import MpiMatchError
from mpi_match.lab.bench.report import Result, read_json


class RevisionError(MpiMatchError):
    """A revision does not exist, or its `bench` failed; the text says which and why."""


def measure_revisions(
    revisions: tuple[str, str],
    words: Sequence[str],
    rounds: int,
    tell: Callable[[str], None],
    repository: Path | None = None,
) -> tuple[list[Result], list[Result]]:
    """The results of `bench WORDS...` with each of two revisions of the repository (None: where the process is).

    Every round is one record for each point; `comparison.comparison_table` takes them together.  Raises RevisionError.
    """
    place = Path.cwd() if repository is None else repository
    with tempfile.TemporaryDirectory(prefix="mpi-match-") as directory:
        roots = [_copied(place, each, Path(directory) / name) for each, name in zip(revisions, ("old", "new"), strict=True)]
        commits = [_git(place, each, "rev-parse", "--short=12", f"{each}^{{commit}}").decode().strip() for each in revisions]
        for number in range(rounds + 1):
            for root, revision, commit in zip(roots, revisions, commits, strict=True):
                tell(f"{revision}: round {number} of {rounds}" if number else f"{revision}: compiles")
                _bench(root, commit, words, root / ("records.jsonl" if number else "first.jsonl"))
        old, new = (read_json(root / "records.jsonl") for root in roots)
    return old, new


_SAFELY: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Arguments of `extractall`: Python 3.11.0 to 3.11.3 have no filters, which an archive that git has just made does not
need."""


def _copied(repository: Path, revision: str, root: Path) -> Path:
    """The tree of a revision, unpacked."""
    with tarfile.open(fileobj=io.BytesIO(_git(repository, revision, "archive", revision))) as archive:
        archive.extractall(root, **_SAFELY)
    if not (root / "mpi_match").is_dir():
        raise RevisionError(f"{revision}: is not a revision of mpi-match")
    return root


def _git(repository: Path, revision: str, *words: str) -> bytes:
    """The output of git about a revision."""
    done = subprocess.run(["git", "-C", str(repository), *words], capture_output=True, check=False)
    if done.returncode:
        raise RevisionError(f"{revision}: no revision in {repository}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def _bench(root: Path, commit: str, words: Sequence[str], output: Path) -> None:
    """Run `bench` of the tree of a commit."""
    environment = {**os.environ, "PYTHONPATH": str(root), "MPI_MATCH_COMMIT": commit}
    command = [sys.executable, "-m", "mpi_match", "bench", *words, "-o", str(output)]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise RevisionError(f"{commit}: bench failed: {said[-1]}")
