"""The word on a run that counts: how it ended, in a small file beside its output.

    matches.h5            the answers; there only when they are whole
    matches.h5.journal    the answers so far, while there is something left to do
    matches.h5.run.json   how the last run ended: `complete`, or `incomplete` and why, with what it took

A launcher's exit code proves nothing: mpirun ends with 0 when a host is lost.  So a run that has ended well says so itself,
last of all, when the answers have their name and the disk has them; the manifest has to be there and say `complete`.  It
goes when a run begins, so none of an earlier run is left to speak for one that was killed.

What differs from run to run (times, hosts, failures) stands here and never in the file of answers.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mpi_match.journal.reader import RunIdentity
from mpi_match.storage import StorageError, atomic_write, descriptor_of, sync_directory, temporary_of

COMPLETE, INCOMPLETE = "complete", "incomplete"
STARTING = "starting"
"""What a supervisor writes before it starts a run, which removes it when it has opened its files."""
MOST_BYTES = 2**24
"""No manifest is longer."""


def manifest_of(output: Path) -> Path:
    """Where the manifest of a run with this output lies."""
    return output.with_name(f"{output.name}.run.json")


def remove_manifest(output: Path) -> None:
    """Remove the manifest of the last run.  Raises StorageError, also where there could be none of this one: there may be
    room for the name of the output, and not for a longer one.
    """
    path = manifest_of(output)
    try:
        for each in (path, temporary_of(path)):
            each.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror}") from error


def write_outcome(output: Path, state: str, identity: RunIdentity, **more: Any) -> None:
    """Say how a run for certain answers has ended, on which host, and when.  Raises StorageError."""
    at, host = datetime.now(UTC).isoformat(timespec="seconds"), socket.gethostname()
    write_manifest(output, {"state": state, **asdict(identity), **more, "at": at, "host": host})


def write_manifest(output: Path, content: Mapping[str, Any]) -> None:
    """Write it whole or not at all, and have the disk take it and the names of the directory.  Raises StorageError."""
    path = manifest_of(output)
    try:
        with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8") as handle:
            handle.write(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
            handle.flush()
            os.fsync(handle.fileno())
        sync_directory(path.parent)
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror}") from error


def read_manifest(output: Path) -> dict[str, Any] | None:
    """The manifest of the last run with this output; None when there is none."""
    try:
        with os.fdopen(descriptor_of(manifest_of(output)), "rb") as handle:
            found = json.loads(handle.read(MOST_BYTES).decode())
    except (FileNotFoundError, StorageError, ValueError, RecursionError):  # it is no file, no text or no JSON
        return None
    return found if isinstance(found, dict) else None
