"""The manifest: the outcome of a run, in a small file beside its output.

    matches.h5            the answers; exists only when they are complete
    matches.h5.journal    the answers so far, until all are there
    matches.h5.run.json   the outcome of the last run: `complete`, or `incomplete` and why, with statistics

A launcher's exit code proves nothing: mpirun ends with 0 when a host is lost.  So a run states its success itself, as its
last step, when the answers have their final name and are synced to disk: the manifest must exist and say `complete`.  It is
removed when a run begins, so that the manifest of an earlier run is never taken for that of one that was killed.

Properties that differ from run to run (times, hosts, failures) are here and never in the file of answers.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from mpi_match.journal.reader import RunIdentity
from mpi_match.model import Json
from mpi_match.storage import StorageError, atomic_write, descriptor_of, reported, sync_directory, temporary_of

COMPLETE, INCOMPLETE = "complete", "incomplete"
STARTING = "starting"
"""State that a supervisor writes before it starts a run; the run removes it after opening its files."""
MOST_BYTES = 2**24
"""Largest size of a manifest."""


def manifest_of(output: Path) -> Path:
    """The path of the manifest of a run with this output."""
    return output.with_name(f"{output.name}.run.json")


def remove_manifest(output: Path) -> None:
    """Remove the manifest of the last run.

    Raises StorageError, also when this run could not write one: a directory may allow the output's name, and not the
    manifest's longer one.
    """
    path = manifest_of(output)
    with reported(path):
        for each in (path, temporary_of(path)):
            each.unlink(missing_ok=True)


def write_outcome(output: Path, state: str, identity: RunIdentity, **more: object) -> None:
    """Write how a run has ended, its host, and the time.  Raises StorageError."""
    at, host = datetime.now(UTC).isoformat(timespec="seconds"), socket.gethostname()
    write_manifest(output, {"state": state, **asdict(identity), **more, "at": at, "host": host})


def write_manifest(output: Path, content: Mapping[str, object]) -> None:
    """Write a manifest atomically and sync it and its directory.  Raises StorageError."""
    path = manifest_of(output)
    with reported(path):
        with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8") as handle:
            handle.write(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
            handle.flush()
            os.fsync(handle.fileno())
        sync_directory(path.parent)


def read_manifest(output: Path) -> Json | None:
    """The manifest of the last run with this output; None when there is none."""
    try:
        with os.fdopen(descriptor_of(manifest_of(output)), "rb") as handle:
            found = json.loads(handle.read(MOST_BYTES).decode())
    except (FileNotFoundError, StorageError, ValueError, RecursionError):  # no regular file, no text or no JSON
        return None
    return found if isinstance(found, dict) else None
