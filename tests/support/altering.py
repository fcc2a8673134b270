"""Files that are altered while they are read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


def overwrite(path: Path, other: Path) -> None:
    """Write another file's bytes into this one, which stays the same inode."""
    with path.open("r+b") as file:
        file.write(other.read_bytes())
        file.truncate()


def truncate(path: Path, _: Path) -> None:
    """Keep the first hundred bytes."""
    os.truncate(path, 100)


def overwriting(path: Path, other: Path) -> Callable[[int, int], None]:
    """A `RunOptions.progress` that overwrites a file with another when the first answers are written."""
    done: list[int] = []

    def progress(n_answered: int, n_events: int) -> None:
        if not done:
            done.append(n_answered)
            overwrite(path, other)

    return progress
