"""Which program this is: a digest of the package's sources, what a version number is meant to stand for.

A version is said by a person and stays the same while sources change: between two commits, in two checkouts, after an edit.
Who has to know whether two processes run the same code, or whether compiled code is of today's sources, compares digests.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import mpi_match


@cache
def digest() -> str:
    """SHA-256 of the package's sources in 64 hexadecimal digits, as they were when it was first asked for."""
    root = Path(mpi_match.__file__).parent
    sources = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        source = path.read_bytes()
        sources.update(f"{path.relative_to(root)}\0{len(source)}\0".encode() + source)
    return sources.hexdigest()
