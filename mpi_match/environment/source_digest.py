"""A digest of the package's sources, which identifies the program.

A version number stays the same while sources change: between two commits, in two checkouts, after an edit.  So the check
that ranks run the same code, and the cache of compiled code, compare digests.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import mpi_match

INSTALLED_ELSEWHERE = "sigma_backends"
"""A folder of the tree whose files the wheel installs in another package (`package-dir` in pyproject.toml)."""


@cache
def digest() -> str:
    """SHA-256 of the package's sources in 64 hexadecimal digits, at the first call; the same in a tree and of its wheel."""
    root = Path(mpi_match.__file__).parent
    sources = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        if path.parent.name == INSTALLED_ELSEWHERE:
            continue
        source = path.read_bytes()
        sources.update(f"{path.relative_to(root)}\0{len(source)}\0".encode() + source)
    return sources.hexdigest()
